//! What is written down, and how a machine goes on from it.

use super::again::StartNote;
use super::boot::{Start, Userspace};
use super::stop::StopNote;
use super::time::Mono;
use super::trigger::Trigger;
use super::world::ObjectRef;
use serde::{Deserialize, Serialize};

/// Version of the format; a record of another version is not understood and set aside.
pub const FORMAT: u32 = 1;

/// The state file `/var/lib/vmdrain-agent/state.json`, in memory (design section 6).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// Id of the drain.
    pub drain: String,
    /// Boot id of the host: times below mean nothing in another boot.
    pub boot: String,
    /// User space of the host at that time; a record of an older version has none.
    #[serde(default, skip_serializing_if = "Userspace::is_unknown")]
    pub userspace: Userspace,
    /// Name of the phase.
    pub phase: String,
    /// What was asked for; `None` when a shutdown signal started it.
    pub trigger: Option<Trigger>,
    /// The host is known to be going down.
    pub shutting_down: bool,
    /// It was begun early, for a shutdown that is only scheduled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scheduled: bool,
    /// When it began.
    pub started: Mono,
    /// When it must end.
    pub deadline: Mono,
    /// The cordon is ours.
    pub cordon_ours: bool,
    /// The cancel that is in progress also deletes the VMIMs of our VMs.
    #[serde(default)]
    pub abort_migrations: bool,
    /// Exit code, once the outcome is known.
    #[serde(default)]
    pub exit: Option<u8>,
    /// VMIs that we have marked, or may have marked (asked before the answer was known).
    pub marks: Vec<ObjectRef>,
    /// VMs that this drain has shut down, or may have, and that nobody else starts again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<StartNote>,
    /// Somebody has asked to go now (`release`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// Guests that we have stopped, or may have (asked before the answer was known).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stops: Vec<StopNote>,
}

impl Record {
    /// The start of the host in which it was written.
    pub fn start(&self) -> Start<'_> {
        Start {
            boot: &self.boot,
            userspace: self.userspace,
        }
    }

    /// The cordon was to outlive the boot.
    pub fn keeps_cordon(&self) -> bool {
        self.trigger.as_ref().is_some_and(|t| t.keep_cordoned)
    }
}
