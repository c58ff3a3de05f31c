//! Target pods that do not start: when is the scheduler's reason asked for, and what is made of the answer?

use super::*;
use crate::drain::action::Level;

const FULL: &str = "0/2 nodes are available: 2 Insufficient memory. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.";

/// VMs that are accepted and whose VMIMs wait for their target pods.
fn scheduling(names: &[&str]) -> Story {
    let mut story = Story::full();
    for name in names {
        story.vm(name);
    }
    story.trigger();
    for name in names {
        story.accepted(name);
        story.migration(name, &format!("{name}-m1"), MigrationPhase::Scheduling);
    }
    story.show();
    story
}

/// Time passes, and the watches go on.
fn passes(story: &mut Story, seconds: u64) {
    for _ in 0..seconds {
        story.wait(1).show();
    }
}

fn denied() -> Result<Option<String>, Fault> {
    Err(Fault {
        class: FaultClass::Denied,
        text: "no right to list and watch target pods in namespace vms; rbac/targets.yaml gives it to this node".into(),
    })
}

#[test]
fn nobody_asks_where_a_target_pod_starts_in_time() {
    let mut story = scheduling(&["a"]);
    passes(&mut story, 9);
    story.migration("a", "a-m1", MigrationPhase::TargetReady);
    story.show();
    passes(&mut story, 120);
    story.moves("a");
    passes(&mut story, 60);
    assert_eq!(story.target_looks, []);
}

#[test]
fn the_first_question_comes_after_some_patience_and_the_next_ones_now_and_then() {
    let mut story = scheduling(&["a"]);
    let begun = story.now;
    story.target = Ok(Some(FULL.into()));
    passes(&mut story, 75);
    let asked: Vec<u64> = story
        .target_looks
        .iter()
        .map(|(at, _)| at - begun)
        .collect();
    assert_eq!(asked, [10_000, 40_000, 70_000]);
    assert!(story.target_looks.iter().all(|(_, uid)| uid == "a-m1"));
}

#[test]
fn the_schedulers_words_are_the_reason_until_it_has_none_any_more() {
    let mut story = scheduling(&["a"]);
    story.target = Ok(Some(FULL.into()));
    passes(&mut story, 12);
    let row = story.row("a");
    assert_eq!(
        row.says,
        "no other node takes its target pod: 0/2 nodes are available: 2 Insufficient memory; KubeVirt gives up after 5 minutes and tries again"
    );
    assert_eq!(row.phase, crate::drain::status::VmPhase::Scheduling);
    let told = || story.told.iter().filter(|n| n.reason == "VmUnschedulable");
    assert_eq!(told().count(), 1);
    let notice = told().next().unwrap();
    assert!(notice.event && notice.level == Level::Warn);
    assert_eq!(notice.vm.as_ref().unwrap().name, "a");
    assert!(notice.text.contains("2 Insufficient memory"));
    // The same words again are no news.
    passes(&mut story, 30);
    let told = |story: &Story| {
        let all = story.told.iter();
        all.filter(|n| n.reason == "VmUnschedulable").count()
    };
    assert_eq!(told(&story), 1);
    story.target = Ok(None);
    passes(&mut story, 30);
    assert!(!story.row("a").says.contains("Insufficient"));
    assert_eq!(told(&story), 1);
}

#[test]
fn words_about_one_attempt_are_not_those_about_the_next() {
    let mut story = scheduling(&["a"]);
    story.target = Ok(Some(FULL.into()));
    passes(&mut story, 12);
    story.migration("a", "a-m1", MigrationPhase::Failed);
    story.migration("a", "a-m2", MigrationPhase::Scheduling);
    story.migrations[1].created = 7;
    passes(&mut story, 5);
    assert!(!story.row("a").says.contains("Insufficient"));
    passes(&mut story, 8);
    assert!(story.row("a").says.contains("Insufficient"));
    let asked: Vec<&str> = story.target_looks.iter().map(|(_, m)| m.as_str()).collect();
    assert_eq!(asked, ["a-m1", "a-m2"]);
}

#[test]
fn each_of_several_has_its_own_pace() {
    let mut story = scheduling(&["a", "b"]);
    story.target = Ok(Some(FULL.into()));
    passes(&mut story, 12);
    let mut asked: Vec<&str> = story.target_looks.iter().map(|(_, m)| m.as_str()).collect();
    asked.sort_unstable();
    assert_eq!(asked, ["a-m1", "b-m1"]);
    passes(&mut story, 30);
    assert_eq!(story.target_looks.len(), 4);
}

#[test]
fn without_the_right_one_question_is_asked_in_a_drain() {
    let mut story = scheduling(&["a", "b"]);
    story.target = denied();
    passes(&mut story, 130);
    assert_eq!(story.target_looks.len(), 1);
    let says = story.row("a").says;
    assert!(
        says.contains("perhaps no other node has room for it")
            && says.contains("rbac/targets.yaml"),
        "{says}"
    );
    let told = story.told.iter().filter(|n| n.reason == "TargetsUnseen");
    let told: Vec<_> = told.collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].text.contains("rbac/targets.yaml gives it") && !told[0].event);
}

#[test]
fn what_cannot_be_read_is_told_and_changes_nothing() {
    let mut story = scheduling(&["a"]);
    story.target = Ok(Some(FULL.into()));
    passes(&mut story, 12);
    story.target = Err(Fault {
        class: FaultClass::Fatal,
        text: "cannot list target pods: pod vms/x cannot be read: status.conditions[0].message: a number".into(),
    });
    passes(&mut story, 70);
    assert!(story.row("a").says.contains("2 Insufficient memory"));
    let told = story.told.iter().filter(|n| n.reason == "TargetUnreadable");
    assert_eq!(told.count(), 1);
    assert!(story.was_told("status.conditions[0].message"));
    assert_eq!(story.target_looks.len(), 3);
}

#[test]
fn a_question_that_fails_is_asked_again_at_the_usual_pace() {
    let mut story = scheduling(&["a"]);
    story.target = Err(Fault {
        class: FaultClass::Transient,
        text: "connection refused".into(),
    });
    passes(&mut story, 45);
    assert_eq!(story.target_looks.len(), 2);
    story.target = Ok(Some(FULL.into()));
    passes(&mut story, 30);
    assert!(story.row("a").says.contains("2 Insufficient memory"));
}
