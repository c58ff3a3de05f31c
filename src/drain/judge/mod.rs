//! The verdict on one VM, from the newest picture: pure, level-triggered, without memory of events.

mod answers;

use super::answer::Answer;
use super::policy::Timing;
use super::status::VmPhase;
use super::stop::{HandlerDoubt, StopWhy};
use super::time::Mono;
use super::track::Track;
use super::verdict::{Blocked, Ignore, Lane, Verdict, Wait};
use super::world::{
    Compute, MigrationPhase, MigrationState, MigrationView, PdbView, Picture, PodKind, PodView,
    Strategy, VmName, VmiPhase, VmiView,
};
use answers::{asked, lane_or_pause};
use std::collections::{BTreeMap, BTreeSet};

/// Everything about one VM that a verdict needs.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// Its launcher pod here, if there is one.
    pub pod: Option<&'a PodView>,
    /// Its VMI, where VMIs can be seen and this one is there.
    pub vmi: Option<&'a VmiView>,
    /// VMIs can be seen at all.
    pub vmis_seen: bool,
    /// Its VMI is there but could not be read.
    pub vmi_malformed: bool,
    /// Its VMIMs, oldest first.
    pub migrations: &'a [&'a MigrationView],
    /// What we remember of it.
    pub track: &'a Track,
    /// Its guest is to be stopped.
    pub stop: Option<&'a StopWhy>,
}

/// What the verdict needs besides the VM itself.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Our node.
    pub node: &'a str,
    /// Eviction strategy of VMIs that have none; `None` where the KubeVirt object cannot be seen.
    pub strategy: Option<Strategy>,
    /// Guests may be shut down: `Ok`, or why not.
    pub consent: Result<(), Consentless>,
    /// virt-handler is known to be alive, or why not: without it no guest is stopped.
    pub handler: Result<(), HandlerDoubt>,
    /// Budgets, where they can be read.
    pub pdbs: &'a [PdbView],
    /// All pods of the picture, for the diagnosis of budgets.
    pub pods: &'a [PodView],
    /// All VMIs of the picture, likewise.
    pub vmis: &'a [VmiView],
    /// Time constants.
    pub timing: &'a Timing,
    /// Now.
    pub now: Mono,
}

/// Why guests may not be shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consentless {
    /// The host stays up and nobody asked for it.
    NotAsked,
    /// The shutdown is only scheduled and may still be called off.
    Scheduled,
    /// The configuration says never.
    Never,
}

/// The verdict.
pub fn verdict(case: &Case<'_>, frame: &Frame<'_>) -> Verdict {
    let Some(pod) = case.pod else {
        return without_pod(case, frame);
    };
    match pod.kind {
        PodKind::Hotplug => return Verdict::Ignore(Ignore::Hotplug),
        PodKind::Provisioning => return Verdict::Ignore(Ignore::Provisioning),
        PodKind::Launcher => {}
    }
    if pod.is_empty_of_guest() {
        return Verdict::Gone;
    }
    if pod.deleting || case.track.granted.is_some() || case.track.stopped_by_us() {
        return Verdict::Wait(match &case.track.stop {
            Some(stop) => Wait::Stopping {
                why: stop.why.clone(),
            },
            None => Wait::ShuttingDown,
        });
    }
    if let Some(verdict) = stopped(case, pod, frame) {
        return verdict;
    }
    if case.track.in_flight.is_some() {
        return Verdict::Wait(Wait::Asking);
    }
    match (case.vmi, case.vmis_seen && !case.vmi_malformed) {
        (Some(vmi), _) => with_vmi(case, vmi, frame),
        (None, true) => vmi_not_here(case, pod, frame),
        (None, false) => base_tier(case, pod, frame),
    }
}

/// Its guest is to be stopped, and is the one that is active here; `None`: nothing of that kind.
fn stopped(case: &Case<'_>, pod: &PodView, frame: &Frame<'_>) -> Option<Verdict> {
    case.stop?;
    let active = match (case.vmi, case.vmis_seen && !case.vmi_malformed) {
        (Some(vmi), _) => vmi.node == frame.node && !vmi.is_final() && !vmi.deleting,
        (None, true) => is_what_is_left(pod, case.track, frame.node),
        (None, false) => !is_inbound(pod, frame.node) && case.track.moved_to.is_none(),
    };
    if !active {
        return None;
    }
    if let Err(doubt) = frame.handler {
        return Some(Verdict::Blocked(Blocked::NoHandler(doubt)));
    }
    Some(match &case.track.stop {
        Some(stop) if stop.in_flight => Verdict::Wait(Wait::Asking),
        Some(stop) if frame.now < stop.not_before => Verdict::Wait(Wait::Retry {
            why: stop.trouble.clone(),
        }),
        Some(_) | None => Verdict::Stop,
    })
}

/// Its VMI is gone and the pod is what is left, as KubeVirt itself has told when its eviction was asked for: no eviction will
/// ever be granted. While the list of VMIs alone says so, it may be behind.
pub fn is_what_is_left(pod: &PodView, track: &Track, node: &str) -> bool {
    let told = matches!(track.last, Some((Answer::VmiGone, _)));
    told && track.moved_to.is_none() && !is_inbound(pod, node)
}

/// A VMI says it is here, its pod was not seen (the pod list is behind).
fn without_pod(case: &Case<'_>, frame: &Frame<'_>) -> Verdict {
    match case.vmi {
        Some(vmi) if vmi.is_final() => Verdict::Gone,
        Some(vmi) if vmi.node != frame.node => Verdict::Wait(Wait::Arriving {
            from: vmi.node.clone(),
        }),
        Some(_) => Verdict::Wait(Wait::PodUnseen),
        None => Verdict::Gone,
    }
}

/// VMIs can be seen, and this pod's is not among those of our node: it has left, or it is gone, or the
/// list is behind.
fn vmi_not_here(case: &Case<'_>, pod: &PodView, frame: &Frame<'_>) -> Verdict {
    let track = case.track;
    if track.moved_to.is_some() || (track.seen_here && track.was_migrating()) {
        return Verdict::Wait(Wait::LeftOver);
    }
    if track.seen_here {
        return Verdict::Wait(Wait::VmiGone);
    }
    if is_inbound(pod, frame.node) {
        return Verdict::Wait(arriving(pod));
    }
    if frame.now.since(case.track.first_seen) < frame.timing.retry_first {
        return Verdict::Wait(Wait::VmiUnseen);
    }
    let verdict = asked(case, frame);
    if verdict == Verdict::Wait(Wait::MigratingUnseen) {
        return Verdict::Wait(Wait::LeftOver);
    }
    verdict
}

/// Full tier.
fn with_vmi(case: &Case<'_>, vmi: &VmiView, frame: &Frame<'_>) -> Verdict {
    if vmi.is_final() || vmi.deleting {
        return Verdict::Wait(Wait::ShuttingDown);
    }
    if vmi.node != frame.node {
        let inbound = vmi.target_node_label.as_deref() == Some(frame.node) || !case.track.seen_here;
        return Verdict::Wait(if inbound {
            Wait::Arriving {
                from: vmi.node.clone(),
            }
        } else {
            Wait::LeftOver
        });
    }
    let strategy = vmi.strategy.or(frame.strategy);
    let moving = case.migrations.iter().any(|m| !m.is_final())
        || vmi
            .migration
            .as_ref()
            .is_some_and(MigrationState::is_running);
    // KubeVirt's controllers pass over a mark on a VM that cannot or should not migrate.
    let passed_over = vmi.live_migratable == Some(false) || strategy == Some(Strategy::None);
    if vmi.mark.is_some() && strategy == Some(Strategy::External) {
        return Verdict::Wait(Wait::External);
    }
    if vmi.mark.is_some() && (moving || !passed_over) {
        return Verdict::Wait(progress(case, vmi, frame));
    }
    if moving {
        let how_far = progress(case, vmi, frame);
        let no_sign = matches!(how_far, Wait::Marked | Wait::MarkedByOthers);
        return Verdict::Wait(if no_sign {
            Wait::ForeignMigration
        } else {
            how_far
        });
    }
    if let Some(waits) = unmarked_after_acceptance(case, frame) {
        return waits;
    }
    let Some(strategy) = strategy else {
        return asked(case, frame);
    };
    let lane = match (strategy, vmi.live_migratable) {
        (Strategy::None, _) => Lane::Shutdown,
        (Strategy::External, _) => Lane::External,
        (Strategy::LiveMigrate | Strategy::LiveMigrateIfPossible, Some(true)) => Lane::Migrate,
        (_, None) if vmi.phase != VmiPhase::Running || young(case, frame) => {
            return Verdict::Wait(Wait::Starting);
        }
        (Strategy::LiveMigrate, _) => {
            return Verdict::Blocked(Blocked::NotMigratable {
                reason: vmi.not_migratable.clone(),
            });
        }
        (Strategy::LiveMigrateIfPossible, _) => Lane::Shutdown,
    };
    lane_or_pause(case, lane, frame)
}

/// A running VM without the condition LiveMigratable gets this long before it counts as not migratable.
fn young(case: &Case<'_>, frame: &Frame<'_>) -> bool {
    frame.now.since(case.track.first_seen) < frame.timing.mark_missing
}

/// Accepted, but the picture shows neither mark nor migration: the picture is behind, or the mark was never
/// written (KubeVirt 1.4), or somebody took it away.
fn unmarked_after_acceptance(case: &Case<'_>, frame: &Frame<'_>) -> Option<Verdict> {
    let accepted = case.track.accepted?;
    let patience = if case.track.seen_mark {
        frame.timing.ask_again
    } else {
        frame.timing.mark_missing
    };
    (frame.now.since(accepted) < patience).then_some(Verdict::Wait(Wait::Marked))
}

/// Its target pod is in the same state for long.
fn unplaced(case: &Case<'_>, frame: &Frame<'_>) -> bool {
    let track = case.track;
    let since = frame.now.since(track.shown_since);
    track.shown == VmPhase::Scheduling && since >= frame.timing.unplaced
}

/// How far the migration of a marked or migrating VM is.
fn progress(case: &Case<'_>, vmi: &VmiView, frame: &Frame<'_>) -> Wait {
    let of_this_drain = |m: &&&MigrationView| {
        m.phase == MigrationPhase::Failed && case.track.attempts.contains(&m.migration.uid)
    };
    let failed: Vec<_> = case.migrations.iter().filter(of_this_drain).collect();
    let why = failed.last().map(|m| m.failure_reason.clone());
    let why = why.unwrap_or_default();
    let failed = u32::try_from(failed.len()).unwrap_or(u32::MAX);
    let state = vmi.migration.as_ref();
    let to = |uid: &str| {
        state
            .filter(|s| s.migration_uid == uid)
            .map(|s| s.target_node.clone())
            .unwrap_or_default()
    };
    match case.migrations.iter().rev().find(|m| !m.is_final()) {
        Some(m) if !m.held_back.is_empty() => Wait::HeldBack(m.held_back.clone()),
        Some(m) => match m.phase {
            MigrationPhase::New | MigrationPhase::Pending if failed > 0 => {
                Wait::Backoff { failed, why }
            }
            MigrationPhase::New | MigrationPhase::Pending => Wait::InQueue,
            MigrationPhase::Scheduling if unplaced(case, frame) => Wait::Unplaced { denied: false },
            MigrationPhase::Scheduling => Wait::Scheduling,
            MigrationPhase::Scheduled
            | MigrationPhase::PreparingTarget
            | MigrationPhase::TargetReady
            | MigrationPhase::Running
            | MigrationPhase::Unknown
            | MigrationPhase::Succeeded
            | MigrationPhase::Failed => Wait::Migrating {
                to: to(&m.migration.uid),
            },
        },
        None if state.is_some_and(MigrationState::is_running) => Wait::Migrating {
            to: state.map(|s| s.target_node.clone()).unwrap_or_default(),
        },
        None if failed > 0 => Wait::Backoff { failed, why },
        None if case.track.ours || case.track.accepted.is_some() || case.track.maybe_ours => {
            Wait::Marked
        }
        None => Wait::MarkedByOthers,
    }
}

/// Base tier: nothing but the pod and the answers.
fn base_tier(case: &Case<'_>, pod: &PodView, frame: &Frame<'_>) -> Verdict {
    if is_inbound(pod, frame.node) {
        return Verdict::Wait(arriving(pod));
    }
    if pod.compute == Compute::Waiting && young(case, frame) {
        // Whether it can migrate is not known to KubeVirt before its guest runs.
        return Verdict::Wait(Wait::Starting);
    }
    asked(case, frame)
}

fn arriving(pod: &PodView) -> Wait {
    Wait::Arriving {
        from: pod.vmi_node_label.clone().unwrap_or_default(),
    }
}

/// A fresh target pod still carries the source's name in `kubevirt.io/nodeName` (kubevirt-semantics 3.3).
pub fn is_inbound(pod: &PodView, node: &str) -> bool {
    pod.migration_job.is_some()
        && pod
            .vmi_node_label
            .as_deref()
            .is_some_and(|label| label != node)
}

/// VMIs (by UID) whose guest kubelet's graceful node shutdown has ended here: a pod says so, and no other pod of theirs
/// has one. virt-handler goes in the same wave, so nobody corrects the VMI, which goes on to say that it runs; and
/// kubelet starts no pod any more (real-host.md 2).
pub fn ended_by_kubelet(picture: &Picture) -> BTreeMap<&str, &VmName> {
    let pods = picture.pods.seen().map_or(&[][..], Vec::as_slice);
    let of_vmis = pods
        .iter()
        .filter(|pod| pod.kind == PodKind::Launcher && !pod.vmi_uid.is_empty());
    let (over, alive): (Vec<_>, Vec<_>) = of_vmis.partition(|pod| pod.is_empty_of_guest());
    let alive: BTreeSet<_> = alive.iter().map(|pod| pod.vmi_uid.as_str()).collect();
    over.into_iter()
        .filter(|pod| pod.stopped_by.is_some() && !alive.contains(pod.vmi_uid.as_str()))
        .map(|pod| (pod.vmi_uid.as_str(), &pod.vm))
        .collect()
}

/// The node holds no VM according to these lists (design section 3.4), but for those that are left alone. Answers with
/// the VMs that are left.
pub fn left_here<'a>(
    picture: &'a Picture,
    node: &str,
    lingering: impl Fn(&PodView) -> bool,
    alone: &BTreeSet<VmName>,
) -> Vec<&'a str> {
    let pods = picture.pods.seen().into_iter().flatten();
    let pods =
        pods.filter(|p| p.kind == PodKind::Launcher && !p.is_empty_of_guest() && !lingering(p));
    let pods = pods.filter(|p| !alone.contains(&p.vm));
    let vmis = picture.vmis.seen().into_iter().flatten();
    let ended = ended_by_kubelet(picture);
    let vmis = vmis.filter(|v| {
        let here = v.node == node && !ended.contains_key(v.vmi.uid.as_str());
        !v.is_final()
            && !alone.contains(&v.vm())
            && (here || v.target_node_label.as_deref() == Some(node))
    });
    let migrations = picture
        .migrations
        .seen()
        .into_iter()
        .flatten()
        .filter(|m| !m.is_final() && !alone.contains(&m.vm))
        // KubeVirt goes on to ask for migrations of a guest that is no more.
        .filter(|m| m.target_node == node || !ended.values().any(|vm| **vm == m.vm));
    let us = |m: &&MigrationView| {
        m.source_node == node || m.target_node == node || m.evacuates.as_deref() == Some(node)
    };
    let migrations = migrations.filter(us);
    let names = pods
        .map(|p| p.vm.name.as_str())
        .chain(vmis.map(|v| v.vmi.name.as_str()));
    names
        .chain(migrations.map(|m| m.vm.name.as_str()))
        .collect()
}

#[cfg(test)]
mod tests;
