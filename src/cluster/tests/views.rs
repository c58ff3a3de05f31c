//! VMIs, VMIMs, Nodes and the KubeVirt object as servers write them become views, field by field.

use super::fake::{migration, node, view, vmi, with};
use crate::cluster::types::kubevirt::KubeVirt;
use crate::cluster::types::migration::Migration;
use crate::cluster::types::node::Node;
use crate::cluster::types::vmi::Vmi;
use crate::drain::world::{KubeVirtView, MigrationPhase, Strategy, VmiPhase};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn a_vmi() {
    let seen = view::<Vmi>(&vmi("a", "9")).unwrap();
    assert_eq!((seen.phase, seen.node.as_str()), (VmiPhase::Running, "n1"));
    assert_eq!(
        (seen.live_migratable, seen.not_migratable.as_str()),
        (Some(true), "")
    );
    assert_eq!(
        (seen.strategy, seen.mark),
        (Some(Strategy::LiveMigrate), None)
    );
    assert_eq!(
        (seen.memory, seen.grace),
        (Some(1 << 30), Duration::from_secs(30))
    );
    assert_eq!((seen.migration, seen.owner_kind.as_str()), (None, ""));
}

#[test]
fn what_a_vmi_says_of_itself() {
    let of = |path: &str, value: Value| view::<Vmi>(&with(vmi("a", "9"), path, value)).unwrap();
    assert_eq!(
        of("/status/evacuationNodeName", json!("n1"))
            .mark
            .as_deref(),
        Some("n1")
    );
    assert_eq!(of("/status/evacuationNodeName", json!("")).mark, None);
    let condition = |status: &str| {
        json!([{"type": "LiveMigratable", "status": status, "reason": "DisksNotLiveMigratable",
            "message": "cannot migrate VMI: PVC d is not shared"}])
    };
    let stuck = of("/status/conditions", condition("False"));
    assert_eq!(stuck.live_migratable, Some(false));
    assert_eq!(
        stuck.not_migratable,
        "DisksNotLiveMigratable: cannot migrate VMI: PVC d is not shared"
    );
    assert_eq!(
        of("/status/conditions", condition("Unknown")).live_migratable,
        None
    );
    assert_eq!(of("/status/conditions", Value::Null).live_migratable, None);
    for (phase, expected) in [
        (Value::Null, VmiPhase::Starting),
        (json!("Scheduled"), VmiPhase::Starting),
        (json!("WaitingForSync"), VmiPhase::Starting),
        (json!("Succeeded"), VmiPhase::Succeeded),
        (json!("Failed"), VmiPhase::Failed),
        (json!("Odd"), VmiPhase::Unknown),
    ] {
        assert_eq!(of("/status/phase", phase).phase, expected);
    }
    let requests = json!({"resources": {"requests": {"memory": "512M"}}});
    assert_eq!(of("/spec/domain", requests).memory, Some(512_000_000));
    let both = json!({"memory": {"guest": 1024}, "resources": {"requests": {"memory": "512M"}}});
    assert_eq!(of("/spec/domain", both).memory, Some(1024));
    assert_eq!(
        of("/spec/domain", json!({"memory": {"guest": "lots"}})).memory,
        None
    );
    assert_eq!(
        of("/spec/terminationGracePeriodSeconds", json!(0)).grace,
        Duration::ZERO
    );
    let owner = json!([{"kind": "VirtualMachine", "name": "a", "uid": "u", "controller": true}]);
    assert_eq!(
        of("/metadata/ownerReferences", owner).owner_kind,
        "VirtualMachine"
    );
    let label = json!({"kubevirt.io/migrationTargetNodeName": "n1"});
    assert_eq!(
        of("/metadata/labels", label).target_node_label.as_deref(),
        Some("n1")
    );
    assert_eq!(of("/spec/evictionStrategy", Value::Null).strategy, None);
    let odd = with(vmi("a", "9"), "/spec/evictionStrategy", json!("Teleport"));
    assert_eq!(
        view::<Vmi>(&odd).unwrap_err(),
        "spec.evictionStrategy: unknown strategy Teleport"
    );
}

#[test]
fn the_last_migration_of_a_vmi() {
    let state = json!({"migrationUid": "m1", "sourceNode": "n1", "targetNode": "n2", "targetPod": "p",
        "startTimestamp": "2026-01-01T00:00:00Z"});
    let of = |state: Value| {
        let object = with(vmi("a", "9"), "/status/migrationState", state);
        view::<Vmi>(&object).unwrap().migration.unwrap()
    };
    let running = of(state.clone());
    assert!(running.is_running());
    assert_eq!(
        (running.migration_uid.as_str(), running.target_node.as_str()),
        ("m1", "n2")
    );
    let mut failed = state;
    failed["endTimestamp"] = json!("2026-01-01T00:01:00Z");
    failed["completed"] = json!(true);
    failed["failed"] = json!(true);
    failed["failureReason"] = json!("Live migration has been aborted");
    let failed = of(failed);
    assert!(failed.ended && failed.completed && failed.failed && !failed.is_running());
    assert_eq!(failed.failure_reason, "Live migration has been aborted");
}

#[test]
fn a_migration() {
    let seen = view::<Migration>(&migration("a", "Scheduling")).unwrap();
    assert_eq!(
        (seen.vm.to_string().as_str(), seen.phase),
        ("vms/a", MigrationPhase::Scheduling)
    );
    assert_eq!(
        (seen.evacuates.as_deref(), seen.created),
        (Some("n1"), 1_767_225_610)
    );
    for (phase, expected) in [
        (json!(""), MigrationPhase::New),
        (Value::Null, MigrationPhase::New),
        (json!("WaitingForSync"), MigrationPhase::New),
        (json!("Pending"), MigrationPhase::Pending),
        (json!("TargetReady"), MigrationPhase::TargetReady),
        (json!("Succeeded"), MigrationPhase::Succeeded),
        (json!("Teleporting"), MigrationPhase::Unknown),
    ] {
        let object = with(migration("a", ""), "/status/phase", phase);
        assert_eq!(view::<Migration>(&object).unwrap().phase, expected);
    }
    let bare = with(migration("a", ""), "/status", Value::Null);
    assert_eq!(view::<Migration>(&bare).unwrap().phase, MigrationPhase::New);
    let lost = with(migration("a", ""), "/spec", json!({}));
    assert_eq!(
        view::<Migration>(&lost).unwrap_err(),
        "spec.vmiName: missing"
    );
}

#[test]
fn what_holds_a_migration_back_and_why_it_failed() {
    let of =
        |status: Value| view::<Migration>(&with(migration("a", ""), "/status", status)).unwrap();
    let quota = json!({"phase": "Pending", "conditions": [
        {"type": "migrationRejectedByResourceQuota", "status": "True", "message": "exceeded quota"}]});
    let quota = of(quota);
    assert_eq!(
        quota.held_back,
        "migrationRejectedByResourceQuota: exceeded quota"
    );
    assert_eq!(quota.failure_reason, "");
    let over = json!({"phase": "Pending", "conditions": [
        {"type": "migrationRejectedByResourceQuota", "status": "False", "message": "exceeded quota"}]});
    assert_eq!(of(over).held_back, "");
    let failed = json!({"phase": "Failed", "migrationState": {"sourceNode": "n1", "targetNode": "n2",
        "failureReason": "Target pod is down"}});
    let failed = of(failed);
    assert_eq!(failed.failure_reason, "Target pod is down");
    assert_eq!(
        (failed.source_node.as_str(), failed.target_node.as_str()),
        ("n1", "n2")
    );
    let silent = json!({"phase": "Failed", "conditions": [
        {"type": "migrationAbortRequested", "status": "True", "reason": "Aborted"}]});
    assert_eq!(of(silent).failure_reason, "Aborted");
}

#[test]
fn the_kubevirt_object() {
    let of = |spec: Value, version: &str| {
        let object = json!({"metadata": {"name": "k", "uid": "u"}, "spec": spec,
            "status": {"phase": "Deployed", "observedKubeVirtVersion": version}});
        view::<KubeVirt>(&object).unwrap().view
    };
    let plain = of(json!({}), "v1.7.0");
    let expected = KubeVirtView {
        version: Some((1, 7)),
        ..KubeVirtView::default()
    };
    assert_eq!(plain, expected);
    let configured = of(
        json!({"configuration": {"evictionStrategy": "LiveMigrate", "migrations": {
            "parallelMigrationsPerCluster": 9, "parallelOutboundMigrationsPerNode": 1,
            "nodeDrainTaintKey": "node.kubernetes.io/unschedulable"}}}),
        "v1.8.0",
    );
    assert_eq!((configured.per_cluster, configured.per_node), (9, 1));
    assert_eq!(configured.strategy, Strategy::LiveMigrate);
    assert_eq!(
        configured.drain_taint_key,
        "node.kubernetes.io/unschedulable"
    );
    let gate = json!({"configuration": {"developerConfiguration": {"featureGates": ["X", "MigrationPriorityQueue"]}}});
    for (spec, version, queue) in [
        (json!({}), "v1.8.0", false),
        (gate.clone(), "v1.8.0", true),
        (gate.clone(), "v1.7.0", true),
        (gate.clone(), "v1.6.2", false),
        (gate, "", true),
        (json!({}), "v1.9.0", true),
        (json!({}), "", false),
    ] {
        assert_eq!(of(spec, version).priority_queue, queue, "{version}");
    }
}

#[test]
fn a_node() {
    let seen = view::<Node>(&node("9")).unwrap();
    let read = seen.on_boot_clock(0);
    assert!(seen.troubles.is_empty() && read.ready && !read.unschedulable);
    let bare = json!({"metadata": {"name": "n1", "uid": "u", "resourceVersion": "1"}});
    let seen = view::<Node>(&bare).unwrap().on_boot_clock(0);
    assert_eq!((seen.ready, seen.machine_id.as_str()), (false, ""));
    assert_eq!(
        (seen.heartbeat, seen.reported, seen.schedulable, seen.kvm),
        (None, None, false, 0)
    );
    let odd = with(node("9"), "/spec/taints", json!([{"key": 5}]));
    let seen = view::<Node>(&odd).unwrap();
    assert_eq!(seen.troubles.len(), 1);
    assert!(
        seen.troubles[0].starts_with("spec.taints.[0].key: invalid type"),
        "{:?}",
        seen.troubles
    );
    assert_eq!(seen.on_boot_clock(0).machine_id, "m");
}

/// What a node that was down is waited for; the host has booted at 00:01:00 here.
#[test]
fn a_node_that_comes_up() {
    const BOOTED: i64 = 1_767_225_660_000;
    let mut up = node("9");
    up["metadata"]["annotations"] = json!({"kubevirt.io/heartbeat": "2026-01-01T00:01:05Z"});
    up["metadata"]["labels"] = json!({"kubevirt.io/schedulable": "true"});
    up["status"]["allocatable"] =
        json!({"cpu": "8", "devices.kubevirt.io/kvm": "1k", "memory": "64Gi"});
    up["status"]["conditions"] = json!([
        {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": "2026-01-01T00:09:00Z"},
        {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no CNI",
            "lastHeartbeatTime": "2026-01-01T00:00:58Z"}]);
    let seen = view::<Node>(&up).unwrap();
    assert!(seen.troubles.is_empty(), "{:?}", seen.troubles);
    let read = seen.on_boot_clock(BOOTED);
    assert_eq!((read.heartbeat, read.reported), (Some(5000), Some(-2000)));
    assert_eq!((read.schedulable, read.kvm), (true, 1000));
    assert_eq!(read.not_ready, "KubeletNotReady: no CNI");

    up["metadata"]["annotations"] = json!({"kubevirt.io/heartbeat": "soon"});
    up["metadata"]["labels"] = json!({"kubevirt.io/schedulable": "false"});
    up["status"]["allocatable"] = json!({"devices.kubevirt.io/kvm": 110});
    let seen = view::<Node>(&up).unwrap();
    assert!(
        seen.troubles[0].contains("not a time: soon"),
        "{:?}",
        seen.troubles
    );
    let read = seen.on_boot_clock(BOOTED);
    assert_eq!(
        (read.heartbeat, read.schedulable, read.kvm),
        (Some(i64::MIN), false, 110)
    );

    up["status"]["allocatable"] = json!("odd");
    let seen = view::<Node>(&up).unwrap();
    assert!(
        seen.troubles
            .iter()
            .any(|t| t.starts_with("status.allocatable")),
        "{:?}",
        seen.troubles
    );
    assert_eq!(seen.on_boot_clock(BOOTED).kvm, 0);
}
