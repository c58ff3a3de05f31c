//! One step: from the newest picture to the requests that are due now. Level-triggered.

use super::{Machine, Pending};
use crate::drain::action::{Action, Level, Notice};
use crate::drain::judge::{Frame, left_here, verdict};
use crate::drain::pacing::{self, Slots};
use crate::drain::phase::Phase;
use crate::drain::policy::Pacing;
use crate::drain::status::VmPhase;
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::verdict::{Lane, Verdict, Wait};
use crate::drain::world::{ObjectRef, PodView, Sight};
use std::time::Duration;

/// virt-api 1.5 allows itself 5 requests a second: of 60 simultaneous evictions 33 answered 500
/// (control-plane-versions 1, "many evictions at once").
const POSTS_IN_FLIGHT: usize = 10;

impl Machine {
    /// Does everything that is due, and computes when to look again.
    pub(super) fn advance(&mut self, now: Mono) {
        self.wake = None;
        match self.phase {
            Phase::Preparing | Phase::Evacuating | Phase::Confirming => self.drain_step(now),
            Phase::Cancelling => self.cancel_step(now),
            Phase::Drained | Phase::Deadline => self.end_step(now),
            Phase::Idle | Phase::Cancelled | Phase::Refused => {}
        }
    }

    fn drain_step(&mut self, now: Mono) {
        let Some(deadline) = self.drain.as_ref().map(|d| d.deadline) else {
            return;
        };
        if now >= deadline {
            self.deadline_reached(now);
            return;
        }
        self.wake_at(deadline, "deadline");
        self.want_cordon(now);
        let cordoned = self.drain.as_ref().is_some_and(|d| d.cordoned);
        let seen = self.looked_around(now);
        if self.phase == Phase::Preparing && cordoned && seen {
            self.phase = Phase::Evacuating;
            self.tell_plan(now);
        }
        if self.phase == Phase::Preparing || !seen {
            return;
        }
        let due = self.show_all(now);
        if cordoned {
            self.send(due, now);
            self.maybe_confirm(now);
        }
        self.persist();
    }

    /// The pods are seen, and the other kinds have said yes or no, or have had their time.
    fn looked_around(&mut self, now: Mono) -> bool {
        let settled = self.picture.vmis.settled()
            && self.picture.migrations.settled()
            && self.picture.kubevirt.settled();
        let Some(since) = self.drain.as_ref().map(|d| d.looking_since) else {
            return false;
        };
        let patience = since + self.policy.timing.request;
        if !settled && now < patience {
            self.wake_at(patience, "kinds that do not answer");
        }
        self.picture.pods.seen().is_some() && (settled || now >= patience)
    }

    /// Computes every VM's verdict, shows it, and answers with what is due.
    fn show_all(&mut self, now: Mono) -> Due {
        let slots = pacing::count(
            &self.picture,
            &self.policy.node_name,
            &self.tracks,
            &self.policy.timing,
            now,
        );
        let slots = self.join_the_queue(slots, now);
        let strategy = self
            .picture
            .kubevirt
            .seen()
            .map_or(crate::drain::world::Strategy::None, |k| k.strategy);
        let pdbs = self.picture.pdbs.seen().cloned().unwrap_or_default();
        let timing = self.policy.timing;
        let node = self.policy.node_name.clone();
        let frame = Frame {
            node: &node,
            strategy,
            consent: self.consent(),
            pdbs: &pdbs,
            timing: &timing,
            now,
        };
        let mut due = Due {
            slots,
            ..Due::default()
        };
        let mut shows = Vec::new();
        for (key, track) in self.tracks.iter().filter(|(_, t)| t.ended.is_none()) {
            let migrations = self.migrations_of(&track.vm);
            let verdict = verdict(&self.case(track, &migrations), &frame);
            match &verdict {
                Verdict::Evict(Lane::Migrate) => due.migrate.push((track.memory, key.clone())),
                Verdict::Evict(Lane::Shutdown | Lane::External) => due.at_once.push(key.clone()),
                Verdict::Ask => due.ask.push(key.clone()),
                Verdict::Ignore(_) | Verdict::Wait(_) | Verdict::Blocked(_) | Verdict::Gone => {}
            }
            shows.push((key.clone(), verdict));
        }
        // Longest first; equal ones by key, so that the order is the same on every run.
        due.migrate
            .sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        for (key, verdict) in shows {
            let ahead = due.migrate.iter().position(|(_, k)| *k == key).unwrap_or(0);
            self.show(&key, &verdict, ahead, slots, now);
            self.wake_for(&key, &verdict, now);
        }
        due
    }

    /// While others fill the cluster's slots our VMs would never enter KubeVirt's queue: after some
    /// patience they join it.
    fn join_the_queue(&mut self, mut slots: Slots, now: Mono) -> Slots {
        let patience = self.policy.timing.queue_patience;
        let Some(drain) = &mut self.drain else {
            return slots;
        };
        if !slots.only_cluster_full() {
            drain.cluster_full = None;
            return slots;
        }
        let since = *drain.cluster_full.get_or_insert(now);
        if now.since(since) >= patience {
            slots.cluster_limit =
                slots.cluster_used + slots.node_limit.saturating_sub(slots.node_used);
        } else {
            self.wake_at(since + patience, "join KubeVirt's queue");
        }
        slots
    }

    fn send(&mut self, due: Due, now: Mono) {
        let in_flight = self
            .pending
            .values()
            .filter(|p| matches!(p, Pending::Evict { .. }))
            .count();
        let mut room = POSTS_IN_FLIGHT.saturating_sub(in_flight);
        let free = match self.policy.pacing {
            Pacing::All => usize::MAX,
            Pacing::Slots => usize::try_from(due.slots.free()).unwrap_or(usize::MAX),
        };
        let migrate = due
            .migrate
            .into_iter()
            .take(free)
            .map(|(_, key)| (key, false));
        let at_once = due.at_once.into_iter().map(|key| (key, false));
        let ask = due.ask.into_iter().map(|key| (key, true));
        let mut batch = Vec::new();
        for (key, dry) in migrate.chain(at_once).chain(ask) {
            if room == 0 {
                break;
            }
            let Some(track) = self.tracks.get(&key) else {
                continue;
            };
            if track.pod.uid.is_empty() {
                continue;
            }
            room -= 1;
            batch.push((key, dry, track.pod.clone()));
        }
        self.post(batch, now);
    }

    fn post(&mut self, batch: Vec<(String, bool, ObjectRef)>, now: Mono) {
        let mut evictions = Vec::new();
        for (key, dry, pod) in batch {
            let id = self.effect(Pending::Evict {
                key: key.clone(),
                dry,
            });
            let Some(track) = self.tracks.get_mut(&key) else {
                continue;
            };
            track.in_flight = Some((id, dry));
            if !dry {
                track.posts += 1;
                track.first_post.get_or_insert(now);
                track.class = None;
            }
            if track.shown == VmPhase::Queued && !dry {
                track.says = Wait::Asking.to_string();
            }
            evictions.push(Action::Evict {
                id,
                pod,
                dry_run: dry,
            });
        }
        if evictions.is_empty() {
            return;
        }
        // Written down before anything is sent: after a crash the marks are known to be ours.
        self.persist();
        self.actions.extend(evictions);
    }

    /// When this VM has to be looked at again although nothing happens.
    fn wake_for(&mut self, key: &str, verdict: &Verdict, now: Mono) {
        let Some(track) = self.tracks.get(key) else {
            return;
        };
        let timing = self.policy.timing;
        let mut times = Vec::new();
        if track.not_before > now && !matches!(verdict, Verdict::Gone | Verdict::Ignore(_)) {
            times.push((track.not_before, "ask again"));
        }
        if let Some(accepted) = track.accepted {
            times.push((accepted + timing.mark_missing, "mark missing"));
            times.push((accepted + timing.ask_again, "mark vanished"));
            times.push((accepted + timing.slot_patience, "slot patience"));
        }
        match verdict {
            Verdict::Wait(Wait::VmiUnseen) => {
                times.push((track.first_seen + timing.retry_first, "VMI unseen"))
            }
            Verdict::Wait(Wait::Starting) => {
                times.push((track.first_seen + timing.mark_missing, "VM starting"))
            }
            Verdict::Wait(Wait::LeftOver) => {
                times.extend(
                    track
                        .moved_since
                        .map(|at| (at + timing.linger, "old pod lingers")),
                );
            }
            _ => {}
        }
        for (when, why) in times {
            if when > now {
                self.wake_at(when, why);
            }
        }
    }

    /// Nothing seems to be left: only fresh lists may say so (design section 3.4).
    fn maybe_confirm(&mut self, now: Mono) {
        let evicting = self.waits_for(|p| matches!(p, Pending::Evict { .. }));
        let node = self.policy.node_name.clone();
        let left = !left_here(&self.picture, &node, |pod| self.lingers(pod, now)).is_empty();
        if left || evicting {
            if self.phase == Phase::Confirming {
                self.phase = Phase::Evacuating;
            }
            return;
        }
        if self.waits_for(|p| matches!(p, Pending::Confirm { .. })) {
            return;
        }
        self.phase = Phase::Confirming;
        if now < self.retry_at {
            self.wake_at(self.retry_at, "confirm again");
            return;
        }
        let id = self.effect(Pending::Confirm { since: now });
        self.actions.push_back(Action::Confirm(id));
    }

    /// Its VM has moved for longer than a source pod needs to end: only a sidecar, or a forgotten process,
    /// is left (kubevirt#5657, #15711). Known in the full tier only.
    pub(super) fn lingers(&self, pod: &PodView, now: Mono) -> bool {
        let Some(track) = self.tracks.get(&pod.pod.uid) else {
            return false;
        };
        let unfinished = self.migrations_of(&track.vm).iter().any(|m| !m.is_final());
        let moved = track
            .moved_since
            .is_some_and(|at| now.since(at) >= self.policy.timing.linger);
        moved && !unfinished && track.moved_to.is_some() && self.picture.migrations.seen().is_some()
    }

    fn show(&mut self, key: &str, verdict: &Verdict, ahead: usize, slots: Slots, now: Mono) {
        let Some(track) = self.tracks.get_mut(key) else {
            return;
        };
        let (phase, says) = shown(track, verdict, ahead, slots);
        if let Verdict::Wait(Wait::Migrating { to }) = verdict
            && !to.is_empty()
        {
            track.target = Some(to.clone());
        }
        let changed = track.shown != phase;
        if changed {
            track.shown = phase;
            track.shown_since = now;
        }
        let tell = says != track.says && phase == VmPhase::Blocked;
        track.says = says;
        if tell {
            let text = format!("{}: {}", track.vm, track.says);
            let vm = track.vmi();
            self.tell_vm(Level::Warn, "VmBlocked", text, vm);
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
                event: true,
            }));
        }
    }

    fn tell_plan(&mut self, now: Mono) {
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
}

/// What is due now.
#[derive(Debug, Default)]
struct Due {
    slots: Slots,
    migrate: Vec<(u64, String)>,
    at_once: Vec<String>,
    ask: Vec<String>,
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
        Wait::Scheduling => VmPhase::Scheduling,
        Wait::Migrating { .. }
        | Wait::MigratingUnseen
        | Wait::ForeignMigration
        | Wait::LeftOver => VmPhase::Migrating,
        Wait::Arriving { .. } => VmPhase::Arriving,
        Wait::ShuttingDown | Wait::VmiGone | Wait::PodGone => VmPhase::ShuttingDown,
        Wait::Asking => track.shown,
        Wait::Slot { .. } | Wait::ClusterSlots { .. } => VmPhase::Queued,
        Wait::Starting
        | Wait::VmiUnseen
        | Wait::NamespaceTerminating
        | Wait::Retry { .. }
        | Wait::PodUnseen => VmPhase::Waiting,
    }
}

/// `1h 5m`, `90s`: short and exact enough for people.
pub(super) fn span(d: Duration) -> String {
    let s = d.as_secs();
    match (s / 3600, s % 3600 / 60, s % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m {s}s"),
        (h, m, _) => format!("{h}h {m}m"),
    }
}
