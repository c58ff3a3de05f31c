//! Hooks: when they run, for how long, and what a failure does.

use super::*;
use crate::drain::hooks::{Gate, OnFailure};
use crate::drain::trigger::Then;
use std::collections::BTreeSet;

fn hooked(gates: &[Gate]) -> Story {
    let mut story = Story::full();
    story
        .machine
        .set_hooks(gates.iter().copied().collect::<BTreeSet<_>>());
    story
}

fn failed() -> Report {
    Report {
        failed: vec!["hook pre-drain.d/x ended with 1".into()],
        ..Report::default()
    }
}

impl Story {
    fn gates(&self) -> Vec<Gate> {
        self.hook_runs.iter().map(|run| run.gate).collect()
    }

    /// Hooks take their time from now on.
    fn hooks_take_long(&mut self) -> &mut Self {
        self.hook_report = None;
        self
    }

    fn hooks_end(&mut self, report: Report) -> &mut Self {
        let id = self.hooks_owe.take().expect("hooks that run");
        self.input(Input::Done(id, Outcome::Hooks(Ok(report))))
    }
}

#[test]
fn each_gate_opens_once_and_in_its_place() {
    let mut story = hooked(&Gate::ALL);
    story.hooks_take_long().vm("a").shutdown();
    assert_eq!((story.phase(), story.posts.len()), (Phase::Preparing, 0));
    assert!(story.node.unschedulable, "the cordon comes first");
    assert!(story.status().says.starts_with("the pre-drain hooks run"));
    story.hooks_end(Report::default()).accepted("a");
    story.moves("a");
    assert_eq!((story.phase(), story.releases), (Phase::Gates, 0));
    story.hooks_end(Report::default());
    // Empty by fresh lists once more, and only then the last gate.
    assert_eq!((story.phase(), story.releases), (Phase::Drained, 0));
    story.hooks_end(Report::default());
    assert_eq!((story.phase(), story.releases), (Phase::Drained, 1));
    assert_eq!(story.gates(), Gate::ALL);
    let about = &story.hook_runs[0].about;
    assert_eq!((about.node.as_str(), about.vms_left), ("n1", 1));
    assert!(about.shutting_down && about.deadline > 2000);
    assert_eq!(story.hook_runs[2].about.vms_left, 0);
}

#[test]
fn without_hooks_nothing_waits() {
    let mut story = Story::full();
    story.vm("a").shutdown().accepted("a").moves("a");
    assert_eq!((story.phase(), story.releases), (Phase::Drained, 1));
    assert!(story.hook_runs.is_empty());
}

#[test]
fn a_vm_that_comes_while_post_drain_runs_is_drained_too() {
    let mut story = hooked(&[Gate::PostDrain]);
    story.hooks_take_long().vm("a").trigger().accepted("a");
    story.moves("a");
    story.vm("late").show();
    assert_eq!((story.phase(), story.posts.len()), (Phase::Gates, 1));
    story.hooks_end(Report::default());
    assert_eq!(story.phase(), Phase::Evacuating);
    story.wait(20);
    assert_eq!(story.asked(), ["late"]);
    story.accepted("late").moves("late");
    story.wait(20);
    assert_eq!((story.phase(), story.gates().len()), (Phase::Drained, 1));
}

#[test]
fn net_1_runs_pre_release_before_logind_is_asked_and_not_again() {
    let mut story = hooked(&[Gate::PreRelease]);
    story.hooks_take_long().vm("a").trigger_with(Trigger {
        then: Some(Then::Reboot),
        ..Trigger::default()
    });
    story.accepted("a").moves("a");
    assert_eq!((story.phase(), story.asked_logind), (Phase::Drained, 0));
    assert_eq!(story.hook_runs[0].about.then, Some(Then::Reboot));
    story.hooks_end(Report::default());
    assert_eq!(story.asked_logind, 1);
    story.shutdown();
    assert_eq!((story.releases, story.gates().len()), (1, 1));
    assert_eq!(story.asked_logind, 1);
}

#[test]
fn hooks_never_take_the_time_of_the_guests_or_of_the_hold() {
    let mut story = hooked(&Gate::ALL);
    story.hooks_take_long().vm("a");
    let hold = story.hold();
    story.input(Input::Hold(hold)).signal(100).show();
    // Limit 100 s, deadline 80 s: a quarter of it for the first gate.
    let run = story.hook_runs[0].clone();
    assert_eq!((run.each.as_secs(), run.all.as_secs()), (20, 20));
    // They hang for good: the drain does not.
    story.wait(40);
    assert_eq!(story.asked(), ["a"], "{}", story.status().says);
    story.accepted("a").wait(45);
    assert_eq!(story.phase(), Phase::Deadline);
    let last = story.hook_runs.last().expect("a run");
    assert_eq!((last.gate, last.about.vms_left), (Gate::PreRelease, 1));
    assert_eq!(last.all, Duration::from_secs(9), "half of the rest");
    assert_eq!(story.releases, 0);
    story.wait(14);
    assert_eq!(story.releases, 1, "the hold is not kept because of a hook");
}

#[test]
fn a_failure_is_told_and_the_drain_goes_on() {
    let mut story = hooked(&[Gate::PreDrain]);
    story.hook_report = Some(Report {
        passed_over: vec!["hook pre-drain.d/y.sh is not run".into()],
        ..failed()
    });
    story.vm("a").trigger();
    assert_eq!(story.asked(), ["a"]);
    let told: Vec<_> = story.told.iter().map(|n| (n.reason, n.event)).collect();
    assert!(told.contains(&("HookFailed", true)), "{told:?}");
    assert!(told.contains(&("HookPassedOver", false)), "{told:?}");
}

#[test]
fn abort_calls_the_drain_off_unless_the_host_goes_down() {
    let mut policy = policy();
    policy.hooks.failure = OnFailure::Abort;
    for down in [false, true] {
        let mut story = Story::with(policy.clone(), true);
        story.machine.set_hooks(BTreeSet::from([Gate::PreDrain]));
        story.hook_report = Some(failed());
        story.vm("a");
        if down {
            story.shutdown();
            assert_eq!(story.asked(), ["a"]);
        } else {
            story.trigger();
            assert_eq!(story.phase(), Phase::Cancelled);
            assert!(story.posts.is_empty() && !story.node.unschedulable);
            assert!(story.status().says.contains("pre-drain.d/x ended with 1"));
        }
    }
}

#[test]
fn a_cancel_does_not_wait_for_hooks() {
    let mut story = hooked(&[Gate::PreDrain]);
    story.hooks_take_long().vm("a").trigger().cancel(false);
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(!story.node.unschedulable);
    story.hooks_end(Report::default());
    assert_eq!((story.phase(), story.posts.len()), (Phase::Cancelled, 0));
}

#[test]
fn a_restart_does_not_run_them_again() {
    let mut story = hooked(&[Gate::PreDrain]);
    story.vm("a").trigger().accepted("a");
    story.starts();
    story.machine.set_hooks(BTreeSet::from([Gate::PreDrain]));
    story.show();
    assert_eq!(story.gates().len(), 1);
    assert_eq!(story.phase(), Phase::Evacuating);
}
