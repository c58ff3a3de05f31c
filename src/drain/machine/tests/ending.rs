//! How drains end: empty, at the deadline, by consent or without it.

use super::*;
use crate::drain::policy::Consent;
use crate::drain::status::VmPhase;
use crate::drain::trigger::Then;

#[test]
fn a_signal_on_a_node_without_vms_lets_the_host_go_at_once() {
    for mut story in [Story::full(), Story::base()] {
        story.shutdown();
        assert_eq!(story.phase(), Phase::Drained);
        assert_eq!(story.releases, 1);
        assert_eq!(story.exit(), Some(0));
        assert!(!story.watching, "no request once it is over");
        assert!(
            story.node.unschedulable,
            "it stays cordoned over the reboot"
        );
    }
}

#[test]
fn the_hold_is_released_only_when_the_fresh_list_is_newer_than_the_last_eviction() {
    let mut story = Story::full();
    story.vm("a");
    story.hold_confirms = true;
    story.shutdown().accepted("a").wait(10);
    story.moves("a");
    let first = story.confirms.pop().unwrap();
    // While the list is on its way another VM arrives, and is evicted and accepted.
    let list = story.fresh();
    story.vm("b").show();
    story.accepted("b");
    story.input(Input::Done(first, Outcome::Fresh(Ok(list))));
    assert_eq!((story.phase(), story.releases), (Phase::Evacuating, 0));
    story.moves("b");
    story.wait(20);
    let second = story.confirms.pop().unwrap();
    let list = story.fresh();
    story.input(Input::Done(second, Outcome::Fresh(Ok(list))));
    assert_eq!((story.phase(), story.releases), (Phase::Drained, 1));
}

#[test]
fn the_hold_is_released_once() {
    let mut story = Story::full();
    story.shutdown();
    let stale = HoldView {
        held: true,
        ..story.hold()
    };
    story.input(Input::Hold(stale)).wait(600);
    assert_eq!(story.releases, 1);
}

#[test]
fn a_hold_that_shows_up_late_is_released_then() {
    let mut story = Story::full();
    story.held = false;
    story.shutdown();
    assert_eq!(story.releases, 0);
    story.held = true;
    let hold = story.hold();
    story.input(Input::Hold(hold));
    assert_eq!(story.releases, 1);
}

#[test]
fn a_granted_eviction_is_waited_for_until_the_pod_is_gone() {
    let mut story = Story::full();
    story.vm_of("n", Strategy::None, false).shutdown();
    story.answer("n", 201, "").wait(90);
    assert_eq!((story.real("n"), story.releases), (1, 0), "T07");
    story.pod("n").deleting = true;
    story.show();
    assert_eq!(story.row("n").phase, VmPhase::ShuttingDown);
    story.pods.clear();
    story.vmis.clear();
    story.show();
    assert_eq!(story.releases, 1);
    assert_eq!(story.row("n").phase, VmPhase::ShutDown);
}

#[test]
fn the_deadline_lets_the_host_go_and_names_who_is_left() {
    let mut story = Story::full();
    story
        .vm_of("stuck", Strategy::LiveMigrate, false)
        .vm("slow");
    story.shutdown().accepted("slow").wait(2669);
    assert_eq!((story.phase(), story.releases), (Phase::Evacuating, 0));
    story.wait(2);
    assert_eq!((story.phase(), story.releases), (Phase::Deadline, 1));
    assert_eq!(story.exit(), Some(3));
    assert_eq!(story.row("stuck").phase, VmPhase::Left);
    assert!(story.was_told(
        "vms/stuck is still running here: cannot be live-migrated: DisksNotLiveMigratable"
    ));
    assert!(story.was_told("vms/slow is still running here"));
    assert!(story.status().says.contains("2 VM(s) left"));
    assert!(
        story.node.unschedulable,
        "the host goes down: the cordon stays"
    );
    assert!(story.cancels.is_empty());
}

#[test]
fn the_signal_may_be_quicker_than_logind_s_answer() {
    let mut story = Story::full();
    story.logind_is_slow = true;
    story.trigger_with(Trigger {
        then: Some(Then::Reboot),
        ..Trigger::default()
    });
    assert_eq!((story.phase(), story.asked_logind), (Phase::Drained, 1));
    story.hold_confirms = true;
    story.signal(2700).show();
    assert_eq!(story.phase(), Phase::Confirming);
    let id = story.logind_owes.unwrap();
    story.input(Input::Done(id, Outcome::Logind(LogindAnswer::Accepted)));
    assert_eq!(story.exit(), None, "the drain runs on");
    story.hold_confirms = false;
    let confirm = story.confirms.pop().unwrap();
    let fresh = story.fresh();
    story.input(Input::Done(confirm, Outcome::Fresh(Ok(fresh))));
    assert_eq!((story.exit(), story.releases), (Some(0), 1));
    assert_eq!(story.asked_logind, 1);
}

#[test]
fn a_server_that_was_never_reached_has_an_exit_code_of_its_own() {
    let mut story = Story::full();
    story.vm("a");
    story.node_fault = Some(FaultClass::Transient);
    let trigger = Trigger {
        deadline: Some(Duration::from_secs(60)),
        ..Trigger::default()
    };
    // No picture comes either.
    story.input(Input::Trigger(Token(1), trigger)).wait(61);
    assert_eq!(story.exit(), Some(7));
    assert!(story.was_told("before the VMs of node n1 could be seen"));
}

#[test]
fn the_deadline_of_a_hold_leaves_a_margin() {
    use super::super::hold_deadline;
    let s = Duration::from_secs;
    for (limit, margin, deadline) in [
        (2700, 30, 2670),
        (100, 30, 80),
        (5, 30, 4),
        (0, 30, 0),
        (60, 0, 60),
    ] {
        let at = hold_deadline(Mono(0), s(limit), s(margin));
        assert_eq!(at, Mono(deadline * 1000), "limit {limit}");
    }
}

#[test]
fn a_drain_that_fails_without_a_shutdown_gives_the_node_back() {
    let mut story = Story::full();
    story.vm("a");
    story.trigger_with(Trigger {
        deadline: Some(Duration::from_secs(60)),
        then: Some(Then::Reboot),
        on_deadline: Some(OnDeadline::Abort),
        ..Trigger::default()
    });
    story.accepted("a").wait(61);
    assert_eq!(story.phase(), Phase::Deadline, "T40");
    assert_eq!(story.exit(), Some(3));
    assert!(!story.node.unschedulable);
    assert_eq!(story.cancels, ["a"]);
    assert_eq!((story.asked_logind, story.releases), (0, 0));
    assert!(story.was_told("logind was not asked to go down"));
    story.trigger();
    assert_eq!(
        story.phase(),
        Phase::Evacuating,
        "T08: the next one is accepted"
    );
}

#[test]
fn a_mark_whose_answer_comes_after_the_deadline_is_cleared_as_well() {
    let mut story = Story::full();
    story.vm("a");
    story.trigger_with(Trigger {
        deadline: Some(Duration::from_secs(5)),
        ..Trigger::default()
    });
    story.wait(6);
    assert_eq!(story.phase(), Phase::Cancelling);
    story.mark("a");
    story.answer("a", 429, TRIGGERED);
    assert_eq!(story.cancels, ["a"]);
    assert_eq!(story.phase(), Phase::Deadline);
}

#[test]
fn no_guest_is_shut_down_without_consent() {
    for full in [true, false] {
        for (strategy, name) in [
            (Strategy::None, "n"),
            (Strategy::LiveMigrateIfPossible, "i"),
        ] {
            let mut story = Story::with(policy(), full);
            story.vm_of(name, strategy, false).trigger();
            if !full {
                assert_eq!(story.asked(), [format!("{name}?")]);
                story.answer(name, 201, "");
            }
            story.wait(30);
            let row = story.row(name);
            assert_eq!((row.phase, story.real(name)), (VmPhase::Blocked, 0));
            assert!(row.says.contains("needs consent"), "{}", row.says);
        }
    }
}

#[test]
fn consent_comes_with_a_shutdown_or_by_order() {
    let allowed = Trigger {
        allow_guest_shutdown: true,
        ..Trigger::default()
    };
    let reboots = Trigger {
        then: Some(Then::Reboot),
        ..Trigger::default()
    };
    for trigger in [Some(allowed), Some(reboots), None] {
        let mut story = Story::full();
        story.vm_of("n", Strategy::None, false);
        match trigger {
            Some(trigger) => story.trigger_with(trigger),
            None => story.shutdown(),
        };
        assert_eq!(story.asked(), ["n"]);
    }
}

#[test]
fn never_means_never() {
    let mut policy = policy();
    policy.consent = Consent::Never;
    let mut story = Story::with(policy, true);
    story.vm_of("n", Strategy::None, false).shutdown().wait(60);
    assert!(story.posts.is_empty());
    assert!(story.row("n").says.contains("\"never\""));
}

#[test]
fn a_drain_before_a_reboot_asks_logind_when_it_is_empty() {
    let mut story = Story::full();
    story.vm("a");
    story.trigger_with(Trigger {
        then: Some(Then::Reboot),
        ..Trigger::default()
    });
    story.accepted("a").moves("a");
    assert_eq!((story.phase(), story.asked_logind), (Phase::Drained, 1));
    assert_eq!(story.exit(), Some(0));
    story.cancel(false);
    assert_eq!(
        story.answers.pop().unwrap().1,
        Err(Refusal::ShutdownPending)
    );
    story.signal(2700).show();
    assert_eq!((story.phase(), story.releases), (Phase::Drained, 1));
    assert_eq!(story.real("a"), 1);
}

#[test]
fn a_second_signal_is_a_new_deadline_of_the_same_drain() {
    let mut story = Story::full();
    story.vm("a").shutdown().accepted("a").wait(1000);
    story.signal(2700).wait(2000);
    assert_eq!(
        story.phase(),
        Phase::Evacuating,
        "the first deadline has passed"
    );
    assert_eq!(story.real("a"), 1);
    story.wait(700);
    assert_eq!((story.phase(), story.releases), (Phase::Deadline, 1));
}

#[test]
fn a_shutdown_in_the_middle_of_a_drain_takes_it_over() {
    let mut story = Story::full();
    story.vm("a").vm_of("n", Strategy::None, false).trigger();
    story.accepted("a");
    assert_eq!(story.row("n").phase, VmPhase::Blocked);
    story.signal(2700).show();
    assert_eq!(story.asked(), ["n"], "now the host really goes down");
    assert_eq!(story.real("a"), 1);
}

#[test]
fn a_second_trigger_is_refused() {
    let mut story = Story::full();
    story.vm("a").trigger();
    story.input(Input::Trigger(Token(2), Trigger::default()));
    let (token, answer) = story.answers.pop().unwrap();
    assert_eq!(token, Token(2));
    assert!(matches!(answer, Err(Refusal::AlreadyDraining { .. })));
}

#[test]
fn nothing_is_begun_while_the_host_goes_down() {
    let mut story = Story::full();
    story.shutdown();
    for input in [
        Input::Trigger(Token(2), Trigger::default()),
        Input::Restore(Token(2)),
    ] {
        story.input(input);
        assert_eq!(story.answers.pop().unwrap().1, Err(Refusal::GoingDown));
    }
}

#[test]
fn an_unreachable_server_ends_at_the_deadline() {
    let mut story = Story::full();
    story.node_fault = Some(FaultClass::Transient);
    let hold = story.hold();
    story.input(Input::Hold(hold)).signal(600).wait(700);
    assert_eq!((story.phase(), story.releases), (Phase::Deadline, 1));
    assert!(story.status().says.contains("could be seen"));
}

#[test]
fn the_deadline_says_why_the_vms_could_not_be_seen() {
    let mut story = Story::full();
    let hold = story.hold();
    let broken = Picture {
        pods: Sight::Broken {
            why: "cannot list pods on node n1: no answer within 10 s".into(),
            since: Mono(0),
        },
        ..Picture::default()
    };
    story.input(Input::Hold(hold)).signal(600);
    story.input(Input::Picture(Box::new(broken))).wait(700);
    assert_eq!((story.phase(), story.releases), (Phase::Deadline, 1));
    let says = story.status().says;
    assert!(says.contains("could be seen: cannot list pods"), "{says}");
}

#[test]
fn an_effect_that_never_ends_does_not_hold_a_drain_up() {
    let mut story = Story::full();
    story.hold_confirms = true;
    story.shutdown().wait(55);
    assert_eq!(story.confirms.len(), 1);
    story.hold_confirms = false;
    story.wait(20);
    assert_eq!(story.releases, 1);
}
