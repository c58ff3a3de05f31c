//! VirtualMachineInstanceMigrations: who is moving, how far, and what holds it back.

use super::guard::Thin;
use super::meta::{Condition, Meta, nullable};
use super::vmi::MigrationRecord;
use crate::drain::world::{MigrationPhase, MigrationView, VmName};
use serde::Deserialize;

/// Label with the name of the VMI, set by whoever creates the VMIM.
pub(crate) const VMI_NAME_LABEL: &str = "kubevirt.io/vmi-name";

/// Conditions that say why a migration stands still.
const HOLDING: [&str; 4] = [
    "migrationRejectedByResourceQuota",
    "migrationBlockedByUtilityVolumes",
    "migrationBlockedByBackup",
    "decentralizedMigrationBlocked",
];

/// A VMIM.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Migration {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: Spec,
    #[serde(deserialize_with = "nullable")]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    vmi_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    #[serde(deserialize_with = "nullable")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    migration_state: MigrationRecord,
}

impl Thin for Migration {
    type View = MigrationView;
    const RESOURCE: &'static str = "virtualmachineinstancemigrations";
    const MANY: bool = true;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Result<MigrationView, String> {
        let migration = self.metadata.reference()?;
        let vmi = self
            .spec
            .vmi_name
            .filter(|name| !name.is_empty())
            .ok_or_else(|| "spec.vmiName: missing".to_owned())?;
        let phase = phase(self.status.phase.as_deref());
        let on = |condition: &&Condition| condition.status == "True";
        let conditions = &self.status.conditions;
        let held_back = conditions
            .iter()
            .filter(on)
            .find(|condition| HOLDING.contains(&condition.kind.as_str()))
            .map(|condition| format!("{}: {}", condition.kind, condition.says()))
            .unwrap_or_default();
        let state = self.status.migration_state;
        let failure_reason = state
            .failure_reason
            .filter(|text| !text.is_empty())
            .or_else(|| {
                let failed = phase == MigrationPhase::Failed;
                let said = conditions.iter().filter(on).map(Condition::says);
                said.rev().find(|text| failed && !text.is_empty())
            })
            .unwrap_or_default();
        Ok(MigrationView {
            vm: VmName {
                namespace: migration.namespace.clone(),
                name: vmi,
            },
            migration,
            phase,
            evacuates: self
                .metadata
                .annotations
                .get("kubevirt.io/evacuationMigration")
                .cloned(),
            source_node: state.source_node.unwrap_or_default(),
            target_node: state.target_node.unwrap_or_default(),
            failure_reason,
            held_back,
            created: self.metadata.created(),
            deleting: self.metadata.deletion_timestamp.is_some(),
        })
    }
}

/// `status.phase`. The two phases that a decentralized migration has before `Pending` count as new.
fn phase(text: Option<&str>) -> MigrationPhase {
    match text {
        None | Some("" | "WaitingForSync" | "Synchronizing") => MigrationPhase::New,
        Some("Pending") => MigrationPhase::Pending,
        Some("Scheduling") => MigrationPhase::Scheduling,
        Some("Scheduled") => MigrationPhase::Scheduled,
        Some("PreparingTarget") => MigrationPhase::PreparingTarget,
        Some("TargetReady") => MigrationPhase::TargetReady,
        Some("Running") => MigrationPhase::Running,
        Some("Succeeded") => MigrationPhase::Succeeded,
        Some("Failed") => MigrationPhase::Failed,
        Some(_) => MigrationPhase::Unknown,
    }
}
