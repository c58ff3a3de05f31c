//! How do a VM, its VMI and its launcher pod look when everything is settled?

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::spec::{VmOwner, VmSpec};
use super::{ensure_namespace, id_of, pairs, run_containers, seconds};
use crate::api::{Failure, Store};
use crate::kubevirt::controller::launcher;
use crate::kubevirt::fields::{name, namespace, set_condition, set_phase, text};
use crate::kubevirt::names::{self, kind, knob};
use crate::kubevirt::virt_api::{VirtApi, writes};

/// The template of a VM: labels, annotations with the knobs, spec.
pub fn template(spec: &VmSpec) -> Value {
    let never = |time: Option<Duration>| time.map_or_else(|| "never".to_owned(), seconds);
    let mut annotations: Map<String, Value> = spec
        .annotations
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    for (key, value) in [
        (knob::START_UP, seconds(spec.start_up)),
        (knob::MIGRATION_SECONDS, seconds(spec.migration_time)),
        (knob::MIGRATION, spec.migration.join("|")),
        (knob::GUEST_SHUTDOWN, never(spec.guest_shutdown)),
        (knob::SOURCE_LINGERS, never(spec.source_pod_lingers)),
    ] {
        annotations.insert(key.to_owned(), json!(value));
    }
    if let Some(reason) = &spec.not_migratable {
        annotations.insert(knob::NOT_MIGRATABLE.to_owned(), json!(reason));
    }
    let mut template = json!({
        "metadata": {"labels": pairs(&spec.labels), "annotations": annotations},
        "spec": {
            "terminationGracePeriodSeconds": spec.grace_period.as_secs(),
            "domain": {"devices": {}, "memory": {"guest": spec.memory}},
        },
    });
    if let Some(strategy) = &spec.eviction_strategy {
        template["spec"]["evictionStrategy"] = json!(strategy);
    }
    if spec.dedicated_cpus > 0 {
        template["spec"]["domain"]["cpu"] =
            json!({"cores": spec.dedicated_cpus, "dedicatedCpuPlacement": true});
    }
    if !spec.priority.is_empty() {
        template["spec"]["priorityClassName"] = json!(spec.priority);
    }
    template
}

/// Stands for a VM with the old `spec.running: true` instead of a run strategy.
const OLD_RUNNING: &str = "running";

/// The VM object of a spec. A VM that would wait for a start request gets one.
pub fn vm(spec: &VmSpec, name: &str, strategy: &str) -> Value {
    let mut annotations = spec.annotations.clone();
    annotations.extend(spec.vm_annotations.clone());
    let mut vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": spec.namespace, "annotations": pairs(&annotations), "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"]},
        "spec": {"template": template(spec)},
        "status": {},
    });
    if strategy == OLD_RUNNING {
        vm["spec"]["running"] = json!(true);
    } else {
        vm["spec"]["runStrategy"] = json!(strategy);
    }
    if matches!(strategy, "RerunOnFailure" | "Manual") {
        vm["status"]["stateChangeRequests"] = json!([{"action": "Start"}]);
    }
    vm
}

/// Everything of a VM, running on its node.
pub fn settle_vm(store: &Store, api: &VirtApi, spec: &VmSpec) -> Result<(), Failure> {
    ensure_namespace(store, &spec.namespace)?;
    let numbered = |index: usize| {
        if spec.count == 1 {
            spec.name.clone()
        } else {
            format!("{}-{index}", spec.name)
        }
    };
    match &spec.owner {
        VmOwner::ReplicaSet => {
            let set = store.create(kind::REPLICA_SETS, replica_set(spec))?;
            for index in 0..spec.count {
                settle_vmi(store, api, spec, &set, &numbered(index))?;
            }
        }
        VmOwner::None => {
            for index in 0..spec.count {
                settle_vmi(store, api, spec, &Value::Null, &numbered(index))?;
            }
        }
        VmOwner::Other(kind) => {
            let owner = json!({
                "apiVersion": "example.com/v1", "kind": kind,
                "metadata": {"name": spec.name, "uid": id_of(kind, &spec.name)},
            });
            for index in 0..spec.count {
                settle_vmi(store, api, spec, &owner, &numbered(index))?;
            }
        }
        VmOwner::Vm(_) | VmOwner::Pool => {
            let pool = if spec.owner == VmOwner::Pool {
                Some(store.create(kind::POOLS, pool(spec))?)
            } else {
                None
            };
            for index in 0..spec.count {
                let mut object = vm(spec, &numbered(index), strategy_of(spec));
                object["status"] =
                    json!({"created": true, "ready": true, "printableStatus": "Running"});
                if let Some(pool) = &pool {
                    object["metadata"]["ownerReferences"] = reference(pool);
                }
                let object = store.create(kind::VMS, object)?;
                settle_vmi(store, api, spec, &object, &numbered(index))?;
            }
        }
    }
    Ok(())
}

/// The run strategy of a spec's VM.
pub fn strategy_of(spec: &VmSpec) -> &str {
    match &spec.owner {
        VmOwner::Vm(strategy) => strategy,
        VmOwner::ReplicaSet | VmOwner::Pool | VmOwner::Other(_) | VmOwner::None => "Always",
    }
}

pub(super) fn reference(owner: &Value) -> Value {
    json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name(owner), "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    }])
}

pub(super) fn replica_set(spec: &VmSpec) -> Value {
    json!({
        "metadata": {"name": spec.name, "namespace": spec.namespace},
        "spec": {"replicas": spec.count, "selector": {"matchLabels": pairs(&spec.labels)}, "template": template(spec)},
        "status": {"replicas": spec.count, "readyReplicas": spec.count},
    })
}

pub(super) fn pool(spec: &VmSpec) -> Value {
    json!({
        "metadata": {"name": spec.name, "namespace": spec.namespace},
        "spec": {"replicas": spec.count, "virtualMachineTemplate": {"spec": {"runStrategy": "Always", "template": template(spec)}}},
        "status": {"replicas": spec.count, "readyReplicas": spec.count},
    })
}

/// A running VMI with its launcher pod; `owner` is null for a standalone one.
pub(super) fn settle_vmi(
    store: &Store,
    api: &VirtApi,
    spec: &VmSpec,
    owner: &Value,
    vmi_name: &str,
) -> Result<(), Failure> {
    let mut vmi = json!({
        "metadata": {"name": vmi_name, "namespace": spec.namespace, "annotations": {"kubevirt.io/nonroot": "true"}},
        "spec": template(spec)["spec"],
    });
    for (key, value) in template(spec)["metadata"]["annotations"]
        .as_object()
        .into_iter()
        .flatten()
    {
        vmi["metadata"]["annotations"][key] = value.clone();
    }
    vmi["metadata"]["labels"] = pairs(&spec.labels);
    vmi["metadata"]["labels"][names::NODE_NAME] = json!(spec.node);
    if owner.is_object() {
        vmi["metadata"]["ownerReferences"] = reference(owner);
    }
    writes::vmi_create(api, &mut vmi);
    let now = store.stamp();
    running(&mut vmi, spec, &now, api.settings().since(1, 7));
    let vmi = store.create(kind::VMIS, vmi)?;
    let pod = settle_pod(store, api, spec, &vmi)?;
    store.update(kind::VMIS, &spec.namespace, vmi_name, |vmi| {
        vmi["status"]["activePods"] = json!({text(&pod, "metadata.uid"): spec.node});
    });
    for index in 0..spec.hotplug_disks {
        store.create(kind::PODS, attachment_pod(&pod, index, &now))?;
    }
    Ok(())
}

pub(super) fn running(vmi: &mut Value, spec: &VmSpec, now: &str, tells_marks: bool) {
    vmi["status"] = json!({"nodeName": spec.node, "migrationMethod": "LiveMigration", "migrationTransport": "Unix", "selinuxContext": "none"});
    for phase in ["Pending", "Scheduling", "Scheduled", "Running"] {
        set_phase(vmi, phase, now);
    }
    match &spec.not_migratable {
        None => set_condition(vmi, "LiveMigratable", "True", "", "", now),
        Some(reason) => set_condition(
            vmi,
            "LiveMigratable",
            "False",
            reason,
            &format!("cannot migrate VMI: {reason}"),
            now,
        ),
    }
    set_condition(vmi, "StorageLiveMigratable", "True", "", "", now);
    set_condition(vmi, "Ready", "True", "", "", now);
    if spec.marked {
        vmi["status"]["evacuationNodeName"] = json!(spec.node);
        if tells_marks {
            set_condition(
                vmi,
                "EvictionRequested",
                "True",
                "EvictionRequested",
                "VMI is marked for eviction",
                now,
            );
        }
    }
}

pub(super) fn settle_pod(
    store: &Store,
    api: &VirtApi,
    spec: &VmSpec,
    vmi: &Value,
) -> Result<Value, Failure> {
    let now = store.stamp();
    let mut pod = launcher::launcher_pod(api.settings(), vmi, None);
    pod["spec"]["nodeName"] = json!(spec.node);
    let made = store.create(kind::PODS, pod)?;
    let settled = store.update(kind::PODS, namespace(&made), name(&made), |pod| {
        set_condition(pod, "PodScheduled", "True", "", "", &now);
        set_condition(
            pod,
            names::UNPAUSED,
            "True",
            "NotPaused",
            "the virtual machine is not paused",
            &now,
        );
        run_containers(pod, &now);
    });
    Ok(settled.unwrap_or(made))
}

pub(super) fn attachment_pod(launcher: &Value, index: usize, now: &str) -> Value {
    let suffix = &id_of("disk", &format!("{}/{index}", name(launcher)))[..5];
    let mut pod = json!({
        "metadata": {
            "name": format!("hp-volume-{suffix}"), "namespace": namespace(launcher), "labels": {names::ROLE: "hotplug-disk"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name(launcher), "uid": launcher["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "nodeName": launcher["spec"]["nodeName"], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "hotplug-disk", "image": "registry.invalid/kubevirt/virt-launcher"}],
        },
        "status": {"phase": "Running"},
    });
    run_containers(&mut pod, now);
    pod
}
