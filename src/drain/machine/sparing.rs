//! A guest that is to be stopped migrates just now: may it end its migration, is that aborted first, or is there no time
//! for either? virt-handler does not shut a guest down while it migrates (kubevirt-semantics 5).

use super::Machine;
use super::fallback::grace;
use super::guests::Wanted;
use super::index::Index;
use crate::drain::stop::StopWhy;
use crate::drain::time::Mono;
use crate::drain::track::{Abort, Track};
use crate::drain::world::{MigrationPhase, MigrationState, MigrationView, VmiView};

/// What an estimate is worth: a migration counts as fitting when one and a half times its estimate fits.
const DOUBT: f64 = 1.5;

impl Machine {
    /// A migration that will end in time is let end; any other one is aborted first, because virt-handler does not shut
    /// a guest down while it migrates.
    pub(super) fn spare_migrations(&self, index: &Index<'_>, wanted: &mut Wanted, now: Mono) {
        for (key, why) in std::mem::take(&mut wanted.stops) {
            let Some(track) = self.tracks.get(&key).filter(|t| !t.stopped_by_us()) else {
                continue;
            };
            let Some(since) = Self::copying(index, track) else {
                wanted.stops.insert(key, why);
                continue;
            };
            if self.spares(index, track, &why, since, wanted, now) {
                continue;
            }
            if let Some(open) = self.to_abort(index, track) {
                let migration = open.migration.clone();
                wanted.aborts.push((key.clone(), migration, why.clone()));
            }
            if self.stops_in_migration(index, track, &why, wanted, now) {
                let why = if self.may_abort(track) {
                    why
                } else {
                    StopWhy::Migrating(Box::new(why))
                };
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
    /// waits for the end of the migration, so nothing is lost by that; but the guest may be cut off, which is said.
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

    /// Its migration can be seen, and nobody has refused to abort it.
    fn may_abort(&self, track: &Track) -> bool {
        let refused = |a: &Abort| !a.refused.is_empty();
        self.picture.migrations.seen().is_some() && !track.abort.as_ref().is_some_and(refused)
    }

    /// When its own stop has to be asked for at the latest.
    pub(super) fn latest_stop(&self, index: &Index<'_>, track: &Track) -> Mono {
        let pod = index.pod_of(track);
        let extra = self.policy.timing.pod_grace_extra;
        let needs = pod.map(|pod| grace(pod, index.vmi_of(track), extra));
        let deadline = self.drain.as_ref().map(|d| d.deadline).unwrap_or_default();
        deadline - (needs.unwrap_or_default() + self.policy.timing.stop_slack)
    }

    /// Since when it copies, as far as that can be seen.
    pub(super) fn copying(index: &Index<'_>, track: &Track) -> Option<Mono> {
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
