//! Nodes that go down, come back, fall silent (kubevirt-semantics 11.9), drain taints, inbound migrations, virt-controller down.

use super::*;
use crate::kubevirt::fields::{condition, has, is_true, label, quantity, uid};

fn node(bench: &Bench, name: &str) -> Value {
    bench
        .cluster
        .server
        .store
        .get(kind::NODES, "", name)
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn off_and_on_again() {
    let bench = Bench::new(Settings::default(), &fleet(1, 5.0), 1);
    bench.sleep(1.0).await;
    bench.cordon("n1");
    bench.evict(&bench.pod_of("v0", "n1").unwrap()).await;
    bench
        .until(30.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    bench.sleep(5.0).await;
    bench.cluster.world.node_off("n1");
    let off = bench.now();
    let unknown = bench
        .until(60.0, "unknown", |bench| {
            condition(&node(bench, "n1"), "Ready").unwrap()["status"] == "Unknown"
        })
        .await;
    assert!(
        (30.0..=51.0).contains(&(unknown - off)),
        "{}",
        unknown - off
    );
    assert_eq!(
        label(&node(&bench, "n1"), "kubevirt.io/schedulable"),
        "true"
    );
    bench
        .until(400.0, "not schedulable", |bench| {
            label(&node(bench, "n1"), "kubevirt.io/schedulable") == "false"
        })
        .await;
    bench.cluster.world.node_boot("n1", "boot-2");
    bench
        .until(2.0, "ready without plugins", |bench| {
            is_true(&node(bench, "n1"), "Ready")
                && quantity(&node(bench, "n1")["status"]["allocatable"]["devices.kubevirt.io/kvm"])
                    == 0
        })
        .await;
    bench
        .until(10.0, "schedulable", |bench| {
            label(&node(bench, "n1"), "kubevirt.io/schedulable") == "true"
        })
        .await;
    bench.sleep(1.0).await;
    let after = node(&bench, "n1");
    assert_eq!(text(&after, "status.nodeInfo.bootID"), "boot-2");
    assert!(quantity(&after["status"]["allocatable"]["devices.kubevirt.io/kvm"]) > 0);
    assert_eq!(after["spec"]["unschedulable"], true);
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn power_cut_under_a_vm() {
    let bench = Bench::new(Settings::default(), &fleet(1, 5.0), 1);
    bench.sleep(1.0).await;
    bench.cordon("n1");
    bench.cluster.world.node_off("n1");
    bench.sleep(1.0).await;
    let kills = bench.cluster.world.dirty_kills();
    assert_eq!(
        (kills.len(), kills[0].name.as_str(), kills[0].node.as_str()),
        (1, "v0", "n1")
    );
    assert_eq!(phase(&bench.vmi("v0")), "Running");
    bench.sleep(60.0).await;
    bench.cluster.world.node_boot("n1", "boot-2");
    bench
        .until(60.0, "running elsewhere", |bench| {
            phase(&bench.vmi("v0")) == "Running" && !bench.is_on("v0", "n1")
        })
        .await;
    assert_eq!(bench.cluster.world.dirty_kills().len(), 1);
    assert_eq!(bench.cluster.world.check_invariants(), []);
}

#[tokio::test(start_paused = true)]
async fn graceful_kubelet_shutdown_kills_guests() {
    let bench = Bench::new(Settings::default(), &fleet(1, 5.0), 1);
    bench.sleep(1.0).await;
    bench
        .cluster
        .world
        .kubelet_shutdown("n1", Duration::from_secs(20));
    bench.sleep(2.0).await;
    assert_eq!(
        condition(&node(&bench, "n1"), "Ready").unwrap()["status"],
        "False"
    );
    assert_eq!(
        label(&node(&bench, "n1"), "kubevirt.io/schedulable"),
        "false"
    );
    bench.sleep(25.0).await;
    assert_eq!(bench.cluster.world.dirty_kills().len(), 1);
    let pod = bench
        .cluster
        .server
        .store
        .list(kind::PODS)
        .into_iter()
        .find(|pod| text(pod, "spec.nodeName") == "n1")
        .unwrap();
    assert_eq!(
        (phase(&pod), text(&pod, "status.reason")),
        ("Failed", "Terminated")
    );
    assert!(!has(&pod, "metadata.deletionTimestamp"));
}

#[tokio::test(start_paused = true)]
async fn a_power_button_ends_a_guest_past_kubevirt() {
    let bench = Bench::new(Settings::default(), &fleet(2, 5.0), 1);
    bench.sleep(1.0).await;
    let world = &bench.cluster.world;
    let before = bench.vmi("v0");
    assert!(world.guest_power_button("n1", "default", "v0"));
    assert!(!world.guest_power_button("n1", "default", "nobody"));
    bench
        .until(30.0, "its VM is started again", |bench| {
            let vmi = bench.vmi("v0");
            uid(&vmi) != uid(&before) && phase(&vmi) == "Running"
        })
        .await;
    assert_eq!(bench.cluster.world.dirty_kills(), []);
    assert_eq!(bench.cluster.world.check_invariants(), []);
}

#[tokio::test(start_paused = true)]
async fn the_drain_taint_migrates_without_a_mark() {
    let bench = Bench::new(Settings::default(), &fleet(2, 5.0), 1);
    bench.sleep(1.0).await;
    bench.cordon("n1");
    let begin = bench.cluster.server.store.revision();
    bench
        .cluster
        .server
        .store
        .update(kind::NODES, "", "n1", |node| {
            crate::kubevirt::fields::push(
                &mut node["spec"]["taints"],
                json!({"key": "kubevirt.io/drain", "effect": "NoSchedule"}),
            );
        });
    bench
        .until(40.0, "moved", |bench| {
            !bench.is_on("v0", "n1") && !bench.is_on("v1", "n1")
        })
        .await;
    assert!(
        !bench
            .story(begin)
            .iter()
            .any(|line| line.contains("evacuationNodeName="))
    );
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn an_inbound_vm_arrives_and_goes_on() {
    let mut inventory = fleet(1, 10.0);
    inventory.vms[0].node = "n2".to_owned();
    let bench = Bench::new(Settings::default(), &inventory, 1);
    bench.sleep(1.0).await;
    bench
        .cluster
        .world
        .migrate("default", "v0", Some("n1"))
        .unwrap();
    bench
        .until(10.0, "copying", |bench| {
            !text(&bench.vmi("v0"), "status.migrationState.startTimestamp").is_empty()
        })
        .await;
    bench.cordon("n1");
    let target = bench.pod_of("v0", "n1").unwrap();
    let (code, text) = bench.evict(&target).await;
    assert_eq!(code, 429);
    assert!(text.ends_with("Eviction request for target Pod"), "{text}");
    bench
        .until(30.0, "arrived", |bench| bench.is_on("v0", "n1"))
        .await;
    bench.sleep(3.0).await;
    assert_eq!(bench.evict(&target).await.0, 429);
    bench
        .until(40.0, "gone on", |bench| !bench.is_on("v0", "n1"))
        .await;
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn virt_controller_down() {
    let bench = Bench::new(Settings::default(), &fleet(1, 5.0), 1);
    bench.sleep(1.0).await;
    bench.cordon("n1");
    bench
        .cluster
        .world
        .virt_controller
        .down_until(Duration::from_secs(60));
    assert_eq!(bench.evict(&bench.pod_of("v0", "n1").unwrap()).await.0, 429);
    bench.sleep(50.0).await;
    assert_eq!(text(&bench.vmi("v0"), "status.evacuationNodeName"), "n1");
    assert!(bench.cluster.server.store.list(kind::VMIMS).is_empty());
    bench
        .until(30.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    bench.check();
}

/// While virt-api is down nobody can write a VMI, so a copy cannot end either.
#[tokio::test(start_paused = true)]
async fn virt_api_down_in_mid_copy() {
    let bench = Bench::new(Settings::default(), &fleet(1, 5.0), 1);
    bench.sleep(1.0).await;
    bench.cordon("n1");
    bench.evict(&bench.pod_of("v0", "n1").unwrap()).await;
    bench
        .until(10.0, "copying", |bench| {
            !text(&bench.vmi("v0"), "status.migrationState.startTimestamp").is_empty()
        })
        .await;
    bench.cluster.world.virt_api.down(Duration::from_secs(60));
    bench.sleep(40.0).await;
    assert!(bench.is_on("v0", "n1"));
    bench
        .until(40.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    bench.check();
}
