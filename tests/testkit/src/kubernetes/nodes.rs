//! What does the cluster do about a node: the taint of a cordon, a kubelet that is silent, pods of a node that is gone?

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::engine::{Controller, Key, Queue, Unavailable};
use crate::api::{Change, ChangeKind, Store};
use crate::kubevirt::fields::{
    condition, deleting, ended, has, name, namespace, push, set_condition, text, time,
};
use crate::kubevirt::names::{self, kind};

/// The taint of a cordon.
const CORDON: &str = "cordon";
/// Whether the kubelet still renews its lease.
const LEASE: &str = "lease";
/// Pods of a node that has been unreachable for too long, or is gone.
const EVICT: &str = "evict";

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The node lifecycle controller, taint eviction and the pod garbage collector.
#[derive(Debug)]
pub struct NodeLifecycle {
    unknown: Duration,
    eviction: Duration,
}

impl NodeLifecycle {
    /// `unknown`: grace of a silent kubelet; `eviction`: how long pods tolerate an unreachable node.
    pub fn new(unknown: Duration, eviction: Duration) -> Self {
        Self { unknown, eviction }
    }

    fn check_lease(&self, store: &Store, key: &Key, queue: &mut Queue) {
        let Some(lease) = store.get_shared(kind::LEASES, "kube-node-lease", &key.name) else {
            return;
        };
        let Some(renewed) = time(&lease, "spec.renewTime") else {
            return;
        };
        let silent =
            Duration::try_from(store.clock().now().duration_since(renewed)).unwrap_or_default();
        if silent < self.unknown {
            queue.after(key.clone(), self.unknown.saturating_sub(silent));
            return;
        }
        let Some(node) = store.get_shared(kind::NODES, "", &key.name) else {
            return;
        };
        if condition(&node, "Ready").is_some_and(|ready| ready["status"] != "Unknown") {
            Self::lose(store, &node);
            queue.after(key.as_(EVICT), self.eviction);
        }
    }

    fn lose(store: &Store, node: &Value) {
        let now = store.stamp();
        store.update(kind::NODES, "", name(node), |node| {
            set_condition(
                node,
                "Ready",
                "Unknown",
                "NodeStatusUnknown",
                "Kubelet stopped posting node status.",
                &now,
            );
            for effect in ["NoSchedule", "NoExecute"] {
                push(
                    &mut node["spec"]["taints"],
                    json!({"key": UNREACHABLE, "effect": effect, "timeAdded": now}),
                );
            }
        });
        store.record_event(
            node,
            "Normal",
            "NodeNotReady",
            &format!("Node {} status is now: NodeNotReady", name(node)),
        );
        for pod in pods_on(store, name(node)).iter().filter(|pod| !ended(pod)) {
            store.update(kind::PODS, namespace(pod), name(pod), |pod| {
                set_condition(pod, "Ready", "False", "NodeNotReady", "", &now);
            });
        }
    }

    fn evict(&self, store: &Store, node_name: &str) {
        let node = store.get_shared(kind::NODES, "", node_name);
        let gone = node.is_none();
        let lost = node
            .as_ref()
            .and_then(|node| condition(node, "Ready").cloned())
            .filter(|ready| ready["status"] == "Unknown");
        let since = lost.and_then(|ready| {
            text(&ready, "lastTransitionTime")
                .parse::<jiff::Timestamp>()
                .ok()
        });
        let long = since.is_some_and(|since| {
            store.clock().now().duration_since(since)
                >= SignedDuration::try_from(self.eviction).unwrap_or_default()
        });
        for pod in pods_on(store, node_name) {
            if gone {
                store.remove(kind::PODS, namespace(&pod), name(&pod));
            } else if long && !deleting(&pod) && !tolerates_for_ever(&pod) {
                store.delete(kind::PODS, namespace(&pod), name(&pod));
            }
        }
    }
}

fn pods_on(store: &Store, node: &str) -> Vec<std::sync::Arc<Value>> {
    let mut pods = store.list_shared(kind::PODS);
    pods.retain(|pod| text(pod, "spec.nodeName") == node);
    pods
}

fn tolerates_for_ever(pod: &Value) -> bool {
    pod["spec"]["tolerations"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|one| {
            (text(one, "key") == UNREACHABLE || text(one, "key").is_empty())
                && !has(one, "tolerationSeconds")
        })
}

fn has_taint(node: &Value, key: &str) -> bool {
    node["spec"]["taints"]
        .as_array()
        .is_some_and(|all| all.iter().any(|taint| taint["key"] == key))
}

/// Taints follow the facts: cordoned, unreachable.
fn sync_taints(store: &Store, node: &Value) {
    let now = store.stamp();
    let cordoned = node["spec"]["unschedulable"] == true;
    let reachable = condition(node, "Ready").is_some_and(|ready| ready["status"] != "Unknown");
    store.update(kind::NODES, "", name(node), |node| {
        if cordoned && !has_taint(node, names::UNSCHEDULABLE_TAINT) {
            push(&mut node["spec"]["taints"], json!({"key": names::UNSCHEDULABLE_TAINT, "effect": "NoSchedule", "timeAdded": now}));
        }
        let Some(taints) = node["spec"]["taints"].as_array_mut() else { return };
        taints.retain(|taint| (cordoned || taint["key"] != names::UNSCHEDULABLE_TAINT) && (!reachable || taint["key"] != UNREACHABLE));
        if taints.is_empty() {
            crate::kubevirt::fields::remove(&mut node["spec"], "taints");
        }
    });
}

impl Controller for NodeLifecycle {
    fn name(&self) -> &'static str {
        "node lifecycle"
    }

    fn changed(&mut self, store: &Store, change: &Change, queue: &mut Queue) {
        let _ = store;
        match change.resource.as_str() {
            kind::NODES if change.kind == ChangeKind::Deleted => {
                queue.after(Key::of(EVICT, &change.object), self.unknown);
            }
            kind::NODES => {
                let same = change.previous.as_ref().is_some_and(|old| {
                    old["spec"] == change.object["spec"]
                        && condition(old, "Ready") == condition(&change.object, "Ready")
                });
                if !same {
                    queue.soon(Key::of(CORDON, &change.object));
                }
            }
            kind::LEASES if namespace(&change.object) == "kube-node-lease" => {
                queue.after(Key::new(LEASE, "", name(&change.object)), self.unknown);
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
        match key.what {
            LEASE => self.check_lease(store, key, queue),
            EVICT => self.evict(store, &key.name),
            _ => {
                if let Some(node) = store.get_shared(kind::NODES, "", &key.name) {
                    sync_taints(store, &node);
                }
            }
        }
        Ok(())
    }
}
