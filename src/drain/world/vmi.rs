//! VMIs of and to this node, and their migrations.

use super::{ObjectRef, VmName};
use serde::{Deserialize, Serialize};
use std::time::Duration;

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
