//! The objects that a case makes: nodes, VMs, pods.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::kubevirt::names::{self, knob};

use super::image::IMAGE;

/// What virt-handler's device plugins register.
const DEVICES: [&str; 3] = ["kvm", "tun", "vhost-net"];

/// A node as KubeVirt's node labeller leaves it; its kubelet adds the rest.
pub(super) fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        names::SCHEDULABLE: "true", "machine-type.node.kubevirt.io/q35": "true",
        "cpu-vendor.node.kubevirt.io/Intel": "true", "cpu-model.node.kubevirt.io/Haswell": "true",
        "cpu-model-migration.node.kubevirt.io/Haswell": "true", "host-model-cpu.node.kubevirt.io/Haswell": "true",
    }}})
}

/// Its devices, usable or not.
pub(super) fn devices(usable: bool) -> Value {
    let count = if usable { "1k" } else { "0" };
    let all: serde_json::Map<_, _> = DEVICES
        .iter()
        .map(|device| (format!("devices.kubevirt.io/{device}"), json!(count)))
        .collect();
    json!({"status": {"capacity": all, "allocatable": all}})
}

/// One kind of VM of a case.
#[derive(Clone, Debug)]
pub(crate) struct Vm {
    /// Its name in the case's namespace.
    pub(crate) name: String,
    /// How long a live migration copies.
    pub(crate) copies: Duration,
    /// How long its guest takes to shut down.
    pub(crate) shutdown: Duration,
}

impl Vm {
    /// One that copies for so many seconds and shuts down in two.
    pub(crate) fn new(name: &str, copies: f64) -> Self {
        Self {
            name: name.to_owned(),
            copies: Duration::from_secs_f64(copies),
            shutdown: Duration::from_secs(2),
        }
    }
}

/// It runs on `home` as long as it can, else on `peer`.
pub(super) fn machine(vm: &Vm, namespace: &str, home: &str, peer: &str) -> Value {
    let host = |names: &[&str]| json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": names}]}]);
    let seconds = |span: Duration| span.as_secs_f64().to_string();
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": vm.name, "namespace": namespace},
        "spec": {"runStrategy": "Always", "template": {
            "metadata": {"annotations": {
                knob::MIGRATION_SECONDS: seconds(vm.copies), knob::GUEST_SHUTDOWN: seconds(vm.shutdown),
                knob::SOURCE_LINGERS: "0.1", knob::START_UP: "0.2",
            }},
            "spec": {
                "evictionStrategy": "LiveMigrate", "terminationGracePeriodSeconds": 30,
                "domain": {"memory": {"guest": "64Mi"}, "devices": {"autoattachPodInterface": false}},
                "affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": host(&[home, peer])},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": host(&[home])[0]}],
                }},
            },
        }},
    })
}

/// A pod that is no VM: at SIGTERM it works on for `seconds`. It stays when its node is cordoned, and is not moved.
/// One named virt-handler is a process of that name.
pub(super) fn pod(name: &str, namespace: &str, node: &str, seconds: u32) -> Value {
    let program = if name == "virt-handler" {
        "virt-handler"
    } else {
        "workload"
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "automountServiceAccountToken": false, "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "Never",
                "command": [format!("/usr/bin/{program}")], "args": [seconds.to_string()],
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
            }],
        },
    })
}
