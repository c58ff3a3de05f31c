//! Level-triggered: whatever events were missed, the newest picture decides.

use super::*;
use crate::drain::status::VmPhase;

#[test]
fn nothing_is_evicted_before_the_cordon_is_confirmed() {
    let mut story = Story::full();
    story.node_fault = Some(FaultClass::Transient);
    story.vm("a").trigger().wait(5);
    assert_eq!(story.phase(), Phase::Preparing);
    assert!(story.posts.is_empty());
    assert!(story.row("a").says.contains("the node is not cordoned"));
    story.node_fault = None;
    story.wait(15);
    assert_eq!(story.asked(), ["a"]);
}

#[test]
fn the_mark_comes_before_the_answer() {
    let mut story = Story::full();
    story.vm("a").trigger();
    story.mark("a");
    story.show();
    assert_eq!(story.asked(), ["a"]);
    story.answer("a", 429, TRIGGERED).wait(120);
    assert_eq!(story.real("a"), 1);
    assert!(story.row("a").marked_by_us);
}

#[test]
fn the_answer_is_lost_but_the_mark_is_there() {
    let mut story = Story::full();
    story.vm("a").trigger();
    story.mark("a");
    story.lost("a").show().wait(120);
    assert_eq!(story.real("a"), 1, "the picture says that it was marked");
    assert_eq!(story.row("a").phase, VmPhase::Marked);
    assert!(story.record.as_ref().unwrap().marks.len() == 1);
}

#[test]
fn the_answer_is_lost_and_nothing_was_marked() {
    let mut story = Story::full();
    story.vm("a").trigger().lost("a").show();
    assert!(story.row("a").says.contains("the connection was reset"));
    story.wait(2);
    assert_eq!(story.real("a"), 2);
    story.answer("a", 429, IN_PROGRESS);
    assert!(
        story.row("a").marked_by_us,
        "the lost request had marked it"
    );
}

#[test]
fn the_watch_is_behind_the_answer() {
    let mut story = Story::full();
    story.vm("a").trigger().answer("a", 429, TRIGGERED);
    story.show().wait(20);
    story.show().wait(5);
    assert_eq!(story.real("a"), 1, "the mark is on its way");
    assert!(story.row("a").says.contains("accepted"));
}

#[test]
fn an_accepted_eviction_without_a_mark_is_sent_again() {
    let mut story = Story::full();
    story.vm("a").trigger().answer("a", 429, TRIGGERED);
    story.wait(29);
    assert_eq!(story.real("a"), 1);
    story.wait(3);
    assert_eq!(story.real("a"), 2, "T17: no mark for 30 s");
}

#[test]
fn a_mark_that_vanished_is_set_again() {
    let mut story = Story::full();
    story.vm("a").trigger().accepted("a").wait(60);
    story.vmi("a").mark = None;
    story.show();
    assert_eq!(story.real("a"), 2);
}

#[test]
fn a_mark_that_vanished_is_asked_about_first_in_the_base_tier() {
    let mut story = Story::base();
    story.vm("a").trigger();
    assert_eq!(story.asked(), ["a?"]);
    story.answer("a", 429, TRIGGERED);
    assert_eq!(story.asked(), ["a"]);
    story.accepted("a").wait(60);
    assert_eq!(story.posts.len(), 2, "no polling");
    story.pod("a").eviction_in_progress = false;
    story.show();
    assert_eq!(story.asked(), ["a?"]);
    story.answer("a", 429, TRIGGERED);
    assert_eq!(story.asked(), ["a"]);
}

#[test]
fn an_inbound_vm_is_evicted_once_it_has_arrived() {
    for mut story in [Story::full(), Story::base()] {
        story.vm("y");
        story.pod("y").migration_job = Some("in".into());
        story.pod("y").vmi_node_label = Some("n2".into());
        story.vmi("y").node = "n2".into();
        story.vmi("y").target_node_label = Some("n1".into());
        story.migration("y", "in", MigrationPhase::Running);
        story.trigger().wait(100);
        assert!(story.posts.is_empty(), "T18: not before it has arrived");
        assert!(story.row("y").says.contains("inbound migration from n2"));
        assert_eq!(story.phase(), Phase::Evacuating);
        story.pod("y").vmi_node_label = Some("n1".into());
        story.vmi("y").node = "n1".into();
        story.vmi("y").target_node_label = None;
        story.migration("y", "in", MigrationPhase::Succeeded);
        story.migrations[0].target_node = "n1".into();
        story.show();
        if !story.full {
            story.answer("y", 429, TRIGGERED);
        }
        story.wait(9);
        assert!(story.asked().is_empty(), "its old pod may still end");
        assert!(story.row("y").says.contains("has just arrived"));
        assert_eq!(story.row("y").phase, VmPhase::Arriving);
        story.wait(1);
        assert_eq!(story.asked(), ["y"]);
        story.accepted("y").moves("y");
        assert_eq!(story.phase(), Phase::Drained);
        assert_eq!(story.real("y"), 1);
        assert_eq!(story.row("y").phase, VmPhase::Migrated);
    }
}

#[test]
fn a_vm_that_arrived_a_moment_before_the_drain_is_let_be_too() {
    let mut story = Story::full();
    story.vm("y");
    story.pod("y").migration_job = Some("in".into());
    story.migration("y", "in", MigrationPhase::Running);
    story.trigger().wait(1);
    assert!(story.posts.is_empty(), "its VMIM is not over");
    story.migration("y", "in", MigrationPhase::Succeeded);
    story.show().wait(9);
    assert!(story.posts.is_empty(), "its old pod may still end");
    story.wait(1);
    assert_eq!(story.asked(), ["y"]);
}

#[test]
fn an_unseen_inbound_vm_keeps_the_node_from_being_empty() {
    let mut story = Story::full();
    story.vm("y");
    story.pods.clear();
    story.vmi("y").node = "n2".into();
    story.vmi("y").target_node_label = Some("n1".into());
    story.trigger().wait(60);
    assert_eq!(
        story.phase(),
        Phase::Evacuating,
        "T18: no pod yet, but a VM is coming"
    );
}

#[test]
fn the_source_pod_that_is_left_over_is_not_evicted() {
    for mut story in [Story::full(), Story::base()] {
        story.vm("a").trigger();
        if !story.full {
            story.answer("a", 429, TRIGGERED);
        }
        story.accepted("a").wait(20);
        story.migration("a", "m", MigrationPhase::Succeeded);
        story.flips("a");
        story.show().wait(8);
        assert_eq!(story.real("a"), 1, "T15");
        assert_eq!(
            story.phase(),
            Phase::Evacuating,
            "not empty before its pod has ended"
        );
        if let Some(dry) = story.asked().first() {
            assert_eq!(dry, "a?");
            story.answer("a", 429, TARGET_POD);
            assert!(story.row("a").says.contains("has moved away"));
        }
        story.pod_ends("a");
        story.show();
        assert_eq!(story.phase(), Phase::Drained);
        assert_eq!(story.exit(), Some(0));
    }
}

#[test]
fn a_source_pod_with_a_sidecar_is_left_behind_after_a_while() {
    let mut story = Story::full();
    story.vm("a").trigger().accepted("a").wait(20);
    story.migration("a", "m", MigrationPhase::Succeeded);
    story.flips("a");
    story.show().wait(55);
    assert_eq!(story.phase(), Phase::Evacuating);
    story.wait(10);
    assert_eq!(story.phase(), Phase::Drained);
    assert!(story.was_told("its old pod vms/virt-launcher-a still runs here"));
}

#[test]
fn a_vm_that_comes_in_mid_drain_is_evicted_too() {
    let mut story = Story::full();
    story.vm("a").trigger().accepted("a");
    story.vm("b").show();
    assert_eq!(story.asked(), ["b"]);
    story.accepted("b").moves("a");
    assert_eq!(story.phase(), Phase::Evacuating);
    story.moves("b");
    assert_eq!(story.phase(), Phase::Drained);
}

#[test]
fn the_same_pod_name_with_another_uid_is_another_pod() {
    let mut story = Story::base();
    story
        .vm("web")
        .trigger()
        .answer("web", 429, "too many requests");
    let old = story.pod("web").pod.clone();
    story.pods.clear();
    story.show();
    assert_eq!(
        story.phase(),
        Phase::Drained,
        "T01: it is gone, wherever it was made anew"
    );
    assert_eq!(story.posts.len(), 1);
    assert_eq!(story.posts[0].1, old.uid);
}

#[test]
fn a_pod_made_anew_here_is_evicted_under_its_own_uid() {
    let mut story = Story::full();
    story
        .vm("a")
        .trigger()
        .answer("a", 409, "the UID in the precondition");
    story.pod("a").vmi_uid = "second-vmi".into();
    story.pod("a").pod.uid = "second-pod".into();
    story.vmi("a").vmi.uid = "second-vmi".into();
    story.show();
    assert_eq!(
        story.asked(),
        ["second"],
        "a new pod waits for nobody's pause"
    );
    assert_eq!(story.waiting[0].pod.name, "virt-launcher-a");
}

#[test]
fn an_old_picture_that_comes_late_ends_no_vm() {
    let mut story = Story::full();
    let before = story.picture();
    story.vm("a").trigger();
    story.input(Input::Picture(Box::new(before)));
    story.show();
    story.accepted("a").wait(20);
    assert_eq!(story.row("a").phase, VmPhase::Marked);
    assert_eq!(story.real("a"), 1);
}

#[test]
fn virt_api_is_down_for_a_while() {
    let mut story = Story::full();
    story.vm("a").trigger();
    let mut last = story.now;
    for _ in 0..20 {
        story.answer("a", 500, WEBHOOK_DOWN);
        assert!(story.row("a").says.contains("virt-api) is unreachable"));
        while story.asked().is_empty() {
            story.wait(1);
        }
        assert!(story.now - last <= 18_500, "T17: back-off at most 15 s");
        last = story.now;
    }
    story.accepted("a");
    assert_eq!(story.row("a").phase, VmPhase::Marked);
}

#[test]
fn kubevirt_1_4_answers_with_its_own_budget_and_no_mark() {
    let says = "The disruption budget kubevirt-disruption-budget-x2x needs 1 healthy pods and has 1 currently";
    let mut refused = reply(
        429,
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    refused.causes = vec![("DisruptionBudget".into(), says.into())];
    let mut story = Story::full();
    story.version = (1, 4);
    story
        .vm("a")
        .trigger()
        .answer_with("a", Ok(refused))
        .wait(10);
    let row = story.row("a");
    assert_eq!(row.phase, VmPhase::Waiting);
    assert!(row.says.contains("has not marked it yet"), "{}", row.says);
    story.wait(30);
    assert_eq!(story.real("a"), 2);
}

#[test]
fn a_users_budget_is_named() {
    let says = "The disruption budget b1 needs 3 healthy pods and has 3 currently";
    let mut refused = reply(
        429,
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    refused.causes = vec![("DisruptionBudget".into(), says.into())];
    let mut story = Story::full();
    story.vm_of("a", Strategy::None, false).shutdown();
    story.answer_with("a", Ok(refused)).wait(5);
    let row = story.row("a");
    assert_eq!(row.phase, VmPhase::Blocked);
    assert!(
        row.says
            .contains("disruption budget b1 does not allow it now")
    );
}

#[test]
fn a_namespace_that_is_being_deleted_is_waited_for() {
    let mut refused = reply(403, "unable to create new content in namespace vms");
    refused.causes = vec![("NamespaceTerminating".into(), String::new())];
    let mut story = Story::full();
    story.vm("a").vm("b").trigger();
    story.answer_with("a", Ok(refused));
    assert!(
        story
            .row("a")
            .says
            .contains("its namespace is being deleted")
    );
    story.accepted("b").moves("b");
    assert_eq!(story.phase(), Phase::Evacuating);
    story.pods.clear();
    story.vmis.clear();
    story.show();
    assert_eq!(story.phase(), Phase::Drained);
}

#[test]
fn an_external_vm_is_marked_and_waited_for() {
    let mut story = Story::full();
    story.vm_of("e", Strategy::External, true).trigger();
    story.accepted("e").wait(600);
    assert_eq!(story.real("e"), 1);
    assert!(story.row("e").says.contains("External"));
    story.flips("e");
    story.pod_ends("e");
    story.show();
    assert_eq!(story.phase(), Phase::Drained);
}

#[test]
fn two_budgets_do_not_stop_the_others() {
    let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let mut story = Story::full();
    story.vm("a").vm_of("n", Strategy::None, false).shutdown();
    story.answer("n", 500, text).accepted("a").moves("a");
    assert_eq!(story.row("n").phase, VmPhase::Blocked);
    assert!(story.row("n").says.contains("two PDBs"));
    assert_eq!(story.row("a").phase, VmPhase::Migrated);
}

#[test]
fn an_overloaded_server_is_not_pestered() {
    let mut story = Story::full();
    for at in 0..10 {
        story.vm(&format!("v{at}"));
    }
    let mut policy = policy();
    policy.pacing = crate::drain::policy::Pacing::All;
    story.machine = Machine::new(policy, 7);
    story.trigger();
    let end = story.now + 60_000;
    while story.now < end {
        for name in story.asked() {
            story.answer(&name, 429, "too many requests, please try again later");
        }
        story.wait(1);
    }
    assert!(story.posts.len() <= 20, "T02: {} POSTs", story.posts.len());
    let lines = story.told.iter().filter(|n| n.reason == "VmBlocked");
    assert_eq!(lines.count(), 10, "one line per VM and reason");
}

#[test]
fn retry_after_is_a_floor() {
    let mut story = Story::full();
    let mut slow = reply(429, "too many requests, please try again later");
    slow.retry_after = Some(200);
    story.vm("a").trigger().answer_with("a", Ok(slow)).wait(199);
    assert_eq!(story.real("a"), 1);
    story.wait(2);
    assert_eq!(story.real("a"), 2);
}

#[test]
fn a_vmi_that_cannot_be_read_is_asked_about() {
    let mut story = Story::full();
    story.vm("a");
    story.vmis.clear();
    let mut picture = story.picture();
    picture.malformed.push(crate::drain::world::Malformed {
        resource: "virtualmachineinstances".into(),
        object: "vms/a".into(),
        why: "spec.domain is no object".into(),
    });
    story.trigger();
    story.waiting.clear();
    story.machine = Machine::new(policy(), 7);
    story.input(Input::Trigger(Token(1), Trigger::default()));
    story.input(Input::Picture(Box::new(picture)));
    assert_eq!(story.asked(), ["a?"]);
}

#[test]
fn a_pod_that_cannot_be_read_keeps_the_node_from_being_empty() {
    let mut story = Story::full();
    story
        .confirm_malformed
        .push(crate::drain::world::Malformed {
            resource: "pods".into(),
            object: "vms/x".into(),
            why: "metadata.uid is missing".into(),
        });
    story.shutdown().wait(120);
    assert_eq!(story.releases, 0);
    assert!(story.was_told("does not count as empty"));
    story.confirm_malformed.clear();
    story.wait(20);
    assert_eq!(story.releases, 1);
}

#[test]
fn a_kind_that_cannot_be_listed_is_done_without_in_the_end() {
    let mut story = Story::full();
    story.confirm_unread = vec!["cannot list VMIs: conversion webhook failed".into()];
    story.shutdown().wait(50);
    assert_eq!(story.releases, 0);
    assert!(story.was_told("cannot confirm that the node is empty: cannot list VMIs"));
    story.wait(30);
    assert_eq!(story.releases, 1);
    assert!(story.was_told("this node's pods alone tell whether a VM is left"));
}

#[test]
fn kinds_that_do_not_answer_are_not_waited_for_for_ever() {
    for sight in 0..3 {
        let mut story = Story::full();
        story.vm("a");
        let mut picture = story.picture();
        match sight {
            0 => picture.vmis = Sight::Pending,
            1 => picture.migrations = Sight::Pending,
            _ => picture.kubevirt = Sight::Pending,
        }
        story.input(Input::Trigger(Token(1), Trigger::default()));
        story.input(Input::Picture(Box::new(picture))).wait(9);
        assert!(story.posts.is_empty());
        story.wait(2);
        assert_eq!(story.posts.len(), 1, "sight {sight}");
    }
}

#[test]
fn what_is_not_seen_is_told() {
    let mut story = Story::base();
    story.vm("a").trigger();
    assert_eq!(story.status().blind.len(), 4);
    assert!(story.was_told("VMIs cannot be seen (not allowed)"));
}
