//! Which objects does an inventory stand for, and how do they look once everything has settled?

mod vms;

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::spec::{AttachmentSpec, NodeSpec, Pairs, PdbSpec, PodSpec};
use crate::actors::status::{Containers, status};
use crate::api::{Failure, Store};
use crate::kubernetes::engine::seed_of;
use crate::kubevirt::fields::{push, set_condition, text};
use crate::kubevirt::names::{self, knob};

pub use vms::{settle_vm, strategy_of, template, vm};

/// Makes a namespace unless it is there.
pub fn ensure_namespace(store: &Store, name: &str) -> Result<(), Failure> {
    if store.get_shared("namespaces", "", name).is_none() {
        store.create("namespaces", json!({"metadata": {"name": name}}))?;
    }
    Ok(())
}

/// An id made from a name, the same in every run.
pub fn id_of(what: &str, name: &str) -> String {
    format!(
        "{:016x}{:016x}",
        seed_of(1, &format!("{what}/{name}")),
        seed_of(2, &format!("{what}/{name}"))
    )
}

fn dashed(hex: &str) -> String {
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// The boot id that a node begins with.
pub fn boot_id(spec: &NodeSpec) -> String {
    if spec.boot_id.is_empty() {
        dashed(&id_of("boot", &spec.name))
    } else {
        spec.boot_id.clone()
    }
}

/// A settled node: Ready, labelled by virt-handler, with registered device plugins.
pub fn node(store: &Store, spec: &NodeSpec) -> Value {
    let now = store.stamp();
    let labels: Map<String, Value> = spec
        .labels
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let resources = json!({
        "cpu": spec.cpus.to_string(), "memory": spec.memory, "pods": "500", "ephemeral-storage": "100Gi",
        names::KVM: if spec.ready { "1k" } else { "0" }, "devices.kubevirt.io/tun": "1k", "devices.kubevirt.io/vhost-net": "1k",
    });
    let or = |own: &str, usual: String| {
        if own.is_empty() {
            usual
        } else {
            own.to_owned()
        }
    };
    let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": reason, "lastHeartbeatTime": now, "lastTransitionTime": now});
    let (ready, reason) = if spec.ready {
        ("True", "KubeletReady")
    } else {
        ("Unknown", "NodeStatusUnknown")
    };
    let mut node = json!({
        "metadata": {"name": spec.name, "labels": labels, "annotations": {names::HEARTBEAT: now}},
        "spec": {},
        "status": {
            "capacity": resources, "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": spec.name}],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"), condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"), condition("Ready", ready, reason),
            ],
            "nodeInfo": {
                "machineID": or(&spec.machine_id, id_of("machine", &spec.name)), "systemUUID": or(&spec.system_uuid, dashed(&id_of("system", &spec.name))),
                "bootID": boot_id(spec), "kubeletVersion": "v1.34.2", "osImage": "Simulated Linux", "kernelVersion": "6.12.0",
                "containerRuntimeVersion": "containerd://2.1.0", "operatingSystem": "linux", "architecture": "amd64", "kubeProxyVersion": "",
            },
        },
    });
    let own = &mut node["metadata"]["labels"];
    for (key, value) in [
        ("kubernetes.io/hostname", spec.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        (
            names::SCHEDULABLE,
            if spec.ready { "true" } else { "false" },
        ),
        ("machine-type.node.kubevirt.io/q35", "true"),
        ("cpu-vendor.node.kubevirt.io/Intel", "true"),
        ("cpu-model.node.kubevirt.io/Haswell", "true"),
    ] {
        own[key] = json!(value);
    }
    if spec.control_plane {
        own["node-role.kubernetes.io/control-plane"] = json!("");
    }
    if spec.unschedulable {
        node["spec"]["unschedulable"] = json!(true);
        push(
            &mut node["spec"]["taints"],
            json!({"key": names::UNSCHEDULABLE_TAINT, "effect": "NoSchedule", "timeAdded": now}),
        );
    }
    node
}

fn pairs(all: &Pairs) -> Value {
    all.iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect::<Map<_, _>>()
        .into()
}

fn seconds(time: Duration) -> String {
    time.as_secs_f64().to_string()
}

/// What the kubelet will find that it has nothing to add to.
fn run_containers(pod: &mut Value, now: &str) {
    let patch = status(pod, Containers::Running, now, "192.0.2.1");
    for (field, value) in patch.as_object().into_iter().flatten() {
        if field != "conditions" {
            pod["status"][field] = value.clone();
        }
    }
    for condition in patch["conditions"].as_array().into_iter().flatten() {
        set_condition(
            pod,
            text(condition, "type"),
            text(condition, "status"),
            text(condition, "reason"),
            "",
            now,
        );
    }
}

/// An ordinary pod, running.
pub fn pod(store: &Store, spec: &PodSpec) -> Value {
    let now = store.stamp();
    let mut pod = json!({
        "metadata": {"name": spec.name, "namespace": spec.namespace, "labels": pairs(&spec.labels), "annotations": pairs(&spec.annotations)},
        "spec": {
            "nodeName": spec.node, "restartPolicy": "Always", "terminationGracePeriodSeconds": spec.grace_period.as_secs(),
            "containers": [{"name": "main", "image": "registry.invalid/main", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}],
        },
        "status": {"phase": "Running"},
    });
    let annotations = &mut pod["metadata"]["annotations"];
    annotations[knob::TERMINATES] =
        json!(spec.stops_in.map_or_else(|| "never".to_owned(), seconds));
    let usual = match spec.owner.split('/').next().unwrap_or_default() {
        "ReplicaSet" | "Job" => "elsewhere",
        "StatefulSet" => "same_name:any",
        "DaemonSet" => "here",
        _ => "never",
    };
    annotations[knob::RECREATED] =
        json!(spec.recreated.clone().unwrap_or_else(|| usual.to_owned()));
    if !spec.ready {
        annotations[knob::READY] = json!("false");
    }
    if spec.empty_dir {
        pod["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    }
    if spec.priority != 0 {
        pod["spec"]["priority"] = json!(spec.priority);
    }
    own(&mut pod, spec);
    run_containers(&mut pod, &now);
    if let Some(well) = spec.finished {
        finish(&mut pod, well, &now);
    }
    set_condition(&mut pod, "PodScheduled", "True", "", "", &now);
    pod
}

/// It has ended before anybody looks.
fn finish(pod: &mut Value, well: bool, now: &str) {
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["status"]["phase"] = json!(if well { "Succeeded" } else { "Failed" });
    let (code, reason) = if well { (0, "Completed") } else { (1, "Error") };
    for status in pod["status"]["containerStatuses"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        status["ready"] = json!(false);
        status["state"] =
            json!({"terminated": {"exitCode": code, "reason": reason, "finishedAt": now}});
    }
    for condition in ["Ready", "ContainersReady"] {
        set_condition(pod, condition, "False", "PodCompleted", "", now);
    }
}

fn own(pod: &mut Value, spec: &PodSpec) {
    let (kind, owner, version) = match spec.owner.split_once('/') {
        Some((kind @ "Job", owner)) => (kind, owner, "batch/v1"),
        Some((kind, owner)) => (kind, owner, "apps/v1"),
        None if spec.owner == "mirror" => {
            pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("1");
            ("Node", spec.node.as_str(), "v1")
        }
        None => return,
    };
    let uid = dashed(&id_of(kind, owner));
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": version, "kind": kind, "name": owner, "uid": uid, "controller": true, "blockOwnerDeletion": true}]);
}

/// A disruption budget.
pub fn pdb(spec: &PdbSpec) -> Value {
    let number = |text: &String| {
        text.parse::<u64>()
            .map_or_else(|_| json!(text), |number| json!(number))
    };
    let mut pdb = json!({
        "metadata": {"name": spec.name, "namespace": spec.namespace},
        "spec": {"selector": {"matchLabels": pairs(&spec.selector)}},
        "status": {},
    });
    if let Some(least) = &spec.min_available {
        pdb["spec"]["minAvailable"] = number(least);
    }
    if let Some(most) = &spec.max_unavailable {
        pdb["spec"]["maxUnavailable"] = number(most);
    }
    if let Some(policy) = &spec.unhealthy_pod_eviction_policy {
        pdb["spec"]["unhealthyPodEvictionPolicy"] = json!(policy);
    }
    if spec.before_pods {
        pdb["status"]["observedGeneration"] = json!(1);
    }
    pdb
}

/// A volume attachment.
pub fn attachment(spec: &AttachmentSpec, index: usize) -> Value {
    json!({
        "metadata": {
            "name": format!("csi-{}", id_of("attachment", &format!("{}/{index}", spec.node))),
            "annotations": {knob::DETACHES: spec.detaches.map_or_else(|| "never".to_owned(), seconds)},
        },
        "spec": {"attacher": "csi.sim.vmdrain.io", "nodeName": spec.node, "source": {"persistentVolumeName": format!("pv-{}-{index}", spec.node)}},
        "status": {"attached": true},
    })
}
