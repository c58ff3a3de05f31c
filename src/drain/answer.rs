//! What an eviction answer means (design section 4): one table, no side effects.

/// An HTTP answer as it came: enough to judge it, whatever its body was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub code: u16,
    /// `Status.reason`, empty when absent (webhook denials have none).
    pub reason: String,
    /// `Status.message`, or the text body where the answer is no Status object.
    pub message: String,
    /// `details.causes[]` as (reason, message).
    pub causes: Vec<(String, String)>,
    /// Header `Retry-After` or `details.retryAfterSeconds`, in seconds.
    pub retry_after: Option<u32>,
}
