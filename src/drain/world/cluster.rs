//! What KubeVirt and the disruption budgets allow.

use super::{ObjectRef, Strategy};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

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

/// A number or a share of pods in a disruption budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Number(i64),
    /// A percentage, or any other text, as it stands.
    Share(String),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Share(text) => f.write_str(text),
        }
    }
}

/// What a disruption budget demands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Neither of the two.
    #[default]
    Unset,
    /// `spec.minAvailable`.
    MinAvailable(Amount),
    /// `spec.maxUnavailable`.
    MaxUnavailable(Amount),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => f.write_str("neither minAvailable nor maxUnavailable"),
            Self::MinAvailable(amount) => write!(f, "minAvailable: {amount}"),
            Self::MaxUnavailable(amount) => write!(f, "maxUnavailable: {amount}"),
        }
    }
}

/// One entry of `matchExpressions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`.
    pub operator: String,
    /// Its values.
    pub values: Vec<String>,
}

/// Which pods a budget selects, as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectorView {
    /// `matchLabels`.
    pub labels: BTreeMap<String, String>,
    /// `matchExpressions`.
    pub expressions: Vec<Requirement>,
}

impl fmt::Display for SelectorView {
    /// In the form that `kubectl -l` and list requests take; empty: every pod of the namespace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let expressions = self.expressions.iter().map(|e| {
            let values = e.values.join(",");
            match e.operator.as_str() {
                "In" => format!("{} in ({values})", e.key),
                "NotIn" => format!("{} notin ({values})", e.key),
                "DoesNotExist" => format!("!{}", e.key),
                _ => e.key.clone(),
            }
        });
        f.write_str(&labels.chain(expressions).collect::<Vec<_>>().join(","))
    }
}

/// A PodDisruptionBudget that selects at least one launcher pod of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PdbView {
    /// Which budget.
    pub pdb: ObjectRef,
    /// UIDs of the launcher pods of this node that it selects.
    pub selects: Vec<String>,
    /// `spec.minAvailable` or `spec.maxUnavailable`.
    pub rule: Rule,
    /// `spec.selector`.
    pub selector: SelectorView,
    /// `spec.unhealthyPodEvictionPolicy`, where it is set.
    pub unhealthy_policy: Option<String>,
    /// `status.expectedPods`.
    pub expected: i64,
    /// `status.currentHealthy`.
    pub current_healthy: i64,
    /// `status.desiredHealthy`.
    pub desired_healthy: i64,
    /// `status.disruptionsAllowed`.
    pub disruptions_allowed: i64,
    /// Kubernetes has looked at the budget as it stands now.
    pub processed: bool,
    /// Message of the condition with reason `SyncFailed`: its pods cannot be counted.
    pub sync_failed: Option<String>,
    /// When the condition `DisruptionAllowed` last changed, as the server writes it; empty when it does not say.
    pub since: String,
    /// Made by KubeVirt (up to 1.5) for one VMI: never in anybody's way.
    pub kubevirts_own: bool,
}
