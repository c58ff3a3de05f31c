//! Tables: who holds a slot, as KubeVirt counts them.

use super::*;
use crate::drain::action::EffectId;
use crate::drain::world::{KubeVirtView, ObjectRef, Sight, VmiPhase};

const NOW: Mono = Mono(1_000_000);

fn name(vm: &str) -> VmName {
    VmName {
        namespace: "vms".into(),
        name: vm.into(),
    }
}

fn seen<T>(value: T) -> Sight<T> {
    Sight::Seen { value, fresh: NOW }
}

fn vmi(vm: &str, marked: bool) -> VmiView {
    VmiView {
        vmi: ObjectRef {
            namespace: "vms".into(),
            name: vm.into(),
            uid: vm.into(),
        },
        phase: VmiPhase::Running,
        node: "n1".into(),
        mark: marked.then(|| "n1".into()),
        live_migratable: Some(true),
        strategy: Some(Strategy::LiveMigrate),
        ..VmiView::default()
    }
}

fn vmim(vm: &str, phase: MigrationPhase) -> MigrationView {
    MigrationView {
        migration: ObjectRef {
            namespace: "vms".into(),
            name: format!("{vm}-m"),
            uid: format!("{vm}-m"),
        },
        vm: name(vm),
        phase,
        evacuates: Some("n1".into()),
        ..MigrationView::default()
    }
}

fn picture(vmis: Vec<VmiView>, migrations: Vec<MigrationView>, version: (u32, u32)) -> Picture {
    Picture {
        vmis: seen(vmis),
        migrations: seen(migrations),
        kubevirt: seen(KubeVirtView {
            version: Some(version),
            ..KubeVirtView::default()
        }),
        ..Picture::default()
    }
}

fn count_of(picture: &Picture, tracks: &[Track]) -> Slots {
    let tracks = tracks
        .iter()
        .map(|t| (t.vm.name.clone(), t.clone()))
        .collect();
    count(picture, "n1", &tracks, &Timing::default(), NOW)
}

fn track(vm: &str) -> Track {
    Track {
        vm: name(vm),
        ..Track::default()
    }
}

#[test]
fn vmims_hold_a_slot_from_scheduling_to_the_end() {
    use MigrationPhase::{
        Failed, New, Pending, PreparingTarget, Running, Scheduled, Scheduling, Succeeded,
        TargetReady, Unknown,
    };
    for (phase, used) in [
        (Scheduling, 1),
        (Scheduled, 1),
        (PreparingTarget, 1),
        (TargetReady, 1),
        (Running, 1),
        (Unknown, 1),
        (Succeeded, 0),
        (Failed, 0),
        // These will take the next one.
        (New, 1),
        (Pending, 1),
    ] {
        let picture = picture(vec![vmi("a", false)], vec![vmim("a", phase)], (1, 8));
        assert_eq!(count_of(&picture, &[]).node_used, used, "{phase:?}");
    }
}

#[test]
fn after_the_flip_the_slot_is_held_to_the_end_from_1_7_on() {
    for (version, used) in [((1, 4), 0), ((1, 6), 0), ((1, 7), 1), ((1, 9), 1)] {
        let picture = picture(vec![], vec![vmim("a", MigrationPhase::Running)], version);
        let slots = count_of(&picture, &[]);
        assert_eq!(slots.node_used, used, "{version:?}");
        assert_eq!(
            slots.cluster_used, 1,
            "{version:?}: the cluster's is held in every one"
        );
    }
}

#[test]
fn the_gate_changes_nothing_in_the_count() {
    let mut with = picture(vec![vmi("a", true)], vec![], (1, 7));
    let without = count_of(&with, &[]);
    if let Sight::Seen { value, .. } = &mut with.kubevirt {
        value.priority_queue = true;
    }
    assert_eq!(count_of(&with, &[]), without);
}

#[test]
fn a_marked_vm_is_counted_once() {
    let marked = picture(vec![vmi("a", true), vmi("b", false)], vec![], (1, 7));
    assert_eq!(count_of(&marked, &[]).node_used, 1);
    let queued = picture(
        vec![vmi("a", true)],
        vec![vmim("a", MigrationPhase::Pending)],
        (1, 7),
    );
    assert_eq!(count_of(&queued, &[]).node_used, 1);
    let runs = picture(
        vec![vmi("a", true)],
        vec![vmim("a", MigrationPhase::Running)],
        (1, 7),
    );
    let accepted = Track {
        accepted: Some(NOW),
        ..track("a")
    };
    assert_eq!(count_of(&runs, &[accepted]).node_used, 1);
}

#[test]
fn what_was_just_asked_for_is_counted_before_it_is_seen() {
    let picture = picture(vec![vmi("a", false)], vec![], (1, 7));
    let in_flight = |dry| Track {
        in_flight: Some((EffectId::default(), dry)),
        ..track("a")
    };
    assert_eq!(count_of(&picture, &[in_flight(false)]).node_used, 1);
    assert_eq!(
        count_of(&picture, &[in_flight(true)]).node_used,
        0,
        "a question takes none"
    );
    let accepted = |ago: u64, seen_mark| Track {
        accepted: Some(Mono(NOW.0 - ago)),
        seen_mark,
        ..track("a")
    };
    assert_eq!(count_of(&picture, &[accepted(1000, false)]).node_used, 1);
    assert_eq!(count_of(&picture, &[accepted(31_000, false)]).node_used, 0);
    assert_eq!(
        count_of(&picture, &[accepted(1000, true)]).node_used,
        0,
        "its mark has gone"
    );
}

#[test]
fn who_takes_no_slot() {
    type Change = fn(&mut VmiView);
    let cases: [(&str, Change); 6] = [
        ("external", |v| v.strategy = Some(Strategy::External)),
        ("stopped instead", |v| v.strategy = Some(Strategy::None)),
        ("not migratable", |v| v.live_migratable = Some(false)),
        ("over", |v| v.phase = VmiPhase::Succeeded),
        ("going", |v| v.deleting = true),
        ("elsewhere", |v| v.node = "n2".into()),
    ];
    for (what, change) in cases {
        let mut marked = vmi("a", true);
        change(&mut marked);
        let slots = count_of(&picture(vec![marked], vec![], (1, 7)), &[]);
        assert_eq!(slots.node_used, 0, "{what}");
    }
}

#[test]
fn backoff_and_quota_free_the_slot_of_this_drains_vms() {
    let mut held = vmim("a", MigrationPhase::Pending);
    held.held_back = "exceeded quota".into();
    let quota = picture(vec![vmi("a", true)], vec![held], (1, 7));
    assert_eq!(count_of(&quota, &[]).node_used, 0);
    let failed = picture(
        vec![vmi("a", true)],
        vec![vmim("a", MigrationPhase::Failed)],
        (1, 7),
    );
    let mut tried = track("a");
    tried.attempts.insert("a-m".into());
    assert_eq!(count_of(&failed, &[tried]).node_used, 0);
    assert_eq!(
        count_of(&failed, &[]).node_used,
        1,
        "a failure of yesterday is no backoff"
    );
}

#[test]
fn both_limits_bound_the_free_slots() {
    for (per_node, per_cluster, others, free) in [
        (2, 5, 0, 2),
        (2, 5, 4, 1),
        (2, 5, 5, 0),
        (5, 3, 0, 3),
        (0, 0, 0, 1),
    ] {
        let busy = (0..others).map(|n| {
            let mut m = vmim(&format!("other{n}"), MigrationPhase::Running);
            m.evacuates = Some("n9".into());
            m
        });
        let mut picture = picture(vec![], busy.collect(), (1, 7));
        if let Sight::Seen { value, .. } = &mut picture.kubevirt {
            value.per_node = per_node;
            value.per_cluster = per_cluster;
        }
        let slots = count_of(&picture, &[]);
        assert_eq!(slots.free(), free, "{per_node} {per_cluster} {others}");
        assert_eq!(slots.only_cluster_full(), others == 5);
    }
}

#[test]
fn without_vmims_an_accepted_vm_holds_its_slot_until_it_ends_or_patience_does() {
    let blind = Picture::default();
    let accepted = |ago: u64| Track {
        accepted: Some(Mono(NOW.0 - ago)),
        ..track("a")
    };
    assert_eq!(count_of(&blind, &[accepted(200_000)]).node_used, 1);
    assert_eq!(count_of(&blind, &[accepted(301_000)]).node_used, 0);
    let mut ended = accepted(1000);
    ended.end(crate::drain::status::VmPhase::Migrated, NOW);
    assert_eq!(count_of(&blind, &[ended]).node_used, 0);
    let granted = Track {
        granted: Some(NOW),
        ..accepted(1000)
    };
    assert_eq!(
        count_of(&blind, &[granted]).node_used,
        0,
        "it is shut down, not moved"
    );
}
