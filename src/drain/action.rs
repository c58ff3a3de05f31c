//! What the core can ask the world for, and what comes back: data only.

use super::answer::Reply;
use super::hooks::{Report, Run};
use super::local::{LocalGuest, LocalView};
use super::record::Record;
use super::trigger::{Ending, Refusal, Schedule, Shutdown, Then, Trigger};
use super::world::{AttachedVolume, CordonNote, Fresh, NodeView, ObjectRef, Picture, VmName};
use serde::Serialize;
use std::time::Duration;

/// Number of one effect; a result with an old number is ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct EffectId(pub u64);

/// Number of one command; its answer carries it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

/// Something the core wants done. Effects carry it out with a time limit and never decide.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start the watches; pictures follow as [`Input::Picture`].
    Watch,
    /// The same, with the pods of this node that are no VM's.
    WatchAll,
    /// Start a watch of the own Node alone; pictures follow in which nothing else is settled.
    WatchNode,
    /// Stop the watches: an idle agent makes no request.
    Unwatch,
    /// Read the own Node by a quorum GET. Answer: [`Outcome::Node`].
    ReadNode(EffectId),
    /// One merge patch: `spec.unschedulable = true`, and our note when `note` is given, with
    /// `metadata.resourceVersion` as precondition. Answer: [`Outcome::Node`].
    Cordon {
        /// Number of this effect.
        id: EffectId,
        /// The precondition.
        resource_version: String,
        /// Our marker; `None` when the cordon is somebody else's and only to be seen to.
        note: Option<CordonNote>,
    },
    /// One merge patch: `spec.unschedulable = null` and our note removed, with precondition. Answer: [`Outcome::Node`].
    Uncordon {
        /// Number of this effect.
        id: EffectId,
        /// The precondition.
        resource_version: String,
    },
    /// One merge patch: our note removed, `spec.unschedulable` left alone, with precondition. Answer: [`Outcome::Node`].
    Unmark {
        /// Number of this effect.
        id: EffectId,
        /// The precondition.
        resource_version: String,
    },
    /// One merge patch: the annotation `vmdrain.io/handled`, with precondition. Answer: [`Outcome::Node`].
    Acknowledge {
        /// Number of this effect.
        id: EffectId,
        /// The precondition.
        resource_version: String,
        /// The request that is taken.
        value: String,
    },
    /// POST `pods/eviction` (policy/v1) with UID precondition. Answer: [`Outcome::Reply`].
    Evict {
        /// Number of this effect.
        id: EffectId,
        /// The pod; `uid` is the precondition, `name` goes into the body as well.
        pod: ObjectRef,
        /// Only ask: same answer, no mark, no eviction (`dryRun=All`).
        dry_run: bool,
    },
    /// Fresh quorum lists of pods, and of VMIs and VMIMs where they can be read. Answer: [`Outcome::Fresh`].
    Confirm {
        /// Number of this effect.
        id: EffectId,
        /// Also the pods that are no VM's.
        others: bool,
    },
    /// Which volumes are attached to this node. Answer: [`Outcome::Volumes`].
    ReadVolumes(EffectId),
    /// What the scheduler says against the target pod of a migration. Answer: [`Outcome::Target`].
    ReadTarget {
        /// Number of this effect.
        id: EffectId,
        /// The VMIM; its UID is a label of that pod.
        migration: ObjectRef,
    },
    /// PUT `virtualmachineinstances/<name>/evacuate/cancel` with this node's name. Answer: [`Outcome::Reply`].
    CancelEvacuation {
        /// Number of this effect.
        id: EffectId,
        /// The VMI.
        vmi: ObjectRef,
    },
    /// DELETE a VMIM with UID precondition. Answer: [`Outcome::Reply`].
    DeleteMigration {
        /// Number of this effect.
        id: EffectId,
        /// The VMIM.
        migration: ObjectRef,
    },
    /// PUT `virtualmachines/<name>/start`: KubeVirt starts a VM that is stopped. Answer: [`Outcome::Reply`].
    StartVm {
        /// Number of this effect.
        id: EffectId,
        /// The VM.
        vm: VmName,
    },
    /// DELETE of a launcher pod with UID precondition and its own grace period: the guest is shut down.
    /// Answer: [`Outcome::Reply`].
    StopGuest {
        /// Number of this effect.
        id: EffectId,
        /// The pod; `uid` is the precondition.
        pod: ObjectRef,
    },
    /// Look which `compute` containers of launcher pods run on this host, without the API server.
    /// Answer: [`Outcome::Local`].
    LookHere(EffectId),
    /// SIGTERM to the init process of one `compute` container: its virt-launcher asks for a clean shutdown of the guest.
    /// Answer: [`Outcome::Told`].
    TellGuest {
        /// Number of this effect.
        id: EffectId,
        /// Whom.
        guest: LocalGuest,
    },
    /// Write the record down, before anything that follows in the queue happens.
    Persist(Box<Record>),
    /// Forget the record.
    ForgetRecord,
    /// Give up our delay lock: logind may go on. Answer: [`Outcome::Hold`].
    Release(EffectId),
    /// Take the delay lock (again). Answer: [`Outcome::Hold`].
    TakeHold(EffectId),
    /// Ask logind to go down now (net 1). Answer: [`Outcome::Logind`].
    AskLogind {
        /// Number of this effect.
        id: EffectId,
        /// What to ask for.
        then: Then,
    },
    /// Run the hooks of a gate. Answer: [`Outcome::Hooks`].
    RunHooks {
        /// Number of this effect.
        id: EffectId,
        /// Which, for how long, and what they are told.
        run: Run,
    },
    /// The answer to a command.
    Answer(Token, Result<String, Refusal>),
    /// Tell people: journal, and a Kubernetes Event where `event` is set. Nobody waits for it.
    Tell(Notice),
}

/// How loud a [`Notice`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// A change that a user can see.
    Info,
    /// Would wake somebody.
    Warn,
    /// Something is broken.
    Error,
}

/// A message for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// How loud.
    pub level: Level,
    /// Event reason and journal key, CamelCase, e.g. `DrainStarted`.
    pub reason: &'static str,
    /// The sentence.
    pub text: String,
    /// The VM that it is about.
    pub vm: Option<ObjectRef>,
    /// Also as a Kubernetes Event (on the VMI when `vm` is set, else on the Node).
    pub event: bool,
}

/// A failed effect, classified at the border.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What kind of failure.
    pub class: FaultClass,
    /// One sentence, lower case, no trailing dot.
    pub text: String,
}

/// Classes of failure that the core tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultClass {
    /// May pass: connection refused, time-out, 5xx, 429 without a verdict.
    Transient,
    /// 409 or 422 on a precondition: read again and decide again.
    Conflict,
    /// 403: a right is missing.
    Denied,
    /// 404: the object or the kind is not there.
    Gone,
    /// 401: the credentials are no longer accepted.
    Unauthorized,
    /// It can never work this way: malformed object, wrong configuration.
    Fatal,
}

/// What logind said to our own request.
#[derive(Clone, Debug, PartialEq)]
pub enum LogindAnswer {
    /// Accepted, or already in progress.
    Accepted,
    /// Somebody's block lock: the sentence names the holder and what to do.
    Blocked(String),
    /// Any other refusal.
    Failed(String),
}

/// The delay lock as the host adapter sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HoldView {
    /// Our lock is listed by logind.
    pub held: bool,
    /// `InhibitDelayMaxUSec`, read uncached; `None` when logind cannot be asked.
    #[serde(with = "super::policy::opt_seconds")]
    pub limit: Option<Duration>,
    /// Why it is not held, or what is wrong with the limit; empty when all is well.
    pub trouble: String,
    /// Who sets the limit: a file, or "logind's own default"; empty when that is not known.
    pub limit_by: String,
    /// Everybody else who holds a shutdown.
    pub others: Vec<Holder>,
}

/// [`Holder::mode`] of a unit that has no lock: it acts while the system ends.
pub const UNIT_MODE: &str = "unit";

/// Somebody else who acts on a shutdown: a lock of logind's, or a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The program's own name for itself.
    pub who: String,
    /// Its reason.
    pub why: String,
    /// `delay`, `block`, `block-weak`, or [`UNIT_MODE`].
    pub mode: String,
    /// Its user.
    pub uid: u32,
}

/// Who sends a maintenance signal, as the adapter sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Name of the signal in the configuration.
    pub name: String,
    /// Whose it has to be.
    pub sender: String,
    /// What it asks for.
    pub action: String,
    /// Why it cannot come now; empty when all is well.
    pub trouble: String,
}

/// The result of an effect.
#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, handed over once; nobody keeps a list of them"
)]
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The Node as the server returned it.
    Node(Result<NodeView, Fault>),
    /// An HTTP answer of any status, or a failure below HTTP.
    Reply(Result<Reply, Fault>),
    /// Fresh lists.
    Fresh(Result<Fresh, Fault>),
    /// Volumes that are attached to this node.
    Volumes(Result<Vec<AttachedVolume>, Fault>),
    /// The scheduler's own words about a target pod; `None`: it has none, or there is no such pod.
    Target(Result<Option<String>, Fault>),
    /// The lock after a release or a take.
    Hold(Result<HoldView, String>),
    /// logind's answer.
    Logind(LogindAnswer),
    /// What runs on this host, or why nobody can say.
    Local(Result<LocalView, String>),
    /// The signal was sent (or its process had ended before), or why not.
    Told(Result<(), String>),
    /// How the hooks ended, or why nobody can say.
    Hooks(Result<Report, String>),
}

/// Everything that can reach the core.
#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, handed over once; nobody keeps a list of them"
)]
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An operator or a signal asks for a drain. Answer: its id.
    Trigger(Token, Trigger),
    /// logind announced that the host goes down (`PrepareForShutdown(true)`), confirmed by its property.
    Shutdown(Shutdown),
    /// The announced shutdown is no longer pending (signal `false`, cancel on 257+, logind restart).
    ShutdownVanished {
        /// How it was noticed, as a sentence.
        why: String,
    },
    /// What is scheduled for later, whenever that has changed or was looked at first; `None`: nothing.
    Scheduled(Option<Schedule>),
    /// An operator calls the drain off.
    Cancel {
        /// The command.
        token: Token,
        /// Also delete the VMIMs of the VMs that we marked.
        abort_migrations: bool,
        /// Name of the maintenance signal that asks; empty: a person or a program.
        signal: String,
    },
    /// An operator moves the deadline.
    Extend {
        /// The command.
        token: Token,
        /// By how much.
        by: Duration,
    },
    /// An operator wants the hold to end now.
    Release {
        /// The command.
        token: Token,
        /// How.
        ending: Ending,
    },
    /// An operator gives the node back by hand.
    Restore(Token),
    /// Who sends maintenance signals, whenever that has changed.
    Sources(Vec<Source>),
    /// The host adapter has started; a shutdown that was pending then was told before this.
    HostReady,
    /// The newest picture.
    Picture(Box<Picture>),
    /// The newest state of the lock.
    Hold(HoldView),
    /// An effect has ended.
    Done(EffectId, Outcome),
}
