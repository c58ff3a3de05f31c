//! Which disruption budgets does KubeVirt itself make? One per evictable VMI until 1.5; from 1.6 it only deletes old ones.

use serde_json::{Value, json};

use super::{migrations_of, pods_of, strategy};
use crate::api::{Change, Store};
use crate::kubernetes::engine::{Controller, Key, Queue, Unavailable};
use crate::kubevirt::fields::{
    deleting, ended, is_true, label, name, namespace, owned_by, owner, uid,
};
use crate::kubevirt::names::{self, kind};
use crate::kubevirt::virt_api::VirtApi;

const VMI: &str = "vmi";

pub(super) struct Budgets {
    api: VirtApi,
}

impl Budgets {
    pub(super) fn new(api: VirtApi) -> Self {
        Self { api }
    }

    fn step(&self, store: &Store, vmi: &Value) {
        let own = store
            .list_shared(kind::PDBS)
            .into_iter()
            .find(|pdb| owned_by(pdb, uid(vmi)));
        let wanted = self.api.settings().has_budgets() && self.deserves(vmi);
        match (own, wanted) {
            (None, true) => create(store, vmi),
            (Some(pdb), false) => {
                store.delete(kind::PDBS, namespace(&pdb), name(&pdb));
                store.record_event(
                    vmi,
                    "Normal",
                    "SuccessfulDelete",
                    &format!("Deleted PodDisruptionBudget {}", name(&pdb)),
                );
            }
            (Some(pdb), true) => shrink(store, vmi, &pdb),
            (None, false) => {}
        }
    }

    /// LiveMigrate and External always, LiveMigrateIfPossible while it can migrate, never a VMI that has ended.
    ///
    /// The hot loop that 1.5 runs for a final VMI (deleted and created again a hundred times a second) is left out on purpose.
    fn deserves(&self, vmi: &Value) -> bool {
        let by_strategy = match strategy(self.api.settings(), vmi) {
            "LiveMigrate" | "External" => true,
            "LiveMigrateIfPossible" => is_true(vmi, "LiveMigratable"),
            _ => false,
        };
        by_strategy && !deleting(vmi) && !ended(vmi)
    }
}

fn create(store: &Store, vmi: &Value) {
    let pdb = json!({
        "metadata": {
            "generateName": "kubevirt-disruption-budget-", "namespace": namespace(vmi),
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name(vmi), "uid": uid(vmi),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {names::CREATED_BY: uid(vmi)}}},
        "status": {},
    });
    if let Ok(made) = store.create(kind::PDBS, pdb) {
        store.record_event(
            vmi,
            "Normal",
            "SuccessfulCreate",
            &format!("Created PodDisruptionBudget {}", name(&made)),
        );
    }
}

/// Back to one pod when the migration is final and only one live pod is left.
fn shrink(store: &Store, vmi: &Value, pdb: &Value) {
    let vmim = label(pdb, names::PDB_MIGRATION);
    if vmim.is_empty() {
        return;
    }
    let unfinished = migrations_of(store, namespace(vmi), name(vmi))
        .iter()
        .any(|other| name(other) == vmim && !ended(other));
    let live = pods_of(store, namespace(vmi), uid(vmi))
        .iter()
        .filter(|pod| !ended(pod))
        .count();
    if unfinished || live > 1 {
        return;
    }
    store.update(kind::PDBS, namespace(pdb), name(pdb), |pdb| {
        pdb["spec"]["minAvailable"] = json!(1);
        crate::kubevirt::fields::remove(&mut pdb["metadata"], "labels");
    });
    store.record_event(
        vmi,
        "Normal",
        "SuccessfulUpdate",
        &format!("shrank PodDisruptionBudget {}", name(pdb)),
    );
}

impl Controller for Budgets {
    fn name(&self) -> &'static str {
        "disruption budget"
    }

    fn changed(&mut self, store: &Store, change: &Change, queue: &mut Queue) {
        let object = &change.object;
        match change.resource.as_str() {
            kind::VMIS => queue.soon(Key::of(VMI, object)),
            kind::PODS | kind::PDBS => {
                if let Some((_, vmi, _)) =
                    owner(object).filter(|(kind, ..)| *kind == "VirtualMachineInstance")
                {
                    queue.soon(Key::new(VMI, namespace(object), vmi));
                }
            }
            kind::VMIMS if ended(object) => {
                let vmi = crate::kubevirt::fields::text(object, "spec.vmiName");
                queue.soon(Key::new(VMI, namespace(object), vmi));
            }
            _ => {}
        }
        let _ = store;
    }

    fn reconcile(
        &mut self,
        store: &Store,
        key: &Key,
        _queue: &mut Queue,
    ) -> Result<(), Unavailable> {
        if let Some(vmi) = store.get_shared(kind::VMIS, &key.namespace, &key.name) {
            self.step(store, &vmi);
        } else {
            let mut left = store.list_shared(kind::PDBS);
            left.retain(|pdb| {
                namespace(pdb) == key.namespace
                    && owner(pdb).is_some_and(|(kind, vmi, _)| {
                        kind == "VirtualMachineInstance" && vmi == key.name
                    })
            });
            for pdb in left {
                store.delete(kind::PDBS, namespace(&pdb), name(&pdb));
            }
        }
        Ok(())
    }
}
