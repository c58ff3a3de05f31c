//! When migrating VMs are evicted: just in time, longest first, as KubeVirt counts its slots.

use super::*;
use crate::drain::policy::Pacing;
use crate::drain::status::VmPhase;

fn five(version: (u32, u32)) -> Story {
    let mut story = Story::full();
    story.version = version;
    for (name, memory) in [("a", 1), ("b", 4), ("c", 2), ("d", 8), ("e", 3)] {
        story.vm(name);
        story.pod(name).memory = Some(memory << 30);
    }
    story
}

/// Marked, and its VMIM in this phase.
fn under_way(story: &mut Story, name: &str, phase: MigrationPhase) {
    story.accepted(name);
    story.migration(name, &format!("{name}-vmim"), phase);
    story.show();
}

#[test]
fn the_longest_go_first_and_only_into_free_slots() {
    let mut story = five((1, 7));
    story.trigger();
    assert_eq!(story.asked(), ["d", "b"]);
    assert!(
        story
            .row("a")
            .says
            .contains("2 of 2 migration slots in use, 2 VM(s) ahead")
    );
    under_way(&mut story, "d", MigrationPhase::Running);
    under_way(&mut story, "b", MigrationPhase::Running);
    story.wait(60);
    assert!(story.asked().is_empty());
    story.moves("b");
    assert_eq!(story.asked(), ["e"]);
}

#[test]
fn the_slot_is_free_when_the_vmim_is_final_and_at_the_flip_before_1_7() {
    for (version, at_flip) in [
        ((1, 4), true),
        ((1, 5), true),
        ((1, 6), true),
        ((1, 7), false),
        ((1, 8), false),
        ((1, 9), false),
    ] {
        let mut story = five(version);
        story.trigger();
        under_way(&mut story, "d", MigrationPhase::Running);
        under_way(&mut story, "b", MigrationPhase::Running);
        story.flips("d");
        story.show();
        assert_eq!(
            story.asked().len(),
            usize::from(at_flip),
            "{version:?} flip"
        );
        story.migration("d", "d-vmim", MigrationPhase::Succeeded);
        story.show();
        assert_eq!(story.asked(), ["e"], "{version:?} final");
    }
}

#[test]
fn the_base_tier_counts_accepted_vms_until_their_pods_end() {
    let mut story = five((1, 7));
    story.full = false;
    story.trigger();
    for name in ["a", "b", "c", "d", "e"] {
        story.answer(name, 429, TRIGGERED);
    }
    let first: Vec<_> = story.asked();
    assert_eq!(first.len(), 2, "{first:?}");
    for name in &first {
        story.accepted(name);
    }
    assert!(story.asked().is_empty());
    let done = first[0].clone();
    story.flips(&done);
    story.show();
    assert!(
        story.asked().iter().all(|n| n.ends_with('?')),
        "its pod still runs"
    );
    story.pod_ends(&done);
    story.show();
    let real = |n: &String| !n.ends_with('?');
    assert_eq!(story.asked().into_iter().filter(real).count(), 1);
}

#[test]
fn guests_that_will_be_shut_down_wait_for_no_slot() {
    let mut story = five((1, 7));
    story.vm_of("n", Strategy::None, true);
    story.vm_of("x", Strategy::External, true);
    story.shutdown();
    let asked = story.asked();
    assert!(
        asked.contains(&"n".into()) && asked.contains(&"x".into()),
        "{asked:?}"
    );
    assert_eq!(asked.len(), 4);
}

#[test]
fn all_at_once_is_ten_at_a_time() {
    let mut policy = policy();
    policy.pacing = Pacing::All;
    let mut story = Story::with(policy, true);
    for at in 0..25 {
        story.vm(&format!("v{at:02}"));
    }
    story.trigger();
    assert_eq!(story.asked().len(), 10);
    let first = story.asked()[0].clone();
    story.accepted(&first);
    assert_eq!(story.asked().len(), 10);
}

#[test]
fn a_vm_in_backoff_gives_its_slot_to_another() {
    let mut story = five((1, 7));
    story.trigger();
    under_way(&mut story, "d", MigrationPhase::Running);
    under_way(&mut story, "b", MigrationPhase::Running);
    story.migration("d", "d-vmim", MigrationPhase::Failed);
    story.migrations.last_mut().unwrap().failure_reason = "qemu said no".into();
    story.migration("d", "d-vmim2", MigrationPhase::Pending);
    story.show();
    assert_eq!(story.asked(), ["e"]);
    let says = story.row("d").says;
    assert!(
        says.contains("1 migration attempt(s) failed (qemu said no)"),
        "{says}"
    );
    assert_eq!(story.row("d").phase, VmPhase::Marked);
}

#[test]
fn an_attempt_that_failed_yesterday_is_no_backoff() {
    let mut story = five((1, 7));
    story.migration("d", "yesterday", MigrationPhase::Failed);
    story.trigger();
    story.accepted("d");
    story.accepted("b");
    assert!(story.asked().is_empty(), "both take the next two slots");
    assert!(!story.row("d").says.contains("failed"));
}

#[test]
fn an_unschedulable_target_keeps_its_slot_as_kubevirt_counts_it() {
    let mut story = five((1, 7));
    story.trigger();
    under_way(&mut story, "d", MigrationPhase::Scheduling);
    under_way(&mut story, "b", MigrationPhase::Running);
    story.wait(200);
    assert!(story.asked().is_empty());
    assert_eq!(story.row("d").phase, VmPhase::Scheduling);
    story.migration("d", "d-vmim", MigrationPhase::Failed);
    story.show();
    assert_eq!(story.asked(), ["e"]);
}

#[test]
fn a_vm_held_back_by_a_quota_takes_no_slot() {
    let mut story = five((1, 7));
    story.trigger();
    under_way(&mut story, "d", MigrationPhase::Pending);
    under_way(&mut story, "b", MigrationPhase::Running);
    story.migrations[0].held_back = "exceeded quota: memory".into();
    story.show();
    assert_eq!(story.asked(), ["e"]);
    assert!(story.row("d").says.contains("exceeded quota"));
}

#[test]
fn other_nodes_fill_the_cluster_and_after_a_while_we_join_the_queue() {
    let mut story = five((1, 7));
    for at in 0..5 {
        let uid = format!("other{at}");
        story.migration(&uid, &uid, MigrationPhase::Running);
        story.migrations.last_mut().unwrap().evacuates = Some("n9".into());
    }
    story.trigger().wait(14);
    assert!(story.asked().is_empty());
    assert!(
        story.row("d").says.contains("taken by other nodes"),
        "{}",
        story.row("d").says
    );
    story.wait(2);
    assert_eq!(story.asked(), ["d", "b"]);
}

#[test]
fn a_user_migration_from_this_node_takes_a_slot() {
    let mut story = five((1, 7));
    story.migration("a", "users", MigrationPhase::Running);
    story.migrations[0].evacuates = None;
    story.trigger();
    assert_eq!(story.asked(), ["d"]);
    assert_eq!(story.real("a"), 0, "it is on its way already");
}

#[test]
fn the_limits_of_the_cluster_are_used() {
    let mut story = five((1, 7));
    let mut picture = story.picture();
    if let Sight::Seen { value, .. } = &mut picture.kubevirt {
        value.per_node = 4;
        value.per_cluster = 3;
    }
    story.input(Input::Trigger(Token(1), Trigger::default()));
    story.input(Input::Picture(Box::new(picture)));
    assert_eq!(story.asked().len(), 3);
}

#[test]
fn an_unknown_cluster_strategy_is_asked_by_dry_run() {
    let mut story = Story::full();
    story.vm("a");
    story.vmi("a").strategy = None;
    let mut picture = story.picture();
    picture.kubevirt = Sight::Missing;
    story.input(Input::Trigger(Token(1), Trigger::default()));
    story.input(Input::Picture(Box::new(picture)));
    assert_eq!(story.asked(), ["a?"]);
    story.answer("a", 429, TRIGGERED);
    assert_eq!(story.asked(), ["a"]);
}

#[test]
fn a_large_node_is_drained_with_one_eviction_each() {
    let mut story = Story::full();
    let names: Vec<String> = (0..150).map(|at| format!("v{at:03}")).collect();
    for name in &names {
        story.vm(name);
    }
    story.trigger();
    while let Some(name) = story.asked().first().cloned() {
        assert!(story.asked().len() <= 2);
        story.accepted(&name);
        story.moves(&name);
    }
    assert_eq!(story.phase(), Phase::Drained);
    assert_eq!(story.posts.len(), names.len());
}
