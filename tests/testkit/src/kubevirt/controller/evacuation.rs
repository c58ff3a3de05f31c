//! Which marked VMs get a VMIM, and when (kubevirt-semantics 2.1, control-plane-versions 3 on "0 / 11.4")?
//!
//! Without the priority queue a pass over a node creates no more VMIMs than there are free slots, but a VMIM that is Pending without
//! a target pod does not count: VMs marked in the same instant all get one within a second. With the queue all are created at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{running, strategy};
use crate::api::{Change, Store};
use crate::kubernetes::engine::{Controller, Key, Queue, Unavailable};
use crate::kubevirt::fields::{
    annotation, deleting, ended, is_migrating, is_true, name, namespace, owner, text, uid,
};
use crate::kubevirt::names::{self, kind};
use crate::kubevirt::virt_api::{VirtApi, writes};

/// Work on a whole node.
const NODE: &str = "node";
/// One VMIM that is about to be created.
const CREATE: &str = "create";

pub(super) struct Evacuation {
    api: VirtApi,
    /// VMIs (namespace, name) whose VMIM is being created and the node it evacuates.
    creating: BTreeSet<(String, String)>,
}

impl Evacuation {
    pub(super) fn new(api: VirtApi) -> Self {
        Self {
            api,
            creating: BTreeSet::new(),
        }
    }

    fn evacuate(&mut self, store: &Store, key: &Key, queue: &mut Queue) {
        let node = key.name.as_str();
        let tainted = self.is_tainted(store, node);
        let vmis: Vec<_> = store
            .list_shared(kind::VMIS)
            .into_iter()
            .filter(|vmi| text(vmi, "status.nodeName") == node)
            .collect();
        let wanted: Vec<_> = vmis
            .iter()
            .filter(|vmi| {
                (tainted || text(vmi, "status.evacuationNodeName") == node) && !is_migrating(vmi)
            })
            .filter(|vmi| {
                !ended(vmi)
                    && !deleting(vmi)
                    && matches!(
                        strategy(self.api.settings(), vmi),
                        "LiveMigrate" | "LiveMigrateIfPossible"
                    )
            })
            .cloned()
            .collect();
        let (able, unable): (Vec<_>, Vec<_>) = wanted
            .into_iter()
            .partition(|vmi| is_true(vmi, "LiveMigratable"));
        if able.is_empty() && unable.is_empty() {
            return;
        }
        let free = if self.api.settings().has_priority_queue() {
            usize::MAX
        } else {
            self.free_slots(store, &vmis)
        };
        if free == 0 {
            queue.after(key.clone(), self.api.settings().timings.evacuation_look);
            return;
        }
        let mut candidates = self.without_migration(store, able);
        // Those are not looked at again by themselves: the next event of the node (a heartbeat at the latest), of a VMI on it or of a
        // VMIM does that. Seen on 1.8.0: 40 s from the mark to the VMIM.
        only_one_pod(store, &mut candidates);
        queue.shuffle(&mut candidates);
        let chosen = candidates.len().min(free);
        if chosen < free && !self.api.settings().has_priority_queue() {
            self.tell_unable(store, &unable);
        }
        for vmi in candidates.into_iter().take(chosen) {
            self.plan(&vmi, node, queue);
        }
    }

    /// The drain taint of the configuration, effect NoSchedule.
    fn is_tainted(&self, store: &Store, node: &str) -> bool {
        let key = json!(self.api.settings().drain_taint_key);
        let Some(node) = store.get_shared(kind::NODES, "", node) else {
            return false;
        };
        node["spec"]["taints"].as_array().is_some_and(|taints| {
            taints
                .iter()
                .any(|taint| taint["key"] == key && taint["effect"] == "NoSchedule")
        })
    }

    /// Those that have no unfinished VMIM, and none on its way.
    fn without_migration(&self, store: &Store, vmis: Vec<Arc<Value>>) -> Vec<Arc<Value>> {
        let vmims = store.list_shared(kind::VMIMS);
        let busy: BTreeSet<(&str, &str)> = vmims
            .iter()
            .filter(|vmim| !ended(vmim))
            .map(|vmim| (namespace(vmim), text(vmim, "spec.vmiName")))
            .collect();
        let is_free = |vmi: &Arc<Value>| {
            !busy.contains(&(namespace(vmi), name(vmi)))
                && !self
                    .creating
                    .contains(&(namespace(vmi).to_owned(), name(vmi).to_owned()))
        };
        vmis.into_iter().filter(is_free).collect()
    }

    fn free_slots(&self, store: &Store, on_node: &[Arc<Value>]) -> usize {
        let settings = self.api.settings();
        let running = running(store);
        let here = running
            .iter()
            .filter(|vmim| {
                on_node.iter().any(|vmi| {
                    namespace(vmi) == namespace(vmim) && name(vmi) == text(vmim, "spec.vmiName")
                })
            })
            .count();
        settings
            .per_cluster
            .saturating_sub(running.len())
            .min(settings.per_node.saturating_sub(here))
    }

    fn tell_unable(&self, store: &Store, unable: &[Arc<Value>]) {
        for vmi in unable
            .iter()
            .filter(|vmi| strategy(self.api.settings(), vmi) == "LiveMigrate")
        {
            store.record_event(
                vmi,
                "Normal",
                "FailedCreate",
                "VirtualMachineInstance is not migrateable",
            );
        }
    }

    /// The create passes virt-api's webhook, which asks the API server twice and may have to wait for that.
    fn plan(&mut self, vmi: &Value, node: &str, queue: &mut Queue) {
        let wait = self.api.reserve(2);
        self.creating
            .insert((namespace(vmi).to_owned(), name(vmi).to_owned()));
        queue.after(
            Key::new(CREATE, namespace(vmi), &format!("{}/{node}", name(vmi))),
            wait,
        );
    }

    fn create(&mut self, store: &Store, key: &Key, queue: &mut Queue) -> Result<(), Unavailable> {
        let Some((vmi_name, node)) = key.name.split_once('/') else {
            return Ok(());
        };
        let vmi = store.get_shared(kind::VMIS, &key.namespace, vmi_name);
        if let (Some(vmi), Err(unavailable)) = (&vmi, self.api.check()) {
            store.record_event(vmi, "Warning", "FailedCreate", "Error creating a Migration: Internal error occurred: failed calling webhook \"migrations-mutator.kubevirt.io\"");
            return Err(unavailable);
        }
        self.creating
            .remove(&(key.namespace.clone(), vmi_name.to_owned()));
        queue.soon(Key::new(NODE, "", node));
        let Some(vmi) = vmi else { return Ok(()) };
        let mut vmim = json!({
            "metadata": {
                "generateName": "kubevirt-evacuation-", "namespace": key.namespace,
                "annotations": {names::EVACUATION: node},
            },
            "spec": {"vmiName": vmi_name},
            "status": {},
        });
        if self.api.settings().has_priority_queue() {
            let descheduler = annotation(&vmi, names::EVICTION_SOURCE) == Some("descheduler");
            vmim["spec"]["priority"] = json!(if descheduler {
                "system-maintenance"
            } else {
                "system-critical"
            });
        }
        if writes::check_migration(&self.api, &vmim).is_err() {
            return Ok(());
        }
        writes::complete_migration(&mut vmim);
        if let Ok(made) = store.create(kind::VMIMS, vmim) {
            store.record_event(
                &vmi,
                "Normal",
                "SuccessfulCreate",
                &format!("Created Migration {}", name(&made)),
            );
        }
        Ok(())
    }
}

/// Drops VMIs with more than one live pod.
fn only_one_pod(store: &Store, vmis: &mut Vec<Arc<Value>>) {
    let pods = store.list_shared(kind::PODS);
    let mut live: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !ended(pod)) {
        if let Some((_, _, owner)) = owner(pod) {
            *live.entry(owner).or_default() += 1;
        }
    }
    vmis.retain(|vmi| live.get(uid(vmi)).copied().unwrap_or_default() <= 1);
}

impl Controller for Evacuation {
    fn name(&self) -> &'static str {
        "evacuation"
    }

    fn changed(&mut self, store: &Store, change: &Change, queue: &mut Queue) {
        let mut look = |node: &str| {
            if !node.is_empty() {
                queue.soon(Key::new(NODE, "", node));
            }
        };
        match change.resource.as_str() {
            kind::NODES => look(name(&change.object)),
            kind::VMIS => {
                look(text(&change.object, "status.nodeName"));
                if let Some(before) = &change.previous {
                    look(text(before, "status.nodeName"));
                }
            }
            kind::VMIMS => {
                if let Some(vmi) = store.get_shared(
                    kind::VMIS,
                    namespace(&change.object),
                    text(&change.object, "spec.vmiName"),
                ) {
                    look(text(&vmi, "status.nodeName"));
                }
            }
            _ => {}
        }
    }

    fn reconcile(
        &mut self,
        store: &Store,
        key: &Key,
        queue: &mut Queue,
    ) -> Result<(), Unavailable> {
        if key.what == CREATE {
            return self.create(store, key, queue);
        }
        self.evacuate(store, key, queue);
        Ok(())
    }
}
