//! Does polkit let this caller do that? One call to its authority, and what its answers mean.

use crate::host::login1::{CallError, within};
use std::collections::HashMap;
use std::time::Duration;
use zbus::names::UniqueName;
use zbus::{Connection, Variant};

/// The authority may ask the user for a password.
const ALLOW_INTERACTION: u32 = 1;

/// How long a person may need for a password.
const PASSWORD: Duration = Duration::from_secs(60);

/// polkit's authority.
#[zbus::proxy(
    interface = "org.freedesktop.PolicyKit1.Authority",
    default_service = "org.freedesktop.PolicyKit1",
    default_path = "/org/freedesktop/PolicyKit1/Authority"
)]
trait Authority {
    /// (authorized, challenge, details)
    fn check_authorization(
        &self,
        subject: &(&str, HashMap<&str, Variant<'_>>),
        action_id: &str,
        details: &HashMap<&str, &str>,
        flags: u32,
        cancellation_id: &str,
    ) -> zbus::Result<(bool, bool, HashMap<String, String>)>;
}

/// What polkit says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Yes.
    Allowed,
    /// Only with a password, which nobody could be asked for.
    NeedsPassword,
    /// No.
    Refused,
    /// There is no polkit, it does not know the action, or it did not answer.
    Unasked(String),
}

/// Asks whether `caller` may do `action`; `details` are for the administrator's rules.
#[allow(
    clippy::implicit_hasher,
    reason = "zbus writes a dictionary of this type alone"
)]
pub async fn check(
    bus: &Connection,
    caller: &UniqueName<'_>,
    action: &str,
    details: &HashMap<&str, &str>,
    interactive: bool,
    limit: Duration,
) -> Answer {
    let (flags, limit) = if interactive {
        (ALLOW_INTERACTION, PASSWORD)
    } else {
        (0, limit)
    };
    let ask = async {
        let authority = AuthorityProxy::builder(bus)
            .cache_properties(zbus::proxy::CacheProperties::No)
            .build()
            .await?;
        let name = HashMap::from([("name", Variant::new(caller.as_str()))]);
        let subject = ("system-bus-name", name);
        authority
            .check_authorization(&subject, action, details, flags, "")
            .await
    };
    match within(limit, "CheckAuthorization", ask).await {
        Ok((true, _, _)) => Answer::Allowed,
        Ok((false, true, _)) => Answer::NeedsPassword,
        Ok((false, false, _)) => Answer::Refused,
        Err(error) => Answer::Unasked(unasked(&error)),
    }
}

fn unasked(error: &CallError) -> String {
    match error.name.rsplit('.').next() {
        Some("ServiceUnknown" | "NameHasNoOwner" | "UnitMasked" | "NoSuchUnit") => {
            "polkit is not there".into()
        }
        _ => format!("polkit did not say: {error}"),
    }
}
