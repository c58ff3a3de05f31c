//! Maintenance signals: what they change in a drain that is under way, and which drains they may call off.

use super::*;
use crate::drain::action::Source;
use crate::drain::trigger::Then;

fn signal(name: &str) -> Trigger {
    Trigger {
        reason: format!("maintenance signal {name} from org.example.Ups"),
        signal: name.into(),
        ..Trigger::default()
    }
}

fn ups() -> Trigger {
    Trigger {
        deadline: Some(Duration::from_secs(180)),
        then: Some(Then::Poweroff),
        on_deadline: Some(OnDeadline::ShutdownVms),
        ..signal("ups")
    }
}

impl Story {
    fn signalled(&mut self, trigger: Trigger) -> &mut Self {
        self.input(Input::Trigger(Token(2), trigger)).show()
    }

    fn cancel_signal(&mut self) -> &mut Self {
        self.input(Input::Cancel {
            token: Token(3),
            abort_migrations: false,
            signal: "back".into(),
        })
    }
}

#[test]
fn a_signal_starts_a_drain_and_says_why() {
    let mut story = Story::full();
    story.vm("a").trigger_with(ups());
    let drain = story.status().drain.unwrap();
    assert_eq!(drain.reason, "maintenance signal ups from org.example.Ups");
    assert_eq!(
        (drain.then, drain.deadline_in),
        (Some(Then::Poweroff), Some(180.0))
    );
}

#[test]
fn a_repeated_signal_changes_nothing() {
    let mut story = Story::full();
    story.vm("a").trigger_with(ups()).accepted("a").wait(60);
    let id = story.machine.drain_id().map(str::to_owned);
    for _ in 0..5 {
        story.wait(1).signalled(ups());
        assert_eq!(story.last_answer().ok(), id);
    }
    let drain = story.status().drain.unwrap();
    assert_eq!(
        drain.deadline_in,
        Some(115.0),
        "the earlier deadline stands"
    );
    assert!(story.told.iter().all(|n| n.reason != "MaintenanceSignal"));
    assert_eq!(story.real("a"), 1);
}

#[test]
fn a_ups_makes_an_operators_drain_shorter_and_its_own() {
    let mut story = Story::full();
    story.vm("a").trigger().accepted("a").wait(60);
    story.signalled(ups());
    let drain = story.status().drain.unwrap();
    assert_eq!(
        (drain.then, drain.deadline_in),
        (Some(Then::Poweroff), Some(180.0))
    );
    assert_eq!(
        story
            .told
            .iter()
            .filter(|n| n.reason == "MaintenanceSignal")
            .count(),
        1
    );
    // One that wants less takes nothing back.
    story.signalled(Trigger {
        then: Some(Then::Reboot),
        ..signal("updates")
    });
    let drain = story.status().drain.unwrap();
    assert_eq!(
        (drain.then, drain.deadline_in),
        (Some(Then::Poweroff), Some(180.0))
    );
    story.moves("a");
    assert_eq!((story.phase(), story.asked_logind), (Phase::Drained, 1));
}

#[test]
fn while_logind_waits_a_signal_only_shortens() {
    let mut story = Story::full();
    story.vm("a").shutdown().accepted("a");
    story.signalled(ups());
    let drain = story.status().drain.unwrap();
    assert_eq!((drain.then, drain.deadline_in), (None, Some(180.0)));
    story.moves("a");
    assert_eq!((story.releases, story.asked_logind), (1, 0));
}

#[test]
fn a_signal_calls_off_what_a_signal_began_and_nothing_else() {
    let mut story = Story::full();
    story.vm("a").trigger().accepted("a").cancel_signal();
    let said = story.last_answer().unwrap_err();
    assert!(said.contains("not begun by a maintenance signal"), "{said}");
    assert_eq!(story.phase(), Phase::Evacuating);

    let mut story = Story::full();
    story
        .vm("a")
        .trigger_with(ups())
        .accepted("a")
        .cancel_signal();
    assert_eq!(story.phase(), Phase::Cancelled);
    assert_eq!(story.cancels.len(), 1);
    assert!(
        story
            .status()
            .says
            .contains("cancelled by maintenance signal back")
    );

    let mut story = Story::full();
    story.vm("a").shutdown().cancel_signal();
    assert!(
        story
            .last_answer()
            .unwrap_err()
            .contains("already going down")
    );
}

#[test]
fn it_is_remembered_over_a_restart_of_the_agent() {
    let mut story = Story::full();
    story.vm("a").trigger_with(ups()).accepted("a");
    story.starts().show();
    story.cancel_signal();
    assert_eq!(story.phase(), Phase::Cancelled);
}

#[test]
fn a_sender_that_is_not_there_is_warned_of() {
    let mut story = Story::full();
    story.input(Input::Sources(vec![
        Source {
            name: "ups".into(),
            trouble: "nobody owns org.example.Ups".into(),
            ..Source::default()
        },
        Source {
            name: "updates".into(),
            ..Source::default()
        },
    ]));
    let status = story.status();
    assert_eq!(status.maintenance.len(), 2);
    assert_eq!(
        status.warnings,
        ["maintenance signal ups: nobody owns org.example.Ups"]
    );
}
