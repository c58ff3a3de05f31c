//! Programs of the administrator's that run at the gates of a drain: which gates there are, and what a run is told.

use super::policy::seconds;
use super::trigger::Then;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// The node is cordoned, nothing is evicted yet.
    PreDrain,
    /// No VM is left.
    PostDrain,
    /// The host is about to be let go, whether VMs are left or not.
    PreRelease,
}

impl Gate {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::PreDrain, Self::PostDrain, Self::PreRelease];

    /// The word in messages; its directory is `WORD.d`.
    pub fn word(self) -> &'static str {
        match self {
            Self::PreDrain => "pre-drain",
            Self::PostDrain => "post-drain",
            Self::PreRelease => "pre-release",
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What a failed hook does to the drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The drain goes on.
    #[default]
    Continue,
    /// A failed `pre-drain` hook calls the drain off, as long as the host is not going down.
    Abort,
}

/// One run of all hooks of a gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The gate.
    pub gate: Gate,
    /// How long each of them may take.
    pub each: Duration,
    /// How long all of them together may take: the budget of the hold.
    pub all: Duration,
    /// What they are told.
    pub about: About,
}

/// What hooks are told of the drain, in their environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// Its id.
    pub drain: String,
    /// Name of its phase.
    pub phase: String,
    /// Why it runs.
    pub reason: String,
    /// The node.
    pub node: String,
    /// Seconds to its deadline.
    pub deadline: u64,
    /// VMs that are still here.
    pub vms_left: usize,
    /// What follows; `None`: the host stays up, or logind has not said.
    pub then: Option<Then>,
    /// The host is going down.
    pub shutting_down: bool,
}

/// How such a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Hooks that ran and were content.
    pub done: usize,
    /// What went wrong, each as a sentence.
    pub failed: Vec<String>,
    /// Files that were passed over, each as a sentence.
    pub passed_over: Vec<String>,
}

/// The knobs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knobs {
    /// How long one hook may take.
    #[serde(with = "seconds")]
    pub timeout: Duration,
    /// What a failure does.
    pub failure: OnFailure,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            failure: OnFailure::default(),
        }
    }
}
