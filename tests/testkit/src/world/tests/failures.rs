//! Migrations that fail, hang, or find no node (kubevirt-semantics 11.5, control-plane.md 6.h).

use super::*;
use crate::kubevirt::fields::{annotation, is_true, phase_since};

fn with_outcomes(outcomes: &[&str]) -> Inventory {
    let mut inventory = fleet(1, 2.0);
    inventory.vms[0].migration = outcomes.iter().map(|text| (*text).to_owned()).collect();
    inventory
}

fn migrations(bench: &Bench) -> Vec<Value> {
    let mut all = bench.cluster.server.store.list(kind::VMIMS);
    all.sort_by_key(|vmim| {
        text(vmim, "metadata.resourceVersion")
            .parse::<u64>()
            .unwrap_or(0)
    });
    all.sort_by_key(|vmim| text(vmim, "metadata.creationTimestamp").to_owned());
    all
}

fn events(bench: &Bench, reason: &str) -> Vec<Value> {
    bench
        .cluster
        .server
        .store
        .list("events")
        .into_iter()
        .filter(|event| event["reason"] == reason)
        .collect()
}

async fn evict_v0(bench: &Bench) {
    bench.sleep(1.0).await;
    bench.cordon("n1");
    let pod = bench.pod_of("v0", "n1").unwrap();
    assert_eq!(bench.evict(&pod).await.0, 429);
}

#[tokio::test(start_paused = true)]
async fn backoff_doubles_and_the_mark_stays() {
    let bench = Bench::new(
        Settings::default(),
        &with_outcomes(&["fail:no route", "fail:no route", "fail:no route", "ok"]),
        3,
    );
    bench.beats_often();
    evict_v0(&bench).await;
    bench
        .until(300.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    bench.sleep(5.0).await;
    let all = migrations(&bench);
    let phases: Vec<&str> = all.iter().map(phase).collect();
    assert_eq!(phases, ["Failed", "Failed", "Failed", "Succeeded"]);
    for (pair, pause) in all.windows(2).zip([20, 40, 80]) {
        let failed = phase_since(&pair[0], "Failed").unwrap();
        let next = phase_since(&pair[1], "Scheduling").unwrap();
        let waited = next.duration_since(failed).as_secs();
        assert!(
            (pause..=pause + 1).contains(&waited),
            "{waited} s after the failure, not {pause}"
        );
        let created = pair[1]["metadata"]["creationTimestamp"]
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap();
        assert!((0..=8).contains(&created.duration_since(failed).as_secs()));
    }
    assert_eq!(
        text(&bench.vmi("v0"), "status.migrationState.failureReason"),
        ""
    );
    assert_eq!(
        events(&bench, "MigrationBackoff")[0]["message"],
        "backoff migrating vmi default/v0"
    );
    assert!(
        events(&bench, "Migrated")
            .iter()
            .any(|event| text(event, "message").ends_with("failed. reason:no route"))
    );
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_leaves_mark_condition_and_record() {
    let bench = Bench::new(Settings::default(), &with_outcomes(&["fail:no route"]), 3);
    evict_v0(&bench).await;
    bench.sleep(15.0).await;
    let vmi = bench.vmi("v0");
    assert_eq!(text(&vmi, "status.evacuationNodeName"), "n1");
    assert!(is_true(&vmi, "EvictionRequested"));
    assert_eq!(
        text(&vmi, "status.migrationState.failureReason"),
        "no route"
    );
    assert_eq!(
        (
            &vmi["status"]["migrationState"]["failed"],
            &vmi["status"]["migrationState"]["completed"]
        ),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        crate::kubevirt::fields::label(&vmi, "kubevirt.io/migrationTargetNodeName"),
        ""
    );
    let source = bench.pod_of("v0", "n1").unwrap();
    let source = bench
        .cluster
        .server
        .store
        .get(kind::PODS, "default", &source)
        .unwrap();
    assert_eq!(
        annotation(
            &source,
            "descheduler.alpha.kubernetes.io/eviction-in-progress"
        ),
        Some("true")
    );
    let failed = bench
        .cluster
        .server
        .store
        .list(kind::PODS)
        .into_iter()
        .find(|pod| text(pod, "spec.nodeName") != "n1")
        .unwrap();
    assert_eq!(phase(&failed), "Failed");
    bench.check();
}

/// On 1.5.0 it was seen like this; from 1.7 it says whether the VM is marked.
#[tokio::test(start_paused = true)]
async fn until_1_6_a_failed_migration_takes_the_annotation_of_the_next_one_away() {
    let bench = Bench::new(Settings::of(1, 5), &with_outcomes(&["fail:x", "ok"]), 3);
    bench.beats_often();
    let since = bench.cluster.server.store.revision();
    evict_v0(&bench).await;
    let source = bench.pod_of("v0", "n1").unwrap();
    bench
        .until(120.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    let changes = bench.cluster.server.store.changes_since(since).unwrap();
    let mut values: Vec<Option<String>> = changes
        .iter()
        .filter(|change| change.resource == kind::PODS && name(&change.object) == source)
        .map(|change| annotation(&change.object, names::EVICTION_IN_PROGRESS).map(str::to_owned))
        .collect();
    values.dedup();
    let said: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
    let told = said.strip_prefix(&[None]).unwrap_or(&said);
    assert_eq!(told, [Some("kubevirt"), None, Some("kubevirt"), None]);
}

#[tokio::test(start_paused = true)]
async fn only_five_final_migrations_are_kept() {
    let bench = Bench::new(Settings::default(), &with_outcomes(&["fail:x"]), 3);
    evict_v0(&bench).await;
    bench.sleep(3600.0).await;
    let ended = migrations(&bench).iter().filter(|vmim| ended(vmim)).count();
    assert_eq!(ended, 5);
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn an_unschedulable_target_holds_its_slot_for_five_minutes() {
    let bench = Bench::new(
        Settings::default(),
        &with_outcomes(&[
            "unschedulable:0/3 nodes are available: 3 Insufficient memory.",
            "ok",
        ]),
        3,
    );
    evict_v0(&bench).await;
    bench.sleep(200.0).await;
    assert_eq!(phase(&migrations(&bench)[0]), "Scheduling");
    assert!(!events(&bench, "migrationTargetPodUnschedulable").is_empty());
    let moved = bench
        .until(300.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    assert!((320.0..335.0).contains(&moved), "{moved}");
    assert!(events(&bench, "FailedMigration").iter().any(
        |event| event["message"] == "Migration target pod was removed during active migration."
    ));
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn a_pending_target_is_given_up_after_fifteen_minutes() {
    let bench = Bench::new(Settings::default(), &with_outcomes(&["pending", "ok"]), 3);
    evict_v0(&bench).await;
    let moved = bench
        .until(1200.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    assert!((920.0..935.0).contains(&moved), "{moved}");
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn a_stuck_copy_is_aborted_by_its_time_limit() {
    let bench = Bench::new(Settings::default(), &with_outcomes(&["stuck", "ok"]), 3);
    evict_v0(&bench).await;
    bench
        .until(200.0, "aborted", |bench| {
            bench.vmi("v0")["status"]["migrationState"]["failed"] == true
        })
        .await;
    let state = &bench.vmi("v0")["status"]["migrationState"];
    assert_eq!(
        (text(state, "failureReason"), text(state, "abortStatus")),
        ("Live migration has been aborted", "Succeeded")
    );
    assert!(state["abortRequested"].is_null());
    bench
        .until(60.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn two_unplaceable_vms_stall_the_node() {
    let mut inventory = fleet(3, 2.0);
    for node in &mut inventory.nodes[1..] {
        node.unschedulable = true;
    }
    let bench = Bench::new(Settings::default(), &inventory, 5);
    bench.sleep(1.0).await;
    bench.cordon("n1");
    for index in 0..2 {
        bench
            .evict(&bench.pod_of(&format!("v{index}"), "n1").unwrap())
            .await;
    }
    bench.sleep(10.0).await;
    bench.evict(&bench.pod_of("v2", "n1").unwrap()).await;
    bench.sleep(60.0).await;
    let phases: Vec<String> = migrations(&bench)
        .iter()
        .map(|vmim| phase(vmim).to_owned())
        .collect();
    assert_eq!(phases, ["Scheduling", "Scheduling"]);
    assert_eq!(text(&bench.vmi("v2"), "status.evacuationNodeName"), "n1");
    for node in ["n2", "n3"] {
        bench
            .cluster
            .server
            .store
            .update(kind::NODES, "", node, |node| {
                node["spec"]["unschedulable"] = json!(false);
            });
    }
    bench
        .until(30.0, "all moved", |bench| {
            (0..3).all(|index| !bench.is_on(&format!("v{index}"), "n1"))
        })
        .await;
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_migration_is_aborted_and_follows_again_while_marked() {
    let bench = Bench::new(Settings::default(), &fleet(1, 30.0), 3);
    bench.beats_often();
    evict_v0(&bench).await;
    bench
        .until(10.0, "running", |bench| {
            migrations(bench)
                .iter()
                .any(|vmim| phase(vmim) == "Running")
        })
        .await;
    bench.sleep(2.0).await;
    let first = migrations(&bench)[0].clone();
    bench
        .cluster
        .server
        .store
        .delete(kind::VMIMS, "default", name(&first));
    bench
        .until(5.0, "gone", |bench| {
            bench
                .cluster
                .server
                .store
                .get(kind::VMIMS, "default", name(&first))
                .is_none()
        })
        .await;
    let state = &bench.vmi("v0")["status"]["migrationState"];
    assert_eq!(
        (&state["abortRequested"], text(state, "abortStatus")),
        (&json!(true), "Succeeded")
    );
    // A deleted one does not count for the backoff.
    let since = bench.now();
    let again = bench
        .until(15.0, "running again", |bench| {
            migrations(bench)
                .iter()
                .any(|vmim| phase(vmim) == "Running")
        })
        .await;
    assert!(again - since < 12.0, "{}", again - since);
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn a_dead_virt_handler_breaks_the_copy() {
    let bench = Bench::new(Settings::default(), &fleet(1, 10.0), 3);
    bench.beats_often();
    evict_v0(&bench).await;
    bench
        .until(10.0, "copying", |bench| {
            !text(&bench.vmi("v0"), "status.migrationState.startTimestamp").is_empty()
        })
        .await;
    bench.sleep(1.0).await;
    let target = text(&bench.vmi("v0"), "status.migrationState.targetNode").to_owned();
    let back = bench.now() + 2.0;
    bench
        .cluster
        .world
        .virt_handler_down(&target, Some(Duration::from_secs_f64(back)));
    bench
        .until(5.0, "failed", |bench| {
            bench.vmi("v0")["status"]["migrationState"]["failed"] == true
        })
        .await;
    assert!(bench.is_on("v0", "n1"));
    bench
        .until(60.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    bench.check();
}
