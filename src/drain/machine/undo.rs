//! A cancel: what is taken back, in which order, and what has to stay (design section 3.8).
//!
//! Two lanes that do not wait for each other: the marks (and, on demand, the migrations) and the cordon.
//! The hold is asked for at the very beginning, by whoever noticed that the shutdown has vanished.

use super::Machine;
use super::pending::{Pending, Why};
use crate::drain::action::{Action, Fault, FaultClass, HoldView, Level};
use crate::drain::answer::Reply;
use crate::drain::phase::Phase;
use crate::drain::time::Mono;
use crate::drain::track::doubled;
use crate::drain::world::{MigrationView, ObjectRef, VmName};

/// How often a lane is tried before it is given up and told: about four minutes of an unreachable API server.
const TRIES: u32 = 20;
/// What a failure that will hardly pass (a missing right) counts.
const HOPELESS: u32 = TRIES / 2;
/// Requests about marks at the same time.
const MARKS_AT_ONCE: usize = 10;

/// How far a cancel is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Undo {
    /// Marks still to be cleared; `None` until the evictions on the wire have been answered.
    marks: Option<Vec<ObjectRef>>,
    /// VMs whose marks are gone: their migrations may be aborted without a new one following.
    cleared: Vec<VmName>,
    /// The migrations were asked to end.
    aborted: bool,
    /// Failures of the marks' lane, and its next try.
    mark_tries: u32,
    marks_at: Mono,
    /// Failures of the cordon's lane; its next try is the machine's `retry_at`.
    pub(super) node_tries: u32,
    /// The cordon is gone, or not ours, or given up.
    pub(super) uncordon_done: bool,
    /// The node waits to be given back, as it did before this drain.
    pub(super) waits_again: bool,
    /// What stays, each as a sentence.
    pub(super) remains: Vec<String>,
}

impl Machine {
    pub(super) fn start_cancel(&mut self, why: &str) {
        if let Some(drain) = &mut self.drain {
            drain.undo = Undo::default();
            why.clone_into(&mut drain.end);
        }
        self.phase = Phase::Cancelling;
        for stop in self.stops_ours() {
            self.remains(stop.cannot_be_taken_back());
        }
        self.evictions_remain();
        self.tell_of_schedule();
        self.retry_done();
        self.keep_pending(|p| {
            matches!(
                p,
                Pending::Evict { dry: false, .. }
                    | Pending::StopGuest { .. }
                    | Pending::Cordon
                    | Pending::StartVm { .. }
                    | Pending::Release
                    | Pending::TakeHold
            )
        });
        // A crash from here on must go on with the cancel, not with the drain.
        self.persist();
        self.tell(
            Level::Info,
            "DrainCancelling",
            format!("the drain is being undone: {why}"),
        );
    }

    /// One step of both lanes.
    pub(super) fn cancel_step(&mut self, now: Mono) {
        let marks_done = self.undo_marks(now);
        let node_done = self.undo_cordon(now);
        if marks_done && node_done {
            self.cancel_done();
        }
    }

    /// The marks' lane; true when nothing is left to do.
    fn undo_marks(&mut self, now: Mono) -> bool {
        let busy = self.waits_for(|p| {
            matches!(
                p,
                Pending::Evict { .. }
                    | Pending::CancelEvacuation { .. }
                    | Pending::DeleteMigration
                    | Pending::StopGuest { .. }
            )
        });
        if busy || !self.sees_marks(now) {
            return false;
        }
        let marks = match self.drain.as_mut().and_then(|d| d.undo.marks.take()) {
            Some(marks) => marks,
            None => self.marks_to_clear(),
        };
        let Some(drain) = &mut self.drain else {
            return true;
        };
        if marks.is_empty() {
            drain.undo.marks = Some(marks);
            return self.abort_migrations();
        }
        if now < drain.undo.marks_at {
            let at = drain.undo.marks_at;
            drain.undo.marks = Some(marks);
            self.wake_at(at, "clear the marks again");
            return false;
        }
        let later = marks.len().saturating_sub(MARKS_AT_ONCE);
        let (now_asked, rest) = marks.split_at(marks.len() - later);
        drain.undo.marks = Some(rest.to_vec());
        for vmi in now_asked {
            let key = vmi.uid.clone();
            let id = self.effect(Pending::CancelEvacuation { key });
            let vmi = vmi.clone();
            self.actions.push_back(Action::CancelEvacuation { id, vmi });
        }
        false
    }

    /// After a restart the marks are looked for in a picture first, as long as one can be hoped for.
    fn sees_marks(&mut self, now: Mono) -> bool {
        let Some(drain) = &self.drain else {
            return true;
        };
        let patience = drain.looking_since + self.policy.timing.request;
        let unknown = !drain.inherited.is_empty() || drain.abort_migrations;
        if unknown && self.picture.pods.seen().is_none() && now < patience {
            self.wake_at(patience, "no picture to look for marks");
            return false;
        }
        true
    }

    /// The marks that are ours; on KubeVirt before 1.7 they can only be told.
    fn marks_to_clear(&mut self) -> Vec<ObjectRef> {
        if self.picture.pods.seen().is_some() {
            self.forget_marks_elsewhere();
        }
        let marks = self.marks_ours();
        let version = self.picture.kubevirt.seen().and_then(|k| k.version);
        if marks.is_empty() || version.is_none_or(|v| v >= (1, 7)) {
            return marks;
        }
        for vmi in &marks {
            self.mark_too_old(vmi);
        }
        Vec::new()
    }

    /// A mark from a record whose VM is no longer on this node has gone with it.
    pub(super) fn forget_marks_elsewhere(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.inherited.clear();
        }
    }

    fn mark_too_old(&mut self, vmi: &ObjectRef) {
        self.remains(format!(
            "marks cannot be cleared, KubeVirt < 1.7: {vmi} will still be migrated"
        ));
    }

    pub(super) fn mark_cancelled(&mut self, key: &str, result: Result<Reply, Fault>, now: Mono) {
        let Some(vmi) = self.marks_ours().into_iter().find(|v| v.uid == key) else {
            return;
        };
        let reply = match result {
            Ok(reply) => reply,
            Err(fault) => return self.cancel_again(&vmi, &fault.text, now),
        };
        let has = |text: &str| reply.message.contains(text);
        match reply.code {
            // The answer to a mark that names another node: the VM has left, ours is gone.
            500 if has("server rejected our request due to an error in our request") => {
                self.mark_is_gone(&vmi);
            }
            404 if has("Page Not Found") => self.mark_too_old(&vmi),
            200..300 | 404 => self.mark_is_gone(&vmi),
            403 => self.remains(format!(
                "the mark of {vmi} could not be cleared (right update on virtualmachineinstances/evacuate is missing; rbac/cancel.yaml gives it); a cluster administrator can: {}",
                by_hand(&vmi)
            )),
            400 if has("NodeDrainTaintKey") => self.mark_tainted(&vmi, now),
            400 => self.remains(format!(
                "the mark of {vmi} could not be cleared: {}",
                reply.message
            )),
            code => {
                let why = format!("HTTP {code}: {}", reply.message);
                self.cancel_again(&vmi, &why, now);
            }
        }
    }

    pub(super) fn cancel_again(&mut self, vmi: &ObjectRef, why: &str, now: Mono) {
        let timing = self.policy.timing;
        let jitter = self.jitter();
        let Some(drain) = &mut self.drain else { return };
        let undo = &mut drain.undo;
        // Failures of one batch count as one.
        if now >= undo.marks_at {
            undo.mark_tries += 1;
            let pause = doubled(timing.retry_first, timing.retry_most, undo.mark_tries);
            undo.marks_at = now + pause.mul_f64(0.85 + 0.3 * jitter);
        }
        if undo.mark_tries < TRIES {
            undo.marks.get_or_insert_default().push(vmi.clone());
        } else {
            self.remains(format!(
                "the mark of {vmi} could not be cleared ({why}); try: {}",
                by_hand(vmi)
            ));
        }
    }

    fn mark_is_gone(&mut self, vmi: &ObjectRef) {
        if let Some(drain) = &mut self.drain {
            drain.inherited.remove(&vmi.uid);
            drain.undo.cleared.push(VmName {
                namespace: vmi.namespace.clone(),
                name: vmi.name.clone(),
            });
        }
        for track in self.tracks.values_mut().filter(|t| t.vmi_uid == vmi.uid) {
            track.ours = false;
            track.maybe_ours = false;
        }
    }

    /// Only where the mark is gone: KubeVirt would start a new migration otherwise. True when nothing was asked.
    fn abort_migrations(&mut self) -> bool {
        let Some(drain) = &mut self.drain else {
            return true;
        };
        if !drain.abort_migrations || drain.undo.aborted {
            return true;
        }
        drain.undo.aborted = true;
        let node = self.policy.node_name.as_str();
        let ours = |m: &&MigrationView| {
            !m.is_final()
                && !m.deleting
                && m.evacuates.as_deref() == Some(node)
                && drain.undo.cleared.contains(&m.vm)
        };
        let all = self.picture.migrations.seen().into_iter().flatten();
        let migrations: Vec<ObjectRef> = all.filter(ours).map(|m| m.migration.clone()).collect();
        for migration in &migrations {
            let id = self.effect(Pending::DeleteMigration);
            let migration = migration.clone();
            self.actions
                .push_back(Action::DeleteMigration { id, migration });
        }
        migrations.is_empty()
    }

    pub(super) fn migration_deleted(&mut self, result: Result<Reply, Fault>) {
        let why = match result {
            Ok(reply) if reply.code < 300 || reply.code == 404 || reply.code == 409 => return,
            Ok(reply) if reply.code == 403 => {
                "right delete on virtualmachineinstancemigrations is missing; rbac/abort.yaml gives it".to_owned()
            }
            Ok(reply) => format!("HTTP {}: {}", reply.code, reply.message),
            Err(fault) if fault.class == FaultClass::Gone => return,
            Err(fault) => fault.text,
        };
        self.remains(format!("a migration could not be aborted: {why}"));
    }

    /// The cordon's lane; true when nothing is left to do.
    fn undo_cordon(&mut self, now: Mono) -> bool {
        let busy = self.waits_for(|p| {
            matches!(
                p,
                Pending::ReadNode(_) | Pending::Cordon | Pending::Uncordon(_)
            )
        });
        if busy {
            return false;
        }
        let Some(drain) = &mut self.drain else {
            return true;
        };
        if drain.undo.uncordon_done {
            return true;
        }
        if drain.undo.node_tries >= TRIES {
            drain.undo.uncordon_done = true;
            let text = format!(
                "node {} could not be uncordoned ({}); `vmdrain-agent restore` does it later",
                self.policy.node_name, drain.trouble
            );
            self.remains(text);
            return true;
        }
        if now < self.retry_at {
            self.wake_at(self.retry_at, "uncordon again");
            return false;
        }
        let id = self.effect(Pending::ReadNode(Why::Undo));
        self.actions.push_back(Action::ReadNode(id));
        false
    }

    /// Reading or uncordoning has failed.
    pub(super) fn undo_trouble(&mut self, what: &str, fault: &Fault, now: Mono) {
        self.node_trouble(what, fault, now);
        let weight = match fault.class {
            FaultClass::Transient | FaultClass::Conflict | FaultClass::Unauthorized => 1,
            FaultClass::Denied | FaultClass::Gone | FaultClass::Fatal => HOPELESS,
        };
        if let Some(drain) = &mut self.drain {
            drain.undo.node_tries += weight;
        }
    }

    /// The lock is wanted back: the shutdown that it was given up for, or held for, is off.
    pub(super) fn want_hold(&mut self) {
        let released = self.drain.as_ref().is_some_and(|d| d.released);
        let letting_go = self.waits_for(|p| matches!(p, Pending::Release));
        if letting_go || (self.hold.held && !released) {
            return;
        }
        if let Some(drain) = &mut self.drain {
            drain.released = false;
        }
        let id = self.effect(Pending::TakeHold);
        self.actions.push_back(Action::TakeHold(id));
    }

    pub(super) fn hold_taken(&mut self, result: Result<HoldView, String>) {
        match result {
            Ok(hold) => self.hold = hold,
            Err(why) => {
                let text = format!("the hold could not be taken again: {why}");
                self.remains(text.clone());
                self.tell(Level::Error, "HoldMissing", text);
            }
        }
    }

    pub(super) fn remains(&mut self, text: String) {
        if let Some(drain) = &mut self.drain
            && !drain.undo.remains.contains(&text)
        {
            drain.undo.remains.push(text);
        }
    }

    fn cancel_done(&mut self) {
        self.tell_of_kubelet();
        self.tell_of_taint();
        // Granted since the cancel began.
        self.evictions_remain();
        self.owe_what_ends();
        let Some(drain) = &mut self.drain else { return };
        let at_deadline = matches!(drain.exit, Some(3 | 7));
        self.phase = if at_deadline {
            Phase::Deadline
        } else {
            Phase::Cancelled
        };
        if !at_deadline {
            drain.exit = Some(5);
        }
        let mut text = format!("drain {} is undone: {}", drain.id, drain.end);
        for remains in &drain.undo.remains {
            text.push_str("; ");
            text.push_str(remains);
        }
        drain.inherited.clear();
        let waits_again = drain.undo.waits_again;
        if !waits_again {
            self.starts_due();
        }
        let Some(drain) = &mut self.drain else { return };
        let level = if drain.undo.remains.is_empty() {
            Level::Info
        } else {
            Level::Warn
        };
        self.forget();
        self.actions.push_back(Action::Unwatch);
        self.tell_once("cancelled", level, "DrainCancelled", text);
        if waits_again {
            self.wait_again();
        }
    }
}

pub(super) fn by_hand(vmi: &ObjectRef) -> String {
    format!(
        "virtctl evacuate-cancel vmi {} -n {}",
        vmi.name, vmi.namespace
    )
}
