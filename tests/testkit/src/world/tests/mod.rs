//! Does the simulated cluster do what real ones did?

mod budgets;
mod evacuation;
mod evictions;
mod failures;
mod nodes;
mod owners;
mod pacing;

use std::time::Duration;

use serde_json::{Value, json};

use super::{Cluster, Inventory, VmSpec};
use crate::api::{ChangeKind, Identity, Rights};
use crate::clock::SimClock;
use crate::kubevirt::Settings;
use crate::kubevirt::fields::{ended, is_launcher, name, namespace, owner, phase, text};
use crate::kubevirt::names::{self, kind};

/// A cluster and what tests ask of it.
struct Bench {
    cluster: Cluster,
    admin: kube::Client,
}

impl Bench {
    fn new(settings: Settings, inventory: &Inventory, seed: u64) -> Self {
        let cluster = Cluster::start(
            SimClock::new(1.0),
            settings,
            inventory,
            Rights::full(),
            seed,
        )
        .unwrap();
        let admin = cluster.server.client(Identity::admin());
        Self { cluster, admin }
    }

    fn now(&self) -> f64 {
        self.cluster.server.clock().elapsed().as_secs_f64()
    }

    async fn sleep(&self, seconds: f64) {
        self.cluster
            .server
            .clock()
            .sleep(Duration::from_secs_f64(seconds))
            .await;
    }

    fn cordon(&self, node: &str) {
        self.cluster
            .server
            .store
            .update(kind::NODES, "", node, |node| {
                node["spec"]["unschedulable"] = json!(true);
            });
    }

    fn vmi(&self, name: &str) -> Value {
        self.cluster
            .server
            .store
            .get(kind::VMIS, "default", name)
            .unwrap_or_default()
    }

    /// The live launcher pod of a VMI on a node.
    fn pod_of(&self, vmi: &str, node: &str) -> Option<String> {
        let pods = self.cluster.server.store.list(kind::PODS);
        let own = pods.iter().find(|pod| {
            is_launcher(pod)
                && !ended(pod)
                && text(pod, "spec.nodeName") == node
                && owner(pod).is_some_and(|(_, owner, _)| owner == vmi)
        });
        own.map(|pod| name(pod).to_owned())
    }

    /// Code and message of an eviction.
    async fn evict(&self, pod: &str) -> (u16, String) {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}});
        self.post(
            &format!("/api/v1/namespaces/default/pods/{pod}/eviction"),
            &body,
        )
        .await
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, String) {
        self.send("POST", path, body.to_string().into_bytes()).await
    }

    async fn send(&self, method: &str, path: &str, body: Vec<u8>) -> (u16, String) {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        let response = self
            .admin
            .send(request.map(kube::client::Body::from))
            .await
            .unwrap();
        let (parts, body) = response.into_parts();
        let bytes = http_body_util::BodyExt::collect(body)
            .await
            .unwrap()
            .to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let message = serde_json::from_str::<Value>(&text)
            .ok()
            .and_then(|body| body["message"].as_str().map(str::to_owned));
        (parts.status.as_u16(), message.unwrap_or(text))
    }

    /// The node's heartbeats come every 5 s from now on, as in the bench where the real controllers were timed: virt-controller looks at
    /// a VM with two live pods again only when something about its node changes.
    fn beats_often(&self) {
        let store = self.cluster.server.store.clone();
        tokio::spawn(async move {
            loop {
                store.clock().sleep(Duration::from_secs(5)).await;
                let stamp = store.stamp();
                store.update(kind::NODES, "", "n1", |node| {
                    node["metadata"]["annotations"][names::HEARTBEAT] = json!(stamp);
                });
            }
        });
    }

    /// Waits until something holds, at most `limit` seconds; returns when it did.
    async fn until(&self, limit: f64, what: &str, holds: impl Fn(&Self) -> bool) -> f64 {
        let (end, mut changed) = (self.now() + limit, self.cluster.server.store.changed());
        loop {
            if holds(self) {
                return self.now();
            }
            assert!(self.now() < end, "after {limit} s still not: {what}");
            tokio::select! {
                _ = changed.changed() => {}
                () = self.sleep((end - self.now()).max(0.001)) => {}
            }
        }
    }

    fn is_on(&self, vmi: &str, node: &str) -> bool {
        text(&self.vmi(vmi), "status.nodeName") == node
    }

    /// One line per change of an object, like the notes tell them.
    fn story(&self, since: u64) -> Vec<String> {
        self.cluster
            .server
            .store
            .changes_since(since)
            .unwrap()
            .iter()
            .filter(|change| interesting(&change.resource))
            .map(line)
            .collect()
    }

    fn check(&self) {
        assert_eq!(self.cluster.world.check_invariants(), []);
        assert_eq!(self.cluster.world.dirty_kills(), []);
    }
}

fn interesting(resource: &str) -> bool {
    matches!(resource, kind::PODS | kind::VMIS | kind::VMIMS | kind::PDBS)
}

/// `VMI v1: status.phase metadata.labels…`: which fields changed.
fn line(change: &crate::api::Change) -> String {
    let object = &change.object;
    let what = match change.kind {
        ChangeKind::Added => "ADDED".to_owned(),
        ChangeKind::Deleted => "DELETED".to_owned(),
        ChangeKind::Modified => {
            let before = change.previous.as_deref().cloned().unwrap_or_default();
            let mut fields = Vec::new();
            differences("", &before, object, &mut fields);
            fields.join(" ")
        }
    };
    let short = if namespace(object).is_empty() {
        name(object)
    } else {
        name(object).split('-').next().unwrap_or_default()
    };
    format!("{} {short}: {what}", change.resource)
}

fn differences(path: &str, before: &Value, after: &Value, out: &mut Vec<String>) {
    if before == after || path == "metadata.resourceVersion" || path == "metadata.generation" {
        return;
    }
    match (before.as_object(), after.as_object()) {
        (Some(old), Some(new)) => {
            let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
            for key in keys {
                let inner = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                differences(&inner, &before[key], &after[key], out);
            }
        }
        _ => out.push(
            if phase(after).is_empty() && !after.is_object() && after.is_string() {
                format!("{path}={}", after.as_str().unwrap_or_default())
            } else {
                path.to_owned()
            },
        ),
    }
}

/// Three nodes and VMs on the first one that copy for `seconds` and start within 0.3 s, as in the notes.
fn fleet(count: usize, seconds: f64) -> Inventory {
    let mut inventory = Inventory::with_nodes(&["n1", "n2", "n3"]);
    for index in 0..count {
        let mut vm = VmSpec::new(&format!("v{index}"), "n1");
        vm.memory = "1Gi".to_owned();
        vm.migration_time = Duration::from_secs_f64(seconds);
        vm.start_up = Duration::from_millis(300);
        vm.source_pod_lingers = Some(Duration::from_secs(1));
        inventory.vms.push(vm);
    }
    inventory
}
