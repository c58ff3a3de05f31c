//! Why is my VM not moving: the one exhaustive verdict per VM, with its sentence.
//!
//! `status` prints these sentences as they are; to change a text, change it here.

use super::budgets::{self, Class};
use super::stop::HandlerDoubt;
use super::world::VmName;
use std::fmt;

/// What is to be done with one VM now.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Not a VM that needs anything.
    Ignore(Ignore),
    /// Send the eviction, as soon as its lane allows it.
    Evict(Lane),
    /// Stop its guest by the deletion of its pod.
    Stop,
    /// Ask by a dry run what an eviction would do (base tier, or nothing else tells).
    Ask,
    /// Something is on its way; nothing to do.
    Wait(Wait),
    /// Nothing will happen until something or somebody changes.
    Blocked(Blocked),
    /// No guest is here any more.
    Gone,
}

/// Which way an eviction takes the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// It will live-migrate: needs a slot.
    Migrate,
    /// The guest will be shut down: needs no slot.
    Shutdown,
    /// Strategy External: marked, then somebody else moves it. Needs no slot.
    External,
}

/// Why a pod does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignore {
    /// `hp-volume-*` pods follow their launcher pod.
    Hotplug,
    /// A WaitForFirstConsumer helper pod.
    Provisioning,
}

/// What is being waited for.
#[derive(Clone, Debug, PartialEq)]
pub enum Wait {
    /// Accepted by KubeVirt, its controllers have not begun.
    Marked,
    /// Marked, but not by this drain.
    MarkedByOthers,
    /// A VMIM exists and waits for a slot of KubeVirt.
    InQueue,
    /// The last attempt failed; KubeVirt tries again by itself.
    Backoff {
        /// Failed attempts so far.
        failed: u32,
        /// Reason of the last failure.
        why: String,
    },
    /// KubeVirt holds the VMIM back.
    HeldBack(String),
    /// The target pod is being placed and started.
    Scheduling,
    /// The target pod has not been placed or started for a long time.
    Unplaced {
        /// Why is not known, because the right to see that pod is missing.
        denied: bool,
    },
    /// The scheduler finds no node for the target pod.
    Unschedulable {
        /// Its own words.
        says: String,
    },
    /// Copying memory.
    Migrating {
        /// Where to.
        to: String,
    },
    /// Accepted; how far it is cannot be seen with these rights.
    MigratingUnseen,
    /// A migration that somebody else started is running.
    ForeignMigration,
    /// An inbound migration: it must arrive before it can be sent on.
    Arriving {
        /// Where it comes from.
        from: String,
    },
    /// It has just arrived: KubeVirt does not send it on before its old pod elsewhere has ended.
    Settling,
    /// The VM has moved, its old pod here is still ending.
    LeftOver,
    /// The guest is shutting down.
    ShuttingDown,
    /// The guest is shutting down because we have asked for it.
    Stopping {
        /// Why, as a sentence part.
        why: String,
    },
    /// The VM is still starting: whether it can migrate is not known yet.
    Starting,
    /// The picture does not show its VMI yet.
    VmiUnseen,
    /// The VMI is gone, only its pod is left.
    VmiGone,
    /// The API server says that the pod is gone, the picture still shows it.
    PodGone,
    /// Its namespace is being deleted.
    NamespaceTerminating,
    /// External: marked, a foreign controller has to take it away.
    External,
    /// A request is on its way.
    Asking,
    /// A request failed and is repeated.
    Retry {
        /// What failed.
        why: String,
    },
    /// It waits for its turn: all slots are in use.
    Slot {
        /// VMs before it.
        ahead: usize,
        /// Slots that are in use.
        used: u32,
        /// Slots that there are.
        limit: u32,
    },
    /// All slots of the cluster are taken by migrations of other nodes.
    ClusterSlots {
        /// Slots that there are.
        limit: u32,
    },
    /// Its pod is not in the picture yet.
    PodUnseen,
    /// Its VirtualMachine was not read yet: it may have a policy of its own.
    OwnerUnread,
    /// Its policy leaves it alone.
    LeftAlone {
        /// The host goes down: its guest is shut down when all others are gone.
        stops_last: bool,
    },
    /// Its own deadline has passed.
    GivenUp,
    /// Its guest will be shut down, but not before a scheduled shutdown has come.
    Scheduled,
    /// Its migration would not end before its guest needs the time: it waits for that moment.
    TooLate,
    /// The node is not cordoned yet, and nothing is evicted before.
    Cordon {
        /// What stands in the way, empty when it is only a matter of a moment.
        why: String,
    },
}

/// What stands in the way.
#[derive(Clone, Debug, PartialEq)]
pub enum Blocked {
    /// Strategy LiveMigrate, but it cannot migrate.
    NotMigratable {
        /// KubeVirt's reason, empty when it cannot be seen.
        reason: String,
    },
    /// The eviction would stop the guest, and nobody allowed that.
    NeedsConsent,
    /// The configuration forbids it.
    ConsentNever,
    /// A disruption budget.
    Budget {
        /// Its name.
        name: String,
        /// Needs and has.
        says: String,
        /// What is the matter with it, as far as that can be told.
        class: Option<Class>,
    },
    /// More than one budget selects the pod.
    SeveralBudgets {
        /// Their names, where they can be read.
        names: Vec<String>,
    },
    /// Its guest is to be stopped, and nobody is known to do that cleanly.
    NoHandler(HandlerDoubt),
    /// The API server is overloaded.
    Throttled,
    /// A right is missing.
    Denied(String),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Marked => f.write_str("evacuation accepted, waiting for KubeVirt to start the migration"),
            Self::MarkedByOthers => f.write_str("already marked for evacuation by somebody else, waiting for KubeVirt"),
            Self::InQueue => f.write_str("migration is queued in KubeVirt, waiting for a free slot"),
            Self::Backoff { failed, why } if why.is_empty() => {
                write!(f, "{failed} migration attempt(s) failed; KubeVirt tries again after a pause")
            }
            Self::Backoff { failed, why } => {
                write!(f, "{failed} migration attempt(s) failed ({why}); KubeVirt tries again after a pause")
            }
            Self::HeldBack(why) => write!(f, "KubeVirt holds the migration back: {why}"),
            Self::Scheduling => f.write_str("target pod is being scheduled and started"),
            Self::Unplaced { denied } => write!(
                f,
                "the target pod does not start: perhaps no other node has room for it or fits its CPU model ({}); KubeVirt gives up after 5 minutes and tries again",
                who_tells(*denied)
            ),
            Self::Unschedulable { says } => write!(
                f,
                "no other node takes its target pod: {says}; KubeVirt gives up after 5 minutes and tries again"
            ),
            Self::Migrating { to } if to.is_empty() => f.write_str("migrating"),
            Self::Migrating { to } => write!(f, "migrating to {to}"),
            Self::MigratingUnseen => f.write_str("migrating (its progress cannot be seen)"),
            Self::ForeignMigration => f.write_str("a migration started by somebody else is running, waiting for it"),
            Self::Arriving { from } if from.is_empty() => {
                f.write_str("inbound migration, it must arrive before it can be sent on")
            }
            Self::Arriving { from } => {
                write!(f, "inbound migration from {from}, it must arrive before it can be sent on")
            }
            Self::Settling => {
                f.write_str("has just arrived; KubeVirt sends no VM on while its old pod still ends, so it is evicted in a moment")
            }
            Self::LeftOver => f.write_str("has moved away, its old pod here is still ending"),
            Self::ShuttingDown => f.write_str("guest is shutting down"),
            Self::Stopping { why } => write!(f, "guest is being shut down by us: {why}"),
            Self::Starting => f.write_str("VM is still starting, KubeVirt does not know yet whether it can migrate"),
            Self::VmiUnseen => f.write_str("its VMI has not been seen yet"),
            Self::VmiGone => f.write_str("its VMI is gone, waiting for the pod to end"),
            Self::PodGone => f.write_str("its pod is gone, waiting for the list to show that"),
            Self::NamespaceTerminating => {
                f.write_str("its namespace is being deleted, evictions are refused there; waiting for the pod to go")
            }
            Self::External => {
                f.write_str("marked for evacuation, eviction strategy External: waiting for its own controller to move it")
            }
            Self::Asking => f.write_str("request is on its way"),
            Self::Retry { why } => write!(f, "will be asked again: {why}"),
            Self::Slot { ahead, used, limit } => {
                write!(f, "queued: {used} of {limit} migration slots in use, {ahead} VM(s) ahead")
            }
            Self::ClusterSlots { limit } => {
                write!(f, "queued: all {limit} migration slots of the cluster are taken by other nodes")
            }
            Self::Scheduled => f.write_str(
                "cannot migrate: its guest is shut down when the scheduled shutdown has come, not before",
            ),
            Self::TooLate => f.write_str(
                "not migrated any more, because that would not end in time: its guest is shut down when it needs the time that is left",
            ),
            Self::Cordon { why } if why.is_empty() => {
                f.write_str("waiting for the node to be cordoned, nothing is evicted before")
            }
            Self::Cordon { why } => {
                write!(f, "not evicted, because the node is not cordoned: {why}")
            }
            Self::OwnerUnread => {
                f.write_str("its VirtualMachine has not been read yet, which may name a policy")
            }
            Self::GivenUp => f.write_str("its own deadline has passed, the drain goes on without it"),
            Self::LeftAlone { stops_last: false } => f.write_str("left alone by its policy"),
            Self::LeftAlone { stops_last: true } => f.write_str(
                "left alone by its policy until all other VMs are gone, then its guest is shut down",
            ),
            Self::PodUnseen => f.write_str("its pod has not been seen yet"),
        }
    }
}

/// Who knows why a target pod does not start.
fn who_tells(denied: bool) -> &'static str {
    if denied {
        "kubectl describe the pod tells, and with rbac/targets.yaml this line"
    } else {
        "kubectl describe the pod tells"
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMigratable { reason } if reason.is_empty() => f.write_str("cannot be live-migrated"),
            Self::NotMigratable { reason } => write!(f, "cannot be live-migrated: {reason}"),
            Self::NeedsConsent => f.write_str(
                "needs consent: evicting it would shut the guest down, and the host is not going down; allow it with --allow-guest-shutdown",
            ),
            Self::ConsentNever => f.write_str(
                "evicting it would shut the guest down, and drain.allow_guest_shutdown is \"never\"",
            ),
            Self::Budget { name, says, class } => {
                f.write_str(&budgets::sentence(name, says, class.as_ref()))
            }
            Self::SeveralBudgets { names } if names.is_empty() => {
                f.write_str("two PDBs select its pod, Kubernetes refuses such evictions; remove one of them")
            }
            Self::SeveralBudgets { names } => write!(
                f,
                "two PDBs: {} select its pod, Kubernetes refuses such evictions; remove one of them",
                names.join(", ")
            ),
            Self::NoHandler(doubt) => write!(
                f,
                "its guest would be shut down now, but virt-handler, which has to do that, is not known to be alive: {doubt}; without it the guest would be killed"
            ),
            Self::Throttled => f.write_str("the API server is overloaded and asks to wait"),
            Self::Denied(why) => write!(f, "a right is missing: {why}"),
        }
    }
}

/// A sentence about the drain as a whole, for a VM that is left at its end.
pub fn left_sentence(vm: &VmName, says: &str) -> String {
    format!("{vm} is still running here: {says}")
}
