//! Which VMs are known not to move, or not in time? Nothing is gained by waiting for the deadline with those.

use super::guests::Wanted;
use super::index::Index;
use super::{Drain, Machine};
use crate::drain::answer::Answer;
use crate::drain::fallback::Schedule;
use crate::drain::stop::StopWhy;
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::turns::{Turns, Waiting};
use crate::drain::ways::Way;
use crate::drain::world::Strategy;
use std::collections::BTreeMap;
use std::time::Duration;

/// So many times its estimate, a migration counts as one without progress.
const HOPELESS: u32 = 5;

impl Machine {
    /// VMs of which it is known that they will not move: nothing is gained by waiting for the deadline.
    pub(super) fn known_ends(
        &self,
        index: &Index<'_>,
        schedule: &Schedule,
        wanted: &mut Wanted,
        now: Mono,
    ) {
        let rack = self.drain.as_ref().is_some_and(Drain::is_of_the_rack);
        let short = self.is_short();
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
                    let no_time = short && wanted.without.contains(&guest.key);
                    never.or_else(|| no_time.then_some(StopWhy::NoTime))
                } else {
                    None
                };
                if let Some(why) = why {
                    wanted.stops.insert(guest.key.clone(), why);
                }
            }
        }
    }

    /// Nothing is gained by waiting in a drain that may not take longer (a UPS, a small limit of logind's).
    fn is_short(&self) -> bool {
        let short = self.policy.timing.short_drain;
        let drain = self.drain.as_ref();
        drain.is_some_and(|d| d.deadline.since(d.started) <= short)
    }

    /// Who is migrated when, over the slots of this node, and who would not be gone before the guest needs the time.
    pub(super) fn queue_up(
        &self,
        index: &Index<'_>,
        schedule: &Schedule,
        wanted: &mut Wanted,
        now: Mono,
    ) {
        let timing = self.policy.timing;
        let kubevirt = self.picture.kubevirt.seen();
        let per_node = kubevirt.map_or(1, |k| k.per_node.max(1));
        let mut slots = vec![now; usize::try_from(per_node).unwrap_or(1)];
        let mut queue = BTreeMap::new();
        for (guest, latest) in schedule.moments() {
            let Some(track) = self.tracks.get(&guest.key).filter(|t| t.stop.is_none()) else {
                continue;
            };
            // One that was sent on its way stays on it.
            let sent = track.accepted.or(track.first_post);
            let copies = Self::copying(index, track);
            match copies.or(sent.map(|at| at + timing.set_up)) {
                Some(since) => {
                    let ends = (since + self.estimate(track)).max(now);
                    // It may be stuck: at its own moment its slot is free at the latest.
                    take_slot(&mut slots, ends.min(latest.max(now)));
                }
                None if self.takes_a_slot(index, track) => {
                    let vm = Waiting {
                        memory: track.memory,
                        takes: timing.set_up + self.estimate(track),
                        latest: Some(latest),
                    };
                    queue.insert(&guest.key, vm);
                }
                None => {}
            }
        }
        let (keys, waiting): (Vec<_>, Vec<_>) = queue.into_iter().unzip();
        let late = |vm: &Waiting| vm.latest.is_some_and(|latest| now + vm.takes > latest);
        let too_late = keys.iter().zip(&waiting).filter(|(_, vm)| late(vm));
        if wanted.falls_back {
            wanted.too_late = too_late.map(|(key, _)| (*key).clone()).collect();
        }
        let turns = Turns::of(&waiting, &slots);
        let key = |at: &usize| keys.get(*at).map(|key| (*key).clone());
        wanted.without = turns.without.iter().filter_map(key).collect();
        if turns.hurries {
            let order = turns.order.iter().filter_map(key).enumerate();
            wanted.turns = order.map(|(at, key)| (key, at)).collect();
        }
    }

    /// It would be migrated, as far as is known.
    fn takes_a_slot(&self, index: &Index<'_>, track: &Track) -> bool {
        if matches!(track.lot.choice.way, Way::Shutdown | Way::Restart) {
            return false;
        }
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
        self.policy.copies_for(track.memory)
    }
}

/// The slot that is free first is taken until then.
fn take_slot(slots: &mut [Mono], until: Mono) {
    if let Some(slot) = slots.iter_mut().min() {
        *slot = until.max(*slot);
    }
}
