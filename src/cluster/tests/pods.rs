//! Pods as servers write them become views, field by field.

use super::fake::{launcher, pdb, view, vmi, with};
use crate::cluster::types::other::Other;
use crate::cluster::types::pdb::Pdb;
use crate::cluster::types::pod::Pod;
use crate::cluster::types::vmi::Vmi;
use crate::cluster::types::volume::Attachment;
use crate::drain::others::{Rules, Stance, stance};
use crate::drain::world::{Compute, OtherPod, PdbView, PodKind, PodPhase, PodView, VmName};
use serde_json::{Value, json};
use std::time::Duration;

fn pod(value: &Value) -> PodView {
    view::<Pod>(value).unwrap()
}

#[test]
fn a_launcher_pod() {
    let view = pod(&launcher("a", "9"));
    assert_eq!(view.kind, PodKind::Launcher);
    let vm = VmName {
        namespace: "vms".into(),
        name: "a".into(),
    };
    assert_eq!((view.vm, view.vmi_uid.as_str()), (vm, "vmi-a"));
    assert_eq!(
        (view.phase, view.compute),
        (PodPhase::Running, Compute::Running)
    );
    assert_eq!(
        (view.memory, view.grace),
        (Some(2 << 30), Duration::from_secs(60))
    );
    assert_eq!((view.deleting, view.eviction_in_progress), (false, false));
    assert_eq!(
        (view.migration_job, view.vmi_node_label, view.policy),
        (None, None, None)
    );
    assert_eq!(view.labels["app"], "a");
}

#[test]
fn what_labels_and_annotations_say_about_a_pod() {
    let annotated = |key: &str, value: &str| {
        let annotations = json!({key: value});
        pod(&with(
            launcher("a", "9"),
            "/metadata/annotations",
            annotations,
        ))
    };
    for value in ["true", "kubevirt", ""] {
        let key = "descheduler.alpha.kubernetes.io/eviction-in-progress";
        assert!(annotated(key, value).eviction_in_progress, "{value}");
    }
    assert_eq!(
        annotated("vmdrain.io/policy", "leave").policy.as_deref(),
        Some("leave")
    );
    let helper = annotated("kubevirt.io/ephemeral-provisioning", "true");
    assert_eq!(helper.kind, PodKind::Provisioning);
    let labels = json!({"kubevirt.io": "virt-launcher", "kubevirt.io/migrationJobUID": "m1",
        "kubevirt.io/nodeName": "n2", "kubevirt.io/created-by": "u"});
    let target = pod(&with(
        launcher("a", "9"),
        "/metadata/labels",
        labels.clone(),
    ));
    assert_eq!(target.migration_job.as_deref(), Some("m1"));
    assert_eq!(target.vmi_node_label.as_deref(), Some("n2"));
    // Without the owner: the annotation and the label.
    let mut orphan = with(launcher("a", "9"), "/metadata/ownerReferences", Value::Null);
    orphan["metadata"]["annotations"] = json!({"kubevirt.io/domain": "a-long-name"});
    orphan["metadata"]["labels"] = labels;
    let orphan = pod(&orphan);
    assert_eq!(
        (orphan.vm.name.as_str(), orphan.vmi_uid.as_str()),
        ("a-long-name", "u")
    );
    let dying = with(
        launcher("a", "9"),
        "/metadata/deletionTimestamp",
        json!("2026-01-01T00:00:00Z"),
    );
    assert!(pod(&dying).deleting);
}

#[test]
fn hotplug_pods_are_known_by_label_or_name() {
    let named = with(
        launcher("a", "9"),
        "/metadata/name",
        json!("hp-volume-abcde"),
    );
    assert_eq!(pod(&named).kind, PodKind::Hotplug);
    let labels = json!({"kubevirt.io": "hotplug-disk"});
    assert_eq!(
        pod(&with(launcher("a", "9"), "/metadata/labels", labels)).kind,
        PodKind::Hotplug
    );
}

#[test]
fn whether_the_guest_can_be_running() {
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let ended = json!({"terminated": {"exitCode": 0}});
    let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
    for (phase, state, expected) in [
        (json!("Running"), Some(&running), Compute::Running),
        (json!("Running"), Some(&ended), Compute::Terminated),
        (json!("Running"), Some(&waiting), Compute::Waiting),
        (json!("Running"), Some(&json!({})), Compute::Waiting),
        (json!("Running"), None, Compute::Running),
        (json!("Pending"), Some(&waiting), Compute::Waiting),
        (json!("Pending"), None, Compute::Waiting),
        (Value::Null, None, Compute::Waiting),
        (json!("Succeeded"), Some(&running), Compute::Terminated),
        (json!("Failed"), None, Compute::Terminated),
        (json!("Unknown"), None, Compute::Running),
        (json!("Unknown"), Some(&ended), Compute::Terminated),
    ] {
        let mut object = with(launcher("a", "9"), "/status/phase", phase.clone());
        object["status"]["containerStatuses"] = match state {
            // A sidecar that runs says nothing about the guest.
            None => json!([{"name": "guest-console-log", "state": running}]),
            Some(state) => {
                json!([{"name": "guest-console-log", "state": running}, {"name": "compute", "state": state}])
            }
        };
        assert_eq!(pod(&object).compute, expected, "{phase} {state:?}");
    }
    let bare = pod(&with(launcher("a", "9"), "/status", Value::Null));
    assert_eq!(
        (bare.phase, bare.compute),
        (PodPhase::Pending, Compute::Waiting)
    );
}

#[test]
fn an_object_without_name_or_uid_is_malformed() {
    let nameless = with(launcher("a", "9"), "/metadata/name", json!(""));
    assert_eq!(
        view::<Pod>(&nameless).unwrap_err(),
        "metadata.name: missing"
    );
    let unknown = with(vmi("a", "9"), "/metadata/uid", Value::Null);
    assert_eq!(view::<Vmi>(&unknown).unwrap_err(), "metadata.uid: missing");
    assert!(
        view::<Pod>(&json!("text"))
            .unwrap_err()
            .starts_with("invalid type: string")
    );
    let labels = with(launcher("a", "9"), "/metadata/labels", json!({"a": 1}));
    let why = view::<Pod>(&labels).unwrap_err();
    assert!(
        why.starts_with("metadata.labels.a: invalid type: integer"),
        "{why}"
    );
}

#[test]
fn which_pods_a_budget_selects() {
    let pods = [pod(&launcher("a", "1")), pod(&launcher("b", "1"))];
    let over = |spec: Value| -> Option<PdbView> {
        view::<Pdb>(&with(pdb("b", "a"), "/spec", spec))
            .unwrap()
            .over(&pods, &[])
    };
    let selects = |selector: Value| {
        over(json!({"minAvailable": 3, "selector": selector}))
            .map(|seen| seen.selects.join(","))
            .unwrap_or_default()
    };
    assert_eq!(selects(json!({"matchLabels": {"app": "a"}})), "pod-a");
    assert_eq!(selects(json!({})), "pod-a,pod-b");
    assert_eq!(selects(Value::Null), "");
    assert_eq!(selects(json!({"matchLabels": {"app": "z"}})), "");
    for (operator, values, expected) in [
        ("In", json!(["a", "b"]), "pod-a,pod-b"),
        ("NotIn", json!(["a"]), "pod-b"),
        ("Exists", Value::Null, "pod-a,pod-b"),
        ("DoesNotExist", Value::Null, ""),
    ] {
        let expression = json!({"key": "app", "operator": operator, "values": values});
        assert_eq!(
            selects(json!({"matchExpressions": [expression]})),
            expected,
            "{operator}"
        );
    }
    let seen = over(json!({"minAvailable": 3, "selector": {}})).unwrap();
    assert_eq!(
        (seen.rule.to_string().as_str(), seen.sync_failed.as_deref()),
        ("minAvailable: 3", Some("no scale"))
    );
    let seen = over(json!({"maxUnavailable": "25%", "selector": {}})).unwrap();
    assert_eq!(seen.rule.to_string(), "maxUnavailable: 25%");
    let elsewhere = with(pdb("b", "a"), "/metadata/namespace", json!("other"));
    assert_eq!(view::<Pdb>(&elsewhere).unwrap().over(&pods, &[]), None);
    let hotplug = [pod(&with(
        launcher("a", "1"),
        "/metadata/name",
        json!("hp-volume-x"),
    ))];
    assert_eq!(
        view::<Pdb>(&pdb("b", "a")).unwrap().over(&hotplug, &[]),
        None
    );
}

/// What kubelet's graceful node shutdown leaves behind (real-host.md 2): told apart from an eviction under pressure.
#[test]
fn who_stopped_a_pod() {
    let text = "Pod was terminated in response to imminent node shutdown.";
    let condition = |reason: &str, message: &str| {
        json!({"phase": "Succeeded", "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}]})
    };
    let killed = json!({"phase": "Failed", "reason": "Terminated", "message": text});
    for (status, by) in [
        (condition("TerminationByKubelet", text), Some("kubelet")),
        (killed, Some("kubelet")),
        (
            condition(
                "TerminationByKubelet",
                "The node was low on resource: memory.",
            ),
            None,
        ),
        (
            condition("EvictionByEvictionAPI", "Eviction API: evicting"),
            None,
        ),
        (json!({"phase": "Running", "conditions": "none"}), None),
    ] {
        let seen = pod(&with(launcher("a", "9"), "/status", status.clone()));
        assert_eq!(seen.stopped_by.as_deref(), by, "{status}");
    }
}

fn other(metadata: &Value, spec: &Value) -> OtherPod {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "u"}, "spec": spec, "status": {"phase": "Running"},
    });
    for (key, value) in metadata.as_object().into_iter().flatten() {
        pod["metadata"][key] = value.clone();
    }
    view::<Other>(&pod).unwrap()
}

#[test]
fn what_a_drain_of_all_pods_has_to_know_of_a_pod() {
    let plain = other(&json!({}), &json!({}));
    assert_eq!((plain.owner.as_ref(), plain.mirror), (None, false));
    assert_eq!(plain.grace, Duration::from_secs(30));
    let owners = json!([{"kind": "Noise", "name": "n"}, {"kind": "DaemonSet", "name": "cni", "controller": true}]);
    let daemon = other(&json!({"ownerReferences": owners}), &json!({}));
    assert!(daemon.is_daemon());
    let mirror = json!({"annotations": {"kubernetes.io/config.mirror": "hash"}});
    assert!(other(&mirror, &json!({})).mirror);
    let volumes = json!({"volumes": [{"name": "c", "configMap": {}}, {"name": "s", "emptyDir": {}}], "priority": 7});
    let data = other(&json!({}), &volumes);
    assert_eq!((data.empty_dir, data.priority), (true, 7));
    for (role, component) in [("virt-api", "virt-api"), ("something", "")] {
        let part = other(&json!({"labels": {"kubevirt.io": role}}), &json!({}));
        assert_eq!(part.component, component);
    }
}

#[test]
fn a_part_that_cannot_be_read_is_no_consent() {
    let odd = other(&json!({}), &json!({"volumes": "none"}));
    assert!(
        odd.unreadable.starts_with("spec.volumes"),
        "{}",
        odd.unreadable
    );
    let stance = stance(&odd, &Rules::default());
    assert!(matches!(stance, Stance::Blocked(_)), "{stance:?}");
}

#[test]
fn a_volume_is_known_by_its_node() {
    let attachment = json!({
        "metadata": {"name": "csi-1", "uid": "u"},
        "spec": {"attacher": "csi.example", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}},
    });
    let (node, volume) = view::<Attachment>(&attachment).unwrap();
    assert_eq!(
        (node.as_str(), volume.to_string().as_str()),
        ("n1", "pv-1 (csi.example)")
    );
}
