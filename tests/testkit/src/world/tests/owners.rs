//! Who restarts, and how guests end (control-plane.md 6.f, kubevirt-semantics 5 and 11.6).

use super::*;
use crate::kubevirt::fields::{deleting, uid};
use crate::world::VmOwner;

#[derive(Clone, Copy, Debug)]
enum How {
    Evict,
    /// Evicted, and the guest ignores ACPI.
    EvictStubborn,
    Delete,
    Force,
    DeleteVmi,
}

/// The VMI after five minutes: `new`, its phase, or `gone`; and the VM's printable status.
async fn fate(owner: VmOwner, how: How) -> (String, String) {
    let mut inventory = fleet(1, 5.0);
    let vm = &mut inventory.vms[0];
    vm.owner = owner;
    vm.eviction_strategy = Some("None".to_owned());
    vm.guest_shutdown = Some(Duration::from_secs(4)).filter(|_| !matches!(how, How::EvictStubborn));
    let bench = Bench::new(Settings::default(), &inventory, 1);
    bench.sleep(1.0).await;
    bench.cordon("n1");
    let store = &bench.cluster.server.store;
    let before = bench.vmi("v0");
    let pod = bench.pod_of("v0", "n1").unwrap();
    match how {
        How::Evict | How::EvictStubborn => assert_eq!(bench.evict(&pod).await.0, 201),
        How::Delete => drop(store.delete(kind::PODS, "default", &pod)),
        How::Force => drop(store.delete_with_grace(kind::PODS, "default", &pod, Some(0))),
        How::DeleteVmi => drop(store.delete(kind::VMIS, "default", "v0")),
    }
    bench.sleep(300.0).await;
    let after = store.get(kind::VMIS, "default", "v0");
    assert!(
        after.as_ref().is_none_or(|vmi| !deleting(vmi)),
        "still going"
    );
    let vmi = match after {
        None => "gone".to_owned(),
        Some(vmi) if uid(&vmi) != uid(&before) => {
            assert_eq!(phase(&vmi), "Running");
            assert_ne!(text(&vmi, "status.nodeName"), "n1");
            "new".to_owned()
        }
        Some(vmi) => phase(&vmi).to_owned(),
    };
    let vm = store.get(kind::VMS, "default", "v0").unwrap_or_default();
    let kills = bench.cluster.world.dirty_kills();
    assert_eq!(
        kills.is_empty(),
        !matches!(how, How::EvictStubborn | How::Force),
        "{kills:?}"
    );
    assert_eq!(bench.cluster.world.check_invariants(), []);
    (vmi, text(&vm, "status.printableStatus").to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_whole_table() {
    let table: [(&str, [&str; 5]); 4] = [
        ("Always", ["new", "new", "new", "new", "new"]),
        ("RerunOnFailure", ["gone", "new", "gone", "new", "gone"]),
        (
            "Manual",
            ["Succeeded", "Failed", "Succeeded", "Failed", "gone"],
        ),
        (
            "Once",
            ["Succeeded", "Failed", "Succeeded", "Failed", "new"],
        ),
    ];
    for (strategy, wanted) in table {
        for (how, wanted) in [
            How::Evict,
            How::EvictStubborn,
            How::Delete,
            How::Force,
            How::DeleteVmi,
        ]
        .into_iter()
        .zip(wanted)
        {
            let (vmi, status) = fate(VmOwner::Vm(strategy.to_owned()), how).await;
            assert_eq!(vmi, wanted, "{strategy} {how:?}");
            assert_eq!(
                status,
                if wanted == "new" {
                    "Running"
                } else {
                    "Stopped"
                },
                "{strategy} {how:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn standalone_and_pool() {
    assert_eq!(fate(VmOwner::None, How::Evict).await.0, "Succeeded");
    assert_eq!(fate(VmOwner::Pool, How::Evict).await.0, "new");
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_refills_before_the_old_one_is_gone() {
    let mut inventory = fleet(1, 5.0);
    let set = &mut inventory.vms[0];
    set.owner = VmOwner::ReplicaSet;
    set.count = 2;
    set.eviction_strategy = None;
    let bench = Bench::new(Settings::default(), &inventory, 1);
    bench.sleep(1.0).await;
    bench.cordon("n1");
    let pod = bench.pod_of("v0-0", "n1").unwrap();
    assert_eq!(bench.evict(&pod).await.0, 201);
    bench.sleep(2.0).await;
    assert_eq!(bench.cluster.server.store.list(kind::VMIS).len(), 3);
    bench.sleep(60.0).await;
    let vmis = bench.cluster.server.store.list(kind::VMIS);
    assert_eq!(vmis.iter().filter(|vmi| phase(vmi) == "Running").count(), 2);
    assert_eq!(vmis.len(), 2);
    bench.check();
}

/// Without a virt-handler nobody sends ACPI: the launcher kills its guest fifteen seconds after the grace period.
#[tokio::test(start_paused = true)]
async fn no_virt_handler_no_clean_shutdown() {
    let mut inventory = fleet(1, 5.0);
    inventory.vms[0].eviction_strategy = Some("None".to_owned());
    let bench = Bench::new(Settings::default(), &inventory, 1);
    bench.sleep(1.0).await;
    bench.cluster.world.virt_handler_down("n1", None);
    assert_eq!(bench.evict(&bench.pod_of("v0", "n1").unwrap()).await.0, 201);
    bench.sleep(100.0).await;
    let kills = bench.cluster.world.dirty_kills();
    assert_eq!(kills.len(), 1);
    assert!((kills[0].at.as_secs_f64() - 46.0).abs() < 1.0, "{kills:?}");
}

/// A guest that migrates when its pod gets SIGTERM survives on the target.
#[tokio::test(start_paused = true)]
async fn a_pod_deleted_while_its_vm_migrates() {
    let bench = Bench::new(Settings::default(), &fleet(1, 10.0), 1);
    bench.sleep(1.0).await;
    bench.cordon("n1");
    let pod = bench.pod_of("v0", "n1").unwrap();
    bench.evict(&pod).await;
    bench
        .until(20.0, "copying", |bench| {
            !text(&bench.vmi("v0"), "status.migrationState.startTimestamp").is_empty()
        })
        .await;
    bench
        .cluster
        .server
        .store
        .delete(kind::PODS, "default", &pod);
    bench
        .until(20.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    bench.sleep(30.0).await;
    assert_eq!(phase(&bench.vmi("v0")), "Running");
    bench.check();
}
