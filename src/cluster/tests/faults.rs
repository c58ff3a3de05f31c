//! Watches that expire, fall silent, break or are refused.

use super::fake::{
    Play, Step, forbidden, fresh, gone, launcher, listed, migration, pass, status, until, vmi, vms,
    watched, world,
};
use crate::agent::ports::Cluster;
use crate::cluster::fault;
use crate::drain::world::{Picture, Sight};
use std::io;

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
        "no right to list and watch virtualmachineinstances on node n1; rbac/reads.yaml gives it to this node"
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
    assert_eq!(picture.node, Sight::Missing, "there is no such Node");
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
async fn one_dead_watch_has_the_others_opened_again() {
    let fake = world();
    let pod = Play::Stream(vec![Step::Event("ADDED", launcher("b", "12"))]);
    fake.play("watch pods", [Play::Stream(vec![]), pod]);
    let moved = Play::Stream(vec![Step::Event("DELETED", vmi("a", "12"))]);
    fake.play("watch vmis here", [Play::Stream(vec![]), moved]);
    let (_cluster, mut pictures) = watched(&fake).await;
    let gone = |picture: &Picture| picture.vmis.seen().unwrap().is_empty();
    until(&mut pictures, 32, gone).await;
    pass(10).await;
    assert_eq!(fake.asked_for("watch nodes").len(), 2);
    // A watch that was only quiet proves nothing about the others.
    let fake = world();
    let (_cluster, _pictures) = watched(&fake).await;
    pass(65).await;
    assert_eq!(fake.asked_for("watch pods").len(), 3);
    assert_eq!(fake.asked_for("watch nodes").len(), 1);
}

#[test]
fn a_cut_stream_is_told_from_a_broken_one() {
    let eof = || io::Error::from(io::ErrorKind::UnexpectedEof);
    assert!(fault::was_cut_off(&eof()));
    assert!(fault::was_cut_off(&io::Error::other(io::Error::other(
        eof()
    ))));
    assert!(fault::was_cut_off(&io::Error::other(
        "unexpected EOF during chunk size line"
    )));
    assert!(!fault::was_cut_off(&io::Error::other("connection reset")));
}
