//! The simulated virt-controller: what follows from a mark, a VM, a final guest?
//!
//! - `evacuation`: which VMs get a VMIM, and when.
//! - `migration`: the queue and the phases of a VMIM.
//! - `instances`: from pods to VMIs and back.
//! - `machines`, `replicas`: who restarts.
//! - `budgets`: disruption budgets of KubeVirt ≤ 1.5.
//! - `nodes`: nodes whose virt-handler is silent.

mod budgets;
mod evacuation;
mod instances;
pub(crate) mod launcher;
mod machines;
mod migration;
mod nodes;
mod replicas;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::fields::{ended, label, namespace, owned_by, owner, phase, text, uid};
use super::names::{self, kind};
use super::settings::Settings;
use super::virt_api::VirtApi;
use crate::api::{Change, Store};
use crate::kubernetes::engine::{Controller, Key, Queue};

/// All controllers of the process, for [`crate::kubernetes::engine::run`].
pub fn controllers(api: &VirtApi) -> Vec<Box<dyn Controller>> {
    let mut all: Vec<Box<dyn Controller>> = vec![
        Box::new(evacuation::Evacuation::new(api.clone())),
        Box::new(migration::Migrations::new(api.clone())),
        Box::new(instances::Instances::new(api.clone())),
        Box::new(machines::Machines::new(api.clone())),
        Box::new(replicas::Replicas::new(api.clone())),
        Box::new(nodes::Nodes::new(api.clone())),
    ];
    all.push(Box::new(budgets::Budgets::new(api.clone())));
    all
}

/// What one kind of controller looks after: its own objects, and those that they own.
struct Looks {
    /// First word of its keys.
    key: &'static str,
    /// The resource of its objects.
    resource: &'static str,
    /// The resource of what they own.
    owned: &'static str,
    /// The kind that an owner reference names.
    kind: &'static str,
}

impl Looks {
    /// An object has changed, or one that it owns: it is due.
    fn changed(&self, change: &Change, queue: &mut Queue) {
        if change.resource == self.resource {
            queue.soon(Key::of(self.key, &change.object));
        } else if change.resource == self.owned
            && let Some((_, name, _)) =
                owner(&change.object).filter(|(kind, ..)| *kind == self.kind)
        {
            queue.soon(Key::new(self.key, namespace(&change.object), name));
        }
    }
}

/// The pods that a VMI owns.
pub(crate) fn pods_of(store: &Store, space: &str, uid: &str) -> Vec<Arc<Value>> {
    let mut pods = store.list_shared(kind::PODS);
    pods.retain(|pod| namespace(pod) == space && owned_by(pod, uid));
    pods
}

/// The pod of a VMI on the node that the VMI names; the newest when there are several.
pub(crate) fn active_pod<'a>(vmi: &Value, pods: &'a [Arc<Value>]) -> Option<&'a Arc<Value>> {
    let node = text(vmi, "status.nodeName");
    let here = pods.iter().filter(|pod| {
        node.is_empty() && label(pod, names::MIGRATION_JOB_UID).is_empty()
            || text(pod, "spec.nodeName") == node
    });
    here.max_by_key(|pod| (!ended(pod), text(pod, "metadata.creationTimestamp")))
}

/// The VMIMs of a VMI, by its name.
pub(crate) fn migrations_of(store: &Store, space: &str, vmi: &str) -> Vec<Arc<Value>> {
    let mut all = store.list_shared(kind::VMIMS);
    all.retain(|vmim| namespace(vmim) == space && text(vmim, "spec.vmiName") == vmi);
    all
}

/// The target pod of a VMIM.
pub(crate) fn target_pod(store: &Store, vmim: &Value) -> Option<Arc<Value>> {
    let uid = text(vmim, "metadata.uid");
    store
        .list_shared(kind::PODS)
        .into_iter()
        .find(|pod| label(pod, names::MIGRATION_JOB_UID) == uid)
}

/// The VMIMs that hold a slot: they have a target pod and have not ended.
pub(crate) fn running(store: &Store) -> Vec<Arc<Value>> {
    let mut all = store.list_shared(kind::VMIMS);
    all.retain(|vmim| !ended(vmim) && !phase(vmim).is_empty());
    if all.iter().any(|vmim| phase(vmim) == "Pending") {
        let pods = store.list_shared(kind::PODS);
        let targets: BTreeSet<&str> = pods
            .iter()
            .map(|pod| label(pod, names::MIGRATION_JOB_UID))
            .filter(|uid| !uid.is_empty())
            .collect();
        all.retain(|vmim| phase(vmim) != "Pending" || targets.contains(uid(vmim)));
    }
    all
}

/// The eviction strategy that counts for a VMI.
pub(crate) fn strategy<'a>(settings: &'a Settings, vmi: &'a Value) -> &'a str {
    match text(vmi, "spec.evictionStrategy") {
        "" => &settings.cluster_eviction_strategy,
        own => own,
    }
}
