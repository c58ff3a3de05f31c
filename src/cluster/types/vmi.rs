//! VirtualMachineInstances: where a VM is, whether it is marked, and whether it can migrate.

use super::guard::Thin;
use super::meta::{Condition, Meta, nullable};
use super::quantity::Quantity;
use crate::drain::world::{MigrationState, Strategy, VmiPhase, VmiView};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// KubeVirt's default for `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// A VMI.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Vmi {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: Spec,
    #[serde(deserialize_with = "nullable")]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    eviction_strategy: Option<String>,
    termination_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    domain: Domain,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Domain {
    #[serde(deserialize_with = "nullable")]
    memory: Memory,
    #[serde(deserialize_with = "nullable")]
    resources: Resources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Memory {
    guest: Option<Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    #[serde(deserialize_with = "nullable")]
    requests: BTreeMap<String, Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    node_name: Option<String>,
    evacuation_node_name: Option<String>,
    #[serde(deserialize_with = "nullable")]
    conditions: Vec<Condition>,
    migration_state: Option<MigrationRecord>,
}

/// `status.migrationState`, also of a VMIM.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct MigrationRecord {
    migration_uid: Option<String>,
    pub(crate) source_node: Option<String>,
    pub(crate) target_node: Option<String>,
    target_pod: Option<String>,
    start_timestamp: Option<String>,
    end_timestamp: Option<String>,
    completed: Option<bool>,
    failed: Option<bool>,
    pub(crate) failure_reason: Option<String>,
}

impl MigrationRecord {
    fn view(self) -> MigrationState {
        MigrationState {
            migration_uid: self.migration_uid.unwrap_or_default(),
            source_node: self.source_node.unwrap_or_default(),
            target_node: self.target_node.unwrap_or_default(),
            target_pod: self.target_pod.unwrap_or_default(),
            started: self.start_timestamp.is_some(),
            ended: self.end_timestamp.is_some(),
            completed: self.completed.unwrap_or(false),
            failed: self.failed.unwrap_or(false),
            failure_reason: self.failure_reason.unwrap_or_default(),
        }
    }
}

impl Thin for Vmi {
    type View = VmiView;
    const RESOURCE: &'static str = "virtualmachineinstances";
    const MANY: bool = true;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Result<VmiView, String> {
        let vmi = self.metadata.reference()?;
        let migratable = self
            .status
            .conditions
            .iter()
            .find(|condition| condition.kind == "LiveMigratable");
        let live_migratable = match migratable.map(|condition| condition.status.as_str()) {
            Some("True") => Some(true),
            Some("False") => Some(false),
            _ => None,
        };
        let not_migratable = match (live_migratable, migratable) {
            (Some(false), Some(condition)) => condition.says(),
            _ => String::new(),
        };
        let spec = self.spec;
        let grace = spec.termination_grace_period_seconds;
        let memory = spec.domain.memory.guest;
        Ok(VmiView {
            vmi,
            phase: phase(self.status.phase.as_deref()),
            node: self.status.node_name.unwrap_or_default(),
            mark: self
                .status
                .evacuation_node_name
                .filter(|node| !node.is_empty()),
            live_migratable,
            not_migratable,
            strategy: strategy(spec.eviction_strategy.as_deref())
                .map_err(|word| format!("spec.evictionStrategy: unknown strategy {word}"))?,
            migration: self.status.migration_state.map(MigrationRecord::view),
            target_node_label: self.metadata.label("kubevirt.io/migrationTargetNodeName"),
            deleting: self.metadata.deletion_timestamp.is_some(),
            memory: memory
                .as_ref()
                .or_else(|| spec.domain.resources.requests.get("memory"))
                .and_then(Quantity::bytes),
            grace: grace.map_or(DEFAULT_GRACE, |seconds| {
                Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
            }),
            owner_kind: self
                .metadata
                .controller()
                .map(|owner| owner.kind.clone())
                .unwrap_or_default(),
        })
    }
}

/// `spec.evictionStrategy`; the word comes back when it is none of KubeVirt's.
pub(super) fn strategy(text: Option<&str>) -> Result<Option<Strategy>, String> {
    Ok(match text {
        None | Some("") => None,
        Some("LiveMigrate") => Some(Strategy::LiveMigrate),
        Some("LiveMigrateIfPossible") => Some(Strategy::LiveMigrateIfPossible),
        Some("None") => Some(Strategy::None),
        Some("External") => Some(Strategy::External),
        Some(other) => return Err(other.to_owned()),
    })
}

/// `status.phase`.
fn phase(text: Option<&str>) -> VmiPhase {
    match text {
        None | Some("" | "Pending" | "Scheduling" | "Scheduled" | "WaitingForSync") => {
            VmiPhase::Starting
        }
        Some("Running") => VmiPhase::Running,
        Some("Succeeded") => VmiPhase::Succeeded,
        Some("Failed") => VmiPhase::Failed,
        Some(_) => VmiPhase::Unknown,
    }
}
