//! From the target pod to the end of the copy: what does virt-controller wait for, and what makes a migration fail?

use std::time::Duration;

use serde_json::{Value, json};

use super::super::{active_pod, pods_of, target_pod};
use super::{Migrations, VMIM};
use crate::api::Store;
use crate::kubernetes::engine::{Key, Queue, Unavailable};
use crate::kubevirt::fields::{
    annotation, condition, ended, flag, has, is_true, migrates_by, name, namespace, phase, text,
    time, uid,
};
use crate::kubevirt::names::{self, kind, knob};

impl Migrations {
    /// Steps 8 and 9, or the end of patience with a target pod that does not start.
    pub(super) fn scheduling(&self, store: &Store, vmim: &Value, queue: &mut Queue) {
        let Some(pod) = target_pod(store, vmim) else {
            return;
        };
        if phase(&pod) == "Running" && started(&pod) {
            Self::set_phase(store, vmim, "Scheduled");
            return;
        }
        let unschedulable = condition(&pod, "PodScheduled")
            .is_some_and(|found| found["status"] == "False" && found["reason"] == "Unschedulable");
        if unschedulable {
            let text = format!(
                "Migration target pod for VMI [{}/{}] is currently unschedulable.",
                namespace(vmim),
                text(vmim, "spec.vmiName")
            );
            store.record_event(vmim, "Warning", "migrationTargetPodUnschedulable", &text);
        }
        let age = Duration::try_from(
            store
                .clock()
                .now()
                .duration_since(time(&pod, "metadata.creationTimestamp").unwrap_or_default()),
        )
        .unwrap_or_default();
        let patience = self.patience(vmim, unschedulable);
        if age < patience {
            queue.after(Key::of(VMIM, vmim), patience.saturating_sub(age));
            return;
        }
        let what = if unschedulable {
            "unschedulable"
        } else {
            "pending"
        };
        store.delete(kind::PODS, namespace(&pod), name(&pod));
        let text = format!(
            "{what} pod {}/{} timeout period exceeded",
            namespace(&pod),
            name(&pod)
        );
        store.record_event(vmim, "Normal", "SuccessfulDelete", &text);
    }

    fn patience(&self, vmim: &Value, unschedulable: bool) -> Duration {
        let timings = &self.api.settings().timings;
        let (key, usual) = if unschedulable {
            (
                "kubevirt.io/migrationUnschedulablePodTimeoutSeconds",
                timings.unschedulable,
            )
        } else {
            (
                "kubevirt.io/migrationPendingPodTimeoutSeconds",
                timings.pending,
            )
        };
        annotation(vmim, key)
            .and_then(|text| text.parse().ok())
            .map_or(usual, Duration::from_secs)
    }

    /// Step 10, the hand-off; then 11.
    pub(super) fn scheduled(
        &self,
        store: &Store,
        vmim: &Value,
        vmi: &Value,
    ) -> Result<(), Unavailable> {
        if migrates_by(vmi, uid(vmim)) {
            Self::set_phase(store, vmim, "PreparingTarget");
            return Ok(());
        }
        let Some(target) = target_pod(store, vmim) else {
            return Ok(());
        };
        let pods = pods_of(store, namespace(vmi), uid(vmi));
        let source = active_pod(vmi, &pods)
            .map(|pod| name(pod).to_owned())
            .unwrap_or_default();
        let (from, to) = (
            text(vmi, "status.nodeName").to_owned(),
            text(&target, "spec.nodeName").to_owned(),
        );
        let attempt = format!(
            "{}/{}",
            uid(vmim),
            annotation(&target, knob::ATTEMPT).unwrap_or("1")
        );
        let timings = &self.api.settings().timings;
        let mut state = json!({
            "migrationUid": uid(vmim), "sourceNode": from, "sourcePod": source, "targetNode": to, "targetPod": name(&target),
            "migrationConfiguration": {
                "parallelMigrationsPerCluster": self.api.settings().per_cluster,
                "parallelOutboundMigrationsPerNode": self.api.settings().per_node,
                "nodeDrainTaintKey": self.api.settings().drain_taint_key,
                "allowAutoConverge": false, "allowPostCopy": false, "allowWorkloadDisruption": false, "unsafeMigrationOverride": false, "bandwidthPerMigration": "0",
                "completionTimeoutPerGiB": timings.completion_per_gib.as_secs(), "progressTimeout": timings.no_progress.as_secs(),
            },
        });
        if self.api.settings().since(1, 8) {
            state["migrationConfiguration"]["utilityVolumesTimeout"] = json!(150);
        }
        self.update_vmi(store, vmi, |vmi| {
            vmi["status"]["migrationState"] = state;
            vmi["metadata"]["labels"][names::MIGRATION_TARGET] = json!(to);
            vmi["metadata"]["annotations"][knob::ATTEMPT] = json!(attempt);
        })?;
        store.record_event(
            vmim,
            "Normal",
            "SuccessfulHandOver",
            "Migration target pod is ready for preparation by virt-handler.",
        );
        Ok(())
    }

    /// Steps 13, 15 and 21.
    pub(super) fn follow(store: &Store, vmim: &Value, vmi: &Value) {
        if !migrates_by(vmi, uid(vmim)) {
            return;
        }
        let state = &vmi["status"]["migrationState"];
        match phase(vmim) {
            "PreparingTarget" if has(state, "targetNodeAddress") => {
                Self::set_phase(store, vmim, "TargetReady");
            }
            "TargetReady" if has(state, "startTimestamp") => {
                Self::set_phase(store, vmim, "Running");
            }
            "Running"
                if flag(state, "completed") && !flag(state, "failed") && !has_followup(vmi) =>
            {
                Self::set_phase(store, vmim, "Succeeded");
                store.record_event(
                    vmim,
                    "Normal",
                    "SuccessfulMigration",
                    "Source node reported migration succeeded",
                );
            }
            _ => {}
        }
    }

    /// Why a VMIM has failed, if it has.
    pub(super) fn failure(
        &self,
        store: &Store,
        vmim: &Value,
        vmi: Option<&Value>,
    ) -> Result<Option<String>, Unavailable> {
        let Some(vmi) = vmi.filter(|vmi| !ended(vmi)) else {
            return Ok(Some(
                "Migration failed vmi shutdown during migration.".to_owned(),
            ));
        };
        let handed_over = migrates_by(vmi, uid(vmim));
        let state = &vmi["status"]["migrationState"];
        if handed_over && flag(state, "failed") {
            return Ok(Some("source node reported migration failed".to_owned()));
        }
        if matches!(phase(vmim), "" | "Pending") || handed_over && has(state, "endTimestamp") {
            return Ok(None);
        }
        let Some(pod) = target_pod(store, vmim) else {
            return Ok(Some(
                "Migration target pod was removed during active migration.".to_owned(),
            ));
        };
        if !ended(&pod) {
            return Ok(None);
        }
        if handed_over {
            let now = store.stamp();
            self.update_vmi(store, vmi, |vmi| {
                let state = &mut vmi["status"]["migrationState"];
                if state["startTimestamp"].is_null() {
                    state["startTimestamp"] = json!(now);
                }
                state["endTimestamp"] = json!(now);
                state["failed"] = json!(true);
                state["completed"] = json!(true);
                state["failureReason"] = json!("Target pod is down");
            })?;
        }
        Ok(Some(
            "Migration failed because target pod shutdown during migration".to_owned(),
        ))
    }
}

/// Whether every container that has to run does.
fn started(pod: &Value) -> bool {
    let Some(containers) = pod["status"]["containerStatuses"].as_array() else {
        return false;
    };
    let compute = containers
        .iter()
        .any(|container| container["name"] == "compute" && has(container, "state.running"));
    compute
        && containers
            .iter()
            .filter(|container| container["name"] != "compute")
            .all(|container| flag(container, "ready"))
}

/// Hot-plugged CPUs or memory are applied by the migration; it is not done before that is.
fn has_followup(vmi: &Value) -> bool {
    condition(vmi, "HotVCPUChange").is_some()
        || is_true(vmi, "HotMemoryChange")
        || is_true(vmi, "MigrationRequired")
}
