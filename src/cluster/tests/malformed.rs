//! Objects that cannot be read do not blind us.

use super::fake::{
    Fake, Play, Step, kubevirt, launcher, listed, migration, node, pdb, until, vmi, vms, watched,
    world,
};
use crate::drain::world::Sight;
use serde_json::{Value, json};
use std::sync::Arc;

/// A world with one good and one bad object of each kind; the bad pod goes away after five seconds.
fn half_broken() -> Arc<Fake> {
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
    fake
}

#[tokio::test(start_paused = true)]
async fn malformed_objects_are_set_aside_and_named() {
    let fake = half_broken();
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
