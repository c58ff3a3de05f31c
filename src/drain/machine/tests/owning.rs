//! Whose Node, whose cordon (design section 6).

use super::*;
use crate::drain::policy::OnForeignUncordon;
use crate::drain::world::CordonNote;

fn note(drain: &str) -> CordonMark {
    CordonMark::Note(CordonNote {
        drain: drain.into(),
        boot: "boot".into(),
        reason: "test".into(),
        ..CordonNote::default()
    })
}

#[test]
fn another_machines_node_is_left_alone() {
    for systemwide in [false, true] {
        let mut policy = policy();
        policy.system_uuid = "1111".into();
        let mut story = Story::with(policy, true);
        story.vm("a");
        if systemwide {
            story.node.system_uuid = "2222".into();
        } else {
            story.node.machine_id = "bbbb".into();
        }
        story.trigger();
        assert_eq!((story.phase(), story.exit()), (Phase::Refused, Some(4)));
        assert!(!story.node.unschedulable && story.posts.is_empty());
        let says = story.status().says;
        let ids = if systemwide {
            ["2222", "1111"]
        } else {
            ["bbbb", "aaaa"]
        };
        assert!(ids.iter().all(|id| says.contains(id)), "{says}");
    }
}

#[test]
fn the_host_is_not_held_for_another_machines_node() {
    let mut story = Story::full();
    story.node.machine_id = "bbbb".into();
    story.shutdown();
    assert_eq!((story.phase(), story.releases), (Phase::Refused, 1));
}

#[test]
fn ids_are_compared_without_dashes_and_case() {
    let mut policy = policy();
    policy.system_uuid = "ABCD-EF01".into();
    let mut story = Story::with(policy, true);
    story.node.system_uuid = "abcdef01".into();
    story.trigger();
    assert_eq!(story.phase(), Phase::Drained);
}

#[test]
fn a_foreign_cordon_gets_no_marker_and_stays() {
    let mut story = Story::full();
    story.vm("a");
    story.node.unschedulable = true;
    story.trigger().accepted("a");
    assert_eq!(story.node.cordon, CordonMark::Absent, "T58");
    assert!(story.was_told("its cordon stays"));
    story.cancel(false);
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(story.node.unschedulable, "T35");
    assert!(story.status().cordon.who.contains("cordon not ours"));
}

#[test]
fn a_marker_that_cannot_be_read_is_nobodys() {
    let mut story = Story::full();
    story.node.unschedulable = true;
    story.node.cordon = CordonMark::Damaged("no JSON".into());
    story.vm("a").trigger().cancel(false);
    story.accepted("a");
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(story.node.unschedulable);
}

#[test]
fn a_cordon_of_an_earlier_drain_becomes_this_ones() {
    let mut story = Story::full();
    story.node.unschedulable = true;
    story.node.cordon = note("an-older-drain");
    story.vm("a").trigger();
    let id = story.machine.drain_id().unwrap().to_owned();
    assert!(matches!(&story.node.cordon, CordonMark::Note(n) if n.drain == id));
    story.accepted("a").cancel(false);
    assert!(!story.node.unschedulable);
}

#[test]
fn a_foreign_uncordon_is_answered_by_a_cordon() {
    let mut story = Story::full();
    story.vm("a").trigger().accepted("a");
    story.node.unschedulable = false;
    story.bump();
    story.vm("b").show();
    assert!(story.node.unschedulable, "T36");
    assert!(story.was_told("it is cordoned again"));
    assert_eq!(story.asked(), ["b"], "what came meanwhile is evicted too");
}

#[test]
fn nothing_is_evicted_until_it_is_cordoned_again() {
    let mut story = Story::full();
    story.vm("a").trigger().accepted("a");
    story.node.unschedulable = false;
    story.bump();
    story.node_fault = Some(FaultClass::Transient);
    story.vm("b").show();
    assert!(story.asked().is_empty());
    story.node_fault = None;
    story.wait(2);
    assert_eq!(story.asked(), ["b"]);
}

#[test]
fn a_foreign_uncordon_ends_the_drain_where_that_is_configured() {
    let mut policy = policy();
    policy.on_foreign_uncordon = OnForeignUncordon::Abort;
    let mut story = Story::with(policy, true);
    story.vm("a").trigger().accepted("a");
    story.node.unschedulable = false;
    story.bump();
    story.show();
    assert_eq!((story.phase(), story.exit()), (Phase::Cancelled, Some(5)));
    assert_eq!(story.cancels, ["a"]);
    assert_eq!(story.node.cordon, CordonMark::Absent, "our marker goes too");
}

#[test]
fn a_picture_from_before_the_cordon_is_no_uncordon() {
    let mut story = Story::full();
    let before = story.picture();
    story.vm("a").trigger();
    story.input(Input::Picture(Box::new(before)));
    assert!(!story.was_told("cordoned again"));
}

#[test]
fn a_conflict_is_tried_again_at_once() {
    let mut story = Story::full();
    story.node_fault = Some(FaultClass::Conflict);
    story.vm("a").trigger();
    story.node_fault = None;
    story.wait(1);
    assert_eq!(story.asked(), ["a"], "T59: within a second");
}

#[test]
fn a_missing_right_to_cordon_is_told_and_nothing_is_evicted() {
    let mut story = Story::full();
    story.node_fault = Some(FaultClass::Denied);
    story.vm("a").shutdown().wait(600);
    assert!(story.posts.is_empty(), "T61");
    assert!(story.was_told("give the agent's identity the right to patch its own node"));
    assert!(!story.status().warnings.is_empty());
}

#[test]
fn restore_gives_back_what_is_ours() {
    let mut story = Story::full();
    story.trigger();
    assert_eq!(story.phase(), Phase::Drained);
    story.input(Input::Restore(Token(3)));
    assert!(story.answers.pop().unwrap().1.is_ok());
    assert!(!story.node.unschedulable);
    assert_eq!(story.phase(), Phase::Idle);
    story.input(Input::Restore(Token(4)));
    let not_cordoned = story.answers.pop().unwrap().1;
    assert!(matches!(not_cordoned, Err(Refusal::NotCordoned { .. })));
}

#[test]
fn restore_leaves_a_foreign_cordon() {
    for cordon in [CordonMark::Absent, CordonMark::Damaged("no JSON".into())] {
        let mut story = Story::full();
        story.node.unschedulable = true;
        story.node.cordon = cordon;
        story.input(Input::Restore(Token(3)));
        let answer = story.answers.pop().unwrap().1;
        assert!(matches!(answer, Err(Refusal::CordonNotOurs { .. })));
        assert!(story.node.unschedulable);
    }
}

#[test]
fn restore_is_refused_while_a_drain_runs() {
    let mut story = Story::full();
    story.vm("a").trigger().input(Input::Restore(Token(3)));
    let answer = story.answers.pop().unwrap().1;
    assert!(matches!(answer, Err(Refusal::RestoreWhileDraining { .. })));
}
