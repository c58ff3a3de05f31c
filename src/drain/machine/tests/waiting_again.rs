//! Drains that began while the node waited to be given back, and were called off.

use super::*;
use crate::drain::trigger::Then;

impl Story {
    /// Called off before everything has come up: cordoned, waiting, and given back once later.
    fn assert_waits_then_comes_back(&mut self) {
        assert_eq!((self.phase(), self.uncordons), (Phase::Restoring, 0));
        assert!(self.is_cordoned() && self.watching && self.record.is_none());
        assert_eq!(self.waits().len(), 2, "{:?}", self.waits());
        self.wait(60).kubelet_reports();
        assert_eq!(self.uncordons, 0, "virt-handler is not there yet");
        self.handler_reports();
        self.assert_restored();
    }
}

#[test]
fn a_cancelled_drain_leaves_the_node_waiting_as_it_was() {
    let mut story = Story::rebooted();
    story.vm("a").starts().trigger().accepted("a");
    assert_eq!(story.note().boot, "boot", "the cordon is the drain's");
    story.cancel(false);
    assert_eq!(story.cancels, ["a"]);
    assert_eq!(story.exit(), Some(5), "who asked for it is told its end");
    assert!(story.was_told("waited to be given back when the drain began"));
    story.assert_waits_then_comes_back();
}

#[test]
fn a_shutdown_that_is_called_off_does_too() {
    let mut story = Story::rebooted();
    story.vm("a").starts().shutdown().accepted("a");
    let why = "shutdown -c".into();
    story.input(Input::ShutdownVanished { why });
    story.assert_waits_then_comes_back();
}

#[test]
fn so_does_a_drain_that_passed_its_deadline() {
    let mut story = Story::rebooted();
    story.vm("a").starts().trigger_with(Trigger {
        deadline: Some(Duration::from_secs(60)),
        ..Trigger::default()
    });
    story.wait(61);
    assert_eq!(story.exit(), Some(3));
    story.assert_waits_then_comes_back();
}

#[test]
fn one_that_was_called_off_before_its_cordon_has_nothing_to_put_back() {
    let mut story = Story::rebooted();
    story.vm("a").starts();
    story.node_fault = Some(FaultClass::Transient);
    story.trigger();
    story.node_fault = None;
    story.cancel(false).wait(1);
    assert_eq!(story.note().drain, "d1");
    story.assert_waits_then_comes_back();
}

#[test]
fn several_drains_in_a_row_forget_nothing() {
    let mut story = Story::rebooted();
    story.starts().trigger();
    assert_eq!(
        story.phase(),
        Phase::Drained,
        "empty, and it stays cordoned"
    );
    story.vm("a").trigger().accepted("a").cancel(false);
    story.assert_waits_then_comes_back();
}

#[test]
fn what_has_come_up_meanwhile_is_not_waited_for() {
    let mut story = Story::rebooted();
    story.vm("a").starts().trigger().accepted("a");
    story.comes_up().cancel(false);
    story.assert_restored();
    assert_eq!(story.exit(), Some(5));
}

#[test]
fn a_node_that_was_uncordoned_by_somebody_is_not_cordoned_again_for_it() {
    let mut story = Story::rebooted();
    story.vm("a").starts().trigger().accepted("a");
    story.change(|node, _| node.unschedulable = false);
    assert!(story.is_cordoned(), "the drain needs its cordon");
    story.cancel(false);
    assert_eq!((story.phase(), story.uncordons), (Phase::Cancelled, 1));
    assert!(!story.node.unschedulable);
}

#[test]
fn with_restore_switched_off_it_stays_as_it_was() {
    let mut story = Story::rebooted();
    story.policy.restore = false;
    let before = story.node.cordon.clone();
    story.vm("a").starts().trigger().cancel(false).comes_up();
    story.wait(100);
    assert_eq!((story.phase(), story.uncordons), (Phase::Cancelled, 0));
    let CordonMark::Note(before) = before else {
        panic!("no marker")
    };
    assert!(story.is_cordoned() && story.note().boot == before.boot);
    assert!(story.was_told("restore.enabled is false"));
}

#[test]
fn a_drain_that_ends_with_a_boot_waits_for_that_one() {
    let mut story = Story::rebooted();
    story.starts().trigger_with(Trigger {
        then: Some(Then::Reboot),
        ..Trigger::default()
    });
    assert_eq!((story.phase(), story.asked_logind), (Phase::Drained, 1));
    story.policy.boot_id = "b3".into();
    story.starts().kubelet_reports().handler_reports();
    assert_eq!(
        story.uncordons, 0,
        "the Node still tells of the boot before"
    );
    story.change(|node, _| node.boot_id = "b3".into());
    story.assert_restored();
}

/// The process dies after each of the actions of a cancel; what was sent arrives or does not.
#[test]
fn a_crash_in_the_middle_of_it_changes_nothing() {
    for arrives in [true, false] {
        for die_after in 0..10 {
            let mut story = Story::rebooted();
            story.vm("a").starts().trigger().accepted("a");
            let cancel = Input::Cancel {
                token: Token(9),
                abort_migrations: false,
                signal: String::new(),
            };
            story.machine.handle(cancel, Mono(story.now));
            story.dies_after(die_after, arrives);
            story.starts().show().wait(30);
            if story.phase() != Phase::Restoring {
                // Killed before the record said that it is a cancel: the drain goes on.
                assert!(
                    story.phase().is_draining(),
                    "{die_after}: {:?}",
                    story.phase()
                );
                story.cancel(false).wait(1);
            }
            story.assert_waits_then_comes_back();
        }
    }
}
