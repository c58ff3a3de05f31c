//! What was observed: the newest picture of this node, as plain data.
//!
//! The cluster adapter fills these types from thin API objects; the core only reads them.
//! A picture replaces the one before it: missed, doubled or late watch events cannot hurt.

use super::time::Mono;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Namespace and name of a VM; its VMI has the same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VmName {
    /// Kubernetes namespace.
    pub namespace: String,
    /// `metadata.name` of the VM and of its VMI.
    pub name: String,
}

impl fmt::Display for VmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One API object: where it is and which incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Kubernetes namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; a new object under an old name has another one.
    pub uid: String,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whether a kind of object can be seen, and if not, why.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(tag = "sight", rename_all = "snake_case")]
pub enum Sight<T> {
    /// Not asked yet, or the first list has not come back.
    #[default]
    Pending,
    /// Seen. `fresh` is the moment of the last sign of life of the list or watch.
    Seen {
        /// What is there now.
        #[serde(skip)]
        value: T,
        /// When the server last confirmed this (list, event or bookmark).
        fresh: Mono,
    },
    /// Nobody may look (403): the sentence names the missing right.
    Forbidden {
        /// What is missing and which part of the RBAC manifest cures it.
        why: String,
    },
    /// The kind does not exist on this cluster (404).
    Missing,
    /// Requests fail for another reason; the last picture is kept by the adapter while it is useful.
    Broken {
        /// The error as a sentence.
        why: String,
        /// Since when.
        since: Mono,
    },
}

impl<T> Sight<T> {
    /// The value, where it can be seen.
    pub fn seen(&self) -> Option<&T> {
        match self {
            Self::Seen { value, .. } => Some(value),
            Self::Pending | Self::Forbidden { .. } | Self::Missing | Self::Broken { .. } => None,
        }
    }

    /// True once the question is settled, one way or the other.
    pub fn settled(&self) -> bool {
        !matches!(self, Self::Pending)
    }
}

/// Our ownership marker, the annotation `vmdrain.io/cordon` on the Node (design section 6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CordonNote {
    /// Id of the drain that set the cordon.
    pub drain: String,
    /// Boot id of the host at that time.
    pub boot: String,
    /// Why, for people.
    pub reason: String,
    /// `--keep-cordoned`: stays cordoned over the reboot.
    #[serde(default)]
    pub keep: bool,
}

/// What the annotation `vmdrain.io/cordon` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CordonMark {
    /// No annotation: a cordon, if there is one, is somebody else's.
    #[default]
    Absent,
    /// A readable note of ours.
    Note(CordonNote),
    /// There, but not readable: never undone, because nobody knows whose it is.
    Damaged(String),
}

/// The own Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`, sent back as precondition of every patch.
    pub resource_version: String,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Our marker.
    pub cordon: CordonMark,
    /// Condition `Ready`.
    pub ready: bool,
    /// `status.nodeInfo.machineID`, empty when absent.
    pub machine_id: String,
    /// `status.nodeInfo.systemUUID`, empty when absent.
    pub system_uuid: String,
    /// `status.nodeInfo.bootID`, empty when absent.
    pub boot_id: String,
    /// Taint keys with effect `NoSchedule` or `NoExecute`, as `key:effect`.
    pub taints: Vec<String>,
}

/// `status.phase` of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodPhase {
    /// Accepted, not all containers started.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended with 0.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
    /// The kubelet has not reported.
    Unknown,
}

/// The container that holds the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compute {
    /// Not started yet (or no status yet): it will run.
    #[default]
    Waiting,
    /// The guest can be running.
    Running,
    /// Ended: no guest here any more, even if a sidecar keeps the pod.
    Terminated,
}

/// What a pod labelled `kubevirt.io=virt-launcher` or found on this node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodKind {
    /// A virt-launcher pod that holds a VM.
    #[default]
    Launcher,
    /// `hp-volume-*`: follows its launcher, never evicted by us.
    Hotplug,
    /// WaitForFirstConsumer helper (annotation `kubevirt.io/ephemeral-provisioning`): short-lived, ignored.
    Provisioning,
}

/// A pod of this node that concerns a VM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodView {
    /// Which pod.
    pub pod: ObjectRef,
    /// What it is.
    pub kind: PodKind,
    /// Its VM: controller owner reference of kind VirtualMachineInstance, else annotation `kubevirt.io/domain`.
    pub vm: VmName,
    /// UID of the VMI (owner reference, else label `kubevirt.io/created-by`); empty when unknown.
    pub vmi_uid: String,
    /// `status.phase`.
    pub phase: PodPhase,
    /// The container `compute`.
    pub compute: Compute,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Label `kubevirt.io/migrationJobUID`: it was made as a migration target (and keeps the label afterwards).
    pub migration_job: Option<String>,
    /// Label `kubevirt.io/nodeName`: the node of the VMI as KubeVirt last wrote it on the pod. On a fresh
    /// target pod that is still the *source* node (kubevirt-semantics 3.3).
    pub vmi_node_label: Option<String>,
    /// Annotation `descheduler.alpha.kubernetes.io/eviction-in-progress` is present, whatever its value.
    pub eviction_in_progress: bool,
    /// Memory request of `compute` in bytes.
    pub memory: Option<u64>,
    /// `spec.terminationGracePeriodSeconds` (the guest's own plus 30 s).
    pub grace: Duration,
    /// Annotation `vmdrain.io/policy` as it stands, unread.
    pub policy: Option<String>,
    /// Labels, for selectors of the configuration.
    pub labels: BTreeMap<String, String>,
}

impl PodView {
    /// The pod is over: `Succeeded` or `Failed`.
    pub fn is_final(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// No guest runs or will run here: the pod is final or its `compute` container has ended.
    pub fn is_empty_of_guest(&self) -> bool {
        self.is_final() || self.compute == Compute::Terminated
    }
}

/// `spec.evictionStrategy` of a VMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// Migrate or block.
    LiveMigrate,
    /// Migrate, else shut the guest down.
    LiveMigrateIfPossible,
    /// Shut the guest down.
    None,
    /// Mark it; a foreign controller takes it away.
    External,
}

/// `status.phase` of a VMI, as far as it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum VmiPhase {
    /// Empty, Pending, Scheduling, Scheduled or WaitingForSync: no guest yet.
    #[default]
    Starting,
    /// The guest runs.
    Running,
    /// Over, cleanly.
    Succeeded,
    /// Over, not cleanly.
    Failed,
    /// A phase that we do not know.
    Unknown,
}

/// `status.migrationState`: the last attempt that reached hand-off; stays for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationState {
    /// UID of the VMIM (`migrationUid`).
    pub migration_uid: String,
    /// `sourceNode`.
    pub source_node: String,
    /// `targetNode`.
    pub target_node: String,
    /// `targetPod`.
    pub target_pod: String,
    /// `startTimestamp` is set.
    pub started: bool,
    /// `endTimestamp` is set.
    pub ended: bool,
    /// `completed`.
    pub completed: bool,
    /// `failed`.
    pub failed: bool,
    /// `failureReason`.
    pub failure_reason: String,
}

impl MigrationState {
    /// Copying right now: started and not ended.
    pub fn is_running(&self) -> bool {
        self.started && !self.ended && !self.completed && !self.failed
    }
}

/// A VMI of this node, or one that is on its way to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmiView {
    /// Which VMI.
    pub vmi: ObjectRef,
    /// `status.phase`.
    pub phase: VmiPhase,
    /// `status.nodeName`.
    pub node: String,
    /// `status.evacuationNodeName`: the mark.
    pub mark: Option<String>,
    /// Condition `LiveMigratable`; `None` while it is missing.
    pub live_migratable: Option<bool>,
    /// Reason and message of that condition when it is false.
    pub not_migratable: String,
    /// `spec.evictionStrategy`; `None` when unset (then the cluster's default counts).
    pub strategy: Option<Strategy>,
    /// `status.migrationState`.
    pub migration: Option<MigrationState>,
    /// Label `kubevirt.io/migrationTargetNodeName`.
    pub target_node_label: Option<String>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Guest memory in bytes.
    pub memory: Option<u64>,
    /// `spec.terminationGracePeriodSeconds`, 30 s when unset.
    pub grace: Duration,
    /// Kind of the controlling owner (`VirtualMachine`, `VirtualMachineInstanceReplicaSet`), empty for a standalone VMI.
    pub owner_kind: String,
}

impl VmiView {
    /// Namespace and name.
    pub fn vm(&self) -> VmName {
        VmName {
            namespace: self.vmi.namespace.clone(),
            name: self.vmi.name.clone(),
        }
    }

    /// `Succeeded` or `Failed`.
    pub fn is_final(&self) -> bool {
        matches!(self.phase, VmiPhase::Succeeded | VmiPhase::Failed)
    }
}

/// `status.phase` of a VMIM, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MigrationPhase {
    /// No phase yet.
    #[default]
    New,
    /// Waits for a slot, a backoff or a quota.
    Pending,
    /// The target pod exists; it may be unschedulable.
    Scheduling,
    /// The target pod runs.
    Scheduled,
    /// Handed over to virt-handler.
    PreparingTarget,
    /// The target listens.
    TargetReady,
    /// Copying.
    Running,
    /// Over, moved.
    Succeeded,
    /// Over, not moved.
    Failed,
    /// A phase that we do not know: taken for unfinished.
    Unknown,
}

/// A VMIM anywhere in the cluster: the slots are counted over all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MigrationView {
    /// Which VMIM.
    pub migration: ObjectRef,
    /// Its VM.
    pub vm: VmName,
    /// `status.phase`.
    pub phase: MigrationPhase,
    /// Annotation `kubevirt.io/evacuationMigration`: the node that it evacuates.
    pub evacuates: Option<String>,
    /// `status.migrationState.sourceNode`, empty until the end (the VMI's own migrationState has it earlier).
    pub source_node: String,
    /// `status.migrationState.targetNode`, likewise.
    pub target_node: String,
    /// `status.migrationState.failureReason`, or a condition's message.
    pub failure_reason: String,
    /// Why it stands still (condition such as `migrationRejectedByResourceQuota`), empty otherwise.
    pub held_back: String,
    /// `metadata.creationTimestamp`, seconds since the epoch: only to order the attempts of one VM.
    pub created: i64,
    /// `metadata.deletionTimestamp` is set: being aborted.
    pub deleting: bool,
}

impl MigrationView {
    /// `Succeeded` or `Failed`.
    pub fn is_final(&self) -> bool {
        matches!(
            self.phase,
            MigrationPhase::Succeeded | MigrationPhase::Failed
        )
    }
}

/// What the KubeVirt object says; readable by everybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KubeVirtView {
    /// `status.observedKubeVirtVersion` as (major, minor); `None` when unreadable.
    pub version: Option<(u32, u32)>,
    /// `parallelMigrationsPerCluster`, 5 when unset.
    pub per_cluster: u32,
    /// `parallelOutboundMigrationsPerNode`, 2 when unset.
    pub per_node: u32,
    /// `spec.configuration.evictionStrategy`, `None` when unset.
    pub strategy: Strategy,
    /// `nodeDrainTaintKey`.
    pub drain_taint_key: String,
    /// Feature gate `MigrationPriorityQueue` is listed (or the version has it for good).
    pub priority_queue: bool,
}

impl Default for KubeVirtView {
    fn default() -> Self {
        Self {
            version: None,
            per_cluster: 5,
            per_node: 2,
            strategy: Strategy::None,
            drain_taint_key: "kubevirt.io/drain".into(),
            priority_queue: false,
        }
    }
}

/// A PodDisruptionBudget that selects at least one launcher pod of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PdbView {
    /// Which budget.
    pub pdb: ObjectRef,
    /// UIDs of the launcher pods of this node that it selects.
    pub selects: Vec<String>,
    /// `spec.minAvailable` or `spec.maxUnavailable` as text, e.g. `minAvailable: 3`.
    pub rule: String,
    /// `status.currentHealthy`.
    pub current_healthy: i64,
    /// `status.desiredHealthy`.
    pub desired_healthy: i64,
    /// `status.disruptionsAllowed`.
    pub disruptions_allowed: i64,
    /// Message of the condition with reason `SyncFailed`: it can never be satisfied.
    pub sync_failed: Option<String>,
}

/// An object that could not be read: skipped, reported, never fatal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Malformed {
    /// Plural resource, e.g. `pods`.
    pub resource: String,
    /// `namespace/name` as far as known.
    pub object: String,
    /// What is wrong, with the field's path.
    pub why: String,
}

/// Everything that was seen of this node, newest first-hand knowledge only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// The own Node.
    pub node: Sight<NodeView>,
    /// Launcher and hotplug pods of this node.
    pub pods: Sight<Vec<PodView>>,
    /// VMIs of this node and those on their way to it.
    pub vmis: Sight<Vec<VmiView>>,
    /// VMIMs of the whole cluster.
    pub migrations: Sight<Vec<MigrationView>>,
    /// Budgets that select launcher pods of this node.
    pub pdbs: Sight<Vec<PdbView>>,
    /// The KubeVirt object.
    pub kubevirt: Sight<KubeVirtView>,
    /// Objects that could not be read.
    pub malformed: Vec<Malformed>,
}

/// Fresh quorum lists, made for one question: is the node empty (design section 3.4)?
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fresh {
    /// Launcher and hotplug pods of this node.
    pub pods: Vec<PodView>,
    /// VMIs of and to this node; `None` where they cannot be read.
    pub vmis: Option<Vec<VmiView>>,
    /// VMIMs; `None` where they cannot be read.
    pub migrations: Option<Vec<MigrationView>>,
    /// Objects in these lists that could not be read: then the node does not count as empty.
    pub malformed: Vec<Malformed>,
}
