//! Takes the newest picture in and keeps the memory of each VM in step with it.

use super::Machine;
use super::cordon::version;
use super::index::Index;
use super::sparing::copies;
use crate::drain::action::Fault;
use crate::drain::answer::Reply;
use crate::drain::answer::judge;
use crate::drain::fallback::stop_order;
use crate::drain::judge::is_inbound;
use crate::drain::phase::Phase;
use crate::drain::status::VmPhase;
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::world::{
    Fresh, MigrationPhase, MigrationView, ObjectRef, Picture, PodKind, PodView, Sight, VmName,
    VmiPhase, VmiView,
};
use std::collections::BTreeSet;

impl Machine {
    pub(super) fn see(&mut self, picture: Picture, now: Mono) {
        self.request_sees(&picture);
        self.heard_of(&picture);
        if self.phase == Phase::Restoring {
            return self.restore_sees(picture);
        }
        if !(self.phase.is_draining() || self.phase == Phase::Cancelling) {
            return;
        }
        self.watch_node(&picture);
        let before = std::mem::replace(&mut self.picture, picture);
        // Of the Node the newest version counts, whichever picture brought it.
        if node_version(&before) > node_version(&self.picture) {
            self.picture.node = before.node;
        }
        self.update_tracks(now);
        self.watch_taints();
        self.watch_cordon(now);
    }

    /// Fresh lists are newer than the watches: they replace what they cover.
    pub(super) fn see_fresh(&mut self, fresh: &Fresh, now: Mono) {
        self.picture.pods = Sight::Seen {
            value: fresh.pods.clone(),
            fresh: now,
        };
        if let Some(vmis) = &fresh.vmis {
            self.picture.vmis = Sight::Seen {
                value: vmis.clone(),
                fresh: now,
            };
        }
        if let Some(migrations) = &fresh.migrations {
            self.picture.migrations = Sight::Seen {
                value: migrations.clone(),
                fresh: now,
            };
        }
        if let Some(others) = &fresh.others {
            self.picture.others = Sight::Seen {
                value: others.clone(),
                fresh: now,
            };
        }
        self.update_tracks(now);
    }

    fn update_tracks(&mut self, now: Mono) {
        // Taken out for the time being, so that the tracks can be changed while it is read.
        let picture = std::mem::take(&mut self.picture);
        let index = Index::of(&picture);
        let pods = picture.pods.seen();
        for pod in pods.into_iter().flatten() {
            if pod.kind == PodKind::Launcher {
                self.see_pod(pod, now);
            }
        }
        self.see_vmis(&picture, &index, now);
        self.learn(&picture, &index, now);
        self.see_migrations(&picture, &index, now);
        if pods.is_some() {
            self.end_tracks(&index, now);
        }
        self.see_others(&picture, now);
        self.picture = picture;
    }

    fn see_pod(&mut self, pod: &PodView, now: Mono) {
        let over = pod.is_empty_of_guest();
        let inbound = is_inbound(pod, &self.policy.node_name);
        if over && !self.tracks.contains_key(&pod.pod.uid) {
            // Of an earlier visit of its VM, which may be here again in another pod.
            return;
        }
        let misdirected = !self.tracks.contains_key(&pod.pod.uid) && self.misdirected(&pod.vm);
        let known = self.tracks.remove(&placeholder_key(&pod.vmi_uid));
        let inherited = self
            .drain
            .as_mut()
            .and_then(|d| d.inherited.remove(&pod.vmi_uid))
            .is_some();
        let stop = self
            .drain
            .as_mut()
            .and_then(|d| d.inherited_stops.remove(&pod.pod.uid));
        let track = self
            .tracks
            .entry(pod.pod.uid.clone())
            .or_insert_with(|| Track {
                first_seen: now,
                shown_since: now,
                inbound,
                ..known.unwrap_or_default()
            });
        track.revive_if(!over);
        if track.inbound && !inbound && !over {
            track.arrived.get_or_insert(now);
        }
        track.inbound &= inbound;
        track.made_by.clone_from(&pod.migration_job);
        track.pod = pod.pod.clone();
        track.vm = pod.vm.clone();
        if !pod.vmi_uid.is_empty() {
            track.vmi_uid.clone_from(&pod.vmi_uid);
        }
        track.memory = track.memory.max(pod.memory.unwrap_or(0));
        track.grace = pod.grace;
        track.order = order(pod);
        if let Some(note) = stop {
            track.stop.get_or_insert_with(|| note.into());
        }
        track.maybe_ours |= inherited || misdirected;
        track.seen_deleting |= pod.deleting;
        if let Some(who) = &pod.stopped_by {
            track.stopped_by.clone_from(who);
        }
        track.seen_ended |= pod.is_empty_of_guest();
        if track.accepted.is_some() || track.maybe_ours {
            track.seen_mark |= pod.eviction_in_progress;
        }
    }

    /// An eviction of ours may have marked the successor of the VM that it was meant for: KubeVirt looks only
    /// at the pod's name, and before the UID's precondition does (control-plane.md 6.d).
    fn misdirected(&self, vm: &VmName) -> bool {
        let of_old = self.tracks.values().filter(|t| t.vm == *vm);
        of_old.into_iter().any(|t| {
            let asked = t.in_flight.is_some_and(|(_, dry)| !dry);
            let stayed = t.ended.is_some_and(|(phase, _)| phase != VmPhase::Migrated);
            stayed && (t.ours || t.maybe_ours || asked)
        })
    }

    /// VMIs that run here: what their tracks learn from them, and a track for each whose pod was not seen.
    fn see_vmis(&mut self, picture: &Picture, index: &Index<'_>, now: Mono) {
        let node = self.policy.node_name.as_str();
        let here = |v: &&VmiView| v.node == node && !v.is_final();
        let mut with_pod = BTreeSet::new();
        for track in self.tracks.values_mut().filter(|t| t.ended.is_none()) {
            let Some(vmi) = index.vmi_of(track).filter(here) else {
                continue;
            };
            if !track.pod.uid.is_empty() {
                with_pod.insert(vmi.vmi.uid.as_str());
            }
            if track.inbound {
                // Its pod is told a moment later.
                track.arrived.get_or_insert(now);
            }
            see_vmi(track, vmi);
        }
        for vmi in picture.vmis.seen().into_iter().flatten().filter(here) {
            let uid = vmi.vmi.uid.as_str();
            if with_pod.contains(uid) || index.is_ended(uid) {
                continue;
            }
            let inherited = self
                .drain
                .as_mut()
                .and_then(|d| d.inherited.remove(&vmi.vmi.uid))
                .is_some();
            let track = self
                .tracks
                .entry(placeholder_key(&vmi.vmi.uid))
                .or_insert_with(|| Track {
                    vm: vmi.vm(),
                    vmi_uid: vmi.vmi.uid.clone(),
                    first_seen: now,
                    shown_since: now,
                    ..Track::default()
                });
            track.revive_if(true);
            track.maybe_ours |= inherited;
            see_vmi(track, vmi);
        }
    }

    /// What the VMIMs tell, and since when a VM is not here although its pod is.
    fn see_migrations(&mut self, picture: &Picture, index: &Index<'_>, now: Mono) {
        let Some(drain) = &mut self.drain else { return };
        if let (None, Some(first)) = (&drain.old_migrations, picture.migrations.seen()) {
            // Over when this drain looked first: they have nothing to do with it.
            let over = first.iter().filter(|m| m.is_final());
            drain.old_migrations = Some(over.map(|m| m.migration.uid.clone()).collect());
        }
        let none = BTreeSet::new();
        let old = drain.old_migrations.as_ref().unwrap_or(&none);
        // What cannot be seen for a while goes on meanwhile.
        let unseen = picture.vmis.is_troubled() || picture.migrations.is_troubled();
        for track in self.tracks.values_mut().filter(|t| t.ended.is_none()) {
            let migrations = index.migrations_of(&track.vm);
            count_attempts(track, migrations, old, now);
            let vmi = index.vmi_of(track);
            if copies(vmi, migrations) {
                track.copying_since.get_or_insert(now);
            } else if !unseen {
                track.copying_since = None;
            }
            if vmi.is_some_and(|v| v.node == self.policy.node_name) || index.is_moving(&track.vm) {
                track.moved_since = None;
            } else if index.sees_vmis() {
                track.moved_since.get_or_insert(now);
            }
        }
    }

    /// What is no longer in the picture, or holds no guest any more, has come to its end here.
    fn end_tracks(&mut self, index: &Index<'_>, now: Mono) {
        let mut ended = self.killed_after_all(index);
        for (key, track) in &mut self.tracks {
            if track.ended.is_some() {
                continue;
            }
            let final_here = |vmi: &VmiView| vmi.is_final() && vmi.node == self.policy.node_name;
            let vmi = index.vmi_of(track).filter(|vmi| final_here(vmi));
            track.seen_final |= vmi.is_some();
            track.seen_failed |= vmi.is_some_and(|vmi| vmi.phase == VmiPhase::Failed);
            let over = match index.pod_of(track) {
                Some(pod) => pod.is_empty_of_guest(),
                None if track.pod.uid.is_empty() => {
                    index.is_ended(&track.vmi_uid)
                        || index.vmi_of(track).is_none_or(VmiView::is_final)
                }
                None => true,
            };
            if over {
                let outcome = track.outcome();
                track.end(outcome, now);
                ended.push((key.clone(), outcome));
            }
        }
        for (key, outcome) in ended {
            if !self.told_with_its_pod(&key, outcome) {
                self.tell_end(&key, outcome);
            }
        }
    }

    /// Its VMI was seen longer than its pod, with which its end was told: it is shown as that one.
    fn told_with_its_pod(&mut self, key: &str, outcome: VmPhase) -> bool {
        let Some(track) = self.tracks.get(key) else {
            return true;
        };
        if outcome != VmPhase::ShutDown || !track.pod.uid.is_empty() {
            return false;
        }
        let same = |t: &&Track| t.vmi_uid == track.vmi_uid && !t.pod.uid.is_empty();
        let with_pod = self.tracks.values().filter(same);
        let mut ended = with_pod.filter(|t| matches!(t.ended, Some((VmPhase::ShutDown, _))));
        let Some(says) = ended.next().map(|t| t.says.clone()) else {
            return false;
        };
        if let Some(track) = self.tracks.get_mut(key) {
            track.shown = outcome;
            track.shown_since = track.ended.unwrap_or_default().1;
            track.says = says;
        }
        true
    }

    /// Their pods have ended before, and now their VMIs say how: not in order.
    fn killed_after_all(&mut self, index: &Index<'_>) -> Vec<(String, VmPhase)> {
        let node = &self.policy.node_name;
        let mut found = Vec::new();
        for (key, track) in &mut self.tracks {
            let Some((VmPhase::ShutDown | VmPhase::Gone, at)) = track.ended else {
                continue;
            };
            let failed = |vmi: &&VmiView| vmi.phase == VmiPhase::Failed && vmi.node == *node;
            let by_uid = !track.vmi_uid.is_empty() && !track.seen_failed;
            if by_uid && index.vmi_of(track).is_some_and(|vmi| failed(&vmi)) {
                track.seen_final = true;
                track.seen_failed = true;
                let outcome = track.outcome();
                track.ended = Some((outcome, at));
                found.push((key.clone(), outcome));
            }
        }
        found
    }

    pub(super) fn answered(
        &mut self,
        key: &str,
        dry: bool,
        result: Result<Reply, Fault>,
        now: Mono,
    ) {
        let jitter = self.jitter();
        let timing = self.policy.timing;
        let Some(track) = self.tracks.get_mut(key) else {
            return;
        };
        let before = track.ours;
        match result {
            Ok(reply) => {
                track.answered(judge(&reply), reply.retry_after, dry, now, &timing, jitter);
            }
            Err(fault) => track.unanswered(fault.text, dry, now, &timing, jitter),
        }
        let accepted =
            !dry && (track.accepted == Some(now) || track.granted == Some(now) || track.maybe_ours);
        let changed = before != track.ours;
        let vm = track.vm.clone();
        if self.misdirected(&vm) {
            let successors = self.tracks.values_mut().filter(|t| t.vm == vm);
            for track in successors.filter(|t| t.ended.is_none()) {
                track.maybe_ours = true;
            }
        }
        if accepted && let Some(drain) = &mut self.drain {
            drain.last_accepted = now;
        }
        if changed {
            self.persist();
        }
    }

    /// VMIs that this drain has marked, or may have marked, and that are still here.
    pub(super) fn marks_ours(&self) -> Vec<ObjectRef> {
        let inherited = self
            .drain
            .iter()
            .flat_map(|d| d.inherited.values().cloned());
        let carries = self.tracks.values().filter(|t| t.may_carry_our_mark());
        let ours = carries.map(Track::vmi);
        let mut all: Vec<_> = ours.chain(inherited).collect();
        all.sort();
        all.dedup();
        all
    }
}

/// Its place in the stop order; one that cannot be read counts as none.
fn order(pod: &PodView) -> i64 {
    let order = pod.stop_order.as_deref().map(stop_order);
    order.and_then(Result::ok).unwrap_or(0)
}

fn node_version(picture: &Picture) -> Option<u64> {
    picture.node.seen().map(version)
}

/// Key of a VMI whose pod was not seen yet.
pub(super) fn placeholder_key(vmi_uid: &str) -> String {
    format!("vmi:{vmi_uid}")
}

/// What a track learns from its VMI, which runs here.
fn see_vmi(track: &mut Track, vmi: &VmiView) {
    track.seen_here = true;
    track.vmi_uid.clone_from(&vmi.vmi.uid);
    track.memory = track.memory.max(vmi.memory.unwrap_or(0));
    if vmi.mark.is_some() {
        track.seen_mark |= track.accepted.is_some() || track.maybe_ours;
        track.ours |= track.maybe_ours;
    }
}

/// Counts the attempts to take this VM away, and notes a success.
fn count_attempts(
    track: &mut Track,
    migrations: &[&MigrationView],
    old: &BTreeSet<String>,
    now: Mono,
) {
    for m in migrations {
        let uid = &m.migration.uid;
        if old.contains(uid) {
            continue;
        }
        // The one that brought it here is no attempt to take it away. It may have come a moment before this drain.
        if track.made_by.as_ref() == Some(uid) {
            if m.is_final() {
                track.arrived.get_or_insert(now);
            }
            continue;
        }
        track.attempts.insert(uid.clone());
        if m.phase == MigrationPhase::Succeeded && (track.seen_here || track.was_migrating()) {
            // The VMIM names its target a moment after it has succeeded.
            let known = Some(m.target_node.clone()).filter(|n| !n.is_empty());
            let target = known.or_else(|| track.target.clone());
            track.moved_to = Some(target.unwrap_or_default());
        }
    }
}

/// What a shown phase means for the count of VMs that are left.
pub(super) fn is_still_here(phase: VmPhase) -> bool {
    !matches!(phase, VmPhase::Migrated | VmPhase::ShutDown | VmPhase::Gone)
}
