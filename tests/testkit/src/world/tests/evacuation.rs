//! A happy evacuation, and the order of what watchers see.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_settled_world_stays_as_it_is() {
    let bench = Bench::new(Settings::default(), &fleet(3, 4.0), 1);
    let begin = bench.cluster.server.store.revision();
    bench.sleep(3600.0).await;
    assert_eq!(bench.story(begin), Vec::<String>::new());
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn one_vm_moves_in_the_order_of_the_notes() {
    let bench = Bench::new(Settings::default(), &fleet(1, 4.0), 1);
    bench.sleep(1.0).await;
    bench.cordon("n1");
    let begin = bench.cluster.server.store.revision();
    let pod = bench.pod_of("v0", "n1").unwrap();
    let (code, text) = bench.evict(&pod).await;
    assert_eq!(
        (code, text.as_str()),
        (
            429,
            "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: Eviction triggered evacuation of VMI \"default/v0\""
        )
    );
    bench
        .until(30.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    bench.sleep(5.0).await;
    let story = bench.story(begin);
    let mut rest = story.iter();
    for step in ORDER {
        assert!(
            rest.any(|line| line.contains(step)),
            "{step:?} is missing or comes too early in\n{}",
            story.join("\n")
        );
    }
    bench.check();
}

/// kubevirt-semantics 11.3 with the additions of control-plane.md 5.
const ORDER: [&str; 18] = [
    "status.evacuationNodeName=n1",
    "virtualmachineinstancemigrations kubevirt: ADDED",
    "latest-observed-api-version",
    "status.phase=Pending",
    "pods virt: ADDED",
    "pods virt: spec.nodeName=",
    "status.phase=Scheduling",
    "status.phase=Scheduled",
    "metadata.labels.kubevirt.io/migrationTargetNodeName=",
    "status.phase=PreparingTarget",
    "status.migrationState.targetNodeAddress",
    "status.phase=TargetReady",
    "status.migrationState.startTimestamp",
    "virtualmachineinstancemigrations kubevirt: status.phase=Running",
    "metadata.labels.kubevirt.io/nodeName=",
    "migration-target-ready-timestamp",
    "status.migrationState.completed",
    "status.phase=Succeeded",
];
