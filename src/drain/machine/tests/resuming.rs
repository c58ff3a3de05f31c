//! A new process goes on from the record: nothing is evicted twice, nothing is uncordoned.

use super::*;
use crate::drain::world::Strategy;
use proptest::prelude::{Just, any, prop, prop_assert, prop_oneof, proptest};

/// Goes on after a crash, with the shutdown still pending.
fn goes_on(story: &mut Story) {
    story.crash();
    story.signal(2700);
    story.input(Input::HostReady).show();
}

#[test]
fn a_crash_while_evacuating_evicts_nothing_twice() {
    let mut story = Story::full();
    story.vm("a").vm("b").shutdown();
    story.accepted("a").accepted("b").wait(100);
    let deadline = story.record.as_ref().unwrap().deadline;
    goes_on(&mut story);
    assert_eq!(story.phase(), Phase::Evacuating);
    assert_eq!((story.real("a"), story.real("b")), (1, 1), "T25");
    assert!(story.node.unschedulable);
    assert_eq!(story.record.as_ref().unwrap().deadline, deadline);
    story.moves("a");
    story.moves("b");
    assert_eq!((story.phase(), story.releases), (Phase::Drained, 1));
}

#[test]
fn the_base_tier_asks_and_waits_after_a_crash() {
    let mut story = Story::base();
    story.vm("a").shutdown().answer("a", 429, TRIGGERED);
    story.accepted("a").wait(20);
    goes_on(&mut story);
    assert_eq!(story.asked(), ["a?"]);
    story.answer("a", 429, IN_PROGRESS).wait(250);
    assert_eq!(story.real("a"), 1);
    assert_eq!(story.posts.len(), 3, "and no polling");
    story.pod_ends("a");
    story.show();
    assert_eq!(story.releases, 1);
}

#[test]
fn an_eviction_that_was_on_the_wire_is_known_to_be_ours() {
    let mut story = Story::full();
    story.vm("a").trigger();
    story.mark("a");
    story.crash().input(Input::HostReady).show();
    assert_eq!(story.real("a"), 1);
    assert!(story.row("a").marked_by_us);
    story.cancel(false);
    assert_eq!(story.cancels, ["a"]);
    assert_eq!(story.phase(), Phase::Cancelled);
}

#[test]
fn a_crash_in_every_phase_comes_to_the_same_end() {
    for steps in 0..8 {
        let mut story = Story::full();
        story.vm("a");
        let mut done = 0;
        let mut crash_at = |story: &mut Story| {
            if done == steps {
                goes_on(story);
            }
            done += 1;
        };
        let hold = story.hold();
        story.input(Input::Hold(hold)).signal(2700);
        crash_at(&mut story);
        story.show();
        crash_at(&mut story);
        story.mark("a");
        if story.asked().is_empty() {
            story.show();
        } else {
            story.accepted("a");
        }
        crash_at(&mut story);
        story.migration("a", "m", MigrationPhase::Running);
        story.show();
        crash_at(&mut story);
        story.flips("a");
        story.migration("a", "m", MigrationPhase::Succeeded);
        story.show();
        crash_at(&mut story);
        story.hold_confirms = true;
        story.pod_ends("a");
        story.show();
        crash_at(&mut story);
        story.hold_confirms = false;
        story.show().wait(70);
        crash_at(&mut story);
        story.show().wait(70);
        assert_eq!(story.phase(), Phase::Drained, "crash after step {steps}");
        // An eviction that was on the wire and has left no mark yet is sent again: it may never have arrived.
        let evictions = if steps == 1 { 2 } else { 1 };
        assert_eq!(
            (story.real("a"), story.releases),
            (evictions, 1),
            "crash after step {steps}"
        );
        assert!(story.node.unschedulable);
    }
}

#[test]
fn a_crash_in_the_middle_of_a_cancel_goes_on_with_it() {
    let mut story = Story::full();
    story.vm("a").trigger().accepted("a");
    story.cancel_answer = reply(503, "down");
    story.node_fault = Some(FaultClass::Transient);
    story.cancel(false);
    story.cancel_answer = reply(200, "");
    story.node_fault = None;
    story.crash().input(Input::HostReady).show();
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(!story.node.unschedulable);
    assert_eq!(story.cancels.last().map(String::as_str), Some("a"));
    assert_eq!(story.real("a"), 1);
}

#[test]
fn a_shutdown_that_is_off_after_the_restart_is_undone() {
    let mut story = Story::full();
    story.vm("a").vm_of("n", Strategy::None, false).shutdown();
    story.accepted("a");
    let before = story.real("n");
    story.crash().show();
    assert_eq!(
        story.real("n"),
        before,
        "nothing is evicted until the host has been looked at"
    );
    story.input(Input::HostReady).show();
    assert_eq!(story.phase(), Phase::Cancelled);
    assert_eq!(story.cancels, ["a", "n"]);
    assert!(!story.node.unschedulable);
}

#[test]
fn a_silent_host_adapter_does_not_stop_a_drain() {
    let mut story = Story::full();
    story.vm("a").shutdown();
    story.crash().show().wait(11);
    assert_eq!(story.phase(), Phase::Evacuating);
}

#[test]
fn a_drained_node_is_still_sent_down_after_a_crash() {
    use crate::drain::trigger::Then;
    let mut story = Story::full();
    story.trigger_with(Trigger {
        then: Some(Then::Reboot),
        ..Trigger::default()
    });
    assert_eq!(story.asked_logind, 1);
    let mut answered = Story::full();
    answered.record = story.record.clone();
    answered.crash().input(Input::HostReady);
    assert_eq!(
        answered.phase(),
        Phase::Idle,
        "logind has accepted: it is not asked again"
    );
    story.record.as_mut().unwrap().exit = None;
    story.crash().input(Input::HostReady).show();
    assert_eq!((story.phase(), story.asked_logind), (Phase::Drained, 2));
}

#[test]
fn a_record_of_another_boot_or_format_is_not_followed() {
    let mut story = Story::full();
    story.vm("a").shutdown();
    for change in 0..2 {
        let mut record = story.record.clone().unwrap();
        if change == 0 {
            record.boot = "another".into();
        } else {
            record.format += 1;
        }
        let machine = Machine::start(policy(), 1, Some(record), Mono(0));
        let looks = if change == 0 {
            Phase::Restoring
        } else {
            Phase::Idle
        };
        assert_eq!((machine.phase(), machine.drain_id()), (looks, None));
    }
}

#[test]
fn a_record_survives_json() {
    let mut story = Story::full();
    story.vm("a").trigger();
    let record = story.record.clone().unwrap();
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
}

/// What may have happened to a VM by the time of the crash.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Untouched,
    Marked,
    MarkedUnanswered,
    Migrating,
    Failed,
    Flipped,
    ShuttingDown,
    Gone,
}

fn befall(story: &mut Story, name: &str, fate: Fate) {
    let asked = story.asked().contains(&name.to_owned());
    match fate {
        Fate::Untouched => {}
        _ if !asked => {}
        Fate::Marked => {
            story.accepted(name);
        }
        Fate::MarkedUnanswered => story.mark(name),
        Fate::Migrating | Fate::Failed | Fate::Flipped => {
            story.accepted(name);
            let failed = matches!(fate, Fate::Failed);
            let phase = if failed {
                MigrationPhase::Failed
            } else {
                MigrationPhase::Running
            };
            story.migration(name, &format!("{name}-vmim"), phase);
            if matches!(fate, Fate::Flipped) {
                story.flips(name);
            }
        }
        Fate::ShuttingDown => {
            story.answer(name, 201, "");
            story.pod(name).deleting = true;
        }
        Fate::Gone => {
            story.accepted(name);
            story.moves(name);
        }
    }
}

fn fate() -> impl proptest::strategy::Strategy<Value = Fate> {
    prop_oneof![
        Just(Fate::Untouched),
        Just(Fate::Marked),
        Just(Fate::MarkedUnanswered),
        Just(Fate::Migrating),
        Just(Fate::Failed),
        Just(Fate::Flipped),
        Just(Fate::ShuttingDown),
        Just(Fate::Gone),
    ]
}

/// Pods that get a real eviction within so many seconds.
fn evicted_within(story: &mut Story, seconds: u64) -> std::collections::BTreeSet<String> {
    let from = story.posts.len();
    story.show().wait(seconds);
    let new = story.posts[from..].iter().filter(|(_, _, dry)| !dry);
    new.map(|(_, pod, _)| pod.clone()).collect()
}

proptest! {
    /// A machine made from the record and the newest picture sends no eviction that the one before it,
    /// shown the same picture, had not sent or would not send.
    #[test]
    fn a_resumed_machine_evicts_nothing_more(
        fates in prop::collection::vec(fate(), 1..6),
        full in any::<bool>(),
        seconds in 0_u64..25,
    ) {
        let tell = || {
            let mut story = Story::with(policy(), full);
            for at in 0..fates.len() {
                story.vm(&format!("v{at}"));
            }
            story.shutdown();
            if !full {
                for at in 0..fates.len() {
                    story.answer(&format!("v{at}"), 429, TRIGGERED);
                }
            }
            for (at, fate) in fates.iter().enumerate() {
                befall(&mut story, &format!("v{at}"), *fate);
            }
            story.show();
            story.wait(seconds);
            story
        };
        let mut original = tell();
        let in_flight: Vec<String> = original.waiting.iter().map(|s| s.pod.uid.clone()).collect();
        let would = evicted_within(&mut original, 5);
        let mut resumed = tell();
        goes_on(&mut resumed);
        let sends = evicted_within(&mut resumed, 5);
        for pod in &sends {
            // What was on the wire and has left no mark may be asked again.
            let again = in_flight.contains(pod);
            prop_assert!(would.contains(pod) || again, "{pod} is evicted again: {fates:?}");
        }
    }
}
