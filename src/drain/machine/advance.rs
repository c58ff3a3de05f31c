//! One step: from the newest picture to the requests that are due now. Level-triggered.

use super::Machine;
use super::index::Index;
use super::lots::stays;
use super::pending::Pending;
use crate::drain::action::Action;
use crate::drain::answer::Answer;
use crate::drain::hooks::Gate;
use crate::drain::judge::{Case, Frame, left_here, verdict};
use crate::drain::pacing::{self, Slots};
use crate::drain::phase::Phase;
use crate::drain::policy::Pacing;
use crate::drain::status::VmPhase;
use crate::drain::stop::StopWhy;
use crate::drain::time::Mono;
use crate::drain::verdict::{Lane, Verdict, Wait};
use crate::drain::world::{ObjectRef, PodView};
use std::collections::BTreeMap;
use std::time::Duration;

/// virt-api 1.5 allows itself 5 requests a second: of 60 simultaneous evictions 33 answered 500
/// (control-plane-versions 1, "many evictions at once").
const POSTS_IN_FLIGHT: usize = 10;

impl Machine {
    /// Does everything that is due, and computes when to look again.
    pub(super) fn advance(&mut self, now: Mono) {
        self.expire(now);
        self.wake = None;
        self.hold_step(now);
        if self.phase.is_draining() {
            self.drain_step(now);
        }
        // A step may have ended the drain: what follows is due at once.
        match self.phase {
            Phase::Cancelling => self.cancel_step(now),
            Phase::Drained | Phase::Deadline | Phase::Refused => self.end_step(now),
            Phase::Preparing
            | Phase::Evacuating
            | Phase::FallingBack
            | Phase::Holding
            | Phase::Confirming
            | Phase::OtherPods
            | Phase::Gates
            | Phase::Idle
            | Phase::Restoring
            | Phase::Cancelled => {}
        }
        self.restore_step(now);
        self.starts_step(now);
        self.request_step(now);
        self.wake_for_pending();
    }

    fn drain_step(&mut self, now: Mono) {
        let Some(deadline) = self.drain.as_ref().map(|d| d.deadline) else {
            return;
        };
        if self.waits_for_the_host(now) {
            return;
        }
        if now >= deadline && !self.goes_on() {
            self.deadline_reached(now);
            return;
        }
        if now < deadline {
            self.wake_at(deadline, "deadline");
        }
        self.want_cordon(now);
        if self.phase == Phase::Gates {
            // The hooks' end, or that of the volumes, decides what is next.
            self.volumes_step(now);
            if self.phase == Phase::Gates {
                return self.persist();
            }
        }
        if self.only_cordons() {
            return self.persist();
        }
        if self.local_step(now) {
            return self.persist();
        }
        let cordoned = self.drain.as_ref().is_some_and(|d| d.cordoned);
        let seen = self.looked_around(now);
        let mut begun = false;
        if self.phase == Phase::Preparing && cordoned && seen {
            if !self.passes(Gate::PreDrain, now) {
                return self.persist();
            }
            self.phase = self.working();
            self.forget_marks_elsewhere();
            self.tell_plan(now);
            begun = true;
        }
        let uncordoned = seen && !cordoned && self.must_stop_uncordoned(now);
        if self.phase == Phase::Preparing || !seen {
            return;
        }
        let due = self.show_all(now);
        if begun {
            self.warn_of_time(now);
        }
        if !matches!(self.phase, Phase::Confirming | Phase::OtherPods) {
            self.phase = self.working();
        }
        if self.phase != Phase::OtherPods {
            self.others_wait(now);
        }
        if cordoned {
            if self.send(due, now) {
                // What was sent takes slots: the others' places in the queue have changed.
                self.show_all(now);
            }
            self.targets_step(now);
            self.maybe_confirm(now);
        } else if uncordoned {
            self.stop_uncordoned(due, now);
        }
        self.persist();
    }

    /// Resumed in the middle of a shutdown: the host adapter says in a moment whether it is still pending.
    fn waits_for_the_host(&mut self, now: Mono) -> bool {
        let patience = self.policy.timing.request;
        let until = self
            .drain
            .as_ref()
            .filter(|d| d.unconfirmed)
            .map(|d| d.looking_since + patience);
        match until {
            Some(until) if now < until => {
                self.wake_at(until, "is the shutdown still pending");
                true
            }
            Some(_) | None => false,
        }
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
        self.slots = slots;
        let slots = self.join_the_queue(slots, now);
        let picture = &self.picture;
        let timing = self.policy.timing;
        let frame = Frame {
            node: &self.policy.node_name,
            strategy: picture.kubevirt.seen().map(|k| k.strategy),
            consent: self.consent(),
            handler: self.handler(now),
            pdbs: picture.pdbs.seen().map_or(&[], Vec::as_slice),
            pods: picture.pods.seen().map_or(&[], Vec::as_slice),
            vmis: picture.vmis.seen().map_or(&[], Vec::as_slice),
            timing: &timing,
            now,
        };
        let mut due = Due {
            slots,
            ..Due::default()
        };
        let mut shows = Vec::new();
        let no_more = self.starts_no_more();
        let index = Index::of(picture);
        let mut wanted = self.wanted(&index, now);
        for (key, track) in self.tracks.iter().filter(|(_, t)| t.ended.is_none()) {
            let case = Case {
                stop: wanted.stops.get(key),
                ..index.case(track)
            };
            let fate = self.foresee(&case, &frame);
            let verdict = self.by_policy(verdict(&case, &frame), &case, &frame);
            let verdict = self.with_schedulers_words(verdict, case.migrations);
            let verdict = in_time(verdict, wanted.too_late.contains(key));
            match &verdict {
                Verdict::Evict(Lane::Migrate) if no_more => {}
                Verdict::Evict(Lane::Migrate) => due.migrate.push((track.memory, key.clone())),
                Verdict::Evict(Lane::Shutdown | Lane::External) => due.at_once.push(key.clone()),
                Verdict::Stop => {
                    let grace = case.pod.map(|pod| pod.grace).unwrap_or_default();
                    let why = wanted.stops.get(key).cloned();
                    due.stop.extend(why.map(|why| (grace, key.clone(), why)));
                }
                Verdict::Ask => due.ask.push((track.memory, key.clone())),
                Verdict::Ignore(_) | Verdict::Wait(_) | Verdict::Blocked(_) | Verdict::Gone => {}
            }
            shows.push((key.clone(), verdict, fate));
        }
        due.aborts = std::mem::take(&mut wanted.aborts);
        self.note_wanted(&wanted, now);
        // Longest first, unless somebody's moment comes earlier; equal ones by key, so that the order is the same on every run.
        let place = |key: &String| wanted.turns.get(key).copied().unwrap_or(usize::MAX);
        let longest = |a: &(u64, String), b: &(u64, String)| {
            let by_place = place(&a.1).cmp(&place(&b.1));
            by_place.then(b.0.cmp(&a.0)).then(a.1.cmp(&b.1))
        };
        due.migrate.sort_by(longest);
        due.ask.sort_by(longest);
        due.stop
            .sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let places = due.migrate.iter().enumerate();
        let places: BTreeMap<&str, usize> = places.map(|(at, (_, k))| (k.as_str(), at)).collect();
        for (key, verdict, fate) in shows {
            self.learn_fate(&key, fate);
            if let Some(track) = self.tracks.get_mut(&key) {
                track.lot.left_alone = stays(&verdict);
            }
            let ahead = places.get(key.as_str()).copied().unwrap_or(0);
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

    /// Sends what the slots allow; true when anything was sent.
    fn send(&mut self, due: Due, now: Mono) -> bool {
        self.send_aborts(due.aborts, now);
        let stops = due.stop.into_iter().map(|(_, key, why)| (key, why));
        let stopped = self.send_stops(stops.collect(), now);
        let mut room = POSTS_IN_FLIGHT.saturating_sub(self.posts_in_flight());
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
        let ask = due.ask.into_iter().map(|(_, key)| (key, true));
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
        let any = !batch.is_empty();
        self.post(batch, now);
        any || stopped
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
        times.extend(
            self.own_deadline(track)
                .map(|at| (at, "the deadline of one VM")),
        );
        if let Some(stop) = &track.stop {
            times.push((stop.not_before, "stop again"));
        }
        if let Some((_, at)) = track.last {
            times.push((at + timing.slot_patience, "long silence"));
        }
        match verdict {
            Verdict::Wait(Wait::VmiUnseen) => {
                times.push((track.first_seen + timing.retry_first, "VMI unseen"));
            }
            Verdict::Wait(Wait::Settling) => {
                times.extend(
                    track
                        .arrived
                        .map(|at| (at + timing.settle, "arrived VM settles")),
                );
            }
            Verdict::Wait(Wait::OwnerUnread) => {
                times.push((track.first_seen + timing.request, "VM unread"));
            }
            Verdict::Wait(Wait::Scheduling) => {
                times.push((track.shown_since + timing.unplaced, "is it placed"));
            }
            Verdict::Wait(Wait::Starting) => {
                times.push((track.first_seen + timing.mark_missing, "VM starting"));
            }
            Verdict::Wait(Wait::LeftOver) => {
                times.extend(
                    track
                        .moved_since
                        .map(|at| (at + timing.linger, "old pod lingers")),
                );
            }
            Verdict::Blocked(_) => {
                let last = track.last.as_ref().map(|(_, at)| *at);
                times.extend(last.map(|at| (at + timing.refused_most, "consent or not")));
            }
            Verdict::Wait(_)
            | Verdict::Ignore(_)
            | Verdict::Evict(_)
            | Verdict::Stop
            | Verdict::Ask
            | Verdict::Gone => {}
        }
        for (when, why) in times {
            if when > now {
                self.wake_at(when, why);
            }
        }
    }

    /// Nothing seems to be left: only fresh lists may say so (design section 3.4).
    pub(super) fn maybe_confirm(&mut self, now: Mono) {
        let evicting =
            self.waits_for(|p| matches!(p, Pending::Evict { .. } | Pending::StopGuest { .. }));
        let node = self.policy.node_name.clone();
        let alone = self.left_alone();
        let lingers = |pod: &PodView| self.lingers(pod, now);
        let left = !left_here(&self.picture, &node, lingers, &alone).is_empty();
        if left || evicting || self.owes_now() {
            if matches!(self.phase, Phase::Confirming | Phase::OtherPods) {
                self.phase = self.working();
            }
            return;
        }
        if self.phase == Phase::OtherPods && self.others_step(now) {
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
        let others = self.all_pods();
        self.actions.push_back(Action::Confirm { id, others });
    }

    /// Its VM has moved for longer than a source pod needs to end: only a sidecar, or a forgotten process,
    /// is left (kubevirt#5657, #15711). Known in the full tier only.
    pub(super) fn lingers(&self, pod: &PodView, now: Mono) -> bool {
        let Some(track) = self.tracks.get(&pod.pod.uid) else {
            return false;
        };
        // `moved_since` is unset while a VMIM of this VM is not over.
        let moved = track
            .moved_since
            .is_some_and(|at| now.since(at) >= self.policy.timing.linger);
        // A left-over from before this process is known by KubeVirt's word that the VM is not active in it.
        let not_active = matches!(track.last, Some((Answer::NotTheActivePod, _)));
        let known = track.moved_to.is_some() || not_active;
        moved && known && self.picture.migrations.seen().is_some()
    }
}

/// What is due now.
#[derive(Debug, Default)]
pub(super) struct Due {
    slots: Slots,
    migrate: Vec<(u64, String)>,
    at_once: Vec<String>,
    pub(super) stop: Vec<(Duration, String, StopWhy)>,
    aborts: Vec<(String, ObjectRef, StopWhy)>,
    ask: Vec<(u64, String)>,
}

/// A migration that would not end in time is not begun.
fn in_time(verdict: Verdict, late: bool) -> Verdict {
    if late && verdict == Verdict::Evict(Lane::Migrate) {
        return Verdict::Wait(Wait::TooLate);
    }
    verdict
}
