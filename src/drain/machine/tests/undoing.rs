//! Cancels: exactly our marks, the cordon, the hold; and what is told of the rest.

use super::*;

/// Two VMs: one that was marked before us, one that we mark.
fn two_marks(version: (u32, u32)) -> Story {
    let mut story = Story::full();
    story.version = version;
    story.vm("theirs").vm("ours");
    story.mark("theirs");
    story.trigger();
    assert_eq!(story.asked(), ["ours"]);
    assert!(story.row("theirs").says.contains("by somebody else"));
    story.accepted("ours");
    story
}

#[test]
fn a_cancel_clears_exactly_our_marks() {
    let mut story = two_marks((1, 7));
    story.cancel(false);
    assert_eq!(story.cancels, ["ours"], "T10");
    assert!(story.deletions.is_empty());
    assert_eq!((story.phase(), story.exit()), (Phase::Cancelled, Some(5)));
    assert!(!story.node.unschedulable && !story.watching);
    assert!(story.record.is_none());
    assert!(story.answers.pop().unwrap().1.is_ok());
}

#[test]
fn migrations_are_aborted_on_demand_and_only_ours() {
    let mut story = two_marks((1, 7));
    story.migration("ours", "m1", MigrationPhase::Running);
    story.migration("theirs", "m2", MigrationPhase::Running);
    story.show().cancel(true);
    assert_eq!(story.cancels, ["ours"]);
    assert_eq!(story.deletions, ["m1"]);
    assert_eq!(story.phase(), Phase::Cancelled);
}

#[test]
fn a_migration_whose_mark_stays_is_not_aborted() {
    let mut story = two_marks((1, 7));
    story.migration("ours", "m1", MigrationPhase::Running);
    story.cancel_answer = reply(403, "cannot update resource");
    story.show().cancel(true);
    assert!(
        story.deletions.is_empty(),
        "KubeVirt would only begin another one"
    );
}

#[test]
fn old_kubevirt_cannot_clear_marks_and_that_is_told() {
    let mut story = two_marks((1, 6));
    story.cancel(false);
    assert!(story.cancels.is_empty());
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(story.was_told("marks cannot be cleared, KubeVirt < 1.7: vms/ours"));
    assert!(!story.was_told("vms/theirs will still"));
}

#[test]
fn old_kubevirt_is_also_known_by_its_answer() {
    let mut story = two_marks((1, 8));
    story.cancel_answer = reply(404, "404: Page Not Found\n");
    story.cancel(false);
    assert!(story.was_told("marks cannot be cleared, KubeVirt < 1.7: vms/ours"));
}

#[test]
fn a_missing_right_is_told_with_the_command_for_an_administrator() {
    let mut story = two_marks((1, 7));
    story.cancel_answer = reply(403, "cannot update resource");
    story.cancel(false);
    assert_eq!(story.cancels.len(), 1, "asking again would not help");
    assert!(story.was_told("virtctl evacuate-cancel vmi ours -n vms"));
    let warnings = story.status().warnings.join(" ");
    assert!(
        warnings.contains("virtualmachineinstances/evacuate"),
        "{warnings}"
    );
}

#[test]
fn a_vm_that_is_gone_has_taken_its_mark_along() {
    for answer in [
        reply(
            404,
            "virtualmachineinstances.kubevirt.io \"ours\" not found",
        ),
        reply(
            500,
            "Internal error occurred: the server rejected our request due to an error in our request",
        ),
    ] {
        let mut story = two_marks((1, 7));
        story.cancel_answer = answer;
        story.cancel(false);
        assert!(story.status().warnings.is_empty());
        assert_eq!(story.phase(), Phase::Cancelled);
    }
}

#[test]
fn a_failed_clearing_is_tried_again_with_pauses() {
    let mut story = two_marks((1, 7));
    story.cancel_answer = reply(503, "error trying to reach service");
    story.cancel(false);
    assert_eq!(story.cancels.len(), 1);
    assert!(
        !story.node.unschedulable,
        "T33: the node does not wait for the marks"
    );
    story.wait(20);
    assert!(
        (4..8).contains(&story.cancels.len()),
        "{}",
        story.cancels.len()
    );
    story.cancel_answer = reply(200, "");
    story.wait(20);
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(story.status().warnings.is_empty());
}

#[test]
fn a_cancel_does_not_try_for_ever() {
    let mut story = two_marks((1, 7));
    story.cancel_answer = reply(503, "error trying to reach service");
    story.cancel(false);
    story.wait(600);
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(story.cancels.len() <= 25);
    assert!(story.was_told("could not be cleared (HTTP 503"));
}

#[test]
fn an_eviction_on_the_wire_is_waited_for_and_undone() {
    let mut story = Story::full();
    story.vm("a").trigger().cancel(false);
    assert_eq!(story.phase(), Phase::Cancelling);
    assert!(story.cancels.is_empty());
    story.mark("a");
    story.answer("a", 429, TRIGGERED);
    assert_eq!(story.cancels, ["a"]);
    assert_eq!(story.phase(), Phase::Cancelled);
}

#[test]
fn a_mark_that_may_be_ours_is_cleared() {
    let mut story = Story::full();
    story.vm("a").trigger();
    story.mark("a");
    story.lost("a").show().cancel(false);
    assert_eq!(story.cancels, ["a"]);
}

#[test]
fn a_mark_that_hit_the_successor_under_the_same_pod_name_is_cleared() {
    let mut story = Story::full();
    story.vm("a").trigger();
    // While the eviction is on the wire the VM is made anew: KubeVirt marks whatever has the pod's name now.
    let old = story.waiting.remove(0);
    story.pod("a").vmi_uid = "new-vmi".into();
    story.pod("a").pod.uid = "new-pod".into();
    story.vmi("a").vmi.uid = "new-vmi".into();
    story.vmi("a").mark = Some("n1".into());
    story.show();
    let answer = Outcome::Reply(Ok(reply(429, TRIGGERED)));
    story.input(Input::Done(old.id, answer)).cancel(false);
    assert_eq!(story.cancels, ["a"]);
    assert_eq!(story.phase(), Phase::Cancelled);
}

#[test]
fn a_node_that_cannot_be_uncordoned_is_told() {
    let mut story = two_marks((1, 7));
    story.node_fault = Some(FaultClass::Denied);
    story.cancel(false).wait(60);
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(story.was_told("`vmdrain-agent restore` does it later"));
}

#[test]
fn an_outage_of_two_minutes_does_not_end_a_cancel() {
    let mut story = two_marks((1, 7));
    story.node_fault = Some(FaultClass::Transient);
    story.cancel(false).wait(120);
    assert_eq!(story.phase(), Phase::Cancelling);
    story.node_fault = None;
    story.wait(20);
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(!story.node.unschedulable);
}

#[test]
fn a_cancel_gives_back_what_an_earlier_drain_left_cordoned() {
    // Whether it comes before or after this drain has made the cordon its own must not matter.
    for before in [true, false] {
        let mut story = Story::full();
        story.trigger();
        assert_eq!(story.phase(), Phase::Drained);
        assert!(story.node.unschedulable);
        story.hold_confirms = true;
        story.node_fault = before.then_some(FaultClass::Transient);
        story.trigger();
        story.node_fault = None;
        story.cancel(false).wait(20);
        assert_eq!(story.phase(), Phase::Cancelled);
        assert!(!story.node.unschedulable, "{before}");
    }
}

#[test]
fn there_is_nothing_to_cancel_at_rest() {
    let mut story = Story::full();
    story.cancel(false);
    assert_eq!(
        story.answers.pop().unwrap().1,
        Err(Refusal::NothingToCancel)
    );
    story.trigger();
    assert_eq!(story.phase(), Phase::Drained);
    story.cancel(false);
    assert_eq!(
        story.answers.pop().unwrap().1,
        Err(Refusal::NothingToCancel)
    );
}

#[test]
fn a_shutdown_cannot_be_cancelled_by_us() {
    let mut story = Story::full();
    story.vm("a").shutdown().accepted("a").cancel(false);
    assert_eq!(
        story.answers.pop().unwrap().1,
        Err(Refusal::ShutdownPending),
        "T29c"
    );
    assert_eq!(story.phase(), Phase::Evacuating);
}

#[test]
fn a_vanished_shutdown_is_undone() {
    let mut story = Story::full();
    story.vm("a").shutdown().accepted("a");
    let why = "systemd-logind was restarted".into();
    story.input(Input::ShutdownVanished { why });
    assert_eq!(story.phase(), Phase::Cancelled, "T44");
    assert_eq!(story.cancels, ["a"]);
    assert!(!story.node.unschedulable && story.held);
    assert_eq!(story.releases, 0);
}

#[test]
fn a_hold_that_was_released_is_taken_again() {
    for vms in [false, true] {
        let mut story = Story::full();
        if vms {
            story.vm_of("stuck", Strategy::LiveMigrate, false);
        }
        story.shutdown().wait(2680);
        assert!(!story.held);
        let why = "the job failed".into();
        story.input(Input::ShutdownVanished { why });
        assert!(story.held, "T29b, T53");
        assert_eq!(story.phase() == Phase::Deadline, vms);
        assert!(!story.node.unschedulable);
        story.vmis.clear();
        story.pods.clear();
        story.shutdown();
        assert_eq!(story.releases, 2, "the next shutdown drains again");
    }
}

#[test]
fn a_new_shutdown_in_the_middle_of_a_cancel_drains_again() {
    let mut story = two_marks((1, 7));
    story.cancel_answer = reply(503, "error trying to reach service");
    story.cancel(false);
    assert_eq!(story.phase(), Phase::Cancelling);
    story.signal(2700).show();
    assert_eq!(story.phase(), Phase::Evacuating);
    assert!(story.row("ours").marked_by_us, "its mark is still ours");
    let why = "called off".into();
    story.cancel_answer = reply(200, "");
    story.input(Input::ShutdownVanished { why });
    assert_eq!(story.cancels.last().map(String::as_str), Some("ours"));
    assert_eq!(story.phase(), Phase::Cancelled);
}

/// KubeVirt obeys its drain taint whatever is unmarked (kubevirt-semantics 2).
#[test]
fn a_drain_taint_is_named_as_what_cannot_be_undone() {
    let mut story = Story::full();
    story.node.taints = vec!["kubevirt.io/drain:NoSchedule".into()];
    story.cancel_answer = reply(
        400,
        "Node \"n1\" has NodeDrainTaintKey \"&Taint{Key:kubevirt.io/drain,Value:,Effect:NoSchedule,}\"",
    );
    story.vm("a").trigger().accepted("a").cancel(false);
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(!story.node.unschedulable);
    let said = story.status().warnings.join("\n");
    for words in [
        "the mark of vms/a could not be cleared while the node has the taint kubevirt.io/drain",
        "kubectl taint node n1 kubevirt.io/drain-",
    ] {
        assert!(said.contains(words), "{said}");
    }
}
