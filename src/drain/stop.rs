//! When may a guest be stopped by us, why is it, and is there anybody to do it cleanly?
//!
//! A stop is the deletion of its launcher pod: kubelet tells virt-launcher, virt-launcher asks virt-handler, and
//! virt-handler sends the ACPI event and waits for the guest's own grace period (kubevirt-semantics 5).

use super::time::Mono;
use super::track::doubled;
use super::world::{NodeView, ObjectRef, PodView};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// What KubeVirt adds to a guest's own grace period for its pod (kubevirt-semantics 5).
pub const POD_GRACE_EXTRA: Duration = Duration::from_secs(30);

/// Why a guest is stopped by us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopWhy {
    /// The deadline is so near that it would not get its grace period later.
    Deadline,
    /// It cannot be live-migrated; KubeVirt's reason, empty when it is not known.
    NotMigratable(String),
    /// So many attempts have failed that it would only keep others waiting.
    GivenUp {
        /// Failed attempts.
        failed: usize,
    },
    /// The drain is short, and its migration would not end before the guest needs that time.
    NoTime,
    /// The power goes for the whole rack: nobody is migrated.
    WholeRack,
    /// Somebody has asked to go now.
    Asked,
    /// Its own policy, as a sentence part.
    Policy(String),
    /// For this reason, although it migrates: we may not abort that.
    Migrating(Box<StopWhy>),
}

/// Said of a guest that is told while it migrates and nobody may abort that: virt-handler waits for the end of the
/// migration (kubevirt-semantics 5).
const STILL_MIGRATES: &str = "it still migrates, and with this node's rights that cannot be aborted (rbac/abort.yaml gives the right); it may be cut off";

impl StopWhy {
    /// Why a migration that stands in the way is aborted, as a sentence part.
    pub fn of_abort(&self) -> String {
        match self {
            Self::Deadline | Self::NoTime => "it would not end in time".into(),
            Self::NotMigratable(why) if why.is_empty() => {
                "the VM cannot be live-migrated any more".into()
            }
            Self::NotMigratable(why) => format!("the VM cannot be live-migrated any more ({why})"),
            Self::GivenUp { failed } => {
                format!("it makes no progress, or has failed too often (attempt {failed})")
            }
            Self::Migrating(why) => why.of_abort(),
            Self::WholeRack | Self::Asked | Self::Policy(_) => {
                format!("its guest is to be shut down: {self}")
            }
        }
    }
}

impl fmt::Display for StopWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline => {
                f.write_str("the deadline is near, and this is the time it needs to shut down")
            }
            Self::NotMigratable(why) if why.is_empty() => f.write_str("it cannot be live-migrated"),
            Self::NotMigratable(why) => write!(f, "it cannot be live-migrated ({why})"),
            Self::GivenUp { failed } => write!(f, "{failed} migration attempt(s) have failed"),
            Self::NoTime => f.write_str("there is no time for its migration before the deadline"),
            Self::WholeRack => f.write_str("the whole rack goes down, so nobody is migrated"),
            Self::Asked => f.write_str("somebody asked to go now"),
            Self::Policy(why) => f.write_str(why),
            Self::Migrating(why) => write!(f, "{why}; {STILL_MIGRATES}"),
        }
    }
}

/// A stop that was asked for: who did it, and when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stopping {
    /// First request.
    pub asked: Mono,
    /// The API server has taken one.
    pub accepted: Option<Mono>,
    /// A request is on its way.
    pub in_flight: bool,
    /// Told on this host itself, not through the API server.
    pub here: bool,
    /// Why, as a sentence part.
    pub why: String,
    /// What was wrong with the last request; empty when nothing was.
    pub trouble: String,
    /// No request before this moment.
    pub not_before: Mono,
    /// Failed requests in a row.
    pub failures: u32,
}

impl Stopping {
    /// A request has failed: the next one not before a pause, longer each time.
    pub fn failed(&mut self, why: String, first: Duration, most: Duration, now: Mono) {
        self.in_flight = false;
        self.trouble = why;
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + doubled(first, most, self.failures);
    }
}

/// A stop in the record: written before it is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopNote {
    /// The VMI.
    pub vmi: ObjectRef,
    /// Its launcher pod.
    pub pod: ObjectRef,
    /// When it was asked for first.
    pub asked: Mono,
    /// Why, as a sentence part.
    pub why: String,
    /// It was told on this host itself, by signal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub here: bool,
}

impl StopNote {
    /// What a cancel has to say about it.
    pub fn cannot_be_taken_back(&self) -> String {
        told_to_stop(&self.vmi)
    }
}

/// What a cancel has to say about a guest that shuts down.
pub fn told_to_stop(vmi: &ObjectRef) -> String {
    format!("the guest of {vmi} was already told to shut down, which cannot be taken back")
}

/// Why virt-handler is not known to be alive. Without it the guest gets no ACPI event: it would be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerDoubt {
    /// The Node was not seen.
    NodeUnseen,
    /// It has never reported on this Node.
    NeverReported,
    /// It was told, or has told, that it takes no VMs: so it does when it ends.
    NotSchedulable,
    /// Its last heartbeat is too old.
    Silent {
        /// It is older than this: the patience, doubled as often as it fits. The exact age would be news every second.
        since: Duration,
    },
}

impl fmt::Display for HandlerDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeUnseen => f.write_str("this Node cannot be seen"),
            Self::NeverReported => f.write_str(
                "it has never reported on this Node (no annotation kubevirt.io/heartbeat)",
            ),
            Self::NotSchedulable => {
                f.write_str("the label kubevirt.io/schedulable of this Node is not \"true\"")
            }
            Self::Silent { since } => write!(
                f,
                "its last heartbeat (annotation kubevirt.io/heartbeat) is more than {} s old",
                since.as_secs()
            ),
        }
    }
}

/// Whether virt-handler is known to be alive on this node. It reports every 60 to 132 s, and takes its label away
/// when it ends in order; KubeVirt itself gives it up after 300 s (kubevirt-semantics 11.9, 11.10).
///
/// # Errors
/// Why it is not known.
pub fn handler_alive(
    node: Option<&NodeView>,
    patience: Duration,
    now: Mono,
) -> Result<(), HandlerDoubt> {
    let node = node.ok_or(HandlerDoubt::NodeUnseen)?;
    let heartbeat = node.heartbeat.ok_or(HandlerDoubt::NeverReported)?;
    if !node.schedulable {
        return Err(HandlerDoubt::NotSchedulable);
    }
    let now = i64::try_from(now.0).unwrap_or(i64::MAX);
    let age = u64::try_from(now.saturating_sub(heartbeat)).unwrap_or(0);
    let since = Duration::from_millis(age);
    if since > patience {
        let since = coarse(since, patience);
        return Err(HandlerDoubt::Silent { since });
    }
    Ok(())
}

/// `patience`, doubled as long as it is not more than `age`.
fn coarse(age: Duration, patience: Duration) -> Duration {
    let mut since = patience;
    while !since.is_zero() && since.saturating_mul(2) <= age && since < Duration::MAX / 2 {
        since = since.saturating_mul(2);
    }
    since
}

/// The guest's own grace period: after that virt-handler destroys it. `extra`: what the pod has on top of it.
pub fn guest_grace(pod: &PodView, extra: Duration) -> Duration {
    pod.grace.saturating_sub(extra)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(heartbeat: Option<i64>, schedulable: bool) -> NodeView {
        NodeView {
            heartbeat,
            schedulable,
            ..NodeView::default()
        }
    }

    #[test]
    fn virt_handler_is_believed_only_with_a_fresh_heartbeat_and_its_label() {
        let alive = |node: Option<&NodeView>| {
            handler_alive(node, Duration::from_secs(300), Mono(1_000_000))
        };
        assert_eq!(alive(None), Err(HandlerDoubt::NodeUnseen));
        assert_eq!(alive(Some(&node(Some(900_000), true))), Ok(()));
        // A clock that is a little ahead.
        assert_eq!(alive(Some(&node(Some(1_000_500), true))), Ok(()));
        let cases = [
            (None, true, HandlerDoubt::NeverReported),
            (Some(900_000), false, HandlerDoubt::NotSchedulable),
            (
                Some(690_000),
                true,
                HandlerDoubt::Silent {
                    since: Duration::from_secs(300),
                },
            ),
        ];
        for (heartbeat, schedulable, doubt) in cases {
            assert_eq!(alive(Some(&node(heartbeat, schedulable))), Err(doubt));
        }
        // The sentence changes seldom, however often it is looked at.
        let ages = [301, 599, 600, 1199, 1200, 5000];
        let told = ages.map(
            |age| match alive(Some(&node(Some(1_000_000 - age * 1000), true))) {
                Err(HandlerDoubt::Silent { since }) => since.as_secs(),
                _ => 0,
            },
        );
        assert_eq!(told, [300, 300, 600, 600, 1200, 4800]);
        let unreadable = alive(Some(&node(Some(i64::MIN), true)));
        assert!(matches!(unreadable, Err(HandlerDoubt::Silent { .. })));
    }

    #[test]
    fn the_pause_after_a_failure_grows() {
        let (first, most) = (Duration::from_secs(1), Duration::from_secs(3));
        let mut stop = Stopping::default();
        let mut pauses = Vec::new();
        for _ in 0..3 {
            stop.failed("x".into(), first, most, Mono(0));
            pauses.push(stop.not_before.0);
        }
        assert_eq!(pauses, [1000, 2000, 3000]);
    }
}
