//! Policies and fates: who waits for what, what is told, who is stopped, who is started again.

use super::*;
use crate::drain::fate::Again;
use crate::drain::policy::{Consent, OnDeadline};
use crate::drain::ways::Way;
use crate::drain::world::RunStrategy;

impl Story {
    /// Its VMI belongs to a VM; what that says is read at once.
    fn of_vm(&mut self, name: &str, run: RunStrategy) -> &mut Self {
        self.vmi(name).owner_kind = "VirtualMachine".into();
        self.machines.push(VmView {
            vm: VmName {
                namespace: "vms".into(),
                name: name.into(),
            },
            run: Some(run),
            ..VmView::default()
        });
        self
    }

    fn says_policy(&mut self, name: &str, policy: &str) -> &mut Self {
        self.pod(name).policy = Some(policy.into());
        self
    }

    /// virt-handler lives, so guests may be stopped.
    fn alive(&mut self) -> &mut Self {
        self.node.schedulable = true;
        self.node.heartbeat = Some(i64::MAX);
        self
    }

    fn allowed(&mut self) -> &mut Self {
        self.alive();
        self.trigger_with(Trigger {
            allow_guest_shutdown: true,
            ..Trigger::default()
        })
    }

    fn guest_ends(&mut self, name: &str) -> &mut Self {
        self.pod_ends(name);
        self.vmi(name).phase = VmiPhase::Succeeded;
        self.show()
    }

    fn fate(&self, name: &str) -> String {
        self.row(name).fate
    }
}

#[test]
fn a_vm_is_not_evicted_before_its_own_word_was_read() {
    let mut story = Story::full();
    story.vm("a").vm("b");
    story.vmi("a").owner_kind = "VirtualMachine".into();
    story.trigger();
    assert_eq!(story.asked(), ["b"], "of a its VM is not read yet");
    assert!(story.row("a").says.contains("has not been read yet"));
    story.of_vm("a", RunStrategy::Always);
    story.machines[0].policy = Some("leave".into());
    story.show();
    assert_eq!(story.asked(), ["b"]);
    assert_eq!(story.fate("a"), "left");
    assert_eq!(story.row("a").policy_from, "annotation vmdrain.io/policy");
    assert_eq!(story.row("a").owner, "VirtualMachine (Always)");
}

#[test]
fn a_vm_that_cannot_be_read_does_not_hold_the_drain_up() {
    let mut story = Story::full();
    story.vm("a");
    story.vmi("a").owner_kind = "VirtualMachine".into();
    story.trigger();
    assert!(story.asked().is_empty());
    story.wait(11);
    assert_eq!(story.asked(), ["a"]);
}

#[test]
fn what_is_left_alone_stays_and_the_drain_ends() {
    let mut story = Story::full();
    story.vm("a").vm("b").says_policy("a", "leave").trigger();
    assert_eq!(story.asked(), ["b"]);
    story.accepted("b").moves("b");
    assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(0)));
    assert_eq!(story.row("a").phase, crate::drain::status::VmPhase::Left);
    assert!(story.was_told("but for 1 that their policy leaves alone"));
    assert!(story.stops.is_empty());
}

#[test]
fn left_alone_is_stopped_last_when_the_host_goes() {
    let mut story = Story::full();
    story
        .vm("a")
        .vm("b")
        .says_policy("a", "leave")
        .alive()
        .shutdown();
    assert!(story.was_told("until all other VMs are gone"));
    story.accepted("b");
    assert!(story.stops.is_empty());
    story.moves("b");
    assert_eq!(story.stops.len(), 1, "now it is alone");
    story.guest_ends("a");
    assert_eq!(story.phase(), Phase::Drained);
    assert_eq!(story.releases, 1);
}

#[test]
fn left_alone_and_never_to_be_stopped_is_told_what_that_means() {
    let mut policy = policy();
    policy.consent = Consent::Never;
    let mut story = Story::with(policy, true);
    story.vm("a").says_policy("a", "leave").shutdown();
    assert!(story.was_told("it is killed when the host goes down"));
    assert_eq!(story.phase(), Phase::Drained);
}

#[test]
fn shutdown_deletes_the_pod_of_what_could_migrate_and_evicts_what_could_not() {
    let mut story = Story::full();
    story.vm("a").vm_of("b", Strategy::None, false);
    story
        .says_policy("a", "shutdown")
        .says_policy("b", "shutdown");
    story.allowed();
    assert_eq!(story.asked(), ["b"], "budgets are heard");
    let stopped: Vec<_> = story.stops.iter().map(|(_, pod)| pod.as_str()).collect();
    assert_eq!(stopped, ["virt-launcher-a"]);
    assert!(story.was_told("its policy is shutdown (annotation vmdrain.io/policy)"));
}

#[test]
fn shutdown_needs_consent() {
    let mut story = Story::full();
    story.vm("a").says_policy("a", "shutdown").trigger();
    assert!(story.stops.is_empty() && story.asked().is_empty());
    assert_eq!(story.fate("a"), "blocked");
    assert!(story.row("a").says.contains("needs consent"));
}

#[test]
fn base_tier_asks_before_it_stops() {
    let mut story = Story::base();
    story.vm("a").says_policy("a", "shutdown").allowed();
    assert_eq!(story.asked(), ["a?"]);
    story.answer("a", 429, TRIGGERED);
    assert_eq!(story.stops.len(), 1);
    assert_eq!(story.real("a"), 0);
    assert!(story.was_told("cannot be seen with the node's own rights"));
}

#[test]
fn restart_starts_it_before_the_drain_ends() {
    let mut story = Story::full();
    story.vm("a").of_vm("a", RunStrategy::Manual);
    story.says_policy("a", "restart").allowed();
    assert_eq!(story.stops.len(), 1);
    assert!(story.starts.is_empty());
    story.guest_ends("a");
    assert_eq!(story.starts, ["a"]);
    assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(0)));
    assert!(story.record.is_none(), "nothing is owed any more");
}

#[test]
fn what_its_owner_starts_is_not_started_by_us() {
    let mut story = Story::full();
    story.vm("a").of_vm("a", RunStrategy::Always);
    story.says_policy("a", "restart").allowed();
    assert_eq!(story.fate("a"), "restarted_elsewhere");
    story.guest_ends("a");
    assert!(story.starts.is_empty());
    assert_eq!(story.phase(), Phase::Drained);
}

/// A Manual VM that an eviction has shut down, and the drain is over.
fn owed() -> Story {
    let mut story = Story::full();
    story.vm_of("a", Strategy::None, false);
    story.of_vm("a", RunStrategy::Manual).allowed();
    assert_eq!(story.fate("a"), "shut_down");
    story.answer("a", 201, "");
    story.guest_ends("a");
    assert_eq!(story.phase(), Phase::Drained);
    assert!(story.starts.is_empty(), "not before the restore");
    assert_eq!(story.status().to_start, ["vms/a"]);
    story
}

#[test]
fn what_was_shut_down_is_started_when_the_node_is_given_back() {
    let mut story = owed();
    story.input(Input::Restore(Token(3)));
    assert_eq!(story.starts, ["a"]);
    assert!(story.record.is_none() && story.status().to_start.is_empty());
}

#[test]
fn a_crash_forgets_no_start() {
    let mut story = owed();
    story.crash();
    assert_eq!(story.status().to_start, ["vms/a"]);
    assert!(story.starts.is_empty());
    story.input(Input::Restore(Token(3)));
    assert_eq!(story.starts, ["a"]);
    assert!(story.record.is_none());
}

#[test]
fn without_the_right_the_command_is_told() {
    let mut story = owed();
    story.start_answer = reply(403, "cannot update resource");
    story.input(Input::Restore(Token(3)));
    assert!(story.was_told("rbac/start.yaml gives it); start it by hand: virtctl start a -n vms"));
    assert!(
        story
            .status()
            .warnings
            .iter()
            .any(|w| w.contains("virtctl start a -n vms"))
    );
    assert!(story.record.is_none(), "it is a person's turn");
}

#[test]
fn a_start_that_fails_is_tried_again() {
    let mut story = owed();
    story.start_answer = reply(500, "failed calling webhook");
    story.input(Input::Restore(Token(3)));
    story.start_answer = reply(202, "");
    story.wait(5);
    assert_eq!(story.starts, ["a", "a"]);
    assert!(story.record.is_none());
}

#[test]
fn a_start_that_fails_for_minutes_is_told_once_and_kept() {
    let mut story = owed();
    story.start_answer = reply(503, "no endpoints");
    story.input(Input::Restore(Token(3)));
    for _ in 0..20 {
        story.wait(60);
    }
    let told = |n: &&Notice| n.reason == "VmNotStarted";
    assert_eq!(story.told.iter().filter(told).count(), 1);
    assert_eq!(story.status().to_start, ["vms/a"]);
    assert!(story.starts.len() < 30, "slowly: {}", story.starts.len());
    story.crash();
    story.start_answer = reply(202, "");
    story.wait(300);
    assert!(story.record.is_none() && story.status().warnings.is_empty());
}

/// A Manual VM whose guest still shuts down when the drain is cancelled.
fn cancelled_in_its_grace() -> Story {
    let mut story = Story::full();
    story.vm_of("a", Strategy::None, false);
    story.of_vm("a", RunStrategy::Manual).allowed();
    story.answer("a", 201, "");
    story.pod("a").deleting = true;
    story.start_answer = reply(409, "VM is already running");
    story.show().cancel(false);
    story
}

#[test]
fn a_guest_that_ends_after_the_cancel_is_started() {
    let mut story = cancelled_in_its_grace();
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(story.was_told("was already told to shut down, which cannot be taken back"));
    assert_eq!(story.status().to_start, ["vms/a"]);
    story.wait(60);
    story.crash();
    story.wait(30);
    story.start_answer = reply(202, "");
    story.wait(30);
    assert!(story.was_told("is started again after this drain has shut it down"));
    assert!(story.record.is_none());
}

#[test]
fn a_guest_that_never_ends_is_a_persons_turn() {
    let mut story = cancelled_in_its_grace();
    for _ in 0..60 {
        story.wait(30);
    }
    assert!(story.was_told("start it by hand then: virtctl start a -n vms"));
    assert!(story.record.is_none() && story.status().to_start.is_empty());
}

#[test]
fn a_bad_annotation_is_told_once_and_the_default_applies() {
    let mut story = Story::full();
    story.vm("a").says_policy("a", "stop").trigger().show();
    let told = |n: &&Notice| n.reason == "VmPolicyBad";
    assert_eq!(story.told.iter().filter(told).count(), 1);
    assert_eq!(story.asked(), ["a"]);
    assert!(story.row("a").policy_trouble.contains("'stop' is none of"));
}

#[test]
fn a_deadline_of_its_own() {
    let mut policy = policy();
    policy.on_deadline = OnDeadline::ShutdownVms;
    let mut story = Story::with(policy, true);
    story.vm("a").vm("b");
    story.pod("a").deadline = Some("1m".into());
    story.allowed();
    story.accepted("a").accepted("b").wait(59);
    assert!(story.stops.is_empty());
    story.wait(2);
    let stopped: Vec<_> = story.stops.iter().map(|(_, pod)| pod.as_str()).collect();
    assert_eq!(stopped, ["virt-launcher-a"]);
    assert!(story.was_told("its own deadline has passed"));
}

#[test]
fn a_deadline_of_its_own_when_nobody_is_stopped_at_deadlines() {
    let mut policy = policy();
    policy.on_deadline = OnDeadline::Proceed;
    let mut story = Story::with(policy, true);
    story.vm("a");
    story.pod("a").deadline = Some("1m".into());
    story.allowed().accepted("a").wait(61);
    assert!(story.stops.is_empty());
    assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(3)));
}

#[test]
fn rules_of_the_configuration() {
    let mut policy = policy();
    policy.ways.default = Way::Leave;
    let mut story = Story::with(policy, true);
    story.vm("a").says_policy("a", "migrate").vm("b").trigger();
    assert_eq!(story.asked(), ["a"]);
    assert_eq!(story.row("b").policy_from, "policy.default");
}

#[test]
fn the_sentence_of_a_start_at_once_names_the_run_strategy() {
    let text = Again::AtOnce(RunStrategy::Manual).to_string();
    assert!(text.contains("runStrategy Manual"), "{text}");
}
