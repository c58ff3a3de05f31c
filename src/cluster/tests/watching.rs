//! Lists and watches become pictures, whatever happens to them.

use super::fake::{
    Fake, Play, Step, all_settled, bookmark, forbidden, fresh, kubevirt, launcher, listed,
    migration, node, pass, pdb, status, until, vmi, vms, watched,
};
use crate::agent::ports::Cluster;
use crate::drain::world::{Picture, Sight};
use serde_json::{Value, json};
use std::sync::Arc;

/// One of everything.
fn world() -> Arc<Fake> {
    let fake = Fake::new();
    fake.play("list pods", [listed("10", [launcher("a", "9")])]);
    fake.play("list nodes", [listed("10", [node("9")])]);
    fake.play("list vmis here", [listed("10", [vmi("a", "9")])]);
    fake.play(
        "list migrations",
        [listed("10", [migration("a", "Running")])],
    );
    fake.play(
        "list budgets",
        [listed("10", [pdb("b", "a"), pdb("other", "z")])],
    );
    fake.play("list kubevirts", [listed("10", [kubevirt()])]);
    fake
}

fn gone(code: u16) -> Value {
    status(code, "Expired", "too old resource version")
}

#[tokio::test(start_paused = true)]
async fn one_of_everything_makes_a_picture_at_once() {
    let fake = world();
    let (_cluster, pictures) = watched(&fake).await;
    assert_eq!(fake.now().0, 0, "no pause before the first picture");
    let picture = pictures.borrow().clone();
    assert_eq!(vms(&picture), ["a"]);
    assert_eq!(picture.node.seen().unwrap().machine_id, "m");
    assert_eq!(picture.vmis.seen().unwrap()[0].memory, Some(1 << 30));
    assert_eq!(picture.migrations.seen().unwrap()[0].vm.name, "a");
    assert_eq!(picture.kubevirt.seen().unwrap().per_cluster, 7);
    let pdbs = picture.pdbs.seen().unwrap();
    assert_eq!(pdbs.len(), 1, "the other budget selects nothing here");
    assert_eq!(pdbs[0].selects, ["pod-a"]);
    assert!(picture.malformed.is_empty());
}

#[tokio::test(start_paused = true)]
async fn everything_is_asked_with_its_selectors() {
    let fake = world();
    let (_cluster, _pictures) = watched(&fake).await;
    pass(1).await;
    let asked = fake.asked();
    assert_eq!(asked.len(), 12, "seven lists, five watches: {asked:#?}");
    for (key, part) in [
        ("list pods", "fieldSelector=spec.nodeName%3Dn1"),
        (
            "list pods",
            "labelSelector=kubevirt.io+in+%28virt-launcher%2Chotplug-disk%29",
        ),
        ("watch pods", "fieldSelector=spec.nodeName%3Dn1"),
        ("watch pods", "resourceVersion=10"),
        ("watch pods", "allowWatchBookmarks=true"),
        ("watch pods", "timeoutSeconds=290"),
        ("list nodes", "fieldSelector=metadata.name%3Dn1"),
        ("watch nodes", "fieldSelector=metadata.name%3Dn1"),
        (
            "list vmis here",
            "labelSelector=kubevirt.io%2FnodeName%3Dn1",
        ),
        (
            "watch vmis here",
            "labelSelector=kubevirt.io%2FnodeName%3Dn1",
        ),
        (
            "list vmis coming",
            "labelSelector=kubevirt.io%2FmigrationTargetNodeName%3Dn1",
        ),
        ("watch migrations", "watch=true"),
        ("list budgets", "limit=250"),
    ] {
        let found = fake.asked_for(key);
        assert!(found[0].uri.contains(part), "{key}: {}", found[0].uri);
        // A quorum read, not what a cache remembers.
        assert!(!key.starts_with("list") || !found[0].uri.contains("resourceVersion"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pods_list_is_shown_before_slower_kinds() {
    let fake = world();
    for key in [
        "list vmis here",
        "list migrations",
        "list nodes",
        "list kubevirts",
        "list budgets",
    ] {
        fake.play(key, [Play::Hang]);
    }
    let cluster = fake.cluster();
    let mut pictures = cluster.watch();
    let picture = until(&mut pictures, 1, |picture| picture.pods.settled()).await;
    assert_eq!(vms(&picture), ["a"]);
    assert!(!picture.vmis.settled());
}

#[tokio::test(start_paused = true)]
async fn events_change_the_picture() {
    let fake = world();
    let mut moved = launcher("a", "13");
    moved["status"]["phase"] = json!("Succeeded");
    fake.play(
        "watch pods",
        [Play::Stream(vec![
            Step::Wait(1),
            Step::Event("ADDED", launcher("b", "12")),
            Step::Wait(1),
            Step::Event("MODIFIED", moved),
            Step::Wait(1),
            Step::Event("DELETED", launcher("b", "14")),
        ])],
    );
    // At the flip the watch shows the VMI as it was before it left.
    let flip = Play::Stream(vec![Step::Wait(2), Step::Event("DELETED", vmi("a", "13"))]);
    fake.play("watch vmis here", [flip]);
    let (_cluster, mut pictures) = watched(&fake).await;
    let picture = until(&mut pictures, 2, |picture| vms(picture).len() == 2).await;
    assert_eq!(vms(&picture), ["a", "b"]);
    let picture = until(&mut pictures, 2, |p| p.pods.seen().unwrap()[0].is_final()).await;
    assert_eq!(fresh(&picture.pods), Some(fake.now()));
    until(&mut pictures, 1, |picture| {
        picture.vmis.seen().unwrap().is_empty()
    })
    .await;
    let picture = until(&mut pictures, 2, |picture| vms(picture).len() == 1).await;
    assert_eq!(vms(&picture), ["a"]);
    // The watch is opened again from the last version that it has shown.
    pass(40).await;
    assert!(
        fake.asked_for("watch pods")[1]
            .uri
            .contains("resourceVersion=14")
    );
}

#[tokio::test(start_paused = true)]
async fn an_arriving_vmi_is_shown_once_and_in_its_newest_state() {
    let fake = world();
    let mut coming = vmi("b", "20");
    coming["status"]["nodeName"] = json!("n2");
    coming["metadata"]["labels"] = json!({"kubevirt.io/migrationTargetNodeName": "n1"});
    fake.play("list vmis coming", [listed("20", [coming])]);
    let here = Play::Stream(vec![Step::Wait(1), Step::Event("ADDED", vmi("b", "25"))]);
    fake.play("watch vmis here", [here]);
    let (_cluster, mut pictures) = watched(&fake).await;
    let first = pictures.borrow_and_update().clone();
    let nodes = |picture: &Picture| -> Vec<String> {
        let vmis = picture.vmis.seen().unwrap();
        vmis.iter().map(|vmi| vmi.node.clone()).collect()
    };
    assert_eq!(nodes(&first), ["n1", "n2"]);
    let second = until(&mut pictures, 2, |p| nodes(p) == ["n1", "n1"]).await;
    assert_eq!(second.vmis.seen().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_in_the_stream_lists_anew() {
    let fake = world();
    let lists = [
        listed("10", [launcher("a", "9")]),
        listed("50", [launcher("c", "40")]),
    ];
    fake.play("list pods", lists);
    let expired = vec![Step::Wait(3), Step::Event("ERROR", gone(410))];
    fake.play("watch pods", [Play::Stream(expired), Play::Stream(vec![])]);
    let (_cluster, mut pictures) = watched(&fake).await;
    // The list replaces: the pod that went unnoticed is gone.
    let picture = until(&mut pictures, 5, |picture| vms(picture) == ["c"]).await;
    assert_eq!(vms(&picture), ["c"]);
    pass(1).await;
    assert!(
        fake.asked_for("watch pods")[1]
            .uri
            .contains("resourceVersion=50")
    );
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_as_http_status_lists_anew() {
    let fake = world();
    let lists = [
        listed("10", [launcher("a", "9")]),
        listed("50", [launcher("c", "40")]),
    ];
    fake.play("list pods", lists);
    fake.play(
        "watch pods",
        [Play::Say(410, gone(410)), Play::Stream(vec![])],
    );
    let (_cluster, mut pictures) = watched(&fake).await;
    until(&mut pictures, 2, |picture| vms(picture) == ["c"]).await;
    assert_eq!(fake.asked_for("list pods").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn versions_that_expire_for_ever_do_not_make_a_storm() {
    let fake = world();
    fake.play("watch pods", [Play::Say(410, gone(410))]);
    let (_cluster, _pictures) = watched(&fake).await;
    pass(60).await;
    let lists = fake.asked_for("list pods").len();
    assert!((10..=20).contains(&lists), "{lists} lists in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_closed_watch_is_opened_again_without_a_list() {
    let fake = world();
    let closed = Play::Stream(vec![Step::Wait(20), Step::Close]);
    fake.play("watch pods", [closed]);
    let (_cluster, _pictures) = watched(&fake).await;
    pass(61).await;
    assert_eq!(fake.asked_for("watch pods").len(), 4);
    assert_eq!(fake.asked_for("list pods").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_closes_at_once_is_opened_ever_more_slowly() {
    let fake = world();
    fake.play("watch pods", [Play::Stream(vec![Step::Close])]);
    let (_cluster, _pictures) = watched(&fake).await;
    pass(60).await;
    let watches = fake.asked_for("watch pods").len();
    assert!(
        (10..=20).contains(&watches),
        "{watches} watches in a minute"
    );
}

#[tokio::test(start_paused = true)]
async fn silence_is_broken_by_asking_again() {
    let fake = world();
    // The second watch brings what the dead first one has missed.
    let late = Play::Stream(vec![Step::Event("ADDED", launcher("b", "12"))]);
    fake.play("watch pods", [Play::Stream(vec![]), late]);
    let (_cluster, mut pictures) = watched(&fake).await;
    let picture = until(&mut pictures, 31, |picture| vms(picture).len() == 2).await;
    assert_eq!(fake.now().0, 30_000);
    assert_eq!(fresh(&picture.pods), Some(fake.now()));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_a_sign_of_life() {
    let fake = world();
    let steps = (1..20).flat_map(|n| [Step::Wait(20), bookmark(&(100 + n).to_string())]);
    fake.play("watch pods", [Play::Stream(steps.collect())]);
    let (_cluster, mut pictures) = watched(&fake).await;
    pass(100).await;
    assert_eq!(fake.asked_for("watch pods").len(), 1);
    let age = fresh(&pictures.borrow_and_update().pods).unwrap();
    assert!(fake.now().since(age).as_secs() <= 25);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_drain_of_ten_minutes_costs_few_requests() {
    let fake = world();
    let (_cluster, mut pictures) = watched(&fake).await;
    pass(600).await;
    let asked = fake.asked().len();
    assert!(
        asked <= 75,
        "{asked} requests without any event or bookmark"
    );
    // And what it shows is never older than the core's patience.
    let picture = pictures.borrow_and_update().clone();
    let oldest = fresh(&picture.node)
        .unwrap()
        .min(fresh(&picture.vmis).unwrap());
    assert!(fake.now().since(oldest).as_secs() < 60);
}

#[tokio::test(start_paused = true)]
async fn forbidden_kinds_are_told_and_tried_again_slowly() {
    let fake = world();
    for kind in ["vmis here", "vmis coming", "migrations", "budgets"] {
        fake.play(&format!("list {kind}"), [forbidden()]);
    }
    let (_cluster, mut pictures) = watched(&fake).await;
    let picture = pictures.borrow_and_update().clone();
    assert_eq!(vms(&picture), ["a"]);
    let Sight::Forbidden { why } = &picture.vmis else {
        panic!("{:?}", picture.vmis)
    };
    assert_eq!(
        why,
        "no right to list and watch virtualmachineinstances on node n1; the part `reads` of the RBAC manifest gives it to this node"
    );
    assert!(matches!(picture.migrations, Sight::Forbidden { .. }));
    assert!(matches!(picture.pdbs, Sight::Forbidden { .. }));
    pass(600).await;
    let tries = fake.asked_for("list migrations").len();
    assert!((4..=6).contains(&tries), "{tries}");
    // The right was given in the meantime.
    fake.play(
        "list migrations",
        [listed("10", [migration("a", "Running")])],
    );
    until(&mut pictures, 400, |picture| {
        picture.migrations.seen().is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_denial_after_a_restart_of_the_server_does_not_blind_us() {
    let fake = world();
    let once = [
        listed("10", [vmi("a", "9")]),
        forbidden(),
        listed("11", [vmi("a", "9")]),
    ];
    fake.play("list vmis here", once);
    let expired = Play::Stream(vec![Step::Wait(3), Step::Event("ERROR", gone(410))]);
    fake.play("watch vmis here", [expired, Play::Stream(vec![])]);
    let (_cluster, pictures) = watched(&fake).await;
    for _ in 0..40 {
        pass(1).await;
        assert!(pictures.borrow().vmis.seen().is_some());
    }
    assert_eq!(fake.asked_for("list vmis here").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_own_pods_forbidden_say_what_the_server_said() {
    let fake = world();
    fake.play(
        "list pods",
        [Play::Say(
            403,
            status(403, "Forbidden", "can only list own pods"),
        )],
    );
    let (_cluster, pictures) = watched(&fake).await;
    let Sight::Forbidden { why } = pictures.borrow().pods.clone() else {
        panic!("not forbidden")
    };
    assert!(
        why.starts_with("cannot list pods on node n1: can only list own pods (403)"),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_kubevirt_or_without_the_node() {
    let fake = world();
    for kind in ["vmis here", "vmis coming", "migrations", "kubevirts"] {
        fake.play(
            &format!("list {kind}"),
            [Play::Text(404, "404 page not found")],
        );
    }
    fake.play("list nodes", [listed("10", [])]);
    let (_cluster, pictures) = watched(&fake).await;
    let picture = pictures.borrow().clone();
    assert_eq!(picture.vmis, Sight::Missing);
    assert_eq!(picture.migrations, Sight::Missing);
    assert_eq!(picture.kubevirt, Sight::Missing);
    assert!(
        matches!(&picture.node, Sight::Broken { why, .. } if why == "there is no node n1 in this cluster")
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_keeps_the_last_picture_for_a_while() {
    let fake = world();
    let (_cluster, mut pictures) = watched(&fake).await;
    // From now on nothing answers; the watch that is open is dead.
    for kind in ["pods", "nodes", "vmis here", "vmis coming", "migrations"] {
        fake.play(&format!("list {kind}"), [Play::Refuse]);
        fake.play(&format!("watch {kind}"), [Play::Refuse]);
    }
    pass(50).await;
    assert_eq!(vms(&pictures.borrow_and_update()), ["a"]);
    assert_eq!(fresh(&pictures.borrow().pods).unwrap().0, 0);
    let picture = until(&mut pictures, 20, |p| {
        matches!(p.pods, Sight::Broken { .. })
    })
    .await;
    let Sight::Broken { why, since } = picture.pods else {
        unreachable!()
    };
    assert_eq!(since.0, 30_000, "since the first failure");
    assert_eq!(why, "cannot list pods on node n1: connection refused");
    let before = fake.asked_for("list pods").len();
    pass(60).await;
    let tries = fake.asked_for("list pods").len() - before;
    assert!((9..=13).contains(&tries), "{tries} tries in a minute");
    fake.play("list pods", [listed("90", [launcher("z", "80")])]);
    fake.play("watch pods", [Play::Stream(vec![])]);
    until(&mut pictures, 7, |picture| vms(picture) == ["z"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_noticed() {
    let fake = world();
    fake.play("list pods", [Play::Hang]);
    let cluster = fake.cluster();
    let mut pictures = cluster.watch();
    let picture = until(&mut pictures, 11, |picture| picture.pods.settled()).await;
    let expected = "cannot list pods on node n1: no answer within 10 s";
    assert!(
        matches!(&picture.pods, Sight::Broken { why, .. } if why == expected),
        "{:?}",
        picture.pods
    );
    fake.play("list pods", [listed("10", [launcher("a", "9")])]);
    fake.play(
        "watch pods",
        [
            Play::Hang,
            Play::Stream(vec![Step::Event("ADDED", launcher("b", "11"))]),
        ],
    );
    until(&mut pictures, 25, |picture| vms(picture).len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn malformed_objects_are_set_aside_and_named() {
    let fake = world();
    let broken = |mut object: Value, at: &str, value: Value| {
        object["metadata"]["name"] = json!("bad");
        *object.pointer_mut(at).unwrap() = value;
        object
    };
    let pods = [
        launcher("a", "9"),
        broken(launcher("x", "9"), "/status/phase", json!(5)),
    ];
    fake.play("list pods", [listed("10", pods)]);
    let vmis = [
        vmi("a", "9"),
        broken(vmi("x", "9"), "/status/conditions", json!({"a": 1})),
    ];
    fake.play("list vmis here", [listed("10", vmis)]);
    let vmims = [
        migration("a", "Running"),
        broken(migration("x", ""), "/spec", json!("text")),
    ];
    fake.play("list migrations", [listed("10", vmims)]);
    let pdbs = [
        pdb("b", "a"),
        broken(pdb("x", "a"), "/spec/selector", json!([])),
    ];
    fake.play("list budgets", [listed("10", pdbs)]);
    let other = broken(kubevirt(), "/spec/configuration", json!(true));
    fake.play("list kubevirts", [listed("10", [other, kubevirt()])]);
    let mut halved = node("9");
    halved["status"]["conditions"] = json!("Ready");
    fake.play("list nodes", [listed("10", [halved])]);
    let repaired = Play::Stream(vec![
        Step::Wait(5),
        Step::Event(
            "DELETED",
            json!({"metadata": {"namespace": "vms", "name": "bad"}}),
        ),
    ]);
    fake.play("watch pods", [repaired]);
    let (_cluster, mut pictures) = watched(&fake).await;
    let picture = pictures.borrow_and_update().clone();
    assert_eq!(vms(&picture), ["a"]);
    assert_eq!(picture.vmis.seen().unwrap().len(), 1);
    assert_eq!(picture.migrations.seen().unwrap().len(), 1);
    assert_eq!(picture.pdbs.seen().unwrap().len(), 1);
    assert_eq!(picture.kubevirt.seen().unwrap().per_cluster, 7);
    assert!(
        !picture.node.seen().unwrap().ready,
        "the rest of the node is read"
    );
    let told: Vec<String> = picture
        .malformed
        .iter()
        .map(|bad| format!("{} {}: {}", bad.resource, bad.object, bad.why))
        .collect();
    let expected = [
        (
            "nodes n1",
            "status.conditions: invalid type: string \"Ready\", expected a sequence",
        ),
        (
            "kubevirts kubevirt/bad",
            "spec.configuration: invalid type: boolean `true`",
        ),
        (
            "pods vms/bad",
            "status.phase: invalid type: integer `5`, expected a string",
        ),
        ("poddisruptionbudgets vms/bad", "spec.selector"),
        (
            "virtualmachineinstancemigrations vms/bad",
            "spec: invalid type: string \"text\"",
        ),
        (
            "virtualmachineinstances vms/bad",
            "status.conditions: invalid type: map, expected a sequence",
        ),
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (object, why) in expected {
        assert!(
            told.iter()
                .any(|line| line.starts_with(object) && line.contains(why)),
            "{why}\n{told:#?}"
        );
    }
    // Gone is gone, also for what could not be read.
    until(&mut pictures, 6, |p| {
        p.malformed.iter().all(|bad| bad.resource != "pods")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_node_is_broken() {
    let fake = world();
    let mut bad = node("9");
    bad["spec"]["unschedulable"] = json!("yes");
    fake.play("list nodes", [listed("10", [bad])]);
    let (_cluster, pictures) = watched(&fake).await;
    let picture = pictures.borrow().clone();
    assert!(
        matches!(&picture.node, Sight::Broken { why, .. }
        if why.starts_with("node n1 cannot be read: spec.unschedulable: invalid type")),
        "{:?}",
        picture.node
    );
    assert_eq!(picture.malformed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lines_that_are_no_events_do_not_stop_the_watch() {
    let fake = world();
    let strange = Play::Stream(vec![Step::Event("BOOKMARK", json!({})), Step::Wait(1)]);
    let fine = Play::Stream(vec![Step::Event("ADDED", launcher("b", "11"))]);
    fake.play("watch pods", [strange, fine]);
    let (_cluster, mut pictures) = watched(&fake).await;
    until(&mut pictures, 5, |picture| vms(picture).len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_looks_nobody_asks() {
    let fake = world();
    let (cluster, pictures) = watched(&fake).await;
    drop(pictures);
    pass(1).await;
    let asked = fake.asked().len();
    pass(3600).await;
    assert_eq!(fake.asked().len(), asked, "the receiver was dropped");
    let mut pictures = cluster.watch();
    until(&mut pictures, 1, all_settled).await;
    cluster.unwatch();
    pass(1).await;
    let asked = fake.asked().len();
    pass(3600).await;
    assert_eq!(fake.asked().len(), asked, "the watches were ended");
}

#[tokio::test(start_paused = true)]
async fn the_same_again_is_published_seldom() {
    let fake = world();
    let steps =
        (0..100).flat_map(|_| [Step::Wait(1), Step::Event("MODIFIED", launcher("a", "12"))]);
    fake.play("watch pods", [Play::Stream(steps.collect())]);
    let (_cluster, mut pictures) = watched(&fake).await;
    pictures.borrow_and_update();
    let mut published = 0;
    for _ in 0..60 {
        pass(1).await;
        published += u32::from(pictures.has_changed().unwrap());
        pictures.borrow_and_update();
    }
    assert!(
        (10..=16).contains(&published),
        "{published} pictures in a minute"
    );
}
