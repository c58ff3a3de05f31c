//! When will it be over? The estimate for `status`, and what a plan needs to know of the drain that is under way.

use super::Machine;
use super::index::Index;
use super::observe::is_still_here;
use crate::drain::action::Level;
use crate::drain::budgets::Class;
use crate::drain::eta::{Fits, Forecast, Job, Knobs, Seen, Stage, Stop, fits, forecast, words};
use crate::drain::fallback::Schedule;
use crate::drain::judge::Consentless;
use crate::drain::plan::Scene;
use crate::drain::policy::{OnDeadline, Pacing};
use crate::drain::status::VmPhase;
use crate::drain::time::Mono;
use crate::drain::track::{Going, Track};
use crate::drain::verdict::{Blocked, Lane, Verdict, Wait};
use std::collections::BTreeMap;
use std::time::Duration;

impl Machine {
    /// The forecast, and the place in it of each track that is not over.
    pub(super) fn forecast(&self, now: Mono) -> (Forecast, BTreeMap<&str, usize>) {
        // At a deadline that is a hold's, nothing ends.
        let ends_in = (self.ending() != OnDeadline::Hold).then(|| self.time_left(now));
        self.reckon(&self.stops_foreseen(now), ends_in, now)
    }

    /// With these stops and this end of the drain; without them: what the VMs would need.
    fn reckon(
        &self,
        stops: &BTreeMap<String, Stop>,
        ends_in: Option<Duration>,
        now: Mono,
    ) -> (Forecast, BTreeMap<&str, usize>) {
        let alive = self
            .tracks
            .iter()
            .filter(|(_, track)| track.ended.is_none() && is_still_here(track.shown));
        let (mut jobs, mut places) = (Vec::new(), BTreeMap::new());
        for (key, track) in alive {
            places.insert(key.as_str(), jobs.len());
            jobs.push(Job {
                memory: (track.memory > 0).then_some(track.memory),
                stage: self.stage(track, now),
                stop: stops.get(key).copied(),
            });
        }
        let knobs = Knobs {
            ends_in,
            ..Knobs::new(
                self.policy.migration_rate,
                self.our_slots(),
                &self.policy.timing,
            )
        };
        (forecast(&jobs, &knobs, &self.migrations_seen()), places)
    }

    /// When the guests that are still here by then are shut down: in the fallback, or when a scheduled shutdown has come.
    fn stops_foreseen(&self, now: Mono) -> BTreeMap<String, Stop> {
        let Some(drain) = &self.drain else {
            return BTreeMap::new();
        };
        let slack = self.policy.timing.stop_slack;
        let scheduled = match self.consent() {
            Ok(()) if self.may_stop() => None,
            Err(Consentless::Scheduled) => self.schedule.map(|due| due.at.left(now)),
            Ok(()) | Err(_) => return BTreeMap::new(),
        };
        let guests = self.guests_left(&Index::of(&self.picture));
        let schedule = Schedule::of(guests, drain.deadline, now);
        let stops = schedule.moments().map(|(guest, latest)| {
            let begins = scheduled.unwrap_or_else(|| latest.left(now));
            let grace = guest.needs.saturating_sub(slack);
            (guest.key.clone(), Stop { begins, grace })
        });
        stops.collect()
    }

    /// Needed against left, when the drain begins (T31): not enough is told then, not found out at the deadline.
    pub(super) fn warn_of_time(&mut self, now: Mono) {
        let need = self.reckon(&BTreeMap::new(), None, now).0.whole;
        let left = self.time_left(now);
        if fits(need, Duration::ZERO, left) != Fits::No {
            return;
        }
        let then = if self.may_stop() {
            "guests that have not moved by then are shut down before it"
        } else {
            "VMs that have not moved by then are left"
        };
        let text = format!(
            "the VMs need {} and there are {} until the deadline: that is not enough, {then}",
            words(need),
            super::show::span(left)
        );
        self.loud(Level::Warn, "TimeShort", text);
    }

    /// What a plan depends on besides the cluster.
    pub fn plan_scene(&self, now: Mono) -> Scene {
        let draining = self.phase.is_draining();
        Scene {
            policy: self.policy.clone(),
            hold: self.hold.clone(),
            left: draining.then(|| self.time_left(now)),
            seen: if draining {
                self.migrations_seen()
            } else {
                Vec::new()
            },
        }
    }

    /// Slots that this node may use: those of the cluster that others have taken are not ours.
    fn our_slots(&self) -> u32 {
        let slots = self.slots;
        if slots.node_limit == 0 {
            let kubevirt = self.picture.kubevirt.seen().cloned().unwrap_or_default();
            return kubevirt.per_node.min(kubevirt.per_cluster);
        }
        let others = slots.cluster_used.saturating_sub(slots.node_used);
        slots
            .node_limit
            .min(slots.cluster_limit.saturating_sub(others))
    }

    fn stage(&self, track: &Track, now: Mono) -> Stage {
        match track.going {
            Going::Unknown => Stage::Unknown,
            Going::Stays => Stage::Stays,
            Going::Last => Stage::Last { grace: track.grace },
            Going::Queued => Stage::Queued,
            // Sent when a slot was free, it takes that slot; sent with all others, it waits in KubeVirt's queue.
            Going::Accepted if self.policy.pacing == Pacing::All => Stage::Queued,
            Going::Accepted | Going::Moving => Stage::Moving(now.since(self.began(track))),
            Going::Leaving => Stage::Leaving(now.since(track.going_since)),
            Going::Ending => Stage::Ending {
                for_long: now.since(track.going_since),
                grace: track.grace,
            },
        }
    }

    /// When its slot became its own.
    fn began(&self, track: &Track) -> Mono {
        // A later attempt has nothing to do with the first request.
        let first = self.policy.pacing == Pacing::Slots && track.attempts.len() <= 1;
        match track.first_post {
            Some(post) if first => post,
            Some(_) | None => track.moving_since.unwrap_or(track.going_since),
        }
    }

    /// Migrations of this drain that have arrived, whether or not their old pods have ended.
    fn migrations_seen(&self) -> Vec<Seen> {
        let arrived = self.tracks.values().filter_map(|track| {
            let ended = match track.ended {
                Some((VmPhase::Migrated, at)) => Some(at),
                Some(_) => return None,
                None => None,
            };
            let moved = track.moved_since.or(ended)?;
            let arrived = ended.map_or(moved, |at| at.min(moved));
            let began = track.first_post.map(|_| self.began(track))?;
            (track.attempts.len() <= 1 && track.memory > 0).then(|| Seen {
                memory: track.memory,
                took: arrived.since(began),
                tail: ended.map(|at| at.since(arrived)),
            })
        });
        arrived.collect()
    }
}

/// How a VM goes, by its verdict; `None`: as before.
pub(super) fn going(verdict: &Verdict) -> Option<Going> {
    Some(match verdict {
        Verdict::Evict(Lane::Migrate) | Verdict::Ask => Going::Queued,
        Verdict::Evict(Lane::Shutdown) | Verdict::Stop => Going::Ending,
        Verdict::Blocked(why) if stays(why) => Going::Stays,
        Verdict::Evict(Lane::External) | Verdict::Blocked(_) | Verdict::Ignore(_) => Going::Unknown,
        Verdict::Gone => return None,
        Verdict::Wait(why) => match why {
            Wait::Asking => return None,
            Wait::Marked | Wait::MarkedByOthers => Going::Accepted,
            Wait::InQueue
            | Wait::Backoff { .. }
            | Wait::Slot { .. }
            | Wait::ClusterSlots { .. }
            | Wait::Arriving { .. }
            | Wait::Settling
            | Wait::Starting
            | Wait::OwnerUnread
            | Wait::VmiUnseen
            | Wait::PodUnseen
            | Wait::Retry { .. }
            | Wait::Cordon { .. } => Going::Queued,
            Wait::Scheduling
            | Wait::Unplaced { .. }
            | Wait::Unschedulable { .. }
            | Wait::Migrating { .. }
            | Wait::MigratingUnseen
            | Wait::ForeignMigration => Going::Moving,
            Wait::LeftOver => Going::Leaving,
            Wait::ShuttingDown | Wait::Stopping { .. } | Wait::VmiGone | Wait::PodGone => {
                Going::Ending
            }
            Wait::LeftAlone { stops_last: true } => Going::Last,
            Wait::LeftAlone { stops_last: false }
            | Wait::GivenUp
            | Wait::Scheduled
            | Wait::TooLate => Going::Stays,
            Wait::HeldBack(_) | Wait::External | Wait::NamespaceTerminating => Going::Unknown,
        },
    })
}

/// No waiting cures it.
fn stays(why: &Blocked) -> bool {
    match why {
        Blocked::NotMigratable { .. }
        | Blocked::NeedsConsent
        | Blocked::ConsentNever
        | Blocked::SeveralBudgets { .. } => true,
        Blocked::Budget { class, .. } => class.as_ref().is_some_and(Class::needs_somebody),
        Blocked::NoHandler(_) | Blocked::Throttled | Blocked::Denied(_) => false,
    }
}
