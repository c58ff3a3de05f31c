//! Who keeps a replica set of VMIs full? Replacements come as soon as a pod terminates (kubevirt-semantics 5).

use serde_json::{Value, json};

use super::{Looks, launcher};
use crate::api::{Change, Store};
use crate::kubernetes::engine::{Controller, Key, Queue, Unavailable};
use crate::kubevirt::fields::{
    at, condition, deleting, ended, is_true, name, namespace, owned_by, text, uid,
};
use crate::kubevirt::names::kind;
use crate::kubevirt::virt_api::{VirtApi, writes};

const LOOKS: Looks = Looks {
    key: "set",
    resource: kind::REPLICA_SETS,
    owned: kind::VMIS,
    kind: "VirtualMachineInstanceReplicaSet",
};

pub(super) struct Replicas {
    api: VirtApi,
}

impl Replicas {
    pub(super) fn new(api: VirtApi) -> Self {
        Self { api }
    }

    fn step(&self, store: &Store, set: &Value) -> Result<(), Unavailable> {
        self.api.check()?;
        let mut own = store.list_shared(kind::VMIS);
        own.retain(|vmi| namespace(vmi) == namespace(set) && owned_by(vmi, uid(set)));
        for vmi in own.iter().filter(|vmi| ended(vmi) && !deleting(vmi)) {
            store.delete(kind::VMIS, namespace(vmi), name(vmi));
        }
        let alive: Vec<_> = own
            .iter()
            .filter(|vmi| !ended(vmi) && !deleting(vmi) && !is_leaving(vmi))
            .collect();
        let wanted = at(set, "spec.replicas")
            .and_then(Value::as_u64)
            .and_then(|number| usize::try_from(number).ok())
            .unwrap_or(1);
        for _ in alive.len()..wanted {
            let mut vmi = launcher::instance(&set["spec"]["template"], set, None);
            writes::vmi_create(&self.api, &mut vmi);
            if let Ok(made) = store.create(kind::VMIS, vmi) {
                store.record_event(set, "Normal", "SuccessfulCreate", &format!("Started the virtual machine by creating the new virtual machine instance {}", name(&made)));
            }
        }
        let ready = alive.iter().filter(|vmi| is_true(vmi, "Ready")).count();
        store.update(kind::REPLICA_SETS, namespace(set), name(set), |set| {
            set["status"]["replicas"] = json!(alive.len());
            set["status"]["readyReplicas"] = json!(ready);
        });
        Ok(())
    }
}

fn is_leaving(vmi: &Value) -> bool {
    condition(vmi, "Ready").is_some_and(|ready| {
        ready["status"] == "False" && text(ready, "reason") == "PodTerminating"
    })
}

impl Controller for Replicas {
    fn name(&self) -> &'static str {
        "replica set"
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
        match store.get_shared(kind::REPLICA_SETS, &key.namespace, &key.name) {
            Some(set) if !deleting(&set) => self.step(store, &set),
            Some(_) | None => Ok(()),
        }
    }
}
