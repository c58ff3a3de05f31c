//! What will become of this VM: the table of design section 5, pure, with the sentence for people in one place.
//!
//! Two steps. [`course`] says what an eviction would make of the VM (strategy × can it migrate, or a dry run's
//! answer). [`fate`] says what becomes of it: course × policy × owner × consent.
//!
//! | owner of the VMI | after a clean shutdown (kubevirt-semantics 5, control-plane 6.f) |
//! |---|---|
//! | VM or pool, Always (or `running: true`) | a new VMI on another node |
//! | VM or pool, RerunOnFailure, Manual | stays stopped until it is asked to start |
//! | VM or pool, Once | stays stopped; KubeVirt takes no start request |
//! | VM or pool, Halted | was to be stopped anyway |
//! | VMIReplicaSet | a replacement on another node |
//! | none (standalone) | gone for good |
//! | another kind | not known |

use super::answer::Answer;
use super::judge::Consentless;
use super::stop::HandlerDoubt;
use super::verdict::Blocked;
use super::ways::{Choice, Way};
use super::world::{Owner, RunStrategy, Strategy};
use std::fmt;

/// What an eviction would make of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// KubeVirt live-migrates it.
    Migrates,
    /// It is granted: the guest is shut down.
    Stops,
    /// It is refused: LiveMigrate, but the VM cannot migrate.
    Refused,
    /// It only marks: eviction strategy External.
    Marks,
    /// Not known: the VM is starting, or nobody has asked yet.
    Unknown,
}

/// The course by strategy and condition `LiveMigratable` (kubevirt-semantics 1.2). `strategy` is the VMI's own,
/// else the cluster's default; `None`: neither can be seen. `migratable` is `None` while the condition is missing.
pub fn course(strategy: Option<Strategy>, migratable: Option<bool>) -> Course {
    match (strategy, migratable) {
        (Some(Strategy::None), _) | (Some(Strategy::LiveMigrateIfPossible), Some(false)) => {
            Course::Stops
        }
        (Some(Strategy::External), _) => Course::Marks,
        (Some(Strategy::LiveMigrate | Strategy::LiveMigrateIfPossible), Some(true)) => {
            Course::Migrates
        }
        (Some(Strategy::LiveMigrate), Some(false)) => Course::Refused,
        (Some(Strategy::LiveMigrate | Strategy::LiveMigrateIfPossible) | None, _) => {
            Course::Unknown
        }
    }
}

/// The course as a dry-run eviction tells it (design section 4). An External VM answers like one that migrates.
pub fn course_of_answer(answer: &Answer) -> Course {
    match answer {
        Answer::Marked | Answer::InProgress => Course::Migrates,
        // KubeVirt up to 1.5 keeps a budget for every VM that can migrate.
        Answer::Budget { name, .. } if name.starts_with("kubevirt-disruption-budget-") => {
            Course::Unknown
        }
        // The webhook comes before the budgets: who gets as far as another budget would be shut down.
        Answer::Granted | Answer::Budget { .. } | Answer::SeveralBudgets => Course::Stops,
        Answer::NotMigratable => Course::Refused,
        Answer::NotTheActivePod
        | Answer::HotplugPod
        | Answer::VmiGone
        | Answer::NamespaceTerminating
        | Answer::Gone
        | Answer::Throttled
        | Answer::Unauthorized
        | Answer::Denied(_)
        | Answer::WebhookDown
        | Answer::KubeVirtFailed(_)
        | Answer::Unexpected(_) => Course::Unknown,
    }
}

/// Everything that a fate depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What an eviction would do.
    pub course: Course,
    /// KubeVirt's reason when it cannot migrate, empty when that cannot be seen.
    pub reason: &'a str,
    /// Who owns the VMI.
    pub owner: &'a Owner,
    /// The policy that applies to it.
    pub way: Way,
    /// Whether guests may be shut down in this drain.
    pub consent: Result<(), Consentless>,
    /// virt-handler is known to be alive, or why not: without it no guest is stopped.
    pub handler: Result<(), HandlerDoubt>,
    /// What cannot migrate is shut down (`drain.on_deadline` is `shutdown-vms`), at once rather than at the deadline.
    pub gives_up: bool,
    /// The host goes down after this drain, or is going down already.
    pub host_goes: bool,
}

/// What will become of a VM. The words of [`Fate::word`] are in the JSON of `status` and `plan`, and only grow.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// Live-migrates to another node.
    Migrates,
    /// Its guest is shut down, and its owner starts it again on another node.
    RestartedElsewhere {
        /// The owner.
        by: Owner,
    },
    /// Its guest is shut down, and KubeVirt does not start it again.
    ShutDown {
        /// Who starts it again.
        again: Again,
    },
    /// Nothing happens to it until something changes, or until the deadline's policy.
    Blocked(Blocked),
    /// It is marked, and somebody else moves it (eviction strategy External).
    External,
    /// It is left alone.
    Left {
        /// What that means at the end of the drain.
        end: LeftEnd,
    },
    /// Not known yet.
    Unknown,
}

/// What becomes of a VM that its policy leaves alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftEnd {
    /// The host stays up: it keeps running here.
    Stays,
    /// The host goes down: its guest is shut down cleanly after all others are gone.
    StopsLast,
    /// The host goes down, and no guest may be shut down: it is killed with the host.
    Killed,
}

/// What is to become of one VM, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lot {
    /// Who owns its VMI.
    pub owner: Owner,
    /// Its VirtualMachine was not read yet, and may name another policy.
    pub owner_unread: bool,
    /// Its policy.
    pub choice: Choice,
    /// Its fate; `None` until it was looked at.
    pub fate: Option<Fate>,
    /// Its policy leaves it here, and the drain ends without it.
    pub left_alone: bool,
}

/// Who starts a guest again that KubeVirt leaves stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Again {
    /// We, on another node, as soon as it has stopped (policy `restart`).
    AtOnce(RunStrategy),
    /// We, when this node is given back.
    AfterRestore(RunStrategy),
    /// Nobody but a person: run strategy `Once` takes no start request.
    Once,
    /// Nobody: its run strategy is `Halted`, it was to be stopped anyway.
    Halted,
    /// Nobody but its creator: a VMI without owner.
    Standalone,
    /// Not known: its owner cannot be seen.
    Unseen,
    /// Not known: an owner of another kind, or a run strategy that we do not know.
    Other(String),
}

/// The table.
pub fn fate(facts: &Facts<'_>) -> Fate {
    match (facts.way, facts.course) {
        (Way::Leave, _) => Fate::Left {
            end: match facts.consent {
                _ if !facts.host_goes => LeftEnd::Stays,
                Ok(()) | Err(Consentless::Scheduled) => LeftEnd::StopsLast,
                Err(Consentless::NotAsked | Consentless::Never) => LeftEnd::Killed,
            },
        },
        (Way::Shutdown | Way::Restart, _) | (Way::Migrate, Course::Stops) => stopped(facts),
        (Way::Migrate, Course::Refused) if facts.gives_up && facts.consent.is_ok() => {
            stopped(facts)
        }
        (Way::Migrate, Course::Migrates) => Fate::Migrates,
        (Way::Migrate, Course::Marks) => Fate::External,
        (Way::Migrate, Course::Refused) => Fate::Blocked(Blocked::NotMigratable {
            reason: facts.reason.to_owned(),
        }),
        (Way::Migrate, Course::Unknown) => Fate::Unknown,
    }
}

/// Its guest would be stopped: is that allowed, and who starts it again?
fn stopped(facts: &Facts<'_>) -> Fate {
    match facts.consent {
        Err(Consentless::NotAsked) => return Fate::Blocked(Blocked::NeedsConsent),
        Err(Consentless::Never) => return Fate::Blocked(Blocked::ConsentNever),
        // It happens when the scheduled shutdown has come.
        Ok(()) | Err(Consentless::Scheduled) => {}
    }
    if let Err(doubt) = facts.handler {
        return Fate::Blocked(Blocked::NoHandler(doubt));
    }
    if restarts_by_itself(facts.owner) {
        return Fate::RestartedElsewhere {
            by: facts.owner.clone(),
        };
    }
    Fate::ShutDown {
        again: again(facts.owner, facts.way),
    }
}

/// The owner starts a guest again that has shut down cleanly.
pub fn restarts_by_itself(owner: &Owner) -> bool {
    match owner {
        Owner::Vm(run) | Owner::Pool(run) => *run == Some(RunStrategy::Always),
        Owner::ReplicaSet => true,
        Owner::Standalone | Owner::Other(_) | Owner::Unseen => false,
    }
}

/// Who starts a guest of this owner again once it has shut down cleanly; the owner itself does not.
pub fn again(owner: &Owner, way: Way) -> Again {
    match owner {
        Owner::Standalone => Again::Standalone,
        Owner::Vm(Some(run)) | Owner::Pool(Some(run)) => match run {
            RunStrategy::RerunOnFailure | RunStrategy::Manual if way == Way::Restart => {
                Again::AtOnce(*run)
            }
            RunStrategy::RerunOnFailure | RunStrategy::Manual => Again::AfterRestore(*run),
            RunStrategy::Once => Again::Once,
            RunStrategy::Halted => Again::Halted,
            RunStrategy::Always | RunStrategy::WaitAsReceiver | RunStrategy::Unknown => {
                Again::Other(format!("{owner}"))
            }
        },
        Owner::Vm(None) | Owner::Pool(None) | Owner::Unseen => Again::Unseen,
        Owner::ReplicaSet | Owner::Other(_) => Again::Other(format!("{owner}")),
    }
}

impl Fate {
    /// One word for programs: `migrates`, `restarted_elsewhere`, `shut_down`, `blocked`, `external`, `left`, `unknown`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Migrates => "migrates",
            Self::RestartedElsewhere { .. } => "restarted_elsewhere",
            Self::ShutDown { .. } => "shut_down",
            Self::Blocked(_) => "blocked",
            Self::External => "external",
            Self::Left { .. } => "left",
            Self::Unknown => "unknown",
        }
    }

    /// Its guest is stopped on the way.
    pub fn stops_guest(&self) -> bool {
        matches!(
            self,
            Self::RestartedElsewhere { .. }
                | Self::ShutDown { .. }
                | Self::Left {
                    end: LeftEnd::StopsLast
                }
        )
    }

    /// Somebody has to do something afterwards, or loses something.
    pub fn needs_somebody(&self) -> bool {
        match self {
            Self::ShutDown { again } => !matches!(again, Again::AtOnce(_) | Again::AfterRestore(_)),
            Self::Left { end } => *end == LeftEnd::Killed,
            Self::Blocked(_) => true,
            Self::Migrates | Self::RestartedElsewhere { .. } | Self::External | Self::Unknown => {
                false
            }
        }
    }

    /// Worth telling its owner before it happens: anything but a migration.
    pub fn is_news(&self) -> bool {
        !matches!(self, Self::Migrates | Self::Unknown)
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Migrates => f.write_str("live-migrates to another node"),
            Self::RestartedElsewhere { by: Owner::ReplicaSet } => f.write_str(
                "guest is shut down; its VirtualMachineInstanceReplicaSet starts a replacement on another node",
            ),
            Self::RestartedElsewhere { by } => {
                write!(f, "guest is shut down; its owner, {by}, starts it again on another node")
            }
            Self::ShutDown { again } => write!(f, "guest is shut down; {again}"),
            Self::Blocked(why) => why.fmt(f),
            Self::External => f.write_str(
                "is marked for evacuation; eviction strategy External: its own controller has to move it",
            ),
            Self::Left { end } => f.write_str(match end {
                LeftEnd::Stays => "is left alone by policy and keeps running here",
                LeftEnd::StopsLast => {
                    "is left alone by policy until all other VMs are gone; because the host goes down, its guest is then shut down cleanly"
                }
                LeftEnd::Killed => {
                    "is left alone by policy, and no guest may be shut down (drain.allow_guest_shutdown): it is killed when the host goes down"
                }
            }),
            Self::Unknown => f.write_str("not known yet"),
        }
    }
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtOnce(run) => write!(
                f,
                "KubeVirt does not start it again (runStrategy {}), so it is started on another node as soon as it has stopped",
                run.word()
            ),
            Self::AfterRestore(run) => write!(
                f,
                "KubeVirt does not start it again (runStrategy {}), it is started when this node is given back",
                run.word()
            ),
            Self::Once => f.write_str(
                "it is not started again: runStrategy Once runs a VM once and takes no start request. Deleting its finished VMI lets KubeVirt run it once more",
            ),
            Self::Halted => f.write_str("it is not started again: its runStrategy is Halted"),
            Self::Standalone => f.write_str(
                "it is gone for good: a VMI without a VirtualMachine can be started again only by whoever created it",
            ),
            Self::Unseen => f.write_str(
                "whether it is started again cannot be seen with the node's own rights; rbac/reads.yaml shows its owner",
            ),
            Self::Other(owner) => {
                write!(f, "whether its owner, {owner}, starts it again is not known")
            }
        }
    }
}

#[cfg(test)]
mod tests;
