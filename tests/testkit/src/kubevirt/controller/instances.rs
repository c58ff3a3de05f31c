//! How does a VMI follow its pods, and a pod its VMI (phases, Ready, marks, deletion)?

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Looks, active_pod, launcher, pods_of};
use crate::api::{Change, Store};
use crate::kubernetes::engine::{Controller, Key, Queue, Unavailable};
use crate::kubevirt::fields::{
    annotation, condition, deleting, ended, has, is_true, label, name, namespace, owner, phase,
    remove_condition, set_condition, set_phase, text, uid,
};
use crate::kubevirt::names::{self, kind};
use crate::kubevirt::virt_api::VirtApi;

const LOOKS: Looks = Looks {
    key: "vmi",
    resource: kind::VMIS,
    owned: kind::PODS,
    kind: "VirtualMachineInstance",
};

const NO_POD: &str = "virt-launcher pod has not yet been scheduled";

pub(super) struct Instances {
    api: VirtApi,
}

impl Instances {
    pub(super) fn new(api: VirtApi) -> Self {
        Self { api }
    }

    fn step(&self, store: &Store, vmi: &Arc<Value>) -> Result<(), Unavailable> {
        let pods = pods_of(store, namespace(vmi), uid(vmi));
        if deleting(vmi) {
            return self.wind_down(store, vmi, &pods);
        }
        let active = active_pod(vmi, &pods);
        match phase(vmi) {
            "" => return self.update(store, vmi, |vmi, now| set_phase(vmi, "Pending", now)),
            "Pending" if active.is_none() => {
                let pod = launcher::launcher_pod(self.api.settings(), vmi, None);
                if let Ok(made) = store.create(kind::PODS, pod) {
                    store.record_event(
                        vmi,
                        "Normal",
                        "SuccessfulCreate",
                        &format!("Created virtual machine pod {}", name(&made)),
                    );
                }
                return Ok(());
            }
            "Pending" => {
                return self.update(store, vmi, |vmi, now| set_phase(vmi, "Scheduling", now));
            }
            "Succeeded" | "Failed" => {
                settle_final(store, &pods);
                return self.after_the_end(store, vmi, &pods);
            }
            _ => {}
        }
        match active {
            None => self.lost(store, vmi),
            Some(pod) if self.sync_pod(store, vmi, pod) => Ok(()),
            Some(pod) => self.sync_vmi(store, vmi, pod, &pods),
        }
    }

    fn update(
        &self,
        store: &Store,
        vmi: &Value,
        change: impl FnOnce(&mut Value, &str),
    ) -> Result<(), Unavailable> {
        self.api.check()?;
        let now = store.stamp();
        store.update(kind::VMIS, namespace(vmi), name(vmi), |vmi| {
            change(vmi, &now);
        });
        Ok(())
    }

    /// The pod vanished under a VMI that had one.
    fn lost(&self, store: &Store, vmi: &Value) -> Result<(), Unavailable> {
        self.update(store, vmi, |vmi, now| {
            set_condition(vmi, "Ready", "False", "PodNotExists", NO_POD, now);
            set_phase(vmi, "Failed", now);
        })
    }

    /// A VMI that has ended stays: once its pods are gone it lets go of its finalizer and knows no pods any more.
    fn after_the_end(
        &self,
        store: &Store,
        vmi: &Value,
        pods: &[Arc<Value>],
    ) -> Result<(), Unavailable> {
        if !pods.is_empty()
            || vmi["metadata"]["finalizers"][0].is_null() && !has(vmi, "status.activePods")
        {
            return Ok(());
        }
        self.update(store, vmi, |vmi, now| {
            crate::kubevirt::fields::remove(&mut vmi["metadata"], "finalizers");
            crate::kubevirt::fields::remove(&mut vmi["status"], "activePods");
            set_condition(vmi, "Ready", "False", "PodNotExists", NO_POD, now);
        })
    }

    /// A VMI that is being deleted takes its pods with it and goes last.
    fn wind_down(
        &self,
        store: &Store,
        vmi: &Value,
        pods: &[Arc<Value>],
    ) -> Result<(), Unavailable> {
        for pod in pods.iter().filter(|pod| !deleting(pod)) {
            store.delete(kind::PODS, namespace(pod), name(pod));
        }
        if pods_of(store, namespace(vmi), uid(vmi))
            .iter()
            .any(|pod| !ended(pod))
        {
            return Ok(());
        }
        if !ended(vmi) {
            return self.update(store, vmi, |vmi, now| set_phase(vmi, "Failed", now));
        }
        self.update(store, vmi, |vmi, _| {
            vmi["metadata"]["finalizers"] = json!([]);
        })
    }

    /// Brings the active pod up to date, one change at a time; whether there was one.
    fn sync_pod(&self, store: &Store, vmi: &Value, pod: &Value) -> bool {
        let (space, pod_name, now) = (namespace(pod), name(pod), store.stamp());
        if ended(pod) {
            return false;
        }
        let marked = !text(vmi, "status.evacuationNodeName").is_empty();
        let annotated = annotation(pod, names::EVICTION_IN_PROGRESS).is_some();
        if self.api.settings().since(1, 7) && marked != annotated {
            store.update(kind::PODS, space, pod_name, |pod| {
                let annotations = &mut pod["metadata"]["annotations"];
                if marked {
                    annotations[names::EVICTION_IN_PROGRESS] = json!("true");
                } else {
                    crate::kubevirt::fields::remove(annotations, names::EVICTION_IN_PROGRESS);
                }
            });
            return true;
        }
        if phase(vmi) != "Running" {
            return false;
        }
        let arrived = !label(pod, names::MIGRATION_JOB_UID).is_empty();
        if arrived && annotation(pod, names::TARGET_READY).is_none() {
            store.update(kind::PODS, space, pod_name, |pod| {
                pod["metadata"]["annotations"][names::TARGET_READY] = json!(now);
            });
            return true;
        }
        if !is_true(pod, names::UNPAUSED) {
            store.update(kind::PODS, space, pod_name, |pod| {
                set_condition(
                    pod,
                    names::UNPAUSED,
                    "True",
                    "NotPaused",
                    "the virtual machine is not paused",
                    &now,
                );
            });
            return true;
        }
        let node = label(vmi, names::NODE_NAME);
        if label(pod, names::NODE_NAME) != node {
            store.update(kind::PODS, space, pod_name, |pod| {
                pod["metadata"]["labels"][names::NODE_NAME] = json!(node);
            });
            return true;
        }
        false
    }

    /// Everything that one patch of the VMI holds: pods, Ready, the eviction condition, the phase.
    fn sync_vmi(
        &self,
        store: &Store,
        vmi: &Value,
        pod: &Value,
        pods: &[Arc<Value>],
    ) -> Result<(), Unavailable> {
        let marked = !text(vmi, "status.evacuationNodeName").is_empty();
        let tells_marks = self.api.settings().since(1, 7);
        self.update(store, vmi, |vmi, now| {
            vmi["status"]["activePods"] = pods
                .iter()
                .map(|pod| (uid(pod).to_owned(), json!(text(pod, "spec.nodeName"))))
                .collect::<serde_json::Map<_, _>>()
                .into();
            let (status, reason) = readiness(vmi, pod);
            set_condition(vmi, "Ready", status, reason, explained(reason), now);
            match (tells_marks, marked) {
                (true, true) => set_condition(
                    vmi,
                    "EvictionRequested",
                    "True",
                    "EvictionRequested",
                    "VMI is marked for eviction",
                    now,
                ),
                (true, false) => remove_condition(vmi, "EvictionRequested"),
                (false, _) => {}
            }
            advance(vmi, pod, now);
        })
    }
}

/// The first pod of a VMI that ended before it was bound goes with it.
fn settle_final(store: &Store, pods: &[Arc<Value>]) {
    let unbound = |pod: &&Arc<Value>| {
        !ended(pod)
            && !deleting(pod)
            && label(pod, names::MIGRATION_JOB_UID).is_empty()
            && text(pod, "spec.nodeName").is_empty()
    };
    for pod in pods.iter().filter(unbound) {
        store.delete(kind::PODS, namespace(pod), name(pod));
    }
}

/// The message that goes with a reason.
fn explained(reason: &str) -> &'static str {
    match reason {
        "PodTerminating" => "virt-launcher pod is terminating",
        "GuestNotRunning" => "Guest VM is not reported as running",
        _ => "",
    }
}

/// Ready of a VMI: the pod's, unless the pod goes or the guest does not run.
fn readiness<'a>(vmi: &Value, pod: &'a Value) -> (&'static str, &'a str) {
    if deleting(pod) {
        return ("False", "PodTerminating");
    }
    if phase(vmi) != "Running" {
        return ("False", "GuestNotRunning");
    }
    match condition(pod, "Ready") {
        Some(ready) if ready["status"] == "True" => ("True", ""),
        Some(ready) => ("False", text(ready, "reason")),
        None => ("False", "PodConditionMissing"),
    }
}

/// Scheduling → Scheduled when the pod runs (virt-handler does the rest); a pod that ended early ends the VMI.
fn advance(vmi: &mut Value, pod: &Value, now: &str) {
    match phase(vmi) {
        "Scheduling" | "Scheduled" if ended(pod) => set_phase(vmi, "Failed", now),
        "Scheduling" if phase(pod) == "Running" => {
            let node = text(pod, "spec.nodeName").to_owned();
            vmi["status"]["nodeName"] = json!(node);
            vmi["metadata"]["labels"][names::NODE_NAME] = json!(node);
            set_phase(vmi, "Scheduled", now);
        }
        "Scheduling" => {
            if let Some(scheduled) =
                condition(pod, "PodScheduled").filter(|found| found["status"] == "False")
            {
                let (reason, message) = (
                    text(scheduled, "reason").to_owned(),
                    text(scheduled, "message").to_owned(),
                );
                set_condition(vmi, "PodScheduled", "False", &reason, &message, now);
            }
        }
        _ => remove_condition(vmi, "PodScheduled"),
    }
}

impl Controller for Instances {
    fn name(&self) -> &'static str {
        "vmi"
    }

    fn changed(&mut self, _store: &Store, change: &Change, queue: &mut Queue) {
        LOOKS.changed(change, queue);
    }

    fn reconcile(
        &mut self,
        store: &Store,
        key: &Key,
        _queue: &mut Queue,
    ) -> Result<(), Unavailable> {
        match store.get_shared(kind::VMIS, &key.namespace, &key.name) {
            Some(vmi) if has(&vmi, "spec") => self.step(store, &vmi),
            Some(_) | None => {
                orphans(store, key);
                Ok(())
            }
        }
    }
}

/// The garbage collector's part: pods whose VMI is gone.
fn orphans(store: &Store, key: &Key) {
    for pod in store.list_shared(kind::PODS) {
        let ours = namespace(&pod) == key.namespace
            && owner(&pod).is_some_and(|(kind, name, _)| {
                kind == "VirtualMachineInstance" && name == key.name
            });
        if ours
            && !deleting(&pod)
            && store
                .get_shared(kind::VMIS, &key.namespace, &key.name)
                .is_none()
        {
            store.delete(kind::PODS, namespace(&pod), name(&pod));
        }
    }
}
