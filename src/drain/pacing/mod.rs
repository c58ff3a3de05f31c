//! How many more VMs may be sent on their way now: the slots of KubeVirt's migration queue, counted as
//! virt-controller counts them (kubevirt-semantics 2.2, control-plane-versions 2.1 and 5).
//!
//! A VM that is evicted when no slot is free waits in a queue that KubeVirt (without the priority-queue gate)
//! looks at only every 5 s; one that is evicted when a slot is free starts at once. The right moment is
//! when a VMIM is final (1.7 and later), or at the flip (up to 1.6).

use super::policy::Timing;
use super::time::Mono;
use super::track::Track;
use super::world::{
    KubeVirtView, MigrationPhase, MigrationView, Picture, Strategy, VmName, VmiView,
};
use std::collections::{BTreeMap, BTreeSet};

/// The count of slots at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Outbound slots of this node.
    pub node_limit: u32,
    /// Used by this node: migrations that run, and VMs that will take a slot next.
    pub node_used: u32,
    /// Slots of the cluster.
    pub cluster_limit: u32,
    /// Used in the cluster, ours included.
    pub cluster_used: u32,
}

impl Slots {
    /// Evictions that would start at once.
    pub fn free(&self) -> u32 {
        let node = self.node_limit.saturating_sub(self.node_used);
        node.min(self.cluster_limit.saturating_sub(self.cluster_used))
    }

    /// Our own share is free, only the cluster's slots are taken.
    pub fn only_cluster_full(&self) -> bool {
        self.node_used < self.node_limit && self.free() == 0
    }
}

/// Counts. `in_flight` are VMs whose eviction was sent or accepted and whose effect is not visible yet.
pub fn count(
    picture: &Picture,
    node: &str,
    tracks: &BTreeMap<String, Track>,
    timing: &Timing,
    now: Mono,
) -> Slots {
    let strategy = picture.kubevirt.seen().map(|k| k.strategy);
    let kubevirt = picture.kubevirt.seen().cloned().unwrap_or_default();
    let (node_limit, cluster_limit) = (kubevirt.per_node.max(1), kubevirt.per_cluster.max(1));
    match (picture.vmis.seen(), picture.migrations.seen()) {
        (Some(vmis), Some(migrations)) => {
            let (active, ours) = active(migrations, vmis, &kubevirt, node);
            let reserved = reserved(
                vmis, migrations, &active, tracks, strategy, node, timing, now,
            );
            let cluster = u32::try_from(active.len()).unwrap_or(u32::MAX);
            Slots {
                node_limit,
                node_used: ours + reserved,
                cluster_limit,
                cluster_used: cluster.saturating_add(reserved),
            }
        }
        (vmis, _) => {
            let used = by_tracks(
                vmis.map(Vec::as_slice).unwrap_or_default(),
                tracks,
                node,
                timing,
                now,
            );
            Slots {
                node_limit,
                node_used: used,
                cluster_limit,
                cluster_used: used,
            }
        }
    }
}

/// VMIMs that hold a slot: Scheduling and later. Answers with their VMs and how many count for our node.
fn active(
    migrations: &[MigrationView],
    vmis: &[VmiView],
    kubevirt: &KubeVirtView,
    node: &str,
) -> (BTreeSet<VmName>, u32) {
    let frees_at_flip = kubevirt.version.is_some_and(|v| v < (1, 7));
    let here: BTreeSet<VmName> = vmis
        .iter()
        .filter(|v| v.node == node)
        .map(VmiView::vm)
        .collect();
    let from_us = |m: &&&MigrationView| {
        here.contains(&m.vm)
            || (!frees_at_flip && (m.source_node == node || m.evacuates.as_deref() == Some(node)))
    };
    let active: Vec<_> = migrations
        .iter()
        .filter(|m| !m.is_final() && m.phase >= MigrationPhase::Scheduling)
        .collect();
    let ours = active.iter().filter(|m| from_us(m)).count();
    (
        active.iter().map(|m| m.vm.clone()).collect(),
        u32::try_from(ours).unwrap_or(u32::MAX),
    )
}

/// VMs of ours that will take the next free slot: marked (by anybody) or just asked for, not yet active and
/// not stalled.
#[allow(
    clippy::too_many_arguments,
    reason = "one count over one picture, called once"
)]
fn reserved(
    vmis: &[VmiView],
    migrations: &[MigrationView],
    active: &BTreeSet<VmName>,
    tracks: &BTreeMap<String, Track>,
    strategy: Option<Strategy>,
    node: &str,
    timing: &Timing,
    now: Mono,
) -> u32 {
    let attempts: BTreeSet<&str> = tracks
        .values()
        .flat_map(|t| t.attempts.iter().map(String::as_str))
        .collect();
    let waiting =
        |m: &&MigrationView| matches!(m.phase, MigrationPhase::New | MigrationPhase::Pending);
    // In KubeVirt's backoff, or held back by a quota or a backup: it takes no slot for now.
    let stalled = |m: &&MigrationView| {
        let failed =
            m.phase == MigrationPhase::Failed && attempts.contains(m.migration.uid.as_str());
        failed || (waiting(m) && !m.held_back.is_empty())
    };
    let queued: BTreeSet<&VmName> = migrations.iter().filter(waiting).map(|m| &m.vm).collect();
    let stalled: BTreeSet<&VmName> = migrations.iter().filter(stalled).map(|m| &m.vm).collect();
    let asked = asked(tracks, timing, now);
    let wants = |v: &&VmiView| {
        let vm = v.vm();
        let coming = v.mark.is_some() || asked.contains(&vm) || queued.contains(&vm);
        let moves = match v.strategy.or(strategy) {
            Some(Strategy::External) => false,
            Some(Strategy::None) => queued.contains(&vm),
            Some(Strategy::LiveMigrate | Strategy::LiveMigrateIfPossible) | None => {
                v.live_migratable != Some(false)
            }
        };
        v.node == node
            && !v.is_final()
            && !v.deleting
            && coming
            && moves
            && !active.contains(&vm)
            && !stalled.contains(&vm)
    };
    u32::try_from(vmis.iter().filter(wants).count()).unwrap_or(u32::MAX)
}

/// VMs whose eviction is on the wire, or was accepted so recently that the picture may not show it.
fn asked(tracks: &BTreeMap<String, Track>, timing: &Timing, now: Mono) -> BTreeSet<VmName> {
    let fresh = |t: &&Track| {
        t.ended.is_none()
            && t.granted.is_none()
            && (t.in_flight.is_some_and(|(_, dry)| !dry)
                || t.accepted
                    .is_some_and(|at| !t.seen_mark && now.since(at) < timing.mark_missing))
    };
    tracks
        .values()
        .filter(fresh)
        .map(|t| t.vm.clone())
        .collect()
}

/// Without VMIMs: every accepted VM holds a slot until its pod ends, or until patience is over.
fn by_tracks(
    vmis: &[VmiView],
    tracks: &BTreeMap<String, Track>,
    node: &str,
    timing: &Timing,
    now: Mono,
) -> u32 {
    let marked: BTreeSet<VmName> = vmis
        .iter()
        .filter(|v| v.node == node && v.mark.is_some())
        .map(VmiView::vm)
        .collect();
    let holds = |t: &&Track| {
        t.ended.is_none()
            && t.granted.is_none()
            && (t.in_flight.is_some_and(|(_, dry)| !dry)
                || t.accepted
                    .is_some_and(|at| now.since(at) < timing.slot_patience)
                || marked.contains(&t.vm))
    };
    u32::try_from(tracks.values().filter(holds).count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
