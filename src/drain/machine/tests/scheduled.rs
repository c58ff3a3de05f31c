//! A shutdown that is scheduled: begun early, moved, called off, and come.

use super::*;
use crate::drain::policy::OnScheduled;
use crate::drain::status::VmPhase;
use crate::drain::trigger::{Schedule, Then};

fn with(answer: OnScheduled) -> Story {
    let mut policy = policy();
    policy.on_scheduled = answer;
    Story::with(policy, true)
}

impl Story {
    /// `shutdown -P +…`, as the host adapter tells it.
    fn schedule(&mut self, minutes: u64) -> &mut Self {
        let hold = self.hold();
        self.input(Input::Hold(hold));
        self.input(Input::Scheduled(Some(Schedule {
            kind: Some(Then::Poweroff),
            within: Duration::from_secs(60 * minutes),
        })))
        .show()
    }

    fn called_off(&mut self) -> &mut Self {
        self.input(Input::Scheduled(None)).show()
    }
}

#[test]
fn a_scheduled_shutdown_begins_the_drain_and_its_time_lets_the_host_go() {
    let mut story = Story::full();
    story.vm("a").vm_of("b", Strategy::None, false).schedule(10);
    let drain = story.status().drain.unwrap();
    assert_eq!(drain.reason, "a poweroff is scheduled in 10m 0s");
    assert!(!drain.shutting_down);
    // 10 min, then logind's 45 min, less the margin of 30 s.
    assert_eq!(drain.deadline_in, Some(600.0 + 2700.0 - 30.0));
    assert_eq!(story.asked(), ["a"]);
    story.accepted("a").moves("a");
    // A guest that would be stopped may not be: the shutdown can still be called off.
    assert_eq!(story.row("b").phase, VmPhase::Waiting);
    assert!(
        story
            .row("b")
            .says
            .contains("when the scheduled shutdown has come")
    );
    story.wait(590);
    assert_eq!((story.phase(), story.releases), (Phase::Evacuating, 0));
    let due = story.status().scheduled.unwrap();
    assert_eq!((due.kind, due.due_in), (Some(Then::Poweroff), 10.0));
    story.wait(10).shutdown();
    assert_eq!(story.asked(), ["b"]);
    assert_eq!(story.status().scheduled, None);
    story.vmi("b").phase = VmiPhase::Succeeded;
    story.answer("b", 201, "").pod_ends("b");
    story.show();
    assert_eq!((story.phase(), story.releases), (Phase::Drained, 1));
    assert_eq!(story.real("a"), 1);
}

/// Empty long before: the lock is kept until the time has come, then given up at once.
#[test]
fn a_node_that_is_empty_early_keeps_its_lock_for_the_shutdown() {
    let mut story = Story::full();
    story.vm("a").schedule(10).accepted("a").moves("a");
    assert_eq!(
        (story.phase(), story.exit(), story.releases),
        (Phase::Drained, Some(0), 0)
    );
    assert!(!story.watching && story.node.unschedulable);
    assert!(
        story.status().says.contains("poweroff is scheduled in"),
        "{}",
        story.status().says
    );
    story.wait(600).shutdown();
    assert_eq!((story.phase(), story.releases), (Phase::Drained, 1));
}

#[test]
fn shutdown_c_takes_all_of_it_back() {
    for empty in [false, true] {
        let mut story = Story::full();
        story.vm("a").vm("b").vm("c").schedule(10);
        assert_eq!(story.asked(), ["a", "b"], "two slots");
        story.accepted("a").accepted("b");
        if empty {
            story.moves("a");
            story.moves("b");
            story.accepted("c").moves("c");
            assert_eq!(story.phase(), Phase::Drained);
        }
        story.called_off();
        assert_eq!(story.phase(), Phase::Cancelled);
        assert!(!story.node.unschedulable, "the cordon was ours");
        let marked: &[&str] = if empty { &[] } else { &["a", "b"] };
        assert_eq!(story.cancels, marked);
        assert_eq!((story.releases, story.record.is_some()), (0, false));
        // A new one is a new drain.
        story.schedule(5);
        assert!(story.machine.phase().is_draining() || story.phase() == Phase::Drained);
    }
}

#[test]
fn cordon_and_ignore_wait_for_the_time() {
    let mut story = with(OnScheduled::Cordon);
    story.vm("a").schedule(10);
    assert!(story.node.unschedulable);
    assert_eq!((story.phase(), story.posts.len()), (Phase::Preparing, 0));
    assert!(
        story.status().says.contains("VMs stay until"),
        "{}",
        story.status().says
    );
    story.wait(300);
    assert_eq!(story.posts.len(), 0);
    let mut cancelled = with(OnScheduled::Cordon);
    cancelled.vm("a").schedule(10).called_off();
    assert_eq!(cancelled.phase(), Phase::Cancelled);
    assert!(!cancelled.node.unschedulable);
    story.wait(300).shutdown();
    assert_eq!(story.asked(), ["a"]);
    story.accepted("a").moves("a");
    assert_eq!((story.phase(), story.releases), (Phase::Drained, 1));

    let mut story = with(OnScheduled::Ignore);
    story.vm("a").schedule(10);
    assert_eq!(story.phase(), Phase::Idle);
    assert!(!story.node.unschedulable);
    assert!(
        story.status().says.contains("by configuration"),
        "{}",
        story.status().says
    );
    story.called_off();
    assert_eq!(
        (story.phase(), story.status().scheduled),
        (Phase::Idle, None)
    );
    story.schedule(1).wait(60).shutdown();
    assert_eq!(story.asked(), ["a"]);
}

/// Another time for the same shutdown: one drain, another deadline.
#[test]
fn a_schedule_that_moves_moves_the_deadline() {
    let mut story = Story::full();
    story.vm("a").schedule(10).accepted("a");
    let before = story.status().drain.unwrap();
    story.schedule(60);
    let after = story.status().drain.unwrap();
    assert_eq!(before.id, after.id);
    assert_eq!(after.deadline_in, Some(3600.0 + 2700.0 - 30.0));
    assert_eq!(story.real("a"), 1);
}

/// What an operator has begun or finished is neither changed by a schedule nor taken back with it.
#[test]
fn a_drain_of_an_operator_is_left_alone() {
    for empty in [false, true] {
        let mut story = Story::full();
        story.vm("a").trigger().accepted("a");
        if empty {
            story.moves("a");
        }
        let before = (story.phase(), story.status().drain.unwrap().deadline_in);
        story.schedule(10);
        assert_eq!(
            (story.phase(), story.status().drain.unwrap().deadline_in),
            before
        );
        story.called_off();
        assert_eq!(story.phase(), before.0);
        assert!(story.node.unschedulable);
    }
}

#[test]
fn an_operator_may_call_an_early_drain_off() {
    for empty in [false, true] {
        let mut story = Story::full();
        story.vm("a").schedule(10).accepted("a");
        if empty {
            story.moves("a");
        }
        story.cancel(false).show();
        assert!(
            story.answers.last().unwrap().1.is_ok(),
            "{:?}",
            story.answers
        );
        assert_eq!(story.phase(), Phase::Cancelled);
        assert!(!story.node.unschedulable);
        // The shutdown itself still comes.
        story.wait(600).shutdown();
        assert!(story.node.unschedulable);
    }
}

/// The agent is restarted while a shutdown is scheduled: one drain, and no second eviction.
#[test]
fn a_restart_resumes_what_is_scheduled() {
    for empty in [false, true] {
        let early = || {
            let mut story = Story::full();
            story.vm("a").schedule(10).accepted("a");
            if empty {
                story.moves("a");
            }
            let id = story.status().drain.unwrap().id;
            story.crash();
            (story, id)
        };
        // Still scheduled.
        let (mut story, id) = early();
        story.schedule(8).input(Input::HostReady).show();
        assert_eq!(story.status().drain.unwrap().id, id);
        assert_eq!(story.phase() == Phase::Drained, empty);
        assert_eq!(story.real("a"), 1);
        story.wait(480).shutdown();
        if !empty {
            story.moves("a");
        }
        assert_eq!((story.phase(), story.releases), (Phase::Drained, 1));
        // Called off in the meantime.
        let (mut story, _) = early();
        story
            .input(Input::Scheduled(None))
            .input(Input::HostReady)
            .show();
        assert_eq!(story.phase(), Phase::Cancelled);
        assert!(!story.node.unschedulable);
        // Come in the meantime: what counts is logind's limit from the signal on.
        let (mut story, id) = early();
        story.signal(2700).input(Input::HostReady).show();
        let drain = story.status().drain.unwrap();
        assert_eq!((drain.id, drain.shutting_down), (id, true));
        if empty {
            assert_eq!((story.phase(), story.releases), (Phase::Drained, 1));
        } else {
            assert_eq!(drain.deadline_in, Some(2670.0));
        }
    }
}

/// An immediate poweroff takes the place of a scheduled one; when it vanishes, nothing is left of either.
#[test]
fn an_immediate_shutdown_takes_its_place() {
    let mut story = Story::full();
    story.vm("a").schedule(10).accepted("a").shutdown();
    assert!(story.status().drain.unwrap().shutting_down);
    story.input(Input::ShutdownVanished {
        why: "called off".into(),
    });
    story.called_off();
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(!story.node.unschedulable);
}

/// `vmdrain-agent reboot` after a `shutdown +10`: it does not wait for the ten minutes, and is its operator's from then on.
#[test]
fn an_operator_takes_an_early_drain_over() {
    let mut story = Story::full();
    story.vm("a").vm_of("b", Strategy::None, false).schedule(10);
    story.accepted("a");
    let id = story.status().drain.unwrap().id;
    story.trigger_with(Trigger {
        then: Some(Then::Reboot),
        reason: "at once".into(),
        ..Trigger::default()
    });
    let drain = story.status().drain.unwrap();
    assert_eq!(
        (drain.id, drain.reason.as_str(), drain.then),
        (id, "at once", Some(Then::Reboot))
    );
    assert_eq!(drain.deadline_in, Some(1800.0));
    assert_eq!(story.asked(), ["b"], "the host really goes down afterwards");
    story.called_off();
    assert_eq!(
        story.phase(),
        Phase::Evacuating,
        "it is no longer the schedule's"
    );
    story.vmi("b").phase = VmiPhase::Succeeded;
    story.answer("b", 201, "").pod_ends("b");
    story.moves("a");
    assert_eq!((story.phase(), story.asked_logind), (Phase::Drained, 1));
    assert_eq!(story.real("a"), 1);
}
