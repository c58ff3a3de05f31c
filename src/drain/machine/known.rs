//! Which VMs are known not to move, or not in time? Nothing is gained by waiting for the deadline with those.

use super::Machine;
use super::index::Index;
use crate::drain::answer::Answer;
use crate::drain::fallback::Schedule;
use crate::drain::stop::StopWhy;
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::ways::Way;
use crate::drain::world::Strategy;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So many times its estimate, a migration counts as one without progress.
const HOPELESS: u32 = 5;

impl Machine {
    /// VMs of which it is known that they will not move: nothing is gained by waiting for the deadline.
    pub(super) fn known_ends(
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
        let no_time = self.without_time(index, schedule, now);
        for (at, group) in schedule.groups.iter().enumerate() {
            for guest in &group.guests {
                let Some(track) = self.tracks.get(&guest.key) else {
                    continue;
                };
                // Its policy may forbid it, or has to be read first.
                let leave = track.lot.choice.way == Way::Leave;
                if !rack && (leave || self.policy_unread(track, now)) {
                    continue;
                }
                // Within the order: a database ends after those that use it.
                let why = if rack {
                    Some(StopWhy::WholeRack)
                } else if at == 0 {
                    let never = self.will_not_move(index, track, now);
                    never.or_else(|| no_time.contains(&guest.key).then_some(StopWhy::NoTime))
                } else {
                    None
                };
                if let Some(why) = why {
                    stops.insert(guest.key.clone(), why);
                }
            }
        }
    }

    /// In a short drain: VMs whose migration would not end before their guests need the time. The schedule is the one
    /// that the drain itself follows: longest first, over the slots of this node.
    fn without_time(&self, index: &Index<'_>, schedule: &Schedule, now: Mono) -> BTreeSet<String> {
        let timing = self.policy.timing;
        let Some(drain) = &self.drain else {
            return BTreeSet::new();
        };
        if drain.deadline.since(drain.started) > timing.short_drain {
            return BTreeSet::new();
        }
        let per_node = self
            .picture
            .kubevirt
            .seen()
            .map_or(1, |k| k.per_node.max(1));
        let mut slots = vec![now; usize::try_from(per_node).unwrap_or(1)];
        let guests = schedule.groups.iter().flat_map(|group| &group.guests);
        let mut waiting = Vec::new();
        for guest in guests {
            let Some(track) = self.tracks.get(&guest.key).filter(|t| t.stop.is_none()) else {
                continue;
            };
            // One that was sent on its way stays on it.
            let sent = track.accepted.or(track.first_post);
            let copies = Self::copying(index, track);
            match copies.or(sent.map(|at| at + timing.set_up)) {
                Some(since) => take_slot(&mut slots, (since + self.estimate(track)).max(now)),
                None if self.takes_a_slot(index, track) => {
                    waiting.push((track.memory, &guest.key, track));
                }
                None => {}
            }
        }
        waiting.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let mut without = BTreeSet::new();
        for (_, key, track) in waiting {
            let begins = slots.iter().min().copied().unwrap_or(now);
            let ends = begins + timing.set_up + self.estimate(track);
            if ends <= self.latest_stop(index, track) {
                take_slot(&mut slots, ends);
            } else {
                without.insert(key.clone());
            }
        }
        without
    }

    /// It would be migrated, as far as is known.
    fn takes_a_slot(&self, index: &Index<'_>, track: &Track) -> bool {
        let Some(vmi) = index.vmi_of(track) else {
            return !matches!(track.class, Some(Answer::Granted));
        };
        let strategy = vmi
            .strategy
            .or(self.picture.kubevirt.seen().map(|k| k.strategy));
        let by_kubevirt = !matches!(strategy, Some(Strategy::None | Strategy::External));
        by_kubevirt && vmi.live_migratable != Some(false)
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
        let stands = Self::copying(index, track).is_some_and(|since| {
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
    pub(super) fn estimate(&self, track: &Track) -> Duration {
        let rate = self.policy.migration_rate.max(1);
        Duration::from_millis(track.memory.saturating_mul(1000) / rate)
    }
}

/// The slot that is free first is taken until then.
fn take_slot(slots: &mut [Mono], until: Mono) {
    if let Some(slot) = slots.iter_mut().min() {
        *slot = until.max(*slot);
    }
}
