//! Lists and watches become pictures.

use super::fake::{
    Play, Step, all_settled, bookmark, fresh, launcher, listed, pass, until, vmi, vms, watched,
    world,
};
use crate::agent::ports::Cluster;
use crate::drain::world::Picture;
use serde_json::json;

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
async fn a_host_that_comes_up_watches_its_node_alone() {
    let fake = world();
    let cluster = fake.cluster();
    let mut pictures = cluster.watch_node();
    until(&mut pictures, 1, |picture| picture.node.seen().is_some()).await;
    pass(1).await;
    let picture = pictures.borrow().clone();
    assert!(!picture.pods.settled() && !picture.vmis.settled() && !picture.kubevirt.settled());
    let asked: Vec<String> = fake.asked().into_iter().map(|asked| asked.key).collect();
    assert_eq!(asked, ["list nodes", "watch nodes"]);
    cluster.unwatch();
    pass(600).await;
    assert_eq!(fake.asked().len(), 2);
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
        asked <= 65,
        "{asked} requests without any event or bookmark"
    );
    // And what it shows is never older than the core's patience.
    let picture = pictures.borrow_and_update().clone();
    let oldest = fresh(&picture.node)
        .unwrap()
        .min(fresh(&picture.vmis).unwrap());
    assert!(fake.now().since(oldest).as_secs() <= 75);
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
