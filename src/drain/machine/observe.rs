//! Takes the newest picture in and keeps the memory of each VM in step with it.

use super::Machine;
use super::cordon::version;
use crate::drain::action::Fault;
use crate::drain::answer::Reply;
use crate::drain::answer::judge;
use crate::drain::judge::{Case, is_inbound};
use crate::drain::phase::Phase;
use crate::drain::status::VmPhase;
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::world::{
    Fresh, MigrationPhase, MigrationView, ObjectRef, Picture, PodKind, PodView, Sight, VmName,
    VmiView,
};
use std::collections::BTreeSet;

impl Machine {
    pub(super) fn see(&mut self, picture: Picture, now: Mono) {
        if !(self.phase.is_draining() || self.phase == Phase::Cancelling) {
            return;
        }
        let before = std::mem::replace(&mut self.picture, picture);
        // Of the Node the newest version counts, whichever picture brought it.
        if node_version(&before) > node_version(&self.picture) {
            self.picture.node = before.node;
        }
        self.update_tracks(now);
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
        self.update_tracks(now);
    }

    fn update_tracks(&mut self, now: Mono) {
        let node = self.policy.node_name.clone();
        let pods: Vec<PodView> = self.picture.pods.seen().cloned().unwrap_or_default();
        let vmis: Option<Vec<VmiView>> = self.picture.vmis.seen().cloned();
        let migrations: Vec<MigrationView> =
            self.picture.migrations.seen().cloned().unwrap_or_default();
        for pod in pods.iter().filter(|p| p.kind == PodKind::Launcher) {
            self.see_pod(pod, &node, now);
        }
        for vmi in vmis
            .iter()
            .flatten()
            .filter(|v| v.node == node && !v.is_final())
        {
            self.see_vmi(vmi, now);
        }
        let old = self.old_migrations(&migrations);
        for track in self.tracks.values_mut().filter(|t| t.ended.is_none()) {
            see_migrations(track, &migrations, &old);
            let vmi = vmis
                .as_ref()
                .map(|v| v.iter().any(|v| is_of(v, track) && v.node == node));
            let moving = migrations.iter().any(|m| m.vm == track.vm && !m.is_final());
            if vmi == Some(true) || moving {
                track.moved_since = None;
            } else if vmi == Some(false) {
                track.moved_since.get_or_insert(now);
            }
        }
        if self.picture.pods.seen().is_some() {
            self.end_tracks(&pods, vmis.as_deref(), now);
        }
    }

    /// VMIMs that have nothing to do with this drain: they were over when it looked first.
    fn old_migrations(&mut self, migrations: &[MigrationView]) -> BTreeSet<String> {
        let seen = self.picture.migrations.seen().is_some();
        let Some(drain) = self.drain.as_mut().filter(|_| seen) else {
            return BTreeSet::new();
        };
        let over = || migrations.iter().filter(|m| m.is_final());
        drain
            .old_migrations
            .get_or_insert_with(|| over().map(|m| m.migration.uid.clone()).collect())
            .clone()
    }

    fn see_pod(&mut self, pod: &PodView, node: &str, now: Mono) {
        let over = pod.is_empty_of_guest();
        if over && !self.tracks.contains_key(&pod.pod.uid) {
            // Of an earlier visit of its VM, which may be here again in another pod.
            return;
        }
        let known = self.tracks.remove(&placeholder_key(&pod.vmi_uid));
        let inherited = self
            .drain
            .as_mut()
            .and_then(|d| d.inherited.remove(&pod.vmi_uid))
            .is_some();
        let track = self
            .tracks
            .entry(pod.pod.uid.clone())
            .or_insert_with(|| Track {
                first_seen: now,
                shown_since: now,
                inbound: is_inbound(pod, node),
                ..known.unwrap_or_default()
            });
        track.revive_if(!over);
        track.inbound &= is_inbound(pod, node);
        track.made_by.clone_from(&pod.migration_job);
        track.pod = pod.pod.clone();
        track.vm = pod.vm.clone();
        track.vmi_uid.clone_from(&pod.vmi_uid);
        track.memory = track.memory.max(pod.memory.unwrap_or(0));
        track.maybe_ours |= inherited;
        track.seen_deleting |= pod.deleting;
        track.seen_ended |= pod.is_empty_of_guest();
        if track.accepted.is_some() || track.maybe_ours {
            track.seen_mark |= pod.eviction_in_progress;
        }
    }

    fn see_vmi(&mut self, vmi: &VmiView, now: Mono) {
        let inherited = self
            .drain
            .as_mut()
            .and_then(|d| d.inherited.remove(&vmi.vmi.uid))
            .is_some();
        let has_pod = self
            .tracks
            .values()
            .any(|t| !t.pod.uid.is_empty() && is_of(vmi, t) && t.ended.is_none());
        if !has_pod {
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
        }
        for track in self
            .tracks
            .values_mut()
            .filter(|t| t.ended.is_none() && is_of(vmi, t))
        {
            track.seen_here = true;
            track.vmi_uid.clone_from(&vmi.vmi.uid);
            track.memory = track.memory.max(vmi.memory.unwrap_or(0));
            track.maybe_ours |= inherited;
            if vmi.mark.is_some() {
                track.seen_mark |= track.accepted.is_some() || track.maybe_ours;
                track.ours |= track.maybe_ours;
            }
        }
    }

    /// What is no longer in the picture, or holds no guest any more, has come to its end here.
    fn end_tracks(&mut self, pods: &[PodView], vmis: Option<&[VmiView]>, now: Mono) {
        let mut ended = Vec::new();
        for (key, track) in &mut self.tracks {
            if track.ended.is_some() {
                continue;
            }
            let pod = pods.iter().find(|p| p.pod.uid == track.pod.uid);
            let over = match pod {
                Some(pod) => pod.is_empty_of_guest(),
                None if track.pod.uid.is_empty() => {
                    !vmis.is_some_and(|v| v.iter().any(|v| is_of(v, track) && !v.is_final()))
                }
                None => true,
            };
            // Migrated is only said when it is known: the VMIM's last word comes a moment after the pod's.
            if over {
                let outcome = track.outcome();
                track.end(outcome, now);
                ended.push((key.clone(), outcome));
            }
        }
        for (key, outcome) in ended {
            self.tell_end(&key, outcome);
        }
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

    /// The case of one track, from the picture of now. `migrations` must outlive it.
    pub(super) fn case<'a>(
        &'a self,
        track: &'a Track,
        migrations: &'a [&'a MigrationView],
    ) -> Case<'a> {
        let pods = self
            .picture
            .pods
            .seen()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let vmis = self.picture.vmis.seen();
        let object = track.vm.to_string();
        Case {
            pod: pods.iter().find(|p| p.pod.uid == track.pod.uid),
            vmi: vmis.and_then(|v| v.iter().find(|v| is_of(v, track))),
            vmis_seen: vmis.is_some(),
            vmi_malformed: self
                .picture
                .malformed
                .iter()
                .any(|m| m.resource == "virtualmachineinstances" && m.object == object),
            migrations,
            track,
        }
    }

    /// VMIMs of one VM, oldest first.
    pub(super) fn migrations_of(&self, vm: &VmName) -> Vec<&MigrationView> {
        let mut found: Vec<_> = self
            .picture
            .migrations
            .seen()
            .into_iter()
            .flatten()
            .filter(|m| &m.vm == vm)
            .collect();
        // Of one second, the unfinished one is the newest.
        found.sort_by_key(|m| (m.created, !m.is_final(), m.migration.name.clone()));
        found
    }
}

fn node_version(picture: &Picture) -> Option<u64> {
    picture.node.seen().map(version)
}

/// Key of a VMI whose pod was not seen yet.
fn placeholder_key(vmi_uid: &str) -> String {
    format!("vmi:{vmi_uid}")
}

/// The VMI of this track: by UID, or by name where the UID is not known.
pub(super) fn is_of(vmi: &VmiView, track: &Track) -> bool {
    if track.vmi_uid.is_empty() {
        vmi.vmi.namespace == track.vm.namespace && vmi.vmi.name == track.vm.name
    } else {
        vmi.vmi.uid == track.vmi_uid
    }
}

/// Counts the attempts to take this VM away, and notes a success.
fn see_migrations(track: &mut Track, migrations: &[MigrationView], old: &BTreeSet<String>) {
    for m in migrations.iter().filter(|m| m.vm == track.vm) {
        let uid = &m.migration.uid;
        // The one that brought it here is no attempt to take it away.
        if old.contains(uid) || track.made_by.as_ref() == Some(uid) {
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
