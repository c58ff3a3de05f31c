//! May a Pending VMIM make its target pod (slots, rhythm, backoff; control-plane-versions 2.1)?

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::super::{active_pod, launcher, migrations_of, pods_of, running, target_pod};
use super::{Migrations, VMIM};
use crate::api::Store;
use crate::kubernetes::engine::{Key, Queue, Unavailable};
use crate::kubevirt::fields::{
    annotation, ended, has, label, migrates_by, name, namespace, owned_by, phase, phase_since,
    text, uid,
};
use crate::kubevirt::names::{self, kind};

/// How urgent a VMIM is.
pub(super) fn priority(vmim: &Value) -> u32 {
    match text(vmim, "spec.priority") {
        "system-critical" => 100,
        "user-triggered" => 50,
        "system-maintenance" => 20,
        _ => 0,
    }
}

impl Migrations {
    pub(super) fn pending(
        &mut self,
        store: &Store,
        vmim: &Arc<Value>,
        vmi: &Value,
        queue: &mut Queue,
    ) -> Result<(), Unavailable> {
        if target_pod(store, vmim).is_some() {
            Self::set_phase(store, vmim, "Scheduling");
            return Ok(());
        }
        let key = Key::of(VMIM, vmim);
        if let Some(left) = self.backoff(store, vmim) {
            let text = format!("backoff migrating vmi {}/{}", namespace(vmi), name(vmi));
            store.record_event(vmi, "Warning", "MigrationBackoff", &text);
            queue.after(key, left);
            return Ok(());
        }
        self.announce(store, vmim, vmi);
        if annotation(vmi, "kubevirt.io/nonroot").is_none() {
            return self.update_vmi(store, vmi, |vmi| {
                vmi["metadata"]["annotations"]["kubevirt.io/nonroot"] = json!("true");
            });
        }
        let live = pods_of(store, namespace(vmi), uid(vmi))
            .iter()
            .filter(|pod| !ended(pod))
            .count();
        if live != 1 || phase(vmi) != "Running" {
            queue.after(key, self.api.settings().timings.look);
            return Ok(());
        }
        if !self.may_start(store, vmim, vmi) {
            // The work queue adds its own reaction to every look: 27.1 s for six VMs, not 26.
            let (least, most) = self.api.settings().timings.react;
            let late = queue.between(least, most);
            queue.after(key, self.rhythm(vmim) + late);
            return Ok(());
        }
        if !self.budget_is_ready(store, vmim, vmi) {
            queue.after(key, Duration::from_secs(1));
            return Ok(());
        }
        self.make_target(store, vmim, vmi);
        Ok(())
    }

    /// Until 1.6 the source pod is annotated only now, by this controller, and only for evacuations.
    fn announce(&self, store: &Store, vmim: &Value, vmi: &Value) {
        if self.api.settings().since(1, 7) || annotation(vmim, names::EVACUATION).is_none() {
            return;
        }
        let pods = pods_of(store, namespace(vmi), uid(vmi));
        if let Some(pod) = active_pod(vmi, &pods) {
            store.update(kind::PODS, namespace(pod), name(pod), |pod| {
                pod["metadata"]["annotations"][names::EVICTION_IN_PROGRESS] = json!("kubevirt");
            });
        }
    }

    fn rhythm(&self, vmim: &Value) -> Duration {
        let timings = &self.api.settings().timings;
        if !self.api.settings().has_priority_queue() {
            return timings.look;
        }
        match priority(vmim) {
            100.. => timings.look_by_priority[0],
            50..100 => timings.look_by_priority[1],
            _ => timings.look_by_priority[2],
        }
    }

    /// Whether a slot of the cluster and one of the node is free, and nobody more urgent waits.
    fn may_start(&self, store: &Store, vmim: &Value, vmi: &Value) -> bool {
        let settings = self.api.settings();
        let running = running(store);
        let node = text(vmi, "status.nodeName");
        let outbound = running
            .iter()
            .filter(|other| self.leaves(store, other, node))
            .count();
        if running.len() >= settings.per_cluster || outbound >= settings.per_node {
            return false;
        }
        !settings.has_priority_queue()
            || !store
                .list_shared(kind::VMIMS)
                .iter()
                .any(|other| self.is_ahead(store, other, vmim))
    }

    /// Whether a running VMIM uses an outbound slot of `node`: its VM is there, and from 1.7 also as long as it came from there.
    fn leaves(&self, store: &Store, vmim: &Value, node: &str) -> bool {
        let Some(vmi) = store.get_shared(kind::VMIS, namespace(vmim), text(vmim, "spec.vmiName"))
        else {
            return false;
        };
        let came_from = self.api.settings().since(1, 7)
            && migrates_by(&vmi, uid(vmim))
            && text(&vmi, "status.migrationState.sourceNode") == node;
        text(&vmi, "status.nodeName") == node || came_from
    }

    fn is_ahead(&self, store: &Store, other: &Arc<Value>, vmim: &Value) -> bool {
        phase(other) == "Pending"
            && priority(other) > priority(vmim)
            && target_pod(store, other).is_none()
            && self.backoff(store, other).is_none()
            && store
                .get_shared(kind::VMIS, namespace(other), text(other, "spec.vmiName"))
                .is_some_and(|theirs| self.has_own_slot(store, &theirs))
    }

    fn has_own_slot(&self, store: &Store, vmi: &Value) -> bool {
        let node = text(vmi, "status.nodeName");
        running(store)
            .iter()
            .filter(|other| self.leaves(store, other, node))
            .count()
            < self.api.settings().per_node
    }

    /// How long an evacuation still has to wait after failed ones: 20 s, doubling, from the last failure.
    fn backoff(&self, store: &Store, vmim: &Value) -> Option<Duration> {
        annotation(vmim, names::EVACUATION)?;
        let mut older = migrations_of(store, namespace(vmim), text(vmim, "spec.vmiName"));
        older.retain(|other| {
            ended(other)
                && annotation(other, names::EVACUATION).is_some()
                && !has(other, "metadata.deletionTimestamp")
        });
        older.sort_by_key(|other| std::cmp::Reverse(phase_since(other, phase(other))));
        let failed: Vec<_> = older
            .iter()
            .take_while(|other| phase(other) == "Failed")
            .collect();
        let last = phase_since(failed.first()?, "Failed")?;
        let doublings = u32::try_from(failed.len().saturating_sub(1))
            .unwrap_or(u32::MAX)
            .min(16);
        let pause = self.api.settings().timings.backoff * 2_u32.pow(doublings);
        let until = last
            .checked_add(SignedDuration::try_from(pause).ok()?)
            .ok()?;
        Duration::try_from(until.duration_since(store.clock().now()))
            .ok()
            .filter(|left| !left.is_zero())
    }

    /// Until 1.5 the VMI's own budget must first protect two pods, and the disruption controller must have seen that.
    fn budget_is_ready(&self, store: &Store, vmim: &Value, vmi: &Value) -> bool {
        if !self.api.settings().has_budgets() {
            return true;
        }
        let own = store
            .list_shared(kind::PDBS)
            .into_iter()
            .find(|pdb| owned_by(pdb, uid(vmi)));
        let Some(pdb) = own else { return true };
        if label(&pdb, names::PDB_MIGRATION) != name(vmim) {
            let vmim_name = name(vmim);
            store.update(kind::PDBS, namespace(&pdb), name(&pdb), |pdb| {
                pdb["metadata"]["labels"][names::PDB_MIGRATION] = json!(vmim_name);
                pdb["spec"]["minAvailable"] = json!(2);
            });
            store.record_event(
                vmi,
                "Normal",
                "SuccessfulUpdate",
                &format!("Expanded PodDisruptionBudget {}", name(&pdb)),
            );
            return false;
        }
        pdb["status"]["desiredHealthy"] == 2
            && pdb["status"]["observedGeneration"] == pdb["metadata"]["generation"]
    }

    fn make_target(&mut self, store: &Store, vmim: &Value, vmi: &Value) {
        let tries = self.tries.entry(uid(vmi).to_owned()).or_default();
        *tries += 1;
        let pod = launcher::launcher_pod(self.api.settings(), vmi, Some((vmim, *tries)));
        if let Ok(made) = store.create(kind::PODS, pod) {
            store.record_event(
                vmim,
                "Normal",
                "SuccessfulCreate",
                &format!("Created migration target pod {}", name(&made)),
            );
        }
    }
}
