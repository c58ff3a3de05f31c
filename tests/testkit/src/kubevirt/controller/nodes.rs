//! What happens to a node whose virt-handler is silent for five minutes?

use std::time::Duration;

use serde_json::{Value, json};

use super::pods_of;
use crate::api::{Change, Store};
use crate::kubernetes::engine::{Controller, Key, Queue, Unavailable};
use crate::kubevirt::fields::{
    annotation, deleting, ended, label, name, namespace, phase, set_phase, text, uid,
};
use crate::kubevirt::names::{self, kind};
use crate::kubevirt::virt_api::VirtApi;

const NODE: &str = "node";

pub(super) struct Nodes {
    api: VirtApi,
}

impl Nodes {
    pub(super) fn new(api: VirtApi) -> Self {
        Self { api }
    }

    fn fail_orphans(&self, store: &Store, node: &Value) -> Result<(), Unavailable> {
        for vmi in store.list_shared(kind::VMIS) {
            let here = text(&vmi, "status.nodeName") == name(node)
                && matches!(phase(&vmi), "Running" | "Scheduled");
            let alive = || {
                pods_of(store, namespace(&vmi), uid(&vmi))
                    .iter()
                    .any(|pod| {
                        !ended(pod) && !deleting(pod) && text(pod, "spec.nodeName") == name(node)
                    })
            };
            if !here || alive() {
                continue;
            }
            self.api.check()?;
            let now = store.stamp();
            store.update(kind::VMIS, namespace(&vmi), name(&vmi), |vmi| {
                vmi["status"]["reason"] = json!("NodeUnresponsive");
                set_phase(vmi, "Failed", &now);
            });
            let text = format!(
                "virt-handler on node {} is not responsive, marking VMI as failed",
                name(node)
            );
            store.record_event(&vmi, "Warning", "NodeUnresponsive", &text);
        }
        Ok(())
    }
}

impl Controller for Nodes {
    fn name(&self) -> &'static str {
        "node"
    }

    fn changed(&mut self, store: &Store, change: &Change, queue: &mut Queue) {
        if change.resource != kind::NODES {
            return;
        }
        let before = change
            .previous
            .as_ref()
            .and_then(|old| annotation(old, names::HEARTBEAT));
        if before.is_some() && before == annotation(&change.object, names::HEARTBEAT) {
            return;
        }
        let _ = store;
        // A check that was planned for the last heartbeat finds a fresh one and plans anew.
        queue.after(
            Key::of(NODE, &change.object),
            self.api.settings().timings.unresponsive,
        );
    }

    fn reconcile(
        &mut self,
        store: &Store,
        key: &Key,
        queue: &mut Queue,
    ) -> Result<(), Unavailable> {
        let timings = &self.api.settings().timings;
        let Some(node) = store.get_shared(kind::NODES, "", &key.name) else {
            return Ok(());
        };
        let Some(beat) = annotation(&node, names::HEARTBEAT)
            .and_then(|text| text.parse::<jiff::Timestamp>().ok())
        else {
            return Ok(());
        };
        let silent =
            Duration::try_from(store.clock().now().duration_since(beat)).unwrap_or_default();
        if silent < timings.unresponsive {
            queue.after(key.clone(), timings.unresponsive.saturating_sub(silent));
            return Ok(());
        }
        if label(&node, names::SCHEDULABLE) == "true" {
            store.update(kind::NODES, "", &key.name, |node| {
                node["metadata"]["labels"][names::SCHEDULABLE] = json!("false");
            });
            store.record_event(
                &node,
                "Warning",
                "NodeUnresponsive",
                &format!("virt-handler on node {} is not responsive", key.name),
            );
        }
        queue.after(key.clone(), timings.node_check);
        self.fail_orphans(store, &node)
    }
}
