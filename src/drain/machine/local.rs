//! The API server is away: the local part of the policy (design sections 3.3, 5).
//!
//! This host looks at its own `compute` containers, tells their virt-launchers to end where the policy allows it, and is empty
//! when none is left. The order is that of the fallback, the consent that of every stop. When the server is back the drain
//! goes on with it: whoever was told stays told, the others are moved as ever.

use super::Machine;
use super::observe::placeholder_key;
use super::pending::Pending;
use super::show::span;
use crate::drain::action::{Action, Level};
use crate::drain::fallback::{Guest, Schedule};
use crate::drain::local::{LocalGuest, LocalView, UNKNOWN_GRACE};
use crate::drain::phase::Phase;
use crate::drain::status::VmPhase;
use crate::drain::stop::{Stopping, handler_alive};
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::verdict::Blocked;
use crate::drain::ways::Way;
use crate::drain::world::ObjectRef;
use std::collections::BTreeSet;

/// What the host has found out by itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Local {
    /// Since when the server counts as away; `None`: it does not.
    since: Option<Mono>,
    /// The newest look that has brought something, and when it was asked for.
    view: Option<(Mono, LocalView)>,
    /// KubeVirt's processes were recognised here: a guest, or virt-handler. Before that, seeing none means nothing: they
    /// may only look different from what is known.
    recognised: bool,
    /// Why the host cannot be looked at; empty when it can.
    trouble: String,
    /// No look before.
    look_at: Mono,
    /// A guest was told last.
    told_at: Option<Mono>,
    /// So many were told.
    told: usize,
}

const UNRECOGNISED: &str = "neither a virt-launcher nor virt-handler is recognised among this host's processes: it is not known who is left, so nothing counts as gone";

impl Machine {
    /// Takes the local part where the server is away. False: it is not, the drain goes on with it.
    pub(super) fn local_step(&mut self, now: Mono) -> bool {
        if !self.is_away(now) {
            self.back(now);
            return false;
        }
        self.gone_away(now);
        self.look_here(now);
        self.follow_here(now);
        self.tell_here(now);
        let told = self.drain.as_ref().is_some_and(|d| d.local.told > 0);
        if told {
            self.phase = Phase::FallingBack;
        } else if self.phase != Phase::Preparing {
            self.phase = self.working();
        }
        self.empty_here(now);
        true
    }

    /// The server counts as away in this drain.
    pub(super) fn acts_alone(&self) -> bool {
        self.drain.as_ref().is_some_and(|d| d.local.since.is_some())
    }

    /// The host has looked at itself, so it is known what is left.
    pub(super) fn knows_itself(&self) -> bool {
        let looked = |d: &super::Drain| d.local.view.is_some() && d.local.recognised;
        self.acts_alone() && self.drain.as_ref().is_some_and(looked)
    }

    fn gone_away(&mut self, now: Mono) {
        let silence = span(self.silence(now));
        let Some(drain) = &mut self.drain else { return };
        if drain.local.since.is_some() {
            return;
        }
        drain.local.since = Some(now);
        let why = drain.contact.why.clone();
        let does = self.does_alone();
        let text = format!("the API server was not reached for {silence} ({why}): {does}");
        self.loud(Level::Warn, "ApiUnreachable", text);
    }

    /// What this host does by itself, as a sentence part.
    fn does_alone(&self) -> String {
        let looks = "this host looks at its own containers, and goes on when no VM is left";
        if self.may_stop() {
            return format!("the guests that are left are shut down on this host itself; {looks}");
        }
        match self.consent() {
            Err(why) => format!("no guest is shut down ({}); {looks}", consentless(why)),
            Ok(()) => format!(
                "no guest is shut down (on_deadline is \"{}\"); {looks}",
                self.ending().word()
            ),
        }
    }

    /// The sentence for `status`, while the server is away.
    pub(super) fn alone_says(&self, now: Mono) -> Option<String> {
        let drain = self.drain.as_ref()?;
        drain.local.since.filter(|_| self.phase.is_draining())?;
        let told = match drain.local.told {
            0 => String::new(),
            n => format!("; {n} guest(s) were told to shut down on this host itself"),
        };
        let blind = match drain.local.trouble.as_str() {
            "" => String::new(),
            why => format!("; its own containers cannot be looked at: {why}"),
        };
        Some(format!(
            "the API server was not reached for {} ({}){told}{blind}",
            span(self.silence(now)),
            drain.contact.why
        ))
    }

    /// It is back.
    fn back(&mut self, now: Mono) {
        let Some(drain) = &mut self.drain else { return };
        let Some(since) = drain.local.since else {
            return;
        };
        let told = drain.local.told;
        let cordoned = drain.cordoned;
        drain.local = super::local::Local::default();
        let told = match told {
            0 => String::new(),
            n => format!("; {n} guest(s) were told to shut down meanwhile"),
        };
        let text = format!(
            "the API server answers again after this host has acted alone for {}{told}",
            span(now.since(since))
        );
        self.phase = if cordoned {
            self.working()
        } else {
            Phase::Preparing
        };
        self.loud(Level::Info, "ApiBack", text);
    }

    fn look_here(&mut self, now: Mono) {
        if self.waits_for(|p| matches!(p, Pending::LookHere { .. })) {
            return;
        }
        let Some(drain) = &mut self.drain else { return };
        let at = drain.local.look_at;
        if at > now {
            return self.wake_at(at, "look at the host's own containers");
        }
        drain.local.look_at = now + self.policy.timing.look_here;
        let id = self.effect(Pending::LookHere { since: now });
        self.actions.push_back(Action::LookHere(id));
    }

    /// A look has ended.
    pub(super) fn looked_here(&mut self, since: Mono, result: Result<LocalView, String>) {
        let Some(drain) = &mut self.drain else { return };
        match result {
            Ok(view) => {
                drain.local.recognised |= view.handler || !view.guests.is_empty();
                drain.local.trouble.clear();
                drain.local.view = Some((since, view));
                if !drain.local.recognised {
                    drain.local.trouble = UNRECOGNISED.into();
                    let text = format!("the API server is away, and {UNRECOGNISED}");
                    self.tell_once("look here", Level::Warn, "HostUnseen", text);
                }
            }
            Err(why) => {
                drain.local.trouble.clone_from(&why);
                let text = format!("the containers of this host cannot be looked at: {why}");
                self.tell_once("look here", Level::Warn, "HostUnseen", text);
            }
        }
    }

    /// Rows follow the host's own view: a new one for a VM never heard of, an end for one whose process is gone.
    fn follow_here(&mut self, now: Mono) {
        let view = self.drain.as_ref().and_then(|d| d.local.view.clone());
        let Some((_, view)) = view else { return };
        if !self.knows_itself() {
            return;
        }
        let here: BTreeSet<&str> = view.guests.iter().map(|g| g.pod_uid.as_str()).collect();
        for guest in &view.guests {
            self.meet(guest, now);
        }
        let over = |t: &Track| t.ended.is_none() && !here.contains(t.pod.uid.as_str());
        let ended: Vec<_> = self
            .tracks
            .iter_mut()
            .filter(|(_, track)| over(track))
            .map(|(key, track)| {
                let outcome = track.outcome();
                track.end(outcome, now);
                (key.clone(), outcome)
            })
            .collect();
        for (key, outcome) in ended {
            self.tell_end(&key, outcome);
        }
    }

    fn meet(&mut self, guest: &LocalGuest, now: Mono) {
        if self.tracks.contains_key(&guest.pod_uid) {
            return;
        }
        let stop = self
            .drain
            .as_mut()
            .and_then(|d| d.inherited_stops.remove(&guest.pod_uid));
        let known = self.tracks.remove(&placeholder_key(&guest.vmi_uid));
        let known = known.filter(|_| !guest.vmi_uid.is_empty());
        let mut vm = guest.vm.clone();
        if vm.name.is_empty() {
            vm.name = format!("pod {}", guest.pod_uid);
        }
        let choice = super::lots::chosen(&self.policy.ways, &vm, None, None);
        let mut track = Track {
            pod: ObjectRef {
                namespace: vm.namespace.clone(),
                name: String::new(),
                uid: guest.pod_uid.clone(),
            },
            vmi_uid: guest.vmi_uid.clone(),
            grace: self
                .policy
                .timing
                .lasts(guest.grace.unwrap_or(UNKNOWN_GRACE))
                + self.policy.timing.pod_grace_extra,
            first_seen: now,
            shown_since: now,
            shown: VmPhase::Waiting,
            says: "known from this host's own containers alone".into(),
            stop: stop.map(Into::into),
            vm,
            ..known.unwrap_or_default()
        };
        track.lot.choice = choice;
        self.tracks.insert(guest.pod_uid.clone(), track);
    }

    /// When the first guest has to be told, as far as is known without the server.
    pub(super) fn begins_here(&self) -> Option<Mono> {
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
    fn tell_here(&mut self, now: Mono) {
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
        let rack = drain.trigger.as_ref().is_some_and(|t| t.shutdown_vms);
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
            due.extend(schedule.due(now).map(|g| g.key.clone()));
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
    fn handler_here(&self, view: &LocalView) -> Result<(), crate::drain::stop::HandlerDoubt> {
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
    pub(super) fn guest_told(&mut self, key: &str, result: Result<(), String>, now: Mono) {
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

    /// No `compute` process is left, by a look that was made after the last signal.
    fn empty_here(&mut self, now: Mono) {
        let telling = self.waits_for(|p| matches!(p, Pending::TellGuest { .. }));
        let Some(drain) = self.drain.as_ref().filter(|_| !telling) else {
            return;
        };
        let local = &drain.local;
        let Some((asked, view)) = &local.view else {
            return;
        };
        let old = local.told_at.is_some_and(|at| *asked < at) || !local.trouble.is_empty();
        let counts = |guest: &LocalGuest| {
            let track = self.tracks.get(&guest.pod_uid);
            let moved = |t: &Track| matches!(t.ended, Some((VmPhase::Migrated, _)));
            track.is_none_or(|t| !moved(t) && !self.stays_alone(t))
        };
        // A look from before the silence says nothing about now.
        if old || view.guests.iter().any(counts) {
            return;
        }
        for track in self.tracks.values_mut() {
            let way = track.lot.choice.way;
            track.lot.left_alone |= way == Way::Leave && track.ended.is_none();
        }
        // What waits for the server need not keep the host.
        self.retry_done();
        self.drained(now);
    }

    /// What the end of the drain has to say about it; empty when the server has confirmed it.
    pub(super) fn empty_by(&self) -> String {
        let Some(drain) = self.drain.as_ref().filter(|d| d.local.since.is_some()) else {
            return String::new();
        };
        let told = match drain.local.told {
            0 => String::new(),
            n => format!("; {n} guest(s) were shut down locally, the cluster was not told"),
        };
        format!(" (by this host's own view, the API server is away){told}")
    }
}

/// A signal has failed and is not repeated yet.
fn stops_later(track: &Track, now: Mono, wakes: &mut Vec<Mono>) -> bool {
    let at = track.stop.as_ref().map(|s| s.not_before);
    let later = at.filter(|at| *at > now);
    wakes.extend(later);
    later.is_some()
}

fn consentless(why: crate::drain::judge::Consentless) -> &'static str {
    use crate::drain::judge::Consentless;
    match why {
        Consentless::NotAsked => "the host stays up and nobody has allowed it",
        Consentless::Scheduled => "the shutdown is only scheduled",
        Consentless::Never => "drain.allow_guest_shutdown is \"never\"",
    }
}
