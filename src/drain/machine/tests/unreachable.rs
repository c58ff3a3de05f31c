//! The API server is away: what this host does by itself, and what happens when the server is back.

use super::*;
use crate::drain::local::{LocalGuest, Process};
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
    story.node.schedulable = true;
    story.node.heartbeat = Some(1000);
    story
}

/// A VM whose guest may take so long, in seconds.
fn vm(story: &mut Story, name: &str, grace: u64) {
    story.vm(name);
    story.vmi(name).grace = Duration::from_secs(grace);
    story.pod(name).grace = Duration::from_secs(grace + 30);
}

fn guest(name: &str) -> LocalGuest {
    LocalGuest {
        pod_uid: format!("{name}-pod"),
        vm: VmName {
            namespace: "vms".into(),
            name: name.into(),
        },
        vmi_uid: format!("{name}-vmi"),
        grace: None,
        init: Process {
            pid: 4711,
            started: 7,
        },
    }
}

/// From now on the server does not answer, and this is what runs on the host.
fn away(story: &mut Story, names: &[&str]) {
    story.node_fault = Some(FaultClass::Transient);
    runs(story, names);
}

fn runs(story: &mut Story, names: &[&str]) {
    story.local = Some(LocalView {
        guests: names.iter().map(|name| guest(name)).collect(),
        handler: false,
    });
}

/// The server answers again, and shows what there is.
fn back(story: &mut Story) {
    story.node_fault = None;
    story.wait(20).show();
}

fn told(story: &Story) -> Vec<&str> {
    story.told_here.iter().map(|(_, vm)| vm.as_str()).collect()
}

/// Seconds from the beginning of the story to the first that was told.
fn first_told(story: &Story) -> u64 {
    (story.told_here[0].0 - 1000) / 1000
}

#[test]
fn guests_are_told_on_the_host_itself_and_it_goes_when_none_is_left() {
    let mut story = story();
    vm(&mut story, "a", 60);
    vm(&mut story, "b", 30);
    story.shutdown().accepted("a").accepted("b");
    away(&mut story, &["a", "b"]);
    story.wait(118);
    assert_eq!((told(&story), story.phase()), (vec![], Phase::Evacuating));
    story.wait(4);
    assert_eq!((told(&story), story.stops.len()), (vec!["a", "b"], 0));
    assert_eq!(story.phase(), Phase::FallingBack);
    assert!(story.was_told("the API server was not reached for 2m 0s (the API server says no)"));
    assert!(story.was_told("told on this host itself, the cluster was not told"));
    assert_eq!(story.row("a").phase, VmPhase::ShuttingDown);
    let says = story.status().says;
    assert!(says.contains("2 guest(s) were told"), "{says}");
    let stops = story.record.clone().unwrap().stops;
    assert_eq!(stops.iter().filter(|stop| stop.here).count(), 2);
    story.wait(30);
    runs(&mut story, &["a"]);
    story.wait(2);
    assert_eq!(
        (story.row("b").phase, story.releases),
        (VmPhase::ShutDown, 0)
    );
    runs(&mut story, &[]);
    story.wait(2);
    assert_eq!((story.releases, story.exit()), (1, Some(0)));
    assert_eq!(told(&story).len(), 2, "each is told once");
    let says = story.status().says;
    assert!(says.contains("2 guest(s) were shut down locally"), "{says}");
}

#[test]
fn never_more_than_a_quarter_of_the_time_is_waited() {
    let mut story = story();
    vm(&mut story, "a", 30);
    let hold = story.hold();
    story
        .input(Input::Hold(hold))
        .signal(180)
        .show()
        .accepted("a");
    away(&mut story, &["a"]);
    story.wait(60);
    // 180 s less the margin of 30: a quarter is 37 s.
    assert!(
        (37..40).contains(&first_told(&story)),
        "{:?}",
        story.told_here
    );
}

#[test]
fn guests_that_need_the_time_do_not_wait_for_the_quarter() {
    let mut story = story();
    vm(&mut story, "a", 120);
    let hold = story.hold();
    story
        .input(Input::Hold(hold))
        .signal(180)
        .show()
        .accepted("a");
    away(&mut story, &["a"]);
    story.wait(60);
    // 150 s less 120 and the slack of 10: second 20.
    assert!(
        (20..23).contains(&first_told(&story)),
        "{:?}",
        story.told_here
    );
}

#[test]
fn silence_is_no_absence_while_the_server_answers() {
    let mut story = story();
    vm(&mut story, "a", 30);
    story.shutdown().accepted("a");
    runs(&mut story, &["a"]);
    // No picture changes for half an hour.
    story.wait(1500);
    assert_eq!((told(&story), story.phase()), (vec![], Phase::Evacuating));
    assert!(!story.was_told("not reached"));
}

#[test]
fn databases_are_told_last() {
    let mut story = story();
    vm(&mut story, "db", 30);
    vm(&mut story, "web", 30);
    story.pod("db").stop_order = Some("10".into());
    story.shutdown().accepted("db").accepted("web");
    away(&mut story, &["db", "web"]);
    story.wait(150);
    assert_eq!(told(&story), ["web"]);
    runs(&mut story, &["db"]);
    story.wait(2);
    assert_eq!(told(&story), ["web", "db"]);
}

#[test]
fn nobody_is_told_where_the_policy_does_not_allow_it() {
    for (policy, consent) in [
        (OnDeadline::Proceed, Consent::OnShutdown),
        (OnDeadline::ShutdownVms, Consent::Never),
    ] {
        let mut story = with(|p| (p.on_deadline, p.consent) = (policy, consent));
        vm(&mut story, "a", 30);
        story.shutdown().accepted("a");
        away(&mut story, &["a"]);
        story.wait(600);
        assert_eq!((told(&story), story.releases), (vec![], 0), "{policy:?}");
        assert!(story.was_told("no guest is shut down"));
        // It moves away or ends all the same: the host sees that.
        runs(&mut story, &[]);
        story.wait(2);
        assert_eq!((story.releases, story.exit()), (1, Some(0)));
        assert_eq!(story.row("a").phase, VmPhase::Gone);
    }
}

#[test]
fn a_held_drain_goes_on_holding() {
    let mut story = with(|p| p.on_deadline = OnDeadline::Hold);
    vm(&mut story, "a", 30);
    let trigger = Trigger {
        then: Some(Then::Reboot),
        deadline: Some(Duration::from_secs(300)),
        ..Trigger::default()
    };
    story.trigger_with(trigger).accepted("a");
    away(&mut story, &["a"]);
    story.wait(900);
    assert_eq!((told(&story), story.phase()), (vec![], Phase::Holding));
    runs(&mut story, &[]);
    story.wait(2);
    assert_eq!(story.asked_logind, 1);
}

#[test]
fn a_host_that_stays_up_stops_no_guest() {
    let mut story = story();
    vm(&mut story, "a", 30);
    story.trigger().accepted("a");
    away(&mut story, &["a"]);
    story.wait(600);
    assert_eq!(told(&story), [""; 0]);
    assert!(story.was_told("the host stays up and nobody has allowed it"));
}

#[test]
fn when_the_server_is_back_the_drain_goes_on_and_nobody_is_stopped_twice() {
    let mut story = story();
    vm(&mut story, "db", 30);
    vm(&mut story, "web", 30);
    story.pod("db").stop_order = Some("10".into());
    story.shutdown().accepted("db").accepted("web");
    away(&mut story, &["db", "web"]);
    story.wait(130);
    assert_eq!(told(&story), ["web"]);
    back(&mut story);
    assert_eq!(story.phase(), Phase::Evacuating);
    assert!(story.was_told("1 guest(s) were told to shut down meanwhile"));
    // web ends as it was told to, db moves.
    story.wait(5);
    story.pod_ends("web");
    story.vmis.retain(|v| v.vmi.name != "web");
    story.show().moves("db");
    assert_eq!((story.releases, story.exit()), (1, Some(0)));
    assert_eq!((told(&story), story.stops.len()), (vec!["web"], 0));
    assert_eq!(story.row("web").phase, VmPhase::ShutDown);
    assert_eq!(story.row("db").phase, VmPhase::Migrated);
    assert!(!story.status().says.contains("own view"));
}

#[test]
fn a_vm_never_heard_of_is_told_too() {
    let mut story = story();
    vm(&mut story, "a", 30);
    story.shutdown().accepted("a");
    away(&mut story, &["a", "stranger"]);
    story.wait(130);
    assert_eq!(told(&story), ["a", "stranger"]);
    let row = story.row("stranger");
    assert_eq!(
        (row.namespace.as_str(), row.phase),
        ("vms", VmPhase::ShuttingDown)
    );
    runs(&mut story, &["stranger"]);
    story.wait(5);
    assert_eq!(story.releases, 0);
    runs(&mut story, &[]);
    story.wait(2);
    assert_eq!(
        (story.releases, story.row("stranger").phase),
        (1, VmPhase::ShutDown)
    );
}

#[test]
fn one_without_a_name_is_told_by_its_pod() {
    let mut story = story();
    story.vm("a").shutdown().accepted("a");
    away(&mut story, &["a"]);
    let nameless = LocalGuest {
        pod_uid: "1-2-3".into(),
        ..LocalGuest::default()
    };
    story.local.as_mut().unwrap().guests.push(nameless);
    story.wait(130);
    assert_eq!(story.told_here.len(), 2);
    assert_eq!(story.row("pod 1-2-3").phase, VmPhase::ShuttingDown);
}

#[test]
fn without_a_cordon_guests_are_told_only_when_they_need_the_time() {
    let mut story = story();
    away(&mut story, &["a"]);
    story.local.as_mut().unwrap().handler = true;
    story.local.as_mut().unwrap().guests[0].grace = Some(Duration::from_secs(90));
    let hold = story.hold();
    story.input(Input::Hold(hold)).signal(600);
    story.wait(469);
    assert_eq!((told(&story), story.phase()), (vec![], Phase::Preparing));
    // 600 s less the margin of 30, the grace period of 90 and the slack of 10.
    story.wait(3);
    assert_eq!(
        (told(&story), story.phase()),
        (vec!["a"], Phase::FallingBack)
    );
    runs(&mut story, &[]);
    story.wait(2);
    assert_eq!((story.releases, story.exit()), (1, Some(0)));
}

#[test]
fn an_empty_host_does_not_wait_for_a_server_that_is_away() {
    let mut story = story();
    away(&mut story, &[]);
    story.local = Some(LocalView {
        guests: Vec::new(),
        handler: true,
    });
    let hold = story.hold();
    story.input(Input::Hold(hold)).signal(2700).wait(125);
    assert_eq!((story.releases, story.exit()), (1, Some(0)));
    assert!(story.status().says.contains("by this host's own view"));
}

/// Launchers of an unknown kind look like none.
#[test]
fn a_host_on_which_nothing_of_kubevirt_is_recognised_does_not_count_as_empty() {
    let mut story = story();
    vm(&mut story, "a", 30);
    away(&mut story, &[]);
    let hold = story.hold();
    story.input(Input::Hold(hold)).signal(2700).wait(400);
    assert_eq!((story.releases, story.exit()), (0, None));
    assert!(story.status().says.contains("nothing counts as gone"));
    runs(&mut story, &["a"]);
    story.wait(3);
    runs(&mut story, &[]);
    story.wait(3);
    assert_eq!((story.releases, story.exit()), (1, Some(0)));
}

#[test]
fn a_server_that_is_back_before_anybody_was_told_is_asked_for_the_cordon() {
    let mut story = story();
    vm(&mut story, "a", 30);
    away(&mut story, &["a"]);
    let hold = story.hold();
    story.input(Input::Hold(hold)).signal(2700).wait(200);
    assert!(story.status().says.contains("not reached"));
    back(&mut story);
    assert_eq!((story.phase(), told(&story)), (Phase::Evacuating, vec![]));
    assert_eq!(story.asked(), ["a"]);
}

#[test]
fn the_whole_rack_is_told_at_once_and_whom_the_kubelet_has_told_not_again() {
    let mut story = story();
    vm(&mut story, "a", 60);
    vm(&mut story, "late", 30);
    story.pod("late").stop_order = Some("10".into());
    let trigger = Trigger {
        shutdown_vms: true,
        deadline: Some(Duration::from_secs(180)),
        then: Some(Then::Poweroff),
        ..Trigger::default()
    };
    story.trigger_with(trigger);
    assert_eq!(
        story.stops.len(),
        2,
        "by the server, as long as it is there"
    );
    // Seven seconds later the deletions have reached the kubelet; a VM has arrived that was not seen.
    story.wait(7).show();
    away(&mut story, &["a", "late", "new"]);
    story.wait(38);
    assert_eq!(told(&story), ["new"]);
    assert!(first_told(&story) <= 45);
    runs(&mut story, &[]);
    story.wait(2);
    assert_eq!((story.asked_logind, story.exit()), (1, Some(0)));
}

#[test]
fn a_deletion_that_the_kubelet_has_hardly_seen_is_not_relied_on() {
    let mut story = story();
    vm(&mut story, "a", 60);
    let trigger = Trigger {
        shutdown_vms: true,
        deadline: Some(Duration::from_secs(180)),
        then: Some(Then::Poweroff),
        ..Trigger::default()
    };
    story.trigger_with(trigger);
    away(&mut story, &["a"]);
    story.wait(40);
    assert_eq!((story.stops.len(), told(&story)), (1, vec!["a"]));
}

#[test]
fn without_virt_handler_nobody_is_told() {
    let mut story = story();
    story.node.heartbeat = None;
    vm(&mut story, "a", 30);
    story.shutdown().accepted("a");
    away(&mut story, &["a"]);
    story.wait(150);
    assert_eq!(told(&story), [""; 0]);
    let row = story.row("a");
    assert_eq!(row.phase, VmPhase::Blocked);
    assert!(row.says.contains("virt-handler"), "{}", row.says);
    // A process of it is seen on the host.
    story.local.as_mut().unwrap().handler = true;
    story.wait(2);
    assert_eq!(told(&story), ["a"]);
}

#[test]
fn a_signal_that_fails_is_sent_again_after_a_pause() {
    let mut story = story();
    vm(&mut story, "a", 30);
    story.shutdown().accepted("a");
    away(&mut story, &["a"]);
    story.tell_answer = Err("the service needs CAP_KILL".into());
    story.wait(180);
    let tries = story.told_here.len();
    assert!((3..=10).contains(&tries), "{tries}");
    assert!(story.was_told("cannot be told on this host itself: the service needs CAP_KILL"));
    story.tell_answer = Ok(());
    story.wait(20);
    let tries = story.told_here.len();
    story.wait(60);
    assert_eq!(story.told_here.len(), tries);
}

#[test]
fn a_host_that_cannot_be_looked_at_is_not_empty() {
    let mut story = story();
    vm(&mut story, "a", 30);
    story.shutdown().accepted("a");
    away(&mut story, &[]);
    story.local = None;
    story.wait(2000);
    assert_eq!((story.releases, told(&story)), (0, vec![]));
    assert!(story.was_told("the containers of this host cannot be looked at: it hides them"));
    story.wait(700);
    assert_eq!((story.phase(), story.releases), (Phase::Deadline, 1));
}

#[test]
fn a_restarted_agent_knows_its_cordon_and_whom_it_has_told() {
    let mut story = story();
    vm(&mut story, "db", 30);
    vm(&mut story, "web", 30);
    story.pod("db").stop_order = Some("10".into());
    story.shutdown().accepted("db").accepted("web");
    away(&mut story, &["db", "web"]);
    story.local.as_mut().unwrap().handler = true;
    story.wait(130);
    assert_eq!(told(&story), ["web"]);
    story.crash().signal(2700);
    story.wait(130);
    // The order is lost with the pods; whoever was told is not told again.
    assert_eq!(told(&story), ["web", "db"]);
    runs(&mut story, &[]);
    story.wait(2);
    assert_eq!((story.releases, story.exit()), (1, Some(0)));
}

#[test]
fn what_is_left_alone_is_told_last_and_only_when_the_host_goes() {
    let mut story = story();
    vm(&mut story, "a", 30);
    vm(&mut story, "pet", 30);
    story.pod("pet").policy = Some("leave".into());
    story.shutdown().accepted("a");
    away(&mut story, &["a", "pet"]);
    story.wait(130);
    assert_eq!(told(&story), ["a"]);
    runs(&mut story, &["pet"]);
    story.wait(2);
    assert_eq!(told(&story), ["a", "pet"]);
}

#[test]
fn a_migration_that_copies_may_go_on_as_long_as_there_is_time() {
    let mut story = story();
    vm(&mut story, "a", 30);
    story.shutdown().accepted("a");
    story.migration("a", "m", MigrationPhase::Running);
    story.show();
    away(&mut story, &["a"]);
    let mut unseen = story.picture();
    let broken = || ("connection refused".to_owned(), Mono(story.now));
    let ((why, since), (text, at)) = (broken(), broken());
    unseen.vmis = Sight::Broken { why, since };
    unseen.migrations = Sight::Broken {
        why: text,
        since: at,
    };
    story.input(Input::Picture(Box::new(unseen)));
    // 45 minutes less the margin of 30 s, its grace period of 30 s and the slack of 10.
    story.wait(2625);
    assert_eq!(told(&story), [""; 0]);
    story.wait(10);
    assert_eq!(told(&story), ["a"]);
}
