//! The fallback: whose guest is shut down, when, and what comes of a person's word.

use super::*;
use crate::drain::policy::Consent;
use crate::drain::status::VmPhase;
use crate::drain::trigger::Then;

/// A full-tier story with the packaged policy and a living virt-handler.
fn story() -> Story {
    with(|_| {})
}

fn with(change: impl FnOnce(&mut Policy)) -> Story {
    let mut policy = policy();
    policy.on_deadline = OnDeadline::ShutdownVms;
    change(&mut policy);
    let mut story = Story::with(policy, true);
    alive(&mut story);
    story
}

fn alive(story: &mut Story) {
    story.node.schedulable = true;
    story.node.heartbeat = Some(i64::MAX);
}

/// A grace period for the guest, in seconds; its pod has 30 more.
fn grace(story: &mut Story, name: &str, seconds: u64) {
    story.vmi(name).grace = Duration::from_secs(seconds);
    story.pod(name).grace = Duration::from_secs(seconds + 30);
}

fn stops(story: &Story) -> Vec<&str> {
    let names = story.stops.iter().map(|(_, pod)| pod.as_str());
    names
        .map(|pod| pod.strip_prefix("virt-launcher-").unwrap())
        .collect()
}

/// The guest shuts down.
fn ends(story: &mut Story, name: &str) {
    story.pods.retain(|p| p.vm.name != name);
    story.vmis.retain(|v| v.vmi.name != name);
    story.show();
}

fn ordered(deadline: u64) -> Trigger {
    Trigger {
        then: Some(Then::Reboot),
        deadline: Some(Duration::from_secs(deadline)),
        ..Trigger::default()
    }
}

#[test]
fn guests_are_told_so_early_that_each_gets_its_grace_period() {
    let mut story = story();
    story.vm("a").vm("b");
    grace(&mut story, "a", 180);
    grace(&mut story, "b", 30);
    story.trigger_with(ordered(600));
    story.accepted("a").accepted("b").wait(409);
    assert_eq!((stops(&story), story.phase()), (vec![], Phase::Evacuating));
    story.wait(2);
    // 600 less 180 and the slack of 10.
    assert_eq!(stops(&story), ["a"]);
    assert_eq!(story.phase(), Phase::FallingBack);
    assert!(story.was_told("1 of the 2 VM(s) that are left are shut down now"));
    assert!(story.was_told("so that each gets its grace period (longest: 3m 10s)"));
    let record = story.record.clone().unwrap();
    assert_eq!(record.stops.len(), 1);
    assert_eq!(record.stops[0].vmi.name, "a");
    assert_eq!(story.row("a").phase, VmPhase::ShuttingDown);
    assert!(story.row("a").says.contains("by us"));
    ends(&mut story, "a");
    story.wait(148);
    assert_eq!(stops(&story), ["a"], "the other one may still move");
    story.wait(2);
    assert_eq!(stops(&story), ["a", "b"]);
    ends(&mut story, "b");
    assert_eq!((story.exit(), story.asked_logind), (Some(0), 1));
    assert_eq!(story.row("a").phase, VmPhase::ShutDown);
}

#[test]
fn others_are_migrated_while_one_guest_is_shut_down() {
    let mut story = story();
    story.vm("long").vm("w1").vm("w2");
    grace(&mut story, "long", 400);
    story.trigger_with(ordered(600));
    story.accepted("long").accepted("w1").wait(191);
    assert_eq!(stops(&story), ["long"]);
    assert_eq!(story.real("w2"), 0, "both slots were taken");
    story.moves("w1");
    assert_eq!(story.real("w2"), 1);
    assert_eq!(stops(&story), ["long"]);
}

#[test]
fn what_would_not_end_in_time_is_not_begun_in_the_fallback() {
    let mut story = story();
    story.vm("long").vm("w1").vm("huge");
    story.pod("huge").memory = Some(4 << 40);
    story.pod("long").memory = Some(5 << 40);
    story.pod("w1").memory = Some(6 << 40);
    grace(&mut story, "long", 400);
    story.trigger_with(ordered(600));
    story.accepted("long").accepted("w1").wait(191);
    story.moves("w1");
    assert_eq!(story.real("huge"), 0);
    assert!(story.row("huge").says.contains("would not end in time"));
}

#[test]
fn one_that_has_to_be_told_early_is_migrated_first() {
    let mut story = story();
    story.vm("big1").vm("big2").vm("long");
    story.pod("big1").memory = Some(64 << 30);
    story.pod("big2").memory = Some(64 << 30);
    story.pod("long").memory = Some(1 << 30);
    grace(&mut story, "long", 560);
    story.trigger_with(ordered(600));
    assert_eq!(story.asked(), ["long", "big1"]);
}

#[test]
fn an_abort_says_why_and_a_release_whom_it_tells_first() {
    let mut story = story();
    story.vm("a").vm("db");
    story.pod("db").stop_order = Some("10".into());
    story.shutdown().accepted("a");
    story.migration("a", "m1", MigrationPhase::Running);
    story.show().wait(10);
    story.release(Ending::ShutdownVms);
    assert_eq!(story.deletions, ["m1"]);
    assert!(story.was_told(
        "its migration is aborted, because its guest is to be shut down: somebody asked to go now"
    ));
    assert!(story.was_told(
        "1 of the 2 VM(s) that are left are shut down now; the others follow in their order"
    ));
}

#[test]
fn databases_are_last() {
    let mut story = story();
    story.vm("db").vm("web");
    grace(&mut story, "db", 120);
    grace(&mut story, "web", 30);
    story.pod("db").stop_order = Some("10".into());
    story.trigger_with(ordered(600));
    story.accepted("db").accepted("web").wait(429);
    assert_eq!(stops(&story), [""; 0]);
    story.wait(2);
    assert_eq!(stops(&story), ["web"], "600 less 40 and 130");
    story.wait(20);
    assert_eq!(stops(&story), ["web"]);
    ends(&mut story, "web");
    story.wait(18);
    assert_eq!(stops(&story), ["web"], "it may still move");
    story.wait(2);
    assert_eq!(stops(&story), ["web", "db"]);
}

#[test]
fn a_place_that_cannot_be_read_is_told_on_its_vm() {
    let mut story = story();
    story.vm("db");
    story.pod("db").stop_order = Some("last".into());
    story.trigger_with(ordered(600));
    assert!(story.was_told("vms/db: annotation vmdrain.io/stop-order is \"last\""));
    let told = story.told.iter().filter(|n| n.reason == "BadAnnotation");
    assert_eq!(told.count(), 1);
}

#[test]
fn a_group_does_not_wait_for_one_that_takes_its_whole_time() {
    let mut story = story();
    story.vm("db").vm("web");
    grace(&mut story, "db", 120);
    grace(&mut story, "web", 30);
    story.pod("db").stop_order = Some("10".into());
    story.trigger_with(ordered(600));
    story.accepted("db").accepted("web").wait(469);
    assert_eq!(stops(&story), ["web"]);
    story.wait(2);
    assert_eq!(stops(&story), ["web", "db"], "at 600 less 130");
}

#[test]
fn without_a_living_virt_handler_no_guest_is_stopped() {
    let mut story = story();
    story.node.schedulable = false;
    story.vm("a");
    story.trigger_with(ordered(600));
    story.accepted("a").wait(592);
    assert_eq!(stops(&story), [""; 0]);
    assert_eq!(story.row("a").phase, VmPhase::Blocked);
    assert!(story.row("a").says.contains("virt-handler"));
    story.node.schedulable = true;
    story.bump();
    story.show();
    assert_eq!(stops(&story), ["a"]);
}

#[test]
fn an_eviction_that_ends_the_guest_waits_for_virt_handler() {
    let mut story = story();
    story.node.schedulable = false;
    story.vm("a");
    story.vmi("a").strategy = Some(Strategy::None);
    story.shutdown().wait(60);
    assert_eq!(story.row("a").phase, VmPhase::Blocked);
    assert!(story.row("a").says.contains("virt-handler"));
    assert!(story.asked().is_empty());
    assert_eq!(story.row("a").fate, "blocked");
    story.node.schedulable = true;
    story.bump();
    story.show();
    assert_eq!(story.asked(), ["a"]);
}

#[test]
fn without_consent_the_host_is_let_go_and_the_vm_is_named() {
    let mut story = with(|p| p.consent = Consent::Never);
    story.vm("a").shutdown().accepted("a").wait(2671);
    assert_eq!(stops(&story), [""; 0]);
    assert_eq!((story.phase(), story.releases), (Phase::Deadline, 1));
    assert_eq!(story.row("a").phase, VmPhase::Left);
}

#[test]
fn a_host_that_stays_up_stops_no_guest_without_consent() {
    let mut story = story();
    story.vm("a");
    story.trigger_with(Trigger {
        deadline: Some(Duration::from_secs(60)),
        ..Trigger::default()
    });
    story.accepted("a").wait(61);
    assert_eq!(stops(&story), [""; 0]);
    assert_eq!(story.exit(), Some(3));
    assert!(!story.node.unschedulable, "T40");
}

#[test]
fn what_cannot_migrate_is_shut_down_at_once_when_the_host_goes_down() {
    let mut story = story();
    story.vm_of("stuck", Strategy::LiveMigrate, false).vm("b");
    story.shutdown();
    assert_eq!(stops(&story), ["stuck"]);
    assert!(story.was_told("cannot be live-migrated (DisksNotLiveMigratable)"));
    assert_eq!(story.asked(), ["b"]);
}

#[test]
fn a_migration_that_ends_in_time_is_let_end_and_one_that_does_not_is_aborted_first() {
    let mut story = story();
    story.vm("near").vm("far");
    story.pod("near").memory = Some(20 << 30);
    story.pod("far").memory = Some(300 << 30);
    grace(&mut story, "near", 60);
    grace(&mut story, "far", 120);
    story.trigger_with(ordered(600));
    story.accepted("near").accepted("far");
    story.migration("far", "m-far", MigrationPhase::Running);
    story.show();
    story.wait(468);
    story.migration("near", "m-near", MigrationPhase::Running);
    story.show();
    story.wait(3);
    assert_eq!(story.phase(), Phase::FallingBack);
    // far has 300 GiB to copy and not the time; near needs half a minute.
    assert_eq!(story.deletions, ["m-far"]);
    // It needs longest, so this is its last moment as well: told right after the abort.
    assert_eq!(stops(&story), ["far"]);
    story.migration("far", "m-far", MigrationPhase::Failed);
    story.show();
    assert_eq!(stops(&story), ["far"]);
    story.moves("near");
    assert_eq!(story.row("near").phase, VmPhase::Migrated);
    assert_eq!(stops(&story), ["far"]);
}

#[test]
fn after_so_many_attempts_a_vm_is_given_up_and_frees_its_slot() {
    let mut story = with(|p| p.max_attempts = 2);
    story.vm("a");
    story.shutdown().accepted("a");
    story.migration("a", "m1", MigrationPhase::Running);
    story.show();
    story.migration("a", "m1", MigrationPhase::Failed);
    story.show();
    assert_eq!(stops(&story), [""; 0]);
    story.migration("a", "m2", MigrationPhase::Running);
    story.show();
    story.migration("a", "m2", MigrationPhase::Failed);
    story.show();
    assert_eq!(stops(&story), ["a"]);
    assert!(story.was_told("2 migration attempt(s) have failed"));
}

#[test]
fn an_answer_that_is_lost_is_asked_again_and_a_restart_knows_who_it_was() {
    let mut story = story();
    story.stop_answer = reply(503, "later");
    story
        .vm_of("stuck", Strategy::LiveMigrate, false)
        .shutdown();
    assert_eq!(stops(&story), ["stuck"]);
    story.wait(2);
    assert!(stops(&story).len() > 1);
    story.stop_answer = reply(200, "");
    story.wait(20);
    let asked = stops(&story).len();
    story.pod("stuck").deleting = true;
    story.show();
    story.crash();
    story.signal(2700).show();
    assert_eq!(stops(&story).len(), asked);
    assert!(story.row("stuck").says.contains("by us"));
    ends(&mut story, "stuck");
    assert_eq!(story.row("stuck").phase, VmPhase::ShutDown);
    assert_eq!(story.releases, 1);
}

#[test]
fn a_missing_right_to_delete_is_told() {
    let mut story = story();
    story.stop_answer = reply(403, "pods is forbidden");
    story
        .vm_of("stuck", Strategy::LiveMigrate, false)
        .shutdown();
    story.wait(1);
    assert!(story.was_told("may not delete its own launcher pods"));
}

#[test]
fn hold_goes_on_past_the_deadline_and_ends_when_the_node_is_empty() {
    let mut story = with(|p| p.on_deadline = OnDeadline::Hold);
    story.vm("a").trigger_with(ordered(60));
    story.accepted("a").wait(3600);
    assert_eq!((story.phase(), story.exit()), (Phase::Holding, None));
    assert!(story.was_told("by policy the drain goes on"));
    assert_eq!(stops(&story), [""; 0]);
    story.moves("a");
    assert_eq!((story.phase(), story.asked_logind), (Phase::Drained, 1));
}

#[test]
fn hold_under_a_hold_of_logind_is_shutdown_vms() {
    let mut story = with(|p| p.on_deadline = OnDeadline::Hold);
    story.vm("a").shutdown().accepted("a").wait(2670);
    assert_eq!(stops(&story), ["a"]);
    story.wait(2);
    assert_eq!((story.phase(), story.releases), (Phase::Deadline, 1));
}

#[test]
fn abort_gives_the_node_back() {
    let mut story = with(|p| p.on_deadline = OnDeadline::Abort);
    story.vm("a").trigger_with(ordered(60));
    story.accepted("a").wait(61);
    assert_eq!((story.phase(), story.exit()), (Phase::Deadline, Some(3)));
    assert_eq!((story.asked_logind, story.cancels.len()), (0, 1));
    assert!(!story.node.unschedulable);
}

#[test]
fn proceed_asks_logind_and_releases_when_the_shutdown_comes() {
    let mut story = with(|p| p.on_deadline = OnDeadline::Proceed);
    story.vm("a").trigger_with(ordered(60));
    story.accepted("a").wait(61);
    assert_eq!((story.phase(), story.asked_logind), (Phase::Deadline, 1));
    assert_eq!(story.exit(), Some(3));
    assert!(story.node.unschedulable, "the host goes down");
    story.signal(2700);
    assert_eq!((story.releases, story.exit()), (1, Some(3)));
}

#[test]
fn a_guest_that_takes_too_long_does_not_keep_a_host_up_that_is_to_go() {
    let mut story = story();
    story.vm("a").trigger_with(ordered(60));
    story.accepted("a").wait(61);
    assert_eq!(stops(&story), ["a"]);
    assert_eq!((story.asked_logind, story.exit()), (1, Some(3)));
}

#[test]
fn extend_moves_the_deadline_and_calls_off_what_was_not_asked_yet() {
    let mut story = story();
    story.vm("db").vm("web");
    story.pod("db").stop_order = Some("1".into());
    story.trigger_with(ordered(60));
    story.accepted("db").accepted("web").wait(41);
    assert_eq!(
        (stops(&story), story.phase()),
        (vec!["web"], Phase::FallingBack)
    );
    story.extend(600);
    assert!(story.last_answer().unwrap().contains("10m 0s"));
    assert_eq!(story.phase(), Phase::Evacuating);
    ends(&mut story, "web");
    story.wait(500);
    assert_eq!(stops(&story), ["web"]);
    story.wait(110);
    assert_eq!(stops(&story), ["web", "db"]);
}

#[test]
fn extend_is_refused_past_the_limit_of_logind_and_without_a_drain() {
    let mut story = story();
    story.extend(60);
    assert!(
        story
            .last_answer()
            .unwrap_err()
            .contains("nothing to extend")
    );
    story.vm("a").shutdown();
    story.extend(60);
    let said = story.last_answer().unwrap_err();
    assert!(said.contains("45m 0s") && said.contains("28s"), "{said}");
    story.extend(28);
    assert!(story.last_answer().is_ok());
}

#[test]
fn release_shuts_down_now_and_said_again_does_not_wait() {
    let mut story = story();
    story.vm("a").shutdown().accepted("a").wait(10);
    story.release(Ending::Policy);
    assert_eq!((stops(&story), story.releases), (vec!["a"], 0));
    assert_eq!(story.phase(), Phase::FallingBack);
    story.release(Ending::Policy);
    assert_eq!((story.releases, story.phase()), (1, Phase::Deadline));
}

#[test]
fn release_proceed_lets_the_host_go_as_it_is() {
    let mut story = story();
    story.vm("a").shutdown().accepted("a").wait(10);
    story.release(Ending::Proceed);
    assert_eq!((stops(&story).len(), story.releases), (0, 1));
    assert!(story.was_told("vms/a is still running here"));
}

#[test]
fn release_ends_a_hold_past_its_deadline_with_time_for_the_guests() {
    let mut story = with(|p| p.on_deadline = OnDeadline::Hold);
    story.vm("a").trigger_with(ordered(60));
    grace(&mut story, "a", 120);
    story.show();
    story.accepted("a").wait(100);
    story.release(Ending::ShutdownVms);
    assert_eq!(stops(&story), ["a"]);
    story.wait(120);
    assert_eq!(story.phase(), Phase::FallingBack);
    ends(&mut story, "a");
    assert_eq!((story.phase(), story.asked_logind), (Phase::Drained, 1));
}

#[test]
fn release_respects_never() {
    let mut story = with(|p| p.consent = Consent::Never);
    story.vm("a").shutdown();
    story.release(Ending::ShutdownVms);
    assert!(story.last_answer().unwrap_err().contains("never"));
    assert_eq!(story.releases, 0);
}

#[test]
fn a_whole_rack_is_told_at_once_and_nobody_is_migrated() {
    let mut story = story();
    story.vm("a").vm("b").vm_of("c", Strategy::None, false);
    grace(&mut story, "b", 120);
    let trigger = Trigger {
        shutdown_vms: true,
        deadline: Some(Duration::from_secs(180)),
        then: Some(Then::Poweroff),
        ..Trigger::default()
    };
    story.trigger_with(trigger);
    assert_eq!(stops(&story), ["b", "a", "c"], "largest grace period first");
    assert_eq!(story.asked(), [""; 0]);
    for name in ["a", "b", "c"] {
        ends(&mut story, name);
    }
    assert_eq!((story.phase(), story.asked_logind), (Phase::Drained, 1));
}

#[test]
fn a_whole_rack_joins_the_drain_that_runs() {
    let mut story = story();
    story.vm("a").shutdown().accepted("a").wait(10);
    story.trigger_with(Trigger {
        shutdown_vms: true,
        deadline: Some(Duration::from_secs(180)),
        ..Trigger::default()
    });
    assert!(story.last_answer().is_ok());
    assert_eq!(stops(&story), ["a"]);
    story.wait(181);
    assert_eq!(story.releases, 1);
}

#[test]
fn a_deadline_of_its_own_stands_under_logind_s_limit() {
    let mut story = story();
    story.vm("a").trigger_with(ordered(180));
    story.accepted("a");
    story.signal(2700).show();
    story.wait(181);
    assert_eq!(story.releases, 1);
}

#[test]
fn a_cancel_says_that_a_guest_cannot_be_told_to_stay() {
    let mut story = story();
    story.vm_of("stuck", Strategy::LiveMigrate, false);
    story.trigger_with(ordered(600));
    assert_eq!(stops(&story), ["stuck"]);
    story.cancel(false);
    let warnings = story.status().warnings.join("; ");
    assert!(warnings.contains("cannot be taken back"), "{warnings}");
}

#[test]
fn base_tier_falls_back_as_well() {
    let mut policy = policy();
    policy.on_deadline = OnDeadline::ShutdownVms;
    let mut story = Story::with(policy, false);
    alive(&mut story);
    story.vm("a");
    story.pod("a").grace = Duration::from_secs(90);
    story.trigger_with(ordered(600));
    story.answer("a", 429, TRIGGERED);
    story.mark("a");
    story.answer("a", 429, TRIGGERED).show();
    story.wait(528);
    assert_eq!(stops(&story), [""; 0]);
    story.wait(2);
    assert_eq!(stops(&story), ["a"]);
    assert!(story.was_told("1 of them still migrate, which cannot be aborted"));
    assert!(story.row("a").says.contains("it may be cut off"));
    assert!(!story.was_told("so that each gets its grace period"));
}
