//! What does a launcher pod look like, and a VMI made from a template?

use serde_json::{Value, json};

use crate::kubevirt::fields::{at, has, label, name, namespace, text, uid};
use crate::kubevirt::names::{self, knob};
use crate::kubevirt::settings::Settings;

/// Memory of an ordinary VM, when nothing says otherwise.
const DEFAULT_MEMORY: &str = "1Gi";

/// A launcher pod for a VMI; `target` is the VMIM and the number of the attempt when it is the target of a migration.
pub(crate) fn launcher_pod(
    settings: &Settings,
    vmi: &Value,
    target: Option<(&Value, usize)>,
) -> Value {
    let mut pod = json!({
        "metadata": {
            "generateName": format!("virt-launcher-{}-", name(vmi)), "namespace": namespace(vmi),
            "labels": labels(settings, vmi), "annotations": annotations(vmi),
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name(vmi), "uid": uid(vmi),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": spec(settings, vmi),
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    });
    if let Some((vmim, attempt)) = target {
        let metadata = &mut pod["metadata"];
        metadata["labels"][names::MIGRATION_JOB_UID] = json!(uid(vmim));
        metadata["annotations"][names::MIGRATION_JOB_NAME] = json!(name(vmim));
        metadata["annotations"][knob::ATTEMPT] = json!(attempt.to_string());
        pod["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {names::CREATED_BY: uid(vmi)}}, "topologyKey": "kubernetes.io/hostname",
        }]}});
        if let Some(selector) = vmim["spec"]["addedNodeSelector"].as_object() {
            for (key, value) in selector {
                pod["spec"]["nodeSelector"][key] = value.clone();
            }
        }
    }
    pod
}

fn labels(settings: &Settings, vmi: &Value) -> Value {
    let mut labels = vmi["metadata"]["labels"].clone();
    if !labels.is_object() {
        labels = json!({});
    }
    labels[names::ROLE] = json!(names::LAUNCHER);
    labels[names::CREATED_BY] = json!(uid(vmi));
    labels["vm.kubevirt.io/name"] = json!(name(vmi));
    if settings.since(1, 6) {
        labels["vmi.kubevirt.io/id"] = json!(name(vmi));
    }
    if let Some(all) = labels.as_object_mut() {
        all.remove(names::MIGRATION_TARGET);
    }
    labels
}

fn annotations(vmi: &Value) -> Value {
    let mut annotations = vmi["metadata"]["annotations"].clone();
    if !annotations.is_object() {
        annotations = json!({});
    }
    if let Some(all) = annotations.as_object_mut() {
        all.retain(|key, _| key != names::EVICTION_SOURCE && key != knob::ATTEMPT);
    }
    annotations[names::DOMAIN] = json!(name(vmi));
    annotations[names::EVICT_ONLY] = json!("");
    annotations
}

fn spec(settings: &Settings, vmi: &Value) -> Value {
    let grace = at(vmi, "spec.terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(30);
    let memory = at(vmi, "spec.domain.memory.guest")
        .cloned()
        .unwrap_or_else(|| json!(DEFAULT_MEMORY));
    let cores = dedicated_cpus(vmi);
    let cpu = cores.map_or_else(|| "100m".to_owned(), |cores| cores.to_string());
    let compute = json!({
        "name": "compute", "image": "registry.invalid/kubevirt/virt-launcher",
        "resources": {"requests": {"memory": memory, "cpu": cpu, names::KVM: "1"}, "limits": {names::KVM: "1"}},
    });
    let mut log =
        json!({"name": "guest-console-log", "image": "registry.invalid/kubevirt/virt-launcher"});
    let mut spec = json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": grace + 30,
        "readinessGates": [{"conditionType": names::UNPAUSED}],
        "nodeSelector": selector(settings, vmi), "tolerations": tolerations(vmi),
        "containers": [compute],
    });
    if settings.since(1, 7) {
        log["restartPolicy"] = json!("Always");
        spec["initContainers"] = json!([log]);
    } else {
        crate::kubevirt::fields::push(&mut spec["containers"], log);
    }
    if has(vmi, "spec.priorityClassName") {
        spec["priorityClassName"] = json!(text(vmi, "spec.priorityClassName"));
    }
    spec
}

/// CPUs that the guest has for itself.
fn dedicated_cpus(vmi: &Value) -> Option<u64> {
    let cpu = at(vmi, "spec.domain.cpu").filter(|cpu| cpu["dedicatedCpuPlacement"] == true)?;
    cpu["cores"].as_u64()
}

fn selector(settings: &Settings, vmi: &Value) -> Value {
    let mut selector = vmi["spec"]["nodeSelector"].clone();
    if !selector.is_object() {
        selector = json!({});
    }
    selector["kubernetes.io/arch"] = json!("amd64");
    selector[names::SCHEDULABLE] = json!("true");
    if dedicated_cpus(vmi).is_some() {
        let [before, since] = names::CPU_MANAGERS;
        selector[if settings.since(1, 8) { since } else { before }] = json!("true");
    }
    if settings.since(1, 7) {
        selector["machine-type.node.kubevirt.io/q35"] = json!("true");
    }
    selector
}

fn tolerations(vmi: &Value) -> Value {
    let mut all = vmi["spec"]["tolerations"].clone();
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        crate::kubevirt::fields::push(
            &mut all,
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
        );
    }
    all
}

/// A VMI from the template of a VM or a replica set.
pub(crate) fn instance(template: &Value, owner: &Value, name: Option<&str>) -> Value {
    let mut vmi = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {
            "namespace": namespace(owner),
            "ownerReferences": [{
                "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": self::name(owner), "uid": uid(owner),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": template["spec"],
        "status": {},
    });
    match name {
        Some(name) => vmi["metadata"]["name"] = json!(name),
        None => vmi["metadata"]["generateName"] = json!(self::name(owner)),
    }
    for field in ["labels", "annotations"] {
        if template["metadata"][field].is_object() {
            vmi["metadata"][field] = template["metadata"][field].clone();
        }
    }
    debug_assert!(
        label(&vmi, names::NODE_NAME).is_empty(),
        "a template never names a node"
    );
    vmi
}
