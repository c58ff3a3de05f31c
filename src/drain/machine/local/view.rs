//! What the host sees of itself while the API server is away: who is here, who has ended, and that nobody is left.

use crate::drain::action::{Action, Level};
use crate::drain::local::{LocalGuest, LocalView, UNKNOWN_GRACE};
use crate::drain::machine::observe::placeholder_key;
use crate::drain::machine::pending::Pending;
use crate::drain::machine::{Machine, lots};
use crate::drain::status::VmPhase;
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::ways::Way;
use crate::drain::world::ObjectRef;
use std::collections::BTreeSet;

const UNRECOGNISED: &str = "neither a virt-launcher nor virt-handler is recognised among this host's processes: it is not known who is left, so nothing counts as gone";

impl Machine {
    pub(super) fn look_here(&mut self, now: Mono) {
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
    pub(in crate::drain::machine) fn looked_here(
        &mut self,
        since: Mono,
        result: Result<LocalView, String>,
    ) {
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
    pub(super) fn follow_here(&mut self, now: Mono) {
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
        let choice = lots::chosen(&self.policy.ways, &vm, None, None);
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

    /// No `compute` process is left, by a look that was made after the last signal.
    pub(super) fn empty_here(&mut self, now: Mono) {
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
}
