//! Puts a story's objects into a real cluster, through the front door: real admission, real controllers, real scheduler.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::api::rights::{Grant, Rights};
use crate::api::{Identity, Store};
use crate::kubevirt::fields::{is_true, phase, text};
use crate::kubevirt::names::kind;
use crate::plane::{Caller, ControlPlane, Nodes};
use crate::scenario::Scenario;
use crate::world::{Inventory, NodeSpec, PodSpec, VmOwner, VmSpec, objects};

use super::owners::{orphan, owners};

/// Everything has settled after so much real time, or never.
const SETTLED: Duration = Duration::from_secs(120);

/// Name of the ClusterRole with what the story grants.
pub(super) const ROLE: &str = "vmdrain-story";

const KUBEVIRT: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";

pub(super) async fn prepare(
    plane: &ControlPlane,
    nodes: &Nodes,
    scenario: &Scenario,
    wanted: &Inventory,
    granted: &Rights,
    store: &Store,
) -> anyhow::Result<()> {
    let admin = plane.admin();
    configure(admin, scenario).await?;
    grant(admin, granted).await?;
    try_join_all(wanted.nodes.iter().map(|node| nodes.add(plane, node))).await?;
    let spaces = namespaces(wanted);
    try_join_all(spaces.iter().map(|space| namespace(admin, space))).await?;
    settled(store, "the nodes are not ready", |store| {
        wanted.nodes.iter().all(|node| node_ready(store, node))
    })
    .await?;
    place(admin, store, wanted).await?;
    for pod in &wanted.pods {
        admin.create(&orphan(store, pod)).await?;
    }
    settled(store, "the pods do not run", |store| {
        wanted.pods.iter().all(|pod| pod_runs(store, pod))
    })
    .await?;
    for owner in owners(store, &wanted.pods) {
        admin.create(&owner).await?;
    }
    settled(store, "the pods are not adopted", |store| {
        wanted.pods.iter().all(|pod| is_owned(store, pod))
    })
    .await?;
    for (index, attachment) in wanted.attachments.iter().enumerate() {
        let mut object = objects::attachment(attachment, index);
        named(&mut object, "storage.k8s.io/v1", "VolumeAttachment");
        admin.create(&object).await?;
    }
    let ready = || {
        settled(store, "the VMs do not run", |store| {
            wanted.vms.iter().all(|vm| all_run(store, vm))
        })
    };
    ready().await?;
    for pdb in &wanted.pdbs {
        let mut object = objects::pdb(pdb);
        named(&mut object, "policy/v1", "PodDisruptionBudget");
        admin.create(&object).await?;
    }
    settled(store, "the budgets are not looked at", |store| {
        wanted.pdbs.iter().all(|pdb| {
            let found = store.get_shared(kind::PDBS, &pdb.namespace, &pdb.name);
            found.is_some_and(|pdb| pdb["status"]["conditions"].is_array())
        })
    })
    .await
}

/// KubeVirt as the story has configured it. Both controllers watch the object.
async fn configure(admin: &Caller, scenario: &Scenario) -> anyhow::Result<()> {
    let kubevirt = &scenario.kubevirt;
    let gates: Vec<&str> = kubevirt
        .priority_queue
        .then_some("MigrationPriorityQueue")
        .into_iter()
        .collect();
    let body = json!({"spec": {"configuration": {
        "developerConfiguration": {"featureGates": gates},
        "evictionStrategy": kubevirt.cluster_eviction_strategy.name(),
        "migrations": {
            "parallelMigrationsPerCluster": kubevirt.parallel_migrations_per_cluster,
            "parallelOutboundMigrationsPerNode": kubevirt.parallel_outbound_migrations_per_node,
            "nodeDrainTaintKey": kubevirt.drain_taint_key,
        },
    }}});
    admin.done("PATCH", KUBEVIRT, &body).await?;
    Ok(())
}

/// What the story grants to the nodes, as RBAC.
async fn grant(admin: &Caller, granted: &Rights) -> anyhow::Result<()> {
    let kubelet = Identity::kubelet("any");
    let rules: Vec<Value> = granted.grants_of(&kubelet).map(Grant::rule).collect();
    let api = "rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": ROLE}, "rules": rules});
    let binding = json!({
        "apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
    });
    admin.create(&role).await?;
    admin.create(&binding).await?;
    Ok(())
}

/// Every namespace of the story.
pub(super) fn namespaces(wanted: &Inventory) -> BTreeSet<String> {
    let vms = wanted.vms.iter().map(|vm| &vm.namespace);
    let pods = wanted.pods.iter().map(|pod| &pod.namespace);
    let pdbs = wanted.pdbs.iter().map(|pdb| &pdb.namespace);
    let mut all: BTreeSet<String> = vms.chain(pods).chain(pdbs).cloned().collect();
    all.insert("default".into());
    all
}

/// A namespace with its default account, without which no pod is taken.
async fn namespace(admin: &Caller, name: &str) -> anyhow::Result<()> {
    admin
        .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .await?;
    let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    let asked = async {
        while !admin.ask("GET", &path, &Value::Null).await?.is_success() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok::<(), anyhow::Error>(())
    };
    tokio::time::timeout(SETTLED, asked)
        .await
        .with_context(|| format!("namespace {name} has no default account after two minutes"))?
}

/// A VM on the node that the story says: nobody but the scheduler places pods, so for a moment there is no other node.
async fn place(admin: &Caller, store: &Store, wanted: &Inventory) -> anyhow::Result<()> {
    let places: BTreeSet<&str> = wanted.vms.iter().map(|vm| vm.node.as_str()).collect();
    for place in &places {
        for node in &wanted.nodes {
            let closed = !place.is_empty() && node.name != *place;
            cordon(
                admin,
                &node.name,
                closed || place.is_empty() && node.unschedulable,
            )
            .await?;
        }
        let here: Vec<&VmSpec> = wanted.vms.iter().filter(|vm| vm.node == *place).collect();
        try_join_all(here.iter().map(|vm| create(admin, vm))).await?;
        settled(store, "the VMs are not placed", |store| {
            here.iter()
                .all(|vm| names(vm).iter().all(|name| is_placed(store, vm, name)))
        })
        .await?;
    }
    for node in &wanted.nodes {
        cordon(admin, &node.name, node.unschedulable).await?;
    }
    settled(
        store,
        "the nodes are not as the story wants them",
        |store| {
            wanted.nodes.iter().all(|node| {
                let found = store.get_shared(kind::NODES, "", &node.name);
                found.is_some_and(|found| {
                    let tainted = found["spec"]["taints"]
                        .as_array()
                        .is_some_and(|all| !all.is_empty());
                    (found["spec"]["unschedulable"] == true) == node.unschedulable
                        && tainted == node.unschedulable
                })
            })
        },
    )
    .await
}

async fn cordon(admin: &Caller, node: &str, closed: bool) -> anyhow::Result<()> {
    let value = if closed { json!(true) } else { Value::Null };
    let path = format!("/api/v1/nodes/{node}");
    let body = json!({"spec": {"unschedulable": value}});
    admin.done("PATCH", &path, &body).await?;
    Ok(())
}

/// The VM or VMI objects of a spec, as somebody would send them.
pub(in super::super) fn objects_of(vm: &VmSpec) -> Vec<Value> {
    let of = |name: &String| match &vm.owner {
        VmOwner::None | VmOwner::Other(_) => {
            let mut vmi = objects::template(vm);
            vmi["metadata"]["name"] = json!(name);
            vmi["metadata"]["namespace"] = json!(vm.namespace);
            named(&mut vmi, "kubevirt.io/v1", "VirtualMachineInstance");
            vmi
        }
        VmOwner::Vm(_) | VmOwner::ReplicaSet | VmOwner::Pool => {
            let mut object = objects::vm(vm, name, objects::strategy_of(vm));
            // Those are its controller's.
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("finalizers");
            }
            object
        }
    };
    names(vm).iter().map(of).collect()
}

pub(in super::super) async fn create(admin: &Caller, vm: &VmSpec) -> anyhow::Result<()> {
    for object in objects_of(vm) {
        admin.create(&object).await?;
        if vm.owner == VmOwner::Vm("Manual".into()) {
            let (space, name) = (&vm.namespace, text(&object, "metadata.name"));
            let path = format!(
                "/apis/subresources.kubevirt.io/v1/namespaces/{space}/virtualmachines/{name}/start"
            );
            admin.done("PUT", &path, &json!({})).await?;
        }
    }
    Ok(())
}

fn names(vm: &VmSpec) -> Vec<String> {
    if vm.count == 1 {
        return vec![vm.name.clone()];
    }
    (0..vm.count)
        .map(|index| format!("{}-{index}", vm.name))
        .collect()
}

/// An ordinary pod on its node.
pub(in super::super) fn pod_object(store: &Store, pod: &crate::world::PodSpec) -> Value {
    let mut object = objects::pod(store, pod);
    named(&mut object, "v1", "Pod");
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

pub(in super::super) fn named(object: &mut Value, version: &str, kind: &str) {
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
}

fn pod_runs(store: &Store, pod: &PodSpec) -> bool {
    let found = store.get_shared(kind::PODS, &pod.namespace, &pod.name);
    found.is_some_and(|found| phase(&found) == "Running" && is_true(&found, "Ready") == pod.ready)
}

fn is_owned(store: &Store, pod: &PodSpec) -> bool {
    let found = store.get_shared(kind::PODS, &pod.namespace, &pod.name);
    let owned = |found: &Value| found["metadata"]["ownerReferences"].is_array();
    !pod.owner.contains('/') || found.is_some_and(|found| owned(&found))
}

fn node_ready(store: &Store, node: &NodeSpec) -> bool {
    let found = store.get_shared(kind::NODES, "", &node.name);
    found.is_some_and(|found| {
        let taints = found["spec"]["taints"].as_array().map_or(0, Vec::len);
        !node.ready || is_true(&found, "Ready") && taints == usize::from(node.unschedulable)
    })
}

fn is_placed(store: &Store, vm: &VmSpec, name: &str) -> bool {
    let found = store.get_shared(kind::VMIS, &vm.namespace, name);
    found.is_some_and(|vmi| !text(&vmi, "status.nodeName").is_empty())
}

/// All VMs of a spec run on its node, and both their pods and they themselves say so.
fn all_run(store: &Store, vm: &VmSpec) -> bool {
    names(vm).iter().all(|name| {
        let found = store.get_shared(kind::VMIS, &vm.namespace, name);
        found.is_some_and(|vmi| {
            let here = vm.node.is_empty() || text(&vmi, "status.nodeName") == vm.node;
            let told = vmi["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["type"] == "LiveMigratable"));
            phase(&vmi) == "Running" && here && told && is_true(&vmi, "Ready")
        })
    })
}

/// Waits until what is seen of the cluster is so.
async fn settled(
    store: &Store,
    otherwise: &str,
    so: impl Fn(&Store) -> bool,
) -> anyhow::Result<()> {
    let mut changed = store.changed();
    let waits = async {
        loop {
            changed.borrow_and_update();
            if so(store) || changed.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(SETTLED, waits)
        .await
        .map_err(|_| anyhow::anyhow!("{otherwise} after {} s", SETTLED.as_secs()))
}
