//! What people see of each VM while the drain runs: phase, sentence, notices, and what cannot be seen.

use super::Machine;
use crate::drain::action::{Action, Level, Notice};
use crate::drain::fate::{again, restarts_by_itself};
use crate::drain::pacing::Slots;
use crate::drain::status::VmPhase;
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::verdict::{Lane, Verdict, Wait};
use crate::drain::world::{ObjectRef, Sight};
use std::time::Duration;

/// What is an Event although nothing is wrong.
const TOLD_AS_EVENT: [&str; 4] = ["VmShutDown", "VmStopping", "VmFate", "VmStarted"];

impl Machine {
    pub(super) fn show(
        &mut self,
        key: &str,
        verdict: &Verdict,
        ahead: usize,
        slots: Slots,
        now: Mono,
    ) {
        let Some(track) = self.tracks.get_mut(key) else {
            return;
        };
        let (phase, says) = shown(track, verdict, ahead, slots);
        if let Verdict::Wait(Wait::Migrating { to }) = verdict
            && !to.is_empty()
        {
            track.target = Some(to.clone());
        }
        if let Some(going) = super::estimate::going(verdict) {
            track.goes(going, now);
        }
        let changed = track.shown != phase;
        if changed {
            track.shown = phase;
            track.shown_since = now;
        }
        let unschedulable = matches!(verdict, Verdict::Wait(Wait::Unschedulable { .. }));
        let tell = says != track.says && (unschedulable || phase == VmPhase::Blocked);
        track.says = says;
        if tell {
            let reason = if unschedulable {
                "VmUnschedulable"
            } else {
                "VmBlocked"
            };
            let text = format!("{}: {}", track.vm, track.says);
            let vm = track.vmi();
            self.tell_vm(Level::Warn, reason, text, vm);
        }
    }

    pub(super) fn tell_vm(
        &mut self,
        level: Level,
        reason: &'static str,
        text: String,
        vm: ObjectRef,
    ) {
        // One line per VM and sentence, however often it is repeated (T02).
        let key = format!("{reason}/{}/{}", vm.namespace, vm.name);
        if self.told.get(&key) != Some(&text) {
            self.told.insert(key, text.clone());
            self.actions.push_back(Action::Tell(Notice {
                level,
                reason,
                text,
                vm: Some(vm),
                // Every Event is a request: KubeVirt itself tells of a migration, nobody else of a
                // guest that was shut down for us or of a VM that is stuck.
                event: level != Level::Info || TOLD_AS_EVENT.contains(&reason),
            }));
        }
    }

    pub(super) fn tell_plan(&mut self, now: Mono) {
        let count = self.tracks.len();
        let minutes = self.time_left(now);
        let text = format!(
            "{count} VM(s) to move, {} left until the deadline",
            span(minutes)
        );
        self.tell(Level::Info, "DrainPlanned", text);
        for why in self.blind() {
            self.tell_once(&format!("blind {why}"), Level::Warn, "Blind", why);
        }
    }

    /// What cannot be seen, as sentences.
    pub(super) fn blind(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut look = |kind: &str, sight: Result<(), String>, feeds: &str| {
            if let Err(why) = sight {
                out.push(format!("{kind} cannot be seen ({why}): {feeds}"));
            }
        };
        look(
            "pods",
            sight(&self.picture.pods),
            "the drain waits until they can",
        );
        look(
            "VMIs",
            sight(&self.picture.vmis),
            "reasons and owners are not known, evictions are asked by dry run",
        );
        look(
            "VMs",
            sight(&self.picture.vms),
            "run strategies and policies on the VMs themselves are not known",
        );
        look(
            "VMIMs",
            sight(&self.picture.migrations),
            "progress is not known",
        );
        look(
            "PDBs",
            sight(&self.picture.pdbs),
            "disruption budgets are only known from answers",
        );
        look(
            "the KubeVirt object",
            sight(&self.picture.kubevirt),
            "its default limits are assumed",
        );
        out
    }

    pub(super) fn tell_end(&mut self, key: &str, outcome: VmPhase) {
        let suspect = self.stops_guests();
        let Some(track) = self.tracks.get_mut(key) else {
            return;
        };
        track.shown = outcome;
        let (_, at) = track.ended.unwrap_or_default();
        track.shown_since = at;
        let took = span(at.since(track.first_post.unwrap_or(track.first_seen)));
        track.says = match outcome {
            VmPhase::Migrated => match track.moved_to.as_deref().or(track.target.as_deref()) {
                Some(to) if !to.is_empty() => format!("moved to {to} in {took}"),
                _ => format!("moved to another node in {took}"),
            },
            VmPhase::ShutDown if !track.stopped_by.is_empty() => {
                format!("stopped by {}, not by this drain", track.stopped_by)
            }
            // Whoever ends a guest, KubeVirt deletes its pod afterwards: a deletion alone is no excuse.
            VmPhase::ShutDown if !track.evicted() && !suspect.is_empty() => {
                format!("guest has ended, probably stopped by {suspect}")
            }
            VmPhase::ShutDown if track.seen_failed && track.evicted() => {
                "guest did not end in order (its VMI is Failed): it did not heed the shutdown in its grace period, or was killed".into()
            }
            VmPhase::ShutDown if track.seen_failed => {
                "guest has ended, not by this drain and not in order (its VMI is Failed): it was killed, or has crashed".into()
            }
            VmPhase::ShutDown if track.evicted() && !restarts_by_itself(&track.lot.owner) => {
                let again = again(&track.lot.owner, track.lot.choice.way);
                format!("guest was shut down in {took}; {again}")
            }
            VmPhase::ShutDown => format!("guest was shut down in {took}"),
            VmPhase::Gone
            | VmPhase::Left
            | VmPhase::Queued
            | VmPhase::Marked
            | VmPhase::Scheduling
            | VmPhase::Migrating
            | VmPhase::Arriving
            | VmPhase::ShuttingDown
            | VmPhase::Blocked
            | VmPhase::Waiting => {
                "is gone from this node; whether it moved or ended cannot be seen".into()
            }
        };
        if let Some(to) = &track.moved_to
            && !to.is_empty()
        {
            track.target = Some(to.clone());
        }
        let text = format!("{}: {}", track.vm, track.says);
        let vm = track.vmi();
        track.by_others = outcome == VmPhase::ShutDown
            && (!track.stopped_by.is_empty()
                || (!track.evicted() && !suspect.is_empty())
                // One VM counts once, although its VMI was seen longer than its pod.
                || (!track.evicted() && track.seen_failed && !track.pod.uid.is_empty()));
        let killed = outcome == VmPhase::ShutDown && track.seen_failed;
        let (level, reason) = if track.by_others || (killed && !track.evicted()) {
            (Level::Warn, "VmStoppedByOthers")
        } else if killed {
            (Level::Warn, "VmKilled")
        } else if outcome == VmPhase::ShutDown {
            (Level::Info, "VmShutDown")
        } else {
            (Level::Info, "VmGone")
        };
        let ours = outcome == VmPhase::ShutDown && !track.by_others && track.evicted();
        let name = track.vm.clone();
        self.tell_vm(level, reason, text, vm);
        if ours {
            self.owe(key);
        } else if outcome == VmPhase::Migrated {
            self.owe_nothing(&name);
        }
    }
}

fn sight<T>(sight: &Sight<T>) -> Result<(), String> {
    match sight {
        Sight::Pending | Sight::Seen { .. } => Ok(()),
        Sight::Forbidden { why } | Sight::Broken { why, .. } => Err(why.clone()),
        Sight::Missing => Err("the cluster does not have this kind".into()),
    }
}

/// Phase and sentence for people.
fn shown(track: &Track, verdict: &Verdict, ahead: usize, slots: Slots) -> (VmPhase, String) {
    match verdict {
        Verdict::Ignore(_) => (VmPhase::Waiting, String::new()),
        Verdict::Gone => (track.outcome(), String::new()),
        Verdict::Ask => (
            VmPhase::Queued,
            "will be asked what an eviction would do".into(),
        ),
        Verdict::Evict(Lane::Migrate) if slots.only_cluster_full() => (
            VmPhase::Queued,
            Wait::ClusterSlots {
                limit: slots.cluster_limit,
            }
            .to_string(),
        ),
        Verdict::Evict(Lane::Migrate) => {
            let used = slots.node_used.min(slots.node_limit);
            (
                VmPhase::Queued,
                Wait::Slot {
                    ahead,
                    used,
                    limit: slots.node_limit,
                }
                .to_string(),
            )
        }
        Verdict::Stop => (VmPhase::Queued, "about to be shut down".into()),
        Verdict::Evict(Lane::Shutdown | Lane::External) => {
            (VmPhase::Queued, "about to be evicted".into())
        }
        Verdict::Blocked(why) => (VmPhase::Blocked, why.to_string()),
        Verdict::Wait(why) => (waiting_phase(track, why), why.to_string()),
    }
}

fn waiting_phase(track: &Track, why: &Wait) -> VmPhase {
    match why {
        Wait::Marked
        | Wait::MarkedByOthers
        | Wait::InQueue
        | Wait::Backoff { .. }
        | Wait::HeldBack(_)
        | Wait::External => VmPhase::Marked,
        Wait::Scheduling | Wait::Unplaced { .. } | Wait::Unschedulable { .. } => {
            VmPhase::Scheduling
        }
        Wait::Migrating { .. }
        | Wait::MigratingUnseen
        | Wait::ForeignMigration
        | Wait::LeftOver => VmPhase::Migrating,
        Wait::Arriving { .. } | Wait::Settling => VmPhase::Arriving,
        Wait::ShuttingDown | Wait::Stopping { .. } | Wait::VmiGone | Wait::PodGone => {
            VmPhase::ShuttingDown
        }
        Wait::Asking => track.shown,
        Wait::Slot { .. } | Wait::ClusterSlots { .. } => VmPhase::Queued,
        Wait::Starting
        | Wait::VmiUnseen
        | Wait::NamespaceTerminating
        | Wait::Retry { .. }
        | Wait::Scheduled
        | Wait::TooLate
        | Wait::OwnerUnread
        | Wait::LeftAlone { .. }
        | Wait::GivenUp
        | Wait::Cordon { .. }
        | Wait::PodUnseen => VmPhase::Waiting,
    }
}

/// `1h 5m`, `90s`: short and exact enough for people.
pub(in crate::drain) fn span(d: Duration) -> String {
    let s = d.as_secs();
    match (s / 3600, s % 3600 / 60, s % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m {s}s"),
        (h, m, _) => format!("{h}h {m}m"),
    }
}
