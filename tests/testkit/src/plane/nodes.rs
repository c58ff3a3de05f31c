//! Nodes of a real control plane: their objects, and the played kubelet and virt-handler that keep them alive.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::install::TOKEN;
use super::{Caller, ControlPlane, Who};
use crate::actors::fabric::Fabric;
use crate::actors::ledger::Ledger;
use crate::actors::{self, Pace, Surroundings};
use crate::api::Store;
use crate::clock::SimClock;
use crate::world::{NodeSpec, objects};

/// Played nodes. Their actors end when this is dropped; the objects stay.
pub struct Nodes {
    around: Surroundings,
    tasks: Mutex<BTreeMap<String, Vec<AbortHandle>>>,
}

impl Nodes {
    /// No nodes yet; everything that is played runs on this clock.
    pub fn new(clock: SimClock, seed: u64) -> Self {
        Self {
            around: Surroundings {
                clock,
                fabric: Fabric::default(),
                ledger: Ledger::default(),
                pace: Pace::default(),
                seed,
            },
            tasks: Mutex::default(),
        }
    }

    /// Power and network of the hosts: turn one off, kill its virt-handler, boot it.
    pub fn fabric(&self) -> &Fabric {
        &self.around.fabric
    }

    /// Guests that died.
    pub fn ledger(&self) -> &Ledger {
        &self.around.ledger
    }

    /// Creates a node's objects and plays its kubelet and virt-handler, with the identities that real ones have.
    pub async fn add(&self, plane: &ControlPlane, spec: &NodeSpec) -> anyhow::Result<()> {
        create(plane.admin(), &self.around.clock, spec).await?;
        self.fabric().change(&spec.name, |host| {
            host.on = spec.ready;
            host.handler = spec.ready;
            host.boot_id = objects::boot_id(spec);
        });
        let kubelet = plane.caller(&Who::Node(spec.name.clone())).await?;
        let tasks = actors::spawn(
            &spec.name,
            actors::machine::Shared::default(),
            kubelet.client(),
            handler(plane, &spec.name).await?.client(),
            &self.around,
        );
        self.tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(spec.name.clone(), tasks.into());
        Ok(())
    }

    /// Plays a node no longer.
    pub fn leave(&self, node: &str) {
        let mut all = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        for task in all.remove(node).into_iter().flatten() {
            task.abort();
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let all = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in all.into_values().flatten() {
            task.abort();
        }
    }
}

/// The virt-handler of a node: KubeVirt's own policy wants a token that is bound to the node.
async fn handler(plane: &ControlPlane, node: &str) -> anyhow::Result<Caller> {
    let token = plane
        .token(("kubevirt", "kubevirt-handler"), Some(node), TOKEN)
        .await?;
    Caller::new(&plane.token_kubeconfig(&format!("handler-{node}"), &token)?).await
}

/// A settled node's Node and Lease as they are sent to a real server.
pub fn node_objects(clock: &SimClock, spec: &NodeSpec) -> [Value; 2] {
    let store = Store::new(clock.clone(), 1);
    let mut node = objects::node(&store, spec);
    node["apiVersion"] = json!("v1");
    node["kind"] = json!("Node");
    // Without the label of the migration's CPU model no other node takes a target pod.
    node["metadata"]["labels"]["cpu-model-migration.node.kubevirt.io/Haswell"] = json!("true");
    node["metadata"]["labels"]["host-model-cpu.node.kubevirt.io/Haswell"] = json!("true");
    let now = clock.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": spec.name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": spec.name, "leaseDurationSeconds": 40, "renewTime": now},
    });
    [node, lease]
}

/// Creates a node as if it had been there for a while.
async fn create(admin: &Caller, clock: &SimClock, spec: &NodeSpec) -> anyhow::Result<()> {
    let [node, lease] = node_objects(clock, spec);
    if spec.ready {
        admin.create(&lease).await?;
    }
    admin.create(&node).await?;
    let path = format!("/api/v1/nodes/{}/status", spec.name);
    admin
        .done("PATCH", &path, &json!({"status": node["status"]}))
        .await?;
    // Admission gives every new node a taint that the node-lifecycle controller takes away once it is Ready.
    let path = format!("/api/v1/nodes/{}", spec.name);
    let taints = node["spec"]["taints"].clone();
    admin
        .done("PATCH", &path, &json!({"spec": {"taints": taints}}))
        .await?;
    Ok(())
}
