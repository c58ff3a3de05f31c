//! Whose guest is to be stopped now: near the deadline, at somebody's word, or because it is known that the VM will not
//! move (design sections 3.3, 3.7 and 5). The reckoning itself is in `drain/fallback.rs`.

use super::Machine;
use super::guests::Wanted;
use super::index::Index;
use crate::drain::action::Level;
use crate::drain::fallback::{Guest, Schedule, stop_order};
use crate::drain::judge::is_what_is_left;
use crate::drain::phase::Phase;
use crate::drain::policy::OnDeadline;
use crate::drain::stop::{StopWhy, guest_grace};
use crate::drain::time::Mono;
use crate::drain::world::{PodView, VmiView};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How the drain ends, as far as it was decided by the clock or by a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Falling {
    /// Since when guests are stopped because of the deadline.
    pub(super) since: Option<Mono>,
    /// The deadline has passed, and the policy is to go on.
    pub(super) holding: bool,
    /// Somebody has asked to shut the guests down now.
    pub(super) asked: bool,
    /// How a person wants it to end, whatever was configured.
    pub(super) end: Option<OnDeadline>,
}

impl Machine {
    /// What happens at the deadline. A host that goes down anyway can neither be held longer than logind allows nor
    /// stay up: for it `hold` and `abort` are `shutdown-vms`.
    pub(super) fn ending(&self) -> OnDeadline {
        let drain = self.drain.as_ref();
        let trigger = drain.and_then(|d| d.trigger.as_ref());
        let said = drain.and_then(|d| d.falling.end);
        let rack = trigger.filter(|t| t.shutdown_vms);
        let asked = said.or(rack.map(|_| OnDeadline::ShutdownVms));
        let asked = asked.or(trigger.and_then(|t| t.on_deadline));
        let wanted = asked.unwrap_or(self.policy.on_deadline);
        let goes_down = drain.is_some_and(|d| d.shutting_down || d.scheduled);
        let impossible = goes_down && matches!(wanted, OnDeadline::Hold | OnDeadline::Abort);
        if impossible {
            OnDeadline::ShutdownVms
        } else {
            wanted
        }
    }

    /// The phase in which VMs are being moved or stopped.
    pub(super) fn working(&self) -> Phase {
        match self.drain.as_ref().map(|d| d.falling) {
            Some(falling) if falling.holding => Phase::Holding,
            Some(falling) if falling.since.is_some() => Phase::FallingBack,
            Some(_) | None => Phase::Evacuating,
        }
    }

    /// Guests may be stopped in this drain for want of another way.
    pub(super) fn may_stop(&self) -> bool {
        let asked = self.drain.as_ref().is_some_and(|d| d.falling.asked);
        (asked || self.ending() == OnDeadline::ShutdownVms) && self.consent().is_ok()
    }

    /// No migration is begun any more: the whole rack goes down, or somebody has asked to go now.
    pub(super) fn starts_no_more(&self) -> bool {
        let Some(drain) = &self.drain else {
            return false;
        };
        let rack = drain.is_of_the_rack();
        (rack || drain.falling.asked) && self.may_stop()
    }

    /// Whose guest is to be stopped now, and which migration stands in the way of that. Computed anew in every step:
    /// what was not asked for yet may still be called off.
    pub(super) fn wanted(&self, index: &Index<'_>, now: Mono) -> Wanted {
        let mut wanted = Wanted::default();
        let Some(drain) = &self.drain else {
            return wanted;
        };
        let schedule = Schedule::of(self.guests_left(index), drain.deadline, now);
        if self.may_stop() {
            let begins = schedule.begins();
            // Once begun it goes on, although those that are left may need less time.
            wanted.falls_back = drain.falling.since.is_some()
                || drain.falling.asked
                || begins.is_some_and(|at| at <= now);
            if !wanted.falls_back {
                wanted.wakes.extend(begins.map(|at| (at, "fall back")));
            }
            wanted
                .wakes
                .extend(schedule.next(now).map(|at| (at, "the next guest")));
            self.queue_up(index, &schedule, &mut wanted, now);
            self.known_ends(index, &schedule, &mut wanted, now);
            if wanted.falls_back {
                self.due_ends(&schedule, &mut wanted.stops, now);
            }
        }
        if self.consent().is_ok() {
            self.policy_ends(index, &mut wanted, now);
            self.keep_asked(&mut wanted.stops);
        }
        self.spare_migrations(index, &mut wanted, now);
        wanted.schedule = schedule;
        wanted
    }

    /// Takes note of what was found: the fallback begins, or is over because nobody may be stopped any more.
    pub(super) fn note_wanted(&mut self, wanted: &Wanted, now: Mono) {
        for &(at, why) in &wanted.wakes {
            if at > now {
                self.wake_at(at, why);
            }
        }
        self.tell_bad_orders();
        let Some(drain) = &mut self.drain else { return };
        let begins = wanted.falls_back && drain.falling.since.is_none();
        drain.falling.since = wanted
            .falls_back
            .then(|| drain.falling.since.unwrap_or(now));
        if begins {
            self.tell_fallback(wanted, now);
        }
    }

    /// A place in the order that cannot be read is told on its VM; it counts as none.
    fn tell_bad_orders(&mut self) {
        let pods = self.picture.pods.seen().into_iter().flatten();
        let bad = pods.filter_map(|pod| {
            let why = stop_order(pod.stop_order.as_deref()?).err()?;
            Some((pod.pod.uid.clone(), why))
        });
        for (key, why) in bad.collect::<Vec<_>>() {
            if let Some(track) = self.tracks.get(&key) {
                let (vm, text) = (track.vmi(), format!("{}: {why}", track.vm));
                self.tell_vm(Level::Warn, "BadAnnotation", text, vm);
            }
        }
    }

    /// What begins now. Guests that were told before are not counted: another process, or a known end, has told them.
    fn tell_fallback(&mut self, wanted: &Wanted, now: Mono) {
        let Some(drain) = &self.drain else { return };
        let schedule = &wanted.schedule;
        let asked = drain.falling.asked;
        let left = drain.deadline.left(now);
        let told = |guest: &Guest| {
            self.tracks
                .get(&guest.key)
                .is_some_and(|t| t.stop.is_some())
        };
        let all = schedule.moments().filter(|(guest, _)| !told(guest)).count();
        let mut due = schedule.told_now(asked, now);
        due.retain(|guest| !told(guest));
        let Some(longest) = due.iter().map(|guest| guest.needs).max() else {
            return;
        };
        let migrating = |guest: &&&Guest| {
            let why = wanted.stops.get(&guest.key);
            matches!(why, Some(StopWhy::Migrating(_)))
        };
        let fallback = Falls {
            asked,
            left,
            longest,
            due: due.len(),
            all,
            overlap: schedule.overlap,
            migrating: due.iter().filter(migrating).count(),
        };
        self.tell_once("fallback", Level::Warn, "FallingBack", fallback.to_string());
    }

    /// Every guest that is still active here, with what its end needs.
    pub(super) fn guests_left(&self, index: &Index<'_>) -> Vec<Guest> {
        let slack = self.policy.timing.stop_slack;
        let extra = self.policy.timing.pod_grace_extra;
        let tracks = self.tracks.iter().filter(|(_, t)| t.ended.is_none());
        tracks
            .filter_map(|(key, track)| {
                let pod = index.pod_of(track)?;
                let vmi = index.vmi_of(track);
                let left = || is_what_is_left(pod, track, &self.policy.node_name);
                let active = self.is_active(vmi, index) || (vmi.is_none() && left());
                if pod.is_empty_of_guest() || self.stays_alone(track) || !active {
                    return None;
                }
                let order = pod.stop_order.as_deref().map(stop_order);
                Some(Guest {
                    key: key.clone(),
                    order: order.and_then(Result::ok).unwrap_or(0),
                    needs: grace(pod, vmi, extra) + slack,
                })
            })
            .collect()
    }

    pub(super) fn is_active(&self, vmi: Option<&VmiView>, index: &Index<'_>) -> bool {
        match vmi {
            Some(vmi) => vmi.node == self.policy.node_name && !vmi.is_final(),
            None => !index.sees_vmis(),
        }
    }

    /// Guests whose turn has come in the fallback.
    fn due_ends(&self, schedule: &Schedule, stops: &mut BTreeMap<String, StopWhy>, now: Mono) {
        let Some(falling) = self.drain.as_ref().map(|d| d.falling) else {
            return;
        };
        let why = if falling.asked {
            StopWhy::Asked
        } else {
            StopWhy::Deadline
        };
        for guest in schedule.told_now(falling.asked, now) {
            stops
                .entry(guest.key.clone())
                .or_insert_with(|| why.clone());
        }
    }

    /// What was asked for once is asked for until it is taken, whatever the deadline does meanwhile.
    fn keep_asked(&self, stops: &mut BTreeMap<String, StopWhy>) {
        for (key, track) in self.tracks.iter().filter(|(_, t)| t.ended.is_none()) {
            if let Some(stop) = &track.stop {
                let why = || StopWhy::Policy(stop.why.clone());
                stops.entry(key.clone()).or_insert_with(why);
            }
        }
    }
}

/// The guest's own grace period.
pub(super) fn grace(pod: &PodView, vmi: Option<&VmiView>, extra: Duration) -> Duration {
    let known = vmi.map(|vmi| vmi.grace).filter(|grace| !grace.is_zero());
    known.unwrap_or_else(|| guest_grace(pod, extra))
}

/// What a fallback begins with.
struct Falls {
    asked: bool,
    /// Until the deadline.
    left: Duration,
    /// What the guest that needs longest needs, of those that are told now.
    longest: Duration,
    /// Guests that are told now.
    due: usize,
    /// Guests that were not told before.
    all: usize,
    overlap: bool,
    /// Of those that are told now: they migrate, and that cannot be aborted.
    migrating: usize,
}

impl fmt::Display for Falls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (due, all) = (self.due, self.all);
        let needs = super::show::span(self.longest);
        let soon = super::show::span(self.left);
        let who = if due == all {
            format!("the {all} VM(s) that are left")
        } else {
            format!("{due} of the {all} VM(s) that are left")
        };
        if self.asked {
            write!(
                f,
                "as somebody has asked, the guests of {who} are shut down now"
            )?;
        } else if self.longest > self.left + Duration::from_secs(1) {
            write!(
                f,
                "only {soon} are left until the deadline and one guest may take {needs} to shut down: {who} are told at once, and some may be cut off"
            )?;
        } else if self.overlap {
            write!(
                f,
                "{soon} until the deadline: the guests of {who} are shut down; there is no time for one group after the other, so they overlap"
            )?;
        } else if self.migrating > 0 {
            write!(
                f,
                "{soon} until the deadline: the guests of {who} are shut down now (longest: {needs})"
            )?;
        } else {
            write!(
                f,
                "{soon} until the deadline: the guests of {who} are shut down now, so that each gets its grace period (longest: {needs})"
            )?;
        }
        if self.migrating > 0 {
            write!(
                f,
                "; {} of them still migrate, which cannot be aborted with this node's rights (rbac/abort.yaml gives the right), and may be cut off",
                self.migrating
            )?;
        }
        match (due < all, self.asked) {
            (false, _) => Ok(()),
            (true, true) => f.write_str("; the others follow in their order"),
            (true, false) => f.write_str(
                "; the others when they need it themselves, unless they have moved by then",
            ),
        }
    }
}
