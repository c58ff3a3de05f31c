//! Whose turn it is to be told by the host itself while the API server is away, and the telling.

use crate::drain::action::{Action, Level};
use crate::drain::fallback::{Guest, Schedule};
use crate::drain::local::{LocalGuest, LocalView};
use crate::drain::machine::Machine;
use crate::drain::machine::pending::Pending;
use crate::drain::machine::show::span;
use crate::drain::status::VmPhase;
use crate::drain::stop::{HandlerDoubt, Stopping, handler_alive};
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::verdict::Blocked;
use crate::drain::ways::Way;
use std::collections::BTreeSet;

impl Machine {
    /// When the first guest has to be told, as far as is known without the server.
    pub(in crate::drain::machine) fn begins_here(&self) -> Option<Mono> {
        let deadline = self.drain.as_ref()?.deadline;
        let here = |t: &&Track| t.ended.is_none() && !self.stays_alone(t);
        let left = self.tracks.values().filter(here);
        Schedule::of(left.map(|t| self.needs(t)).collect(), deadline, Mono(0)).begins()
    }

    fn needs(&self, track: &Track) -> Guest {
        let timing = &self.policy.timing;
        Guest {
            key: track.pod.uid.clone(),
            order: track.order,
            needs: track.grace.saturating_sub(timing.pod_grace_extra) + timing.stop_slack,
        }
    }

    /// Tells whose turn it is.
    pub(super) fn tell_here(&mut self, now: Mono) {
        let Some(drain) = &self.drain else { return };
        let Some((_, view)) = drain.local.view.clone() else {
            return;
        };
        if self.consent().is_err() {
            return;
        }
        let due = self.due_here(&view, now);
        let handler = self.handler_here(&view);
        let silence = span(self.silence(now));
        for guest in view.guests.iter().filter(|g| due.contains(&g.pod_uid)) {
            if let Err(doubt) = handler {
                let says = Blocked::NoHandler(doubt).to_string();
                self.show_here(&guest.pod_uid, VmPhase::Blocked, says, now);
                continue;
            }
            let why = format!(
                "the API server was not reached for {silence}; told on this host itself, the cluster was not told"
            );
            self.tell_guest_here(guest, &why, now);
        }
    }

    /// Pods whose guests are to be told now.
    fn due_here(&mut self, view: &LocalView, now: Mono) -> BTreeSet<String> {
        let Some(drain) = &self.drain else {
            return BTreeSet::new();
        };
        let rack = drain.is_of_the_rack();
        let here: Vec<&Track> = view
            .guests
            .iter()
            .filter_map(|g| self.tracks.get(&g.pod_uid))
            .filter(|t| t.ended.is_none() && !self.stays_alone(t))
            .collect();
        // What its policy has left alone is told when nobody else is here any more.
        let last = |t: &&&Track| t.lot.choice.way == Way::Leave && !rack;
        let only_last = here.iter().all(|t| last(&t));
        let waits = |t: &&Track| !only_last && last(&t) && now < self.latest_here(t);
        let guests = here.iter().filter(|t| !waits(t)).map(|t| self.needs(t));
        let schedule = Schedule::of(guests.collect(), drain.deadline, now);
        let cordoned = drain.cordoned || drain.cordon_ours;
        let hurry = rack || drain.falling.asked;
        // Without a cordon a VM could be started here again: only when there is no more time for anything else.
        let begun = cordoned || hurry || schedule.begins().is_some_and(|at| at <= now);
        let all = self.may_stop() && begun;
        let mut due: BTreeSet<String> = BTreeSet::new();
        if all && rack {
            due.extend(here.iter().map(|t| t.pod.uid.clone()));
        } else if all {
            // Nobody can be migrated from here: the group's turn has come.
            due.extend(schedule.turn(now).map(|g| g.key.clone()));
        }
        // What was asked for before is asked for until it is taken.
        due.extend(
            here.iter()
                .filter(|t| t.stop.is_some())
                .map(|t| t.pod.uid.clone()),
        );
        let mut wakes: Vec<Mono> = schedule.next(now).into_iter().collect();
        wakes.extend(schedule.begins().filter(|_| !begun));
        due.retain(|uid| {
            let Some(track) = self.tracks.get(uid) else {
                return false;
            };
            let moves = self.moves_until(track, now);
            wakes.extend(moves);
            !self.told_already(track) && moves.is_none() && !stops_later(track, now, &mut wakes)
        });
        for at in wakes.into_iter().filter(|at| *at > now) {
            self.wake_at(at, "guests on this host itself");
        }
        due
    }

    /// When it has to be told at the latest.
    fn latest_here(&self, track: &Track) -> Mono {
        let deadline = self.drain.as_ref().map(|d| d.deadline).unwrap_or_default();
        deadline - self.needs(track).needs
    }

    /// Until when its migration is let be, as far as it was seen to copy: virt-handler does not shut a guest down while it
    /// migrates, so virt-launcher would only kill it after its grace period (kubevirt-semantics 5).
    fn moves_until(&self, track: &Track, now: Mono) -> Option<Mono> {
        // Base tier: nobody can see whether it copies.
        let base = track.accepted.filter(|_| !track.seen_here);
        track.copying_since.or(base)?;
        let latest = self.latest_here(track);
        (now < latest).then_some(latest)
    }

    /// By the kubelet, which has seen the deletion of its pod before the server went away; or by us.
    fn told_already(&self, track: &Track) -> bool {
        let Some(drain) = &self.drain else {
            return true;
        };
        let stop = track.stop.as_ref();
        let here = stop.is_some_and(|s| s.in_flight || (s.here && s.accepted.is_some()));
        let taken = stop.and_then(|s| s.accepted).or(track.granted);
        here || taken.is_some_and(|at| at + self.policy.timing.kubelet <= drain.contact.reached)
    }

    /// virt-handler as it was when the server was heard of last; or a process of it is seen here.
    fn handler_here(&self, view: &LocalView) -> Result<(), HandlerDoubt> {
        if view.handler {
            return Ok(());
        }
        let reached = self.drain.as_ref().map(|d| d.contact.reached);
        let node = self.picture.node.seen().or(self.node.as_ref());
        let silent = self.policy.timing.handler_silent;
        handler_alive(node, silent, reached.unwrap_or_default())
    }

    fn show_here(&mut self, key: &str, phase: VmPhase, says: String, now: Mono) {
        let Some(track) = self.tracks.get_mut(key) else {
            return;
        };
        if track.shown != phase {
            track.shown = phase;
            track.shown_since = now;
        }
        let news = track.says != says;
        track.says = says;
        if news && phase == VmPhase::Blocked {
            let (text, vm) = (format!("{}: {}", track.vm, track.says), track.vmi());
            self.tell_vm(Level::Warn, "VmBlocked", text, vm);
        }
    }

    fn tell_guest_here(&mut self, guest: &LocalGuest, why: &str, now: Mono) {
        let key = guest.pod_uid.clone();
        let Some(track) = self.tracks.get_mut(&key) else {
            return;
        };
        let stop = track.stop.get_or_insert_with(|| Stopping {
            asked: now,
            ..Stopping::default()
        });
        why.clone_into(&mut stop.why);
        stop.in_flight = true;
        stop.here = true;
        let vm = track.vmi();
        let name = track.vm.clone();
        // Written down before it is told: after a crash it is known who has stopped it.
        self.persist();
        let id = self.effect(Pending::TellGuest { key: key.clone() });
        self.actions.push_back(Action::TellGuest {
            id,
            guest: guest.clone(),
        });
        let says = format!("guest is being shut down by us: {why}");
        self.show_here(&key, VmPhase::ShuttingDown, says, now);
        let text = format!("{name}: its guest is shut down by us: {why}");
        self.tell_vm(Level::Info, "VmStopping", text, vm);
        if let Some(drain) = &mut self.drain {
            drain.local.told_at = Some(now);
        }
    }

    /// The signal was sent, or was not.
    pub(in crate::drain::machine) fn guest_told(
        &mut self,
        key: &str,
        result: Result<(), String>,
        now: Mono,
    ) {
        let timing = self.policy.timing;
        let Some(track) = self.tracks.get_mut(key) else {
            return;
        };
        let (name, vm) = (track.vm.clone(), track.vmi());
        let Some(stop) = &mut track.stop else { return };
        stop.in_flight = false;
        let Err(why) = result else {
            stop.accepted = Some(now);
            stop.trouble.clear();
            if let Some(drain) = &mut self.drain {
                drain.local.told += 1;
                drain.local.told_at = Some(now);
                drain.last_accepted = now;
            }
            return;
        };
        stop.here = false;
        stop.failed(why, timing.retry_first, timing.retry_most, now);
        let text = format!(
            "{name}: its guest cannot be told on this host itself: {}",
            stop.trouble
        );
        self.tell_vm(Level::Warn, "VmStopFailed", text, vm);
    }
}

/// A signal has failed and is not repeated yet.
fn stops_later(track: &Track, now: Mono, wakes: &mut Vec<Mono>) -> bool {
    let at = track.stop.as_ref().map(|s| s.not_before);
    let later = at.filter(|at| *at > now);
    wakes.extend(later);
    later.is_some()
}
