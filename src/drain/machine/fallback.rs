//! Whose guest is to be stopped now, and which migration is aborted first: near the deadline, at somebody's word, or
//! because it is known that the VM will not move (design sections 3.3, 3.7 and 5).

use super::Machine;
use super::guests::Wanted;
use super::index::Index;
use crate::drain::action::Level;
use crate::drain::answer::Answer;
use crate::drain::fallback::{Guest, Schedule, stop_order};
use crate::drain::phase::Phase;
use crate::drain::policy::OnDeadline;
use crate::drain::stop::{POD_GRACE_EXTRA, StopWhy};
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::world::{
    MigrationPhase, MigrationState, MigrationView, PodView, Strategy, VmiView,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// What an estimate is worth: a migration counts as fitting when one and a half times its estimate fits.
const DOUBT: f64 = 1.5;
/// So many times its estimate, a migration counts as one without progress.
const HOPELESS: u32 = 5;

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
        match wanted {
            OnDeadline::Hold | OnDeadline::Abort if goes_down => OnDeadline::ShutdownVms,
            other => other,
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
    fn may_stop(&self) -> bool {
        let asked = self.drain.as_ref().is_some_and(|d| d.falling.asked);
        (asked || self.ending() == OnDeadline::ShutdownVms) && self.consent().is_ok()
    }

    /// No migration is begun any more: nobody is migrated at all, or the time that is left belongs to the guests.
    pub(super) fn starts_no_more(&self) -> bool {
        let Some(drain) = &self.drain else {
            return false;
        };
        let rack = drain.trigger.as_ref().is_some_and(|t| t.shutdown_vms);
        (rack || drain.falling.since.is_some()) && self.may_stop()
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
                .extend(schedule.next(now).map(|at| (at, "the next group")));
            self.known_ends(index, &schedule, &mut wanted.stops, now);
            if wanted.falls_back {
                self.due_ends(&schedule, &mut wanted.stops, now);
            }
        }
        self.keep_asked(&mut wanted.stops);
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
        let Some(drain) = &mut self.drain else { return };
        let begins = wanted.falls_back && drain.falling.since.is_none();
        drain.falling.since = wanted
            .falls_back
            .then(|| drain.falling.since.unwrap_or(now));
        if begins {
            self.tell_fallback(&wanted.schedule, now);
        }
    }

    fn tell_fallback(&mut self, schedule: &Schedule, now: Mono) {
        let Some(drain) = &self.drain else { return };
        let left = drain.deadline.left(now);
        let count: usize = schedule.groups.iter().map(|g| g.guests.len()).sum();
        if count == 0 {
            return;
        }
        let needs = super::show::span(schedule.longest);
        let soon = super::show::span(left);
        let text = if drain.falling.asked {
            format!(
                "as somebody has asked, the guests of the {count} VM(s) that are left are shut down now"
            )
        } else if schedule.longest > left + Duration::from_secs(1) {
            format!(
                "only {soon} are left until the deadline and one guest may take {needs} to shut down: the {count} VM(s) that are left are told at once, and some may be cut off"
            )
        } else if schedule.overlap {
            format!(
                "{soon} until the deadline: the guests of the {count} VM(s) that are left are shut down; there is no time for one group after the other, so they overlap"
            )
        } else {
            format!(
                "{soon} until the deadline: the guests of the {count} VM(s) that are left are shut down now, so that each gets its grace period (longest: {needs})"
            )
        };
        self.tell_once("fallback", Level::Warn, "FallingBack", text);
    }

    /// Every guest that is still active here, with what its end needs.
    pub(super) fn guests_left(&self, index: &Index<'_>) -> Vec<Guest> {
        let slack = self.policy.timing.stop_slack;
        let tracks = self.tracks.iter().filter(|(_, t)| t.ended.is_none());
        tracks
            .filter_map(|(key, track)| {
                let pod = index.pod_of(track)?;
                let vmi = index.vmi_of(track);
                if pod.is_empty_of_guest() || !self.is_active(vmi, index) {
                    return None;
                }
                let order = pod.stop_order.as_deref().map(stop_order);
                Some(Guest {
                    key: key.clone(),
                    order: order.and_then(Result::ok).unwrap_or(0),
                    needs: grace(pod, vmi) + slack,
                })
            })
            .collect()
    }

    fn is_active(&self, vmi: Option<&VmiView>, index: &Index<'_>) -> bool {
        match vmi {
            Some(vmi) => vmi.node == self.policy.node_name && !vmi.is_final(),
            None => !index.sees_vmis(),
        }
    }

    /// VMs of which it is known that they will not move: nothing is gained by waiting for the deadline.
    fn known_ends(
        &self,
        index: &Index<'_>,
        schedule: &Schedule,
        stops: &mut BTreeMap<String, StopWhy>,
        now: Mono,
    ) {
        let rack = self
            .drain
            .as_ref()
            .and_then(|d| d.trigger.as_ref())
            .is_some_and(|t| t.shutdown_vms);
        for (at, group) in schedule.groups.iter().enumerate() {
            for guest in &group.guests {
                let Some(track) = self.tracks.get(&guest.key) else {
                    continue;
                };
                // Within the order: a database ends after those that use it.
                let why = if rack {
                    Some(StopWhy::WholeRack)
                } else if at == 0 {
                    self.will_not_move(index, track, now)
                } else {
                    None
                };
                if let Some(why) = why {
                    stops.insert(guest.key.clone(), why);
                }
            }
        }
    }

    fn will_not_move(&self, index: &Index<'_>, track: &Track, now: Mono) -> Option<StopWhy> {
        let Some(vmi) = index.vmi_of(track) else {
            // Base tier: only the answer to an eviction tells.
            let young = now.since(track.first_seen) < self.policy.timing.mark_missing;
            let told = matches!(track.last, Some((Answer::NotMigratable, _)));
            return (told && !young).then(|| StopWhy::NotMigratable(String::new()));
        };
        let strategy = vmi
            .strategy
            .or(self.picture.kubevirt.seen().map(|k| k.strategy));
        if strategy == Some(Strategy::LiveMigrate) && vmi.live_migratable == Some(false) {
            return Some(StopWhy::NotMigratable(vmi.not_migratable.clone()));
        }
        let failed = self.given_up(index, track, now)?;
        Some(StopWhy::GivenUp { failed })
    }

    /// How many attempts have failed, when that is enough; a migration without progress counts as one.
    fn given_up(&self, index: &Index<'_>, track: &Track, now: Mono) -> Option<usize> {
        let migrations = index.migrations_of(&track.vm);
        let open = migrations.iter().filter(|m| !m.is_final());
        let open = open.filter(|m| track.attempts.contains(&m.migration.uid));
        let failed = track.attempts.len().saturating_sub(open.count());
        let most = usize::try_from(self.policy.max_attempts).unwrap_or(usize::MAX);
        let stands = track.copying_since.is_some_and(|since| {
            let patience = self.estimate(track).saturating_mul(HOPELESS);
            now.since(since) >= patience.max(self.policy.timing.no_progress)
        });
        if track.moved_to.is_some() {
            None
        } else if stands {
            Some(failed + 1)
        } else {
            (failed >= most).then_some(failed)
        }
    }

    /// How long its migration should take, once it copies.
    fn estimate(&self, track: &Track) -> Duration {
        let rate = self.policy.migration_rate.max(1);
        Duration::from_millis(track.memory.saturating_mul(1000) / rate)
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
        for guest in schedule.due(now) {
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

    /// A migration that will end in time is let end; any other one is aborted first, because virt-handler does not shut
    /// a guest down while it migrates.
    fn spare_migrations(&self, index: &Index<'_>, wanted: &mut Wanted, now: Mono) {
        for (key, why) in std::mem::take(&mut wanted.stops) {
            let Some(track) = self.tracks.get(&key).filter(|t| !t.stopped_by_us()) else {
                continue;
            };
            let Some(since) = self.copying(index, track) else {
                wanted.stops.insert(key, why);
                continue;
            };
            if self.spares(index, track, &why, since, wanted, now) {
                continue;
            }
            if let Some(open) = self.to_abort(index, track) {
                wanted.aborts.push((key.clone(), open.migration.clone()));
            }
            if self.stops_in_migration(index, track, &why, wanted, now) {
                wanted.stops.insert(key, why);
            }
        }
    }

    /// It is nearly over: it may end.
    fn spares(
        &self,
        index: &Index<'_>,
        track: &Track,
        why: &StopWhy,
        since: Mono,
        wanted: &mut Wanted,
        now: Mono,
    ) -> bool {
        let ends = since + self.estimate(track).mul_f64(DOUBT);
        let may = matches!(why, StopWhy::Deadline | StopWhy::Policy(_)) && track.stop.is_none();
        let spares = may && now < ends && ends <= self.latest_stop(index, track);
        if spares {
            wanted
                .wakes
                .push((ends, "a migration that was nearly over"));
        }
        spares
    }

    /// Although it migrates: an abort takes too long, or is not possible, and there is no more time. virt-handler then
    /// waits for the end of the migration, so nothing is lost by that.
    fn stops_in_migration(
        &self,
        index: &Index<'_>,
        track: &Track,
        why: &StopWhy,
        wanted: &mut Wanted,
        now: Mono,
    ) -> bool {
        let patience = self.policy.timing.mark_missing;
        let latest = self.latest_stop(index, track);
        let aborting = track.abort.as_ref().filter(|a| a.refused.is_empty());
        let late = aborting.map(|a| a.asked + patience);
        wanted.wakes.push((latest, "a migration that does not end"));
        wanted
            .wakes
            .extend(late.map(|at| (at, "an abort that takes long")));
        matches!(why, StopWhy::WholeRack) || now >= latest || late.is_some_and(|at| now >= at)
    }

    /// When its own stop has to be asked for at the latest.
    fn latest_stop(&self, index: &Index<'_>, track: &Track) -> Mono {
        let pod = index.pod_of(track);
        let needs = pod.map(|pod| grace(pod, index.vmi_of(track)));
        let deadline = self.drain.as_ref().map(|d| d.deadline).unwrap_or_default();
        deadline - (needs.unwrap_or_default() + self.policy.timing.stop_slack)
    }

    /// Since when it copies, as far as that can be seen.
    fn copying(&self, index: &Index<'_>, track: &Track) -> Option<Mono> {
        if index.sees_vmis() {
            return track.copying_since;
        }
        // Base tier: it was accepted, and is still here.
        track.accepted.filter(|_| !track.seen_ended)
    }

    /// The migration that takes it away, unless that was asked to end already.
    fn to_abort<'i>(&self, index: &Index<'i>, track: &Track) -> Option<&'i MigrationView> {
        let asked = track.abort.as_ref().map(|a| a.migration.as_str());
        let mut open = index.migrations_of(&track.vm).iter().copied();
        open.find(|m| {
            !m.is_final()
                && !m.deleting
                && asked != Some(m.migration.uid.as_str())
                && m.target_node != self.policy.node_name
        })
    }
}

/// The guest's own grace period.
fn grace(pod: &PodView, vmi: Option<&VmiView>) -> Duration {
    let known = vmi.map(|vmi| vmi.grace).filter(|grace| !grace.is_zero());
    known.unwrap_or_else(|| pod.grace.saturating_sub(POD_GRACE_EXTRA))
}

/// Its memory is being copied, or is about to be: virt-handler leaves the guest alone.
pub(super) fn copies(vmi: Option<&VmiView>, migrations: &[&MigrationView]) -> bool {
    let running = |m: &&&MigrationView| {
        matches!(
            m.phase,
            MigrationPhase::PreparingTarget | MigrationPhase::TargetReady | MigrationPhase::Running
        )
    };
    vmi.and_then(|v| v.migration.as_ref())
        .is_some_and(MigrationState::is_running)
        || migrations.iter().any(|m| running(&m))
}
