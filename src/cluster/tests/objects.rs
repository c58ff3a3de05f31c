//! The objects that the scripted server shows, as real servers write them.

use super::fake::{Fake, listed, status};
use crate::cluster::types::{Guarded, Thin};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const NODE: &str = "n1";

/// A running launcher pod of the VM `name` in namespace `vms`.
pub(super) fn launcher(name: &str, version: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "vms", "name": format!("virt-launcher-{name}-abcde"), "uid": format!("pod-{name}"),
            "resourceVersion": version,
            "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": format!("vmi-{name}"), "app": name},
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "name": name, "uid": format!("vmi-{name}"), "controller": true}],
        },
        "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 60, "containers": [
            {"name": "compute", "resources": {"requests": {"memory": "2Gi"}}}]},
        "status": {"phase": "Running", "containerStatuses": [
            {"name": "compute", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]},
    })
}

pub(super) fn vmi(name: &str, version: &str) -> Value {
    json!({
        "metadata": {"namespace": "vms", "name": name, "uid": format!("vmi-{name}"),
            "resourceVersion": version, "labels": {"kubevirt.io/nodeName": NODE}},
        "spec": {"evictionStrategy": "LiveMigrate", "domain": {"memory": {"guest": "1Gi"}}},
        "status": {"phase": "Running", "nodeName": NODE, "conditions": [
            {"type": "LiveMigratable", "status": "True"}]},
    })
}

pub(super) fn node(version: &str) -> Value {
    json!({
        "metadata": {"name": NODE, "uid": "node-n1", "resourceVersion": version},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"machineID": "m", "systemUUID": "s", "bootID": "b"}},
    })
}

pub(super) fn migration(name: &str, phase: &str) -> Value {
    json!({
        "metadata": {"namespace": "vms", "name": format!("kubevirt-evacuation-{name}"), "uid": format!("vmim-{name}"),
            "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:10Z",
            "annotations": {"kubevirt.io/evacuationMigration": NODE}, "labels": {"kubevirt.io/vmi-name": name}},
        "spec": {"vmiName": name},
        "status": {"phase": phase},
    })
}

pub(super) fn pdb(name: &str, app: &str) -> Value {
    json!({
        "metadata": {"namespace": "vms", "name": name, "uid": format!("pdb-{name}"), "resourceVersion": "5"},
        "spec": {"minAvailable": "75%", "selector": {"matchLabels": {"app": app}}},
        "status": {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0, "conditions": [
            {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale"}]},
    })
}

pub(super) fn kubevirt() -> Value {
    json!({
        "metadata": {"namespace": "kubevirt", "name": "kubevirt", "uid": "kv", "resourceVersion": "5"},
        "spec": {"configuration": {"migrations": {"parallelMigrationsPerCluster": 7}}},
        "status": {"phase": "Deployed", "observedKubeVirtVersion": "v1.7.0"},
    })
}

/// One of everything.
pub(super) fn world() -> Arc<Fake> {
    let fake = Fake::new();
    fake.play("list pods", [listed("10", [launcher("a", "9")])]);
    fake.play("list nodes", [listed("10", [node("9")])]);
    fake.play("list vmis here", [listed("10", [vmi("a", "9")])]);
    fake.play(
        "list migrations",
        [listed("10", [migration("a", "Running")])],
    );
    fake.play(
        "list budgets",
        [listed("10", [pdb("b", "a"), pdb("other", "z")])],
    );
    fake.play("list kubevirts", [listed("10", [kubevirt()])]);
    fake
}

/// What a server says when a version is too old.
pub(super) fn gone(code: u16) -> Value {
    status(code, "Expired", "too old resource version")
}

/// Reads an object through its thin type.
pub(super) fn view<T: Thin>(value: &Value) -> Result<T::View, String> {
    Guarded::of::<T>(value).view
}

/// `object` with the value at `path` (which must exist, up to its last part) replaced.
pub(super) fn with(mut object: Value, path: &str, value: Value) -> Value {
    let (parent, field) = path.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}
