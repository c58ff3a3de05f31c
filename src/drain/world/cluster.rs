//! What KubeVirt and the disruption budgets allow.

use super::{ObjectRef, Strategy};
use serde::Serialize;

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
