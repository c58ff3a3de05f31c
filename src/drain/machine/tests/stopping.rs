//! The stop job of a system that is going down (net 3): alone, joined, after the delay, after the drain.

use super::*;

fn stop_job(seconds: u64) -> Trigger {
    Trigger {
        stop_job: true,
        deadline: Some(Duration::from_secs(seconds)),
        ..Trigger::default()
    }
}

/// Net 3 with nothing under way: a drain of its own, with the consent of a host that goes down.
#[test]
fn a_stop_job_drains_as_a_shutdown_does() {
    let mut story = Story::full();
    story.vm("a").vm_of("b", Strategy::None, false);
    story.trigger_with(stop_job(1680));
    assert_eq!(
        story.asked(),
        ["a", "b"],
        "the guest that will stop needs no consent"
    );
    assert!(story.status().drain.unwrap().shutting_down);
    // logind ends with the other units: that takes nothing back.
    story.input(Input::ShutdownVanished { why: "gone".into() });
    story.input(Input::HostReady);
    assert_eq!(story.phase(), Phase::Evacuating);
    story.accepted("a").moves("a");
    story.vmi("b").phase = VmiPhase::Succeeded;
    story.answer("b", 201, "").pod_ends("b");
    story.show();
    assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(0)));
    // Asked again (a second unit, a second try): it has ended already.
    story.trigger_with(stop_job(1000));
    assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(0)));
    assert_eq!(story.answers.len(), 2);
    assert_eq!(story.answers[0].1, story.answers[1].1, "the same drain");
}

/// A drain that is under way is joined, with the stop job's deadline and without a second eviction.
#[test]
fn a_stop_job_joins_what_is_under_way() {
    for by_signal in [true, false] {
        let mut story = Story::full();
        story.vm("a");
        if by_signal {
            story.shutdown();
        } else {
            story.trigger();
        }
        let before = story.status().drain.unwrap();
        story.accepted("a").trigger_with(stop_job(1000)).show();
        let joined = story.status().drain.unwrap();
        assert_eq!(joined.id, before.id);
        assert!(joined.shutting_down);
        assert_eq!(joined.deadline_in, Some(1000.0));
        assert_eq!(story.real("a"), 1);
        story.moves("a");
        assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(0)));
    }
}

/// Emptied for this very shutdown: nothing is begun again, and the stop job ends at once.
#[test]
fn a_stop_job_after_the_drain_has_nothing_to_do() {
    let mut story = Story::full();
    story.vm("a").shutdown().accepted("a").moves("a");
    assert_eq!((story.phase(), story.releases), (Phase::Drained, 1));
    let watches = story.watching;
    story.trigger_with(stop_job(1000));
    assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(0)));
    assert_eq!(story.watching, watches, "the API server is not asked again");
}

/// logind's limit was over before the VMs were: the stop job goes on with them (net 3 after net 2).
#[test]
fn a_stop_job_goes_on_where_the_delay_was_too_short() {
    let mut story = Story::full();
    story.vm("a").shutdown().accepted("a").wait(2700);
    assert_eq!((story.phase(), story.exit()), (Phase::Deadline, Some(3)));
    story.trigger_with(stop_job(1000)).show();
    assert_eq!((story.phase(), story.exit()), (Phase::Evacuating, None));
    assert!(
        story.posts.iter().filter(|(_, _, dry)| !dry).count() == 1,
        "it is marked: no second eviction"
    );
    story.moves("a");
    assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(0)));
}

/// A crash in the stop job: the process that takes over goes on at once, whatever logind would say.
#[test]
fn a_stop_job_takes_a_record_over() {
    let mut story = Story::full();
    story.vm("a").trigger_with(stop_job(1000)).accepted("a");
    story.crash().trigger_with(stop_job(900)).show();
    story.input(Input::HostReady);
    assert_eq!(story.phase(), Phase::Evacuating);
    story.moves("a");
    assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(0)));
    assert_eq!(story.real("a"), 1);
}

/// The daemon died in logind's delay, the delay is over, the stop job takes its record over: with its own deadline.
#[test]
fn a_record_whose_deadline_has_passed_is_taken_over_with_a_new_one() {
    for at_deadline in [false, true] {
        let mut story = Story::full();
        story.vm("a").shutdown().accepted("a");
        if at_deadline {
            story.wait(2700);
            assert_eq!(story.phase(), Phase::Deadline);
        } else {
            story.now += 3_000_000;
        }
        story.crash().trigger_with(stop_job(900)).show();
        assert_eq!(story.phase(), Phase::Evacuating);
        let drain = story.status().drain.unwrap();
        assert_eq!((drain.deadline_in, drain.exit), (Some(900.0), None));
        assert_eq!(story.real("a"), 1);
        story.moves("a");
        assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(0)));
    }
}
