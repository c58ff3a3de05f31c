//! What is shown: one serialisable snapshot for `status`, the bus, the progress display and metrics.
//!
//! The JSON form is a contract: it only grows.

use super::eta::Span;
use super::trigger::Then;
use super::world::{Malformed, VmName};
use serde::{Deserialize, Serialize};

/// The whole snapshot. Times are seconds relative to the moment of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Version of the agent.
    pub version: String,
    /// The node.
    pub node: String,
    /// Name of the phase: idle, preparing, evacuating, falling_back, holding, confirming, other_pods, gates, drained, deadline,
    /// cancelling, cancelled, refused, restoring.
    pub state: String,
    /// One sentence: what happens now, and what is waited for.
    pub says: String,
    /// The drain, current or last.
    pub drain: Option<DrainStatus>,
    /// The hold on the host.
    pub hold: HoldStatus,
    /// The cordon.
    pub cordon: CordonStatus,
    /// Giving the node back after a boot, while that is under way.
    pub restore: Option<RestoreStatus>,
    /// VMs that this drain has seen, in the order of their names.
    pub vms: Vec<VmStatus>,
    /// How many VMs there were, and how many are still here.
    pub vms_total: usize,
    /// Still here.
    pub vms_remaining: usize,
    /// Pods that are no VM's, in the order of their names; only in a drain of all pods.
    pub pods: Vec<PodStatus>,
    /// How many of them are still here.
    pub pods_remaining: usize,
    /// Volumes that are still attached to the node, while that is waited for.
    pub volumes: Vec<String>,
    /// What cannot be seen, and what cures it.
    pub blind: Vec<String>,
    /// Objects that could not be read.
    pub malformed: Vec<MalformedStatus>,
    /// VMs that a drain has shut down and that are to be started again, as `namespace/name`.
    pub to_start: Vec<String>,
    /// A shutdown for later, as long as it has not come.
    pub scheduled: Option<ScheduledStatus>,
    /// Anything else a person should know, loudest first.
    pub warnings: Vec<String>,
    /// Signals on the bus that are listened to.
    pub maintenance: Vec<MaintenanceStatus>,
}

impl Status {
    /// Nothing but the times differs: no reason to wake anybody.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let drain = match (&self.drain, &other.drain) {
            (Some(a), Some(b)) => a.says_the_same(b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let vms = self.vms.len() == other.vms.len()
            && self
                .vms
                .iter()
                .zip(&other.vms)
                .all(|(a, b)| a.says_the_same(b));
        let restore = match (&self.restore, &other.restore) {
            (Some(a), Some(b)) => a.says_the_same(b),
            (a, b) => a.is_none() && b.is_none(),
        };
        drain
            && vms
            && restore
            && self.pods.len() == other.pods.len()
            && self
                .pods
                .iter()
                .zip(&other.pods)
                .all(|(a, b)| a.says_the_same(b))
            && self.state == other.state
            && self.hold == other.hold
            && self.cordon == other.cordon
            && self.blind == other.blind
            && self.volumes == other.volumes
            && self.malformed == other.malformed
            && self.scheduled.as_ref().map(|s| s.kind) == other.scheduled.as_ref().map(|s| s.kind)
            && self.warnings == other.warnings
            && self.to_start == other.to_start
            && self.maintenance == other.maintenance
    }
}

/// A drain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainStatus {
    /// Id.
    pub id: String,
    /// Why.
    pub reason: String,
    /// Seconds since it began.
    pub running_for: f64,
    /// Seconds to the deadline (negative: past).
    pub deadline_in: Option<f64>,
    /// What happens at the deadline.
    pub on_deadline: String,
    /// The host is going down.
    pub shutting_down: bool,
    /// What is asked of logind afterwards.
    pub then: Option<Then>,
    /// Exit code of the finished drain (design section 7), absent while it runs.
    pub exit: Option<u8>,
    /// Seconds until the last VM that moves or is shut down is gone, as a range; absent when nobody can say.
    pub eta: Option<Span>,
}

impl DrainStatus {
    fn says_the_same(&self, other: &Self) -> bool {
        // A deadline that was moved shows as more than the passing of time.
        let end = |d: &Self| d.deadline_in.map(|left| left + d.running_for);
        let moved = match (end(self), end(other)) {
            (Some(a), Some(b)) => (a - b).abs() > 0.5,
            (a, b) => a.is_some() != b.is_some(),
        };
        !moved
            && self.id == other.id
            && self.exit == other.exit
            && self.then == other.then
            && self.shutting_down == other.shutting_down
    }
}

/// The delay lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HoldStatus {
    /// Held.
    pub held: bool,
    /// Seconds logind waits for delay locks.
    pub limit: Option<f64>,
    /// What is wrong, empty when all is well.
    pub trouble: String,
    /// Who sets the limit: a file, or "logind's own default"; empty when that is not known.
    pub limit_by: String,
    /// Everybody else who holds a shutdown, or stops guests in one.
    pub others: Vec<HolderStatus>,
}

/// Somebody else who holds a shutdown, or stops guests in one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HolderStatus {
    /// Its name for itself.
    pub who: String,
    /// Its reason.
    pub why: String,
    /// `delay`, `block`, `block-weak`; `unit`: a unit that has no lock.
    pub mode: String,
    /// What it does to VMs and the cure; empty when it is not known to touch any.
    pub says: String,
}

/// A scheduled shutdown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScheduledStatus {
    /// What kind, where the word is known.
    pub kind: Option<Then>,
    /// Seconds until it comes (negative: it is late).
    pub due_in: f64,
}

/// A maintenance signal that is listened to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MaintenanceStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Whose it has to be.
    pub sender: String,
    /// What it asks for.
    pub action: String,
    /// Why it cannot come now; empty when all is well.
    pub trouble: String,
}

/// The cordon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CordonStatus {
    /// `spec.unschedulable` as last seen; absent when not known.
    pub unschedulable: Option<bool>,
    /// It is ours.
    pub ours: bool,
    /// Whose it is, as a sentence part.
    pub who: String,
}

/// Giving the node back after a boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RestoreStatus {
    /// The drain that cordoned it.
    pub drain: String,
    /// Seconds since this process began to wait.
    pub waiting_for: f64,
    /// It takes longer than `restore.wait`.
    pub late: bool,
    /// What is still missing, each as a sentence part; empty when the node is being given back.
    pub waits: Vec<String>,
}

impl RestoreStatus {
    fn says_the_same(&self, other: &Self) -> bool {
        self.drain == other.drain && self.late == other.late && self.waits == other.waits
    }
}

/// Where one VM stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VmPhase {
    /// Nothing asked yet: waits for its turn.
    #[default]
    Queued,
    /// Marked; KubeVirt has not begun.
    Marked,
    /// The target pod is being placed and started.
    Scheduling,
    /// Memory is being copied.
    Migrating,
    /// An inbound migration is arriving.
    Arriving,
    /// The guest is shutting down.
    ShuttingDown,
    /// Nothing can be done until something changes; `says` tells what.
    Blocked,
    /// Waits for something that comes by itself.
    Waiting,
    /// Moved to another node.
    Migrated,
    /// Shut down here.
    ShutDown,
    /// Gone, and nobody can see how.
    Gone,
    /// Still here when the drain ended.
    Left,
}

/// One VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VmStatus {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its launcher pod here.
    pub pod: String,
    /// Where it stands.
    pub phase: VmPhase,
    /// Why, as a sentence.
    pub says: String,
    /// Target node, where it is known.
    pub target: Option<String>,
    /// Migration attempts that were seen.
    pub attempts: u32,
    /// Eviction POSTs sent.
    pub posts: u32,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Seconds since the phase was entered.
    pub since: f64,
    /// Seconds from the first request to its end, once it has ended.
    pub took: Option<f64>,
    /// The mark on the VMI is ours.
    pub marked_by_us: bool,
    /// Seconds until it is gone, as a range; absent when nobody can say.
    pub eta: Option<Span>,
    /// What will become of it, as one word: migrates, restarted_elsewhere, shut_down, blocked, external, left, unknown.
    pub fate: String,
    /// The same as a sentence.
    pub fate_says: String,
    /// Its policy: migrate, shutdown, restart, leave.
    pub policy: String,
    /// Who says so: policy.default, policy.rule N, the VM's annotation, drain.skip.
    pub policy_from: String,
    /// What is wrong with its annotations, empty when nothing is.
    pub policy_trouble: String,
    /// Who owns it, e.g. `VirtualMachine (Always)`; empty when that cannot be seen.
    pub owner: String,
}

impl VmStatus {
    fn says_the_same(&self, other: &Self) -> bool {
        self.name == other.name
            && self.namespace == other.namespace
            && self.phase == other.phase
            && self.says == other.says
            && self.pod == other.pod
            && self.target == other.target
            && self.attempts == other.attempts
            && self.posts == other.posts
            && self.marked_by_us == other.marked_by_us
            && self.fate_says == other.fate_says
            && self.policy_from == other.policy_from
            && self.policy_trouble == other.policy_trouble
            && self.owner == other.owner
    }

    /// Namespace and name.
    pub fn vm(&self) -> VmName {
        VmName {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

/// Where a pod stands that is no VM's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodState {
    /// Waits for its turn.
    #[default]
    Queued,
    /// Its eviction is asked for, or was granted.
    Going,
    /// Waits for something that comes by itself, a disruption budget for one.
    Waiting,
    /// It stays until a person does something; `says` tells what.
    Blocked,
    /// Not on this node any more, or over.
    Gone,
    /// Still here when the drain ended.
    Left,
}

/// A pod that is no VM's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Who controls it, e.g. `ReplicaSet web`, as it says itself.
    pub owner: String,
    /// Where it stands.
    pub phase: PodState,
    /// Why, as a sentence.
    pub says: String,
    /// Eviction POSTs sent.
    pub posts: u32,
    /// Seconds since the phase was entered.
    pub since: f64,
}

impl PodStatus {
    fn says_the_same(&self, other: &Self) -> bool {
        self.name == other.name
            && self.namespace == other.namespace
            && self.phase == other.phase
            && self.says == other.says
            && self.posts == other.posts
    }
}

/// An object that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MalformedStatus {
    /// Plural resource.
    pub resource: String,
    /// `namespace/name`.
    pub object: String,
    /// What is wrong.
    pub why: String,
}

impl From<&Malformed> for MalformedStatus {
    fn from(m: &Malformed) -> Self {
        Self {
            resource: m.resource.clone(),
            object: m.object.clone(),
            why: m.why.clone(),
        }
    }
}
