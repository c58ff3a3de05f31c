//! How a drain ends: fresh lists, release, deadline, cancel.

use super::{Machine, Pending, Why};
use crate::drain::action::{Action, Fault, FaultClass, HoldView, Level, LogindAnswer};
use crate::drain::answer::Reply;
use crate::drain::judge::left_here;
use crate::drain::phase::Phase;
use crate::drain::policy::OnDeadline;
use crate::drain::status::VmPhase;
use crate::drain::time::Mono;
use crate::drain::track::doubled;
use crate::drain::trigger::Refusal;
use crate::drain::verdict::left_sentence;
use crate::drain::world::{Fresh, ObjectRef};

/// How often a step of a cancel is tried before it is given up and told.
const UNDO_TRIES: u32 = 6;

impl Machine {
    pub(super) fn confirmed(&mut self, since: Mono, result: Result<Fresh, Fault>, now: Mono) {
        let fresh = match result {
            Ok(fresh) => fresh,
            Err(fault) => {
                self.retry_later(&fault, now);
                let text = format!("cannot confirm that the node is empty: {}", fault.text);
                if let Some(drain) = &mut self.drain {
                    drain.trouble.clone_from(&text);
                }
                self.tell_once("confirm", Level::Warn, "ConfirmFailed", text);
                return;
            }
        };
        if self.phase != Phase::Confirming {
            return;
        }
        self.see_fresh(&fresh, now);
        let stale = self.drain.as_ref().is_some_and(|d| d.last_accepted > since);
        let node = self.policy.node_name.clone();
        let left = !left_here(&self.picture, &node, |pod| self.lingers(pod, now)).is_empty();
        let unread: Vec<_> = fresh
            .malformed
            .iter()
            .filter(|m| m.resource == "pods")
            .collect();
        if let Some(first) = unread.first() {
            let text = format!(
                "pod {} cannot be read ({}): whether a VM runs in it is not known, so the node does not count as empty",
                first.object, first.why
            );
            self.tell_once("malformed", Level::Warn, "MalformedObject", text);
        }
        if stale || left || !unread.is_empty() {
            self.phase = Phase::Evacuating;
            self.retries += 1;
            let timing = self.policy.timing;
            self.retry_at = now + doubled(timing.retry_first, timing.retry_most, self.retries);
            return;
        }
        self.retry_done();
        self.drained(now);
    }

    fn drained(&mut self, now: Mono) {
        self.phase = Phase::Drained;
        self.warn_of_lingering(now);
        let Some(drain) = &mut self.drain else { return };
        drain.trouble.clear();
        drain.exit = if drain.shutting_down || drain.then.is_none() {
            Some(0)
        } else {
            None
        };
        drain.end = "no VM is left on the node".into();
        let took = super::advance::span(now.since(drain.started));
        let text = format!(
            "node {} is empty of VMs after {took}",
            self.policy.node_name
        );
        self.tell_once("end", Level::Info, "Drained", text);
        self.actions.push_back(Action::Unwatch);
        self.leave(now);
    }

    fn warn_of_lingering(&mut self, now: Mono) {
        let pods = self.picture.pods.seen().into_iter().flatten();
        let lingering: Vec<_> = pods
            .filter(|p| !p.is_empty_of_guest() && self.lingers(p, now))
            .cloned()
            .collect();
        for pod in lingering {
            let text = format!(
                "{} has moved, but its old pod {} still runs here; the drain goes on without it",
                pod.vm, pod.pod
            );
            self.tell_vm(Level::Warn, "OldPodLingers", text, pod.pod);
        }
    }

    /// What follows when a drain is over: release, logind, or nothing.
    fn leave(&mut self, now: Mono) {
        let Some(drain) = &self.drain else { return };
        if drain.shutting_down {
            self.persist();
            self.want_release(now);
        } else if let Some(then) = drain.then {
            self.persist();
            let id = self.effect(Pending::AskLogind);
            self.actions.push_back(Action::AskLogind { id, then });
        } else {
            self.forget();
        }
    }

    fn want_release(&mut self, now: Mono) {
        let asked = self.waits_for(|p| matches!(p, Pending::Release));
        if asked || !self.hold.held {
            return;
        }
        if now < self.retry_at {
            self.wake_at(self.retry_at, "release again");
            return;
        }
        let id = self.effect(Pending::Release);
        self.actions.push_back(Action::Release(id));
    }

    pub(super) fn released(&mut self, result: Result<HoldView, String>, now: Mono) {
        match result {
            Ok(hold) if !hold.held => {
                self.hold = hold;
                self.retry_done();
                self.tell(
                    Level::Info,
                    "HoldReleased",
                    "the hold is released, the host may go down".into(),
                );
            }
            Ok(hold) => {
                self.hold = hold;
                self.release_failed("logind still lists our lock", now);
            }
            Err(why) => self.release_failed(&why, now),
        }
    }

    fn release_failed(&mut self, why: &str, now: Mono) {
        self.retry_at = now + self.policy.timing.retry_first;
        self.tell_once(
            "release",
            Level::Error,
            "ReleaseFailed",
            format!("cannot release the hold: {why}"),
        );
    }

    /// Drained or past the deadline, and the host still has to be let go.
    pub(super) fn end_step(&mut self, now: Mono) {
        if self.drain.as_ref().is_some_and(|d| d.shutting_down) {
            self.want_release(now);
        }
    }

    pub(super) fn logind_answered(&mut self, answer: LogindAnswer) {
        let Some(drain) = &mut self.drain else { return };
        let text = match answer {
            LogindAnswer::Accepted => {
                drain.exit = Some(0);
                return;
            }
            LogindAnswer::Blocked(why) | LogindAnswer::Failed(why) => why,
        };
        let then = drain
            .then
            .take()
            .map_or("shutdown", super::super::trigger::Then::word);
        drain.exit = Some(1);
        drain.end = format!("the node is drained, but logind refused the {then}: {text}");
        let text = format!(
            "{}; it stays cordoned (`vmdrain-agent restore` gives it back)",
            drain.end
        );
        self.forget();
        self.tell(Level::Error, "LogindRefused", text);
    }

    pub(super) fn deadline_reached(&mut self, now: Mono) {
        let OnDeadline::Proceed = self.on_deadline();
        let node = self.policy.node_name.clone();
        let mut left = Vec::new();
        for track in self.tracks.values_mut().filter(|t| t.ended.is_none()) {
            track.end(VmPhase::Left, now);
            track.shown = VmPhase::Left;
            track.shown_since = now;
            let vm = track.vmi();
            left.push((vm, left_sentence(&track.vm, &track.says)));
        }
        let blind = self.picture.pods.seen().is_none();
        self.phase = Phase::Deadline;
        self.actions.push_back(Action::Unwatch);
        for (vm, text) in &left {
            self.tell_vm(Level::Error, "VmLeft", text.clone(), vm.clone());
        }
        let Some(drain) = &mut self.drain else { return };
        drain.exit = Some(3);
        drain.end = match (blind, left.len()) {
            (true, _) => format!(
                "the deadline passed before the VMs of node {node} could be seen: {}",
                if drain.trouble.is_empty() {
                    "the API server did not answer"
                } else {
                    &drain.trouble
                }
            ),
            (false, 0) => "the deadline passed before the node could be confirmed empty".into(),
            (false, n) => format!("the deadline passed with {n} VM(s) left on node {node}"),
        };
        let (text, down) = (drain.end.clone(), drain.shutting_down);
        if drain.then.take().is_some() && !down {
            drain.end = format!("{text}; logind was not asked to go down");
        }
        self.tell_once("end", Level::Error, "DeadlinePassed", text.clone());
        self.retry_done();
        if down {
            self.persist();
            self.want_release(now);
        } else {
            // The host stays up: a node that was not drained is not left cordoned (T40).
            self.start_cancel(&text);
        }
    }

    fn on_deadline(&self) -> OnDeadline {
        let asked = self
            .drain
            .as_ref()
            .and_then(|d| d.trigger.as_ref())
            .and_then(|t| t.on_deadline);
        asked.unwrap_or(self.policy.on_deadline)
    }

    pub(super) fn refuse(&mut self, refusal: &Refusal) {
        self.phase = Phase::Refused;
        self.actions.push_back(Action::Unwatch);
        let text = refusal.to_string();
        if let Some(drain) = &mut self.drain {
            drain.exit = Some(4);
            drain.end.clone_from(&text);
        }
        self.forget();
        self.tell(Level::Error, "DrainRefused", text);
        if self.drain.as_ref().is_some_and(|d| d.shutting_down) && self.hold.held {
            let id = self.effect(Pending::Release);
            self.actions.push_back(Action::Release(id));
        }
    }

    /// One step of a cancel: evictions on the wire first, then marks, migrations, cordon, hold.
    pub(super) fn cancel_step(&mut self, now: Mono) {
        if !self.pending.is_empty() {
            return;
        }
        if now < self.retry_at {
            self.wake_at(self.retry_at, "undo again");
            return;
        }
        let Some(drain) = &mut self.drain else { return };
        if !drain.undo.marks_asked {
            drain.undo.marks_asked = true;
            self.cancel_marks();
            if !self.pending.is_empty() {
                return;
            }
        }
        let Some(drain) = &mut self.drain else { return };
        let tired = self.retries >= UNDO_TRIES;
        if !drain.undo.uncordon_done && !tired {
            let id = self.effect(Pending::ReadNode(Why::Undo));
            self.actions.push_back(Action::ReadNode(id));
            return;
        }
        if tired && !drain.undo.uncordon_done {
            drain.undo.uncordon_done = true;
            drain.undo.remains.push(
                "the node could not be uncordoned; `vmdrain-agent restore` does it by hand".into(),
            );
        }
        if !drain.undo.hold_done && !self.hold.held {
            drain.undo.hold_done = true;
            let id = self.effect(Pending::TakeHold);
            self.actions.push_back(Action::TakeHold(id));
            return;
        }
        self.cancel_done();
    }

    fn cancel_marks(&mut self) {
        let marks = self.marks_ours();
        let abort = self.drain.as_ref().is_some_and(|d| d.abort_migrations);
        let old = self
            .picture
            .kubevirt
            .seen()
            .and_then(|k| k.version)
            .is_some_and(|v| v < (1, 7));
        if old && !marks.is_empty() {
            let names: Vec<_> = marks.iter().map(ToString::to_string).collect();
            self.remains(format!(
                "marks cannot be cleared, KubeVirt < 1.7: {} will still be migrated",
                names.join(", ")
            ));
        }
        for vmi in &marks {
            if !old {
                let id = self.effect(Pending::CancelEvacuation {
                    key: vmi.uid.clone(),
                });
                self.actions.push_back(Action::CancelEvacuation {
                    id,
                    vmi: vmi.clone(),
                });
            }
        }
        if !abort {
            return;
        }
        let node = self.policy.node_name.clone();
        let migrations: Vec<_> = self
            .picture
            .migrations
            .seen()
            .into_iter()
            .flatten()
            .filter(|m| !m.is_final() && !m.deleting)
            .cloned()
            .collect();
        for m in migrations {
            let ours = marks
                .iter()
                .any(|vmi| vmi.namespace == m.vm.namespace && vmi.name == m.vm.name);
            if ours && m.evacuates.as_deref() == Some(node.as_str()) {
                let id = self.effect(Pending::DeleteMigration);
                self.actions.push_back(Action::DeleteMigration {
                    id,
                    migration: m.migration.clone(),
                });
            }
        }
    }

    fn remains(&mut self, text: String) {
        if let Some(drain) = &mut self.drain
            && !drain.undo.remains.contains(&text)
        {
            drain.undo.remains.push(text);
        }
    }

    pub(super) fn mark_cancelled(&mut self, key: &str, result: Result<Reply, Fault>) {
        let Some(vmi) = self.marks_ours().into_iter().find(|v| v.uid == key) else {
            return;
        };
        match result {
            Ok(reply) if reply.code < 300 => self.mark_is_gone(key),
            // The VMI is gone, and its mark with it; a text body instead is KubeVirt < 1.7.
            Ok(reply) if reply.code == 404 && !reply.message.contains("Page Not Found") => self.mark_is_gone(key),
            Ok(reply) if reply.code == 404 => {
                self.remains(format!("marks cannot be cleared, KubeVirt < 1.7: {vmi} will still be migrated"));
            }
            Ok(reply) if reply.code == 403 => self.remains(format!(
                "the mark of {vmi} could not be cleared (right update on virtualmachineinstances/evacuate is missing); a cluster administrator can: virtctl evacuate-cancel vmi {} -n {}",
                vmi.name, vmi.namespace
            )),
            Ok(reply) => self.cancel_again(&vmi, format!("HTTP {}: {}", reply.code, reply.message)),
            Err(fault) => self.cancel_again(&vmi, fault.text),
        }
    }

    fn cancel_again(&mut self, vmi: &ObjectRef, why: String) {
        let Some(drain) = &mut self.drain else { return };
        drain.undo.tries += 1;
        if drain.undo.tries > UNDO_TRIES {
            self.remains(format!(
                "the mark of {vmi} could not be cleared ({why}); try: virtctl evacuate-cancel vmi {} -n {}",
                vmi.name, vmi.namespace
            ));
            return;
        }
        let id = self.effect(Pending::CancelEvacuation {
            key: vmi.uid.clone(),
        });
        self.actions.push_back(Action::CancelEvacuation {
            id,
            vmi: vmi.clone(),
        });
    }

    fn mark_is_gone(&mut self, key: &str) {
        if let Some(drain) = &mut self.drain {
            drain.inherited.remove(key);
        }
        for track in self.tracks.values_mut().filter(|t| t.vmi_uid == key) {
            track.ours = false;
            track.maybe_ours = false;
        }
    }

    pub(super) fn migration_deleted(&mut self, result: Result<Reply, Fault>) {
        match result {
            Ok(reply) if reply.code < 300 || reply.code == 404 || reply.code == 409 => {}
            Ok(reply) => self.remains(format!(
                "a migration could not be aborted: HTTP {}: {}",
                reply.code, reply.message
            )),
            Err(fault) if fault.class == FaultClass::Gone => {}
            Err(fault) => self.remains(format!("a migration could not be aborted: {}", fault.text)),
        }
    }

    pub(super) fn hold_taken(&mut self, result: Result<HoldView, String>, _now: Mono) {
        match result {
            Ok(hold) => self.hold = hold,
            Err(why) => self.remains(format!("the hold could not be taken again: {why}")),
        }
    }

    fn cancel_done(&mut self) {
        let Some(drain) = &mut self.drain else { return };
        let at_deadline = drain.exit == Some(3);
        self.phase = if at_deadline {
            Phase::Deadline
        } else {
            Phase::Cancelled
        };
        drain.exit.get_or_insert(5);
        if !at_deadline {
            drain.exit = Some(5);
        }
        let mut text = format!("drain {} is undone: {}", drain.id, drain.end);
        for remains in &drain.undo.remains {
            text.push_str("; ");
            text.push_str(remains);
        }
        drain.inherited.clear();
        let level = if drain.undo.remains.is_empty() {
            Level::Info
        } else {
            Level::Warn
        };
        self.forget();
        self.actions.push_back(Action::Unwatch);
        self.tell_once("cancelled", level, "DrainCancelled", text);
    }

    pub(super) fn tell_end(&mut self, key: &str, outcome: VmPhase) {
        let Some(track) = self.tracks.get_mut(key) else {
            return;
        };
        track.shown = outcome;
        let (_, at) = track.ended.unwrap_or_default();
        track.shown_since = at;
        let took = super::advance::span(at.since(track.first_post.unwrap_or(track.first_seen)));
        track.says = match outcome {
            VmPhase::Migrated => match track.moved_to.as_deref().or(track.target.as_deref()) {
                Some(to) if !to.is_empty() => format!("moved to {to} in {took}"),
                _ => format!("moved to another node in {took}"),
            },
            VmPhase::ShutDown => format!("guest was shut down in {took}"),
            _ => "is gone from this node; whether it moved or ended cannot be seen".into(),
        };
        if let Some(to) = &track.moved_to
            && !to.is_empty()
        {
            track.target = Some(to.clone());
        }
        let text = format!("{}: {}", track.vm, track.says);
        let vm = track.vmi();
        self.tell_vm(Level::Info, "VmGone", text, vm);
    }
}
