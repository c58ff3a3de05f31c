//! What begins, changes or ends a drain: commands, shutdown signals, a record of an earlier process.

use super::{Drain, Machine, Pending, Undo, Why, hold_deadline};
use crate::drain::action::{Action, Level, Token};
use crate::drain::phase::Phase;
use crate::drain::record::Record;
use crate::drain::status::VmPhase;
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::trigger::{Refusal, Shutdown, Trigger};
use crate::drain::world::ObjectRef;
use std::collections::BTreeMap;
use std::time::Duration;

impl Machine {
    pub(super) fn order_drain(&mut self, token: Token, trigger: Trigger, now: Mono) {
        if !self.phase.is_at_rest() {
            let id = self.drain_id().unwrap_or_default().to_owned();
            self.answer(
                token,
                Err(Refusal::AlreadyDraining {
                    id,
                    phase: self.phase.name(),
                }),
            );
            return;
        }
        let span = trigger
            .deadline
            .or(self.policy.deadline)
            .unwrap_or(self.policy.timing.default_deadline);
        let reason = if trigger.reason.is_empty() {
            "requested by an operator".into()
        } else {
            trigger.reason.clone()
        };
        self.begin(Some(trigger), reason, now + span, false, now);
        let id = self.drain_id().unwrap_or_default().to_owned();
        self.answer(token, Ok(id));
    }

    pub(super) fn shutdown(&mut self, shutdown: &Shutdown, now: Mono) {
        let what = shutdown
            .kind
            .map_or("shutdown", super::super::trigger::Then::word);
        let deadline = match shutdown.limit {
            Some(limit) if shutdown.held => hold_deadline(now, limit, self.policy.margin),
            _ => {
                now + self
                    .policy
                    .deadline
                    .unwrap_or(self.policy.timing.default_deadline)
            }
        };
        if !shutdown.held {
            let text = format!(
                "a {what} is in progress and our delay lock is not in effect: the host does not wait for the drain"
            );
            self.tell(Level::Error, "HoldMissing", text);
        }
        let waiting = self.phase == Phase::Drained
            && self
                .drain
                .as_ref()
                .is_some_and(|d| d.shutting_down || d.then.is_some());
        match &mut self.drain {
            Some(drain) if self.phase.is_draining() || waiting => {
                let repeated = drain.shutting_down && !drain.unconfirmed;
                if !drain.unconfirmed {
                    drain.deadline = deadline;
                }
                drain.shutting_down = true;
                drain.unconfirmed = false;
                drain.exit = None;
                let text = if repeated {
                    format!(
                        "the {what} was announced again; one drain goes on, with a new deadline"
                    )
                } else {
                    format!("the host is going down ({what}); the drain goes on under the hold")
                };
                self.tell(Level::Info, "ShutdownAnnounced", text);
                if waiting {
                    self.actions.push_back(Action::Watch);
                    self.phase = Phase::Confirming;
                    self.retry_done();
                }
            }
            _ => self.begin(
                None,
                format!("the host is going down ({what})"),
                deadline,
                true,
                now,
            ),
        }
    }

    fn begin(
        &mut self,
        trigger: Option<Trigger>,
        reason: String,
        deadline: Mono,
        shutting_down: bool,
        now: Mono,
    ) {
        self.ids += 1;
        // Unique enough for people and for the marker: moment of the boot clock, count, and chance.
        let _ = self.jitter();
        let id = format!("{:x}-{:x}-{:04x}", now.0, self.ids, self.seed & 0xffff);
        // What a cancelled drain could not undo yet is still ours to undo.
        let inherited = self.marks_of_before();
        let then = trigger.as_ref().and_then(|t| t.then);
        self.drain = Some(Drain {
            id: id.clone(),
            trigger,
            reason: reason.clone(),
            started: now,
            deadline,
            looking_since: now,
            shutting_down,
            unconfirmed: false,
            then,
            exit: None,
            cordoned: false,
            cordon_ours: false,
            cordon_version: 0,
            last_accepted: now,
            cluster_full: None,
            inherited,
            abort_migrations: false,
            undo: Undo::default(),
            end: String::new(),
            trouble: String::new(),
        });
        self.start_preparing();
        self.tell_once(
            "start",
            Level::Info,
            "DrainStarted",
            format!("drain {id} started: {reason}"),
        );
    }

    fn start_preparing(&mut self) {
        self.phase = Phase::Preparing;
        self.tracks.clear();
        self.told.clear();
        self.pending.clear();
        self.picture = crate::drain::world::Picture::default();
        self.node = None;
        self.retry_done();
        self.actions.push_back(Action::Watch);
    }

    fn marks_of_before(&self) -> BTreeMap<String, ObjectRef> {
        if self.phase != Phase::Cancelling {
            return BTreeMap::new();
        }
        self.marks_ours()
            .into_iter()
            .map(|vmi| (vmi.uid.clone(), vmi))
            .collect()
    }

    pub(super) fn resume_drain(&mut self, record: Record, now: Mono) {
        let reason = match &record.trigger {
            Some(trigger) if !trigger.reason.is_empty() => trigger.reason.clone(),
            Some(_) => "requested by an operator".into(),
            None => "the host is going down".into(),
        };
        self.persisted = Some(record.clone());
        self.drain = Some(Drain {
            id: record.drain.clone(),
            then: record.trigger.as_ref().and_then(|t| t.then),
            trigger: record.trigger,
            reason,
            started: record.started,
            deadline: record.deadline,
            looking_since: now,
            shutting_down: record.shutting_down,
            unconfirmed: record.shutting_down,
            exit: None,
            cordoned: false,
            cordon_ours: record.cordon_ours,
            cordon_version: 0,
            last_accepted: now,
            cluster_full: None,
            inherited: record
                .marks
                .into_iter()
                .map(|vmi| (vmi.uid.clone(), vmi))
                .collect(),
            abort_migrations: false,
            undo: Undo::default(),
            end: String::new(),
            trouble: String::new(),
        });
        self.start_preparing();
        let text = format!(
            "drain {} goes on after a restart of the agent",
            record.drain
        );
        self.tell_once("start", Level::Info, "DrainResumed", text);
        if record.phase == "cancelling" {
            self.start_cancel("the agent was restarted while a cancel was in progress");
        }
    }

    /// A record said that the host is going down; the host adapter has looked and did not find that.
    pub(super) fn host_ready(&mut self, now: Mono) {
        if self.drain.as_ref().is_some_and(|d| d.unconfirmed) && self.phase.is_draining() {
            self.shutdown_vanished(
                "the host was going down before the agent was restarted, and no longer is",
                now,
            );
        }
    }

    pub(super) fn shutdown_vanished(&mut self, why: &str, _now: Mono) {
        let Some(drain) = &mut self.drain else { return };
        if !drain.shutting_down {
            return;
        }
        drain.shutting_down = false;
        drain.unconfirmed = false;
        let text = format!("the shutdown is no longer pending: {why}; the drain is undone");
        self.tell(Level::Warn, "ShutdownVanished", text.clone());
        match self.phase {
            Phase::Cancelling => {}
            Phase::Idle | Phase::Cancelled | Phase::Refused => {}
            Phase::Preparing
            | Phase::Evacuating
            | Phase::Confirming
            | Phase::Drained
            | Phase::Deadline => {
                self.actions.push_back(Action::Watch);
                self.start_cancel(&text);
            }
        }
    }

    pub(super) fn order_cancel(&mut self, token: Token, abort_migrations: bool, _now: Mono) {
        let waiting =
            self.phase == Phase::Drained && self.drain.as_ref().is_some_and(|d| d.exit.is_none());
        let Some(drain) = &mut self.drain else {
            self.answer(token, Err(Refusal::NothingToCancel));
            return;
        };
        if drain.shutting_down {
            self.answer(token, Err(Refusal::ShutdownPending));
            return;
        }
        if !self.phase.is_draining() && self.phase != Phase::Cancelling && !waiting {
            self.answer(token, Err(Refusal::NothingToCancel));
            return;
        }
        drain.abort_migrations |= abort_migrations;
        let id = drain.id.clone();
        if self.phase != Phase::Cancelling {
            self.start_cancel("cancelled by an operator");
        }
        self.answer(token, Ok(format!("drain {id} is being cancelled")));
    }

    pub(super) fn start_cancel(&mut self, why: &str) {
        let left = self.marks_left_at_deadline();
        if let Some(drain) = &mut self.drain {
            drain
                .inherited
                .extend(left.into_iter().map(|vmi| (vmi.uid.clone(), vmi)));
            drain.undo = Undo::default();
            drain.end = why.to_owned();
        }
        self.phase = Phase::Cancelling;
        self.retry_done();
        self.pending
            .retain(|_, p| matches!(p, Pending::Evict { .. } | Pending::Cordon));
        self.tell(
            Level::Info,
            "DrainCancelling",
            format!("the drain is being undone: {why}"),
        );
    }

    /// Marks of VMs that a deadline has left here: their tracks have ended, the marks have not.
    fn marks_left_at_deadline(&self) -> Vec<ObjectRef> {
        let left = |t: &&Track| t.ended.is_some_and(|(phase, _)| phase == VmPhase::Left);
        let ours = self
            .tracks
            .values()
            .filter(left)
            .filter(|t| (t.ours || t.maybe_ours) && !t.vmi_uid.is_empty());
        ours.map(Track::vmi).collect()
    }

    pub(super) fn order_restore(&mut self, token: Token) {
        if !self.phase.is_at_rest() {
            let id = self.drain_id().unwrap_or_default().to_owned();
            self.answer(token, Err(Refusal::RestoreWhileDraining { id }));
            return;
        }
        let id = self.effect(Pending::ReadNode(Why::Restore(token)));
        self.actions.push_back(Action::ReadNode(id));
    }

    /// How much time the deadline leaves.
    pub(super) fn time_left(&self, now: Mono) -> Duration {
        self.drain
            .as_ref()
            .map(|d| d.deadline.left(now))
            .unwrap_or_default()
    }
}
