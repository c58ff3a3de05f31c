//! What is left to do with a VMIM that has ended: copy the story, take the finalizer off, keep only the newest five?

use serde_json::{Value, json};

use super::super::{migrations_of, target_pod};
use super::Migrations;
use crate::api::Store;
use crate::kubevirt::fields::{
    annotation, ended, has, migrates_by, name, namespace, phase, phase_since, remove, text, uid,
};
use crate::kubevirt::names::{self, kind};

impl Migrations {
    /// One step of the end: migrationState copied, then the finalizer.
    pub(super) fn finish(&self, store: &Store, vmim: &Value, vmi: Option<&Value>) {
        self.withdraw(store, vmim);
        let state = vmi
            .filter(|vmi| migrates_by(vmi, uid(vmim)))
            .map(|vmi| vmi["status"]["migrationState"].clone());
        let copied = text(vmim, "status.migrationState.migrationUid") == uid(vmim);
        if let Some(state) = state.filter(|_| !copied) {
            Self::update(store, vmim, |vmim| vmim["status"]["migrationState"] = state);
            return;
        }
        if vmim["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
        {
            Self::update(store, vmim, |vmim| {
                vmim["metadata"]["finalizers"] = json!([]);
            });
            return;
        }
        self.collect(store, vmim);
    }

    /// Until 1.6 a failed VMIM takes its annotation from the source pod, with every look at it: also that of a later VMIM, at the VMI's
    /// next change (seen on 1.5.0; `MarkSourcePodEvictionCompleted`).
    fn withdraw(&self, store: &Store, vmim: &Value) {
        if self.api.settings().since(1, 7) || phase(vmim) != "Failed" {
            return;
        }
        let source = text(vmim, "status.migrationState.sourcePod");
        let pod = store.get_shared(kind::PODS, namespace(vmim), source);
        if let Some(pod) =
            pod.filter(|pod| annotation(pod, names::EVICTION_IN_PROGRESS) == Some("kubevirt"))
        {
            store.update(kind::PODS, namespace(&pod), name(&pod), |pod| {
                let annotations = &mut pod["metadata"]["annotations"];
                remove(annotations, names::EVICTION_IN_PROGRESS);
            });
        }
    }

    /// Final VMIMs beyond the newest five go; from 1.9 with the pods that they left behind.
    fn collect(&self, store: &Store, vmim: &Value) {
        let mut all = migrations_of(store, namespace(vmim), text(vmim, "spec.vmiName"));
        all.retain(|other| ended(other) && !has(other, "metadata.deletionTimestamp"));
        all.sort_by_key(|other| {
            std::cmp::Reverse((phase_since(other, phase(other)), uid(other).to_owned()))
        });
        for old in all.iter().skip(self.api.settings().timings.kept_migrations) {
            if self.api.settings().since(1, 9) {
                collect_pod(store, old);
            }
            store.remove(kind::VMIMS, namespace(old), name(old));
        }
    }
}

/// The completed source pod of a success, the failed target pod of a failure.
fn collect_pod(store: &Store, vmim: &Value) {
    let pod = if phase(vmim) == "Succeeded" {
        store.get_shared(
            kind::PODS,
            namespace(vmim),
            text(vmim, "status.migrationState.sourcePod"),
        )
    } else {
        target_pod(store, vmim)
    };
    if let Some(pod) = pod.filter(|pod| ended(pod)) {
        store.delete(kind::PODS, namespace(&pod), name(&pod));
    }
}
