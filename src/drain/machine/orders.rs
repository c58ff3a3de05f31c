//! What begins, changes or ends a drain: commands, shutdown signals, a record of an earlier process.

use super::contact::Contact;
use super::fallback::Falling;
use super::gates::Gates;
use super::local::Local;
use super::pending::{Pending, Why};
use super::targets::Targets;
use super::undo::Undo;
use super::{Drain, Machine, hold_deadline, latest_deadline};
use crate::drain::action::{Action, Level, Token};
use crate::drain::phase::Phase;
use crate::drain::policy::OnDeadline;
use crate::drain::record::Record;
use crate::drain::time::Mono;
use crate::drain::trigger::{Refusal, Shutdown, Trigger};
use crate::drain::world::ObjectRef;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl Machine {
    pub(super) fn order_drain(&mut self, token: Token, trigger: Trigger, now: Mono) {
        if trigger.stop_job {
            return self.stop_job(token, trigger, now);
        }
        if self.phase.is_draining() && self.drain.as_ref().is_some_and(|d| d.scheduled) {
            return self.take_over(token, trigger, now);
        }
        if self.phase.is_draining() && trigger.shutdown_vms {
            return self.join_rack(token, &trigger, now);
        }
        if self.phase.is_draining() && !trigger.signal.is_empty() {
            return self.join_drain(token, &trigger, now);
        }
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
        if self.going_down() {
            self.answer(token, Err(Refusal::GoingDown));
            return;
        }
        let span = self.span_of(&trigger);
        let reason = if trigger.reason.is_empty() {
            "requested by an operator".into()
        } else {
            trigger.reason.clone()
        };
        self.begin(Some(trigger), &reason, now + span, false, now);
        let id = self.drain_id().unwrap_or_default().to_owned();
        self.answer(token, Ok(id));
    }

    /// The system is going down past logind, or logind's delay is over (net 3). Joins what is under way; a drain that
    /// ended empty for this very shutdown has nothing left to do.
    fn stop_job(&mut self, token: Token, trigger: Trigger, now: Mono) {
        const JOINED: &str =
            "the stop job of a host that is going down: the drain goes on, with its deadline";
        let deadline = now + self.span_of(&trigger);
        let draining = self.phase.is_draining();
        let drained = self.phase == Phase::Drained;
        let joined = match &mut self.drain {
            Some(drain) if draining || drain.unconfirmed => {
                drain.announced("stop job", deadline);
                // Also after a restart of the agent: the deadline of the record was logind's.
                drain.deadline = deadline;
                Some(JOINED)
            }
            Some(drain) if drained && drain.scheduled => {
                drain.announced("stop job", deadline);
                self.reopen();
                Some(JOINED)
            }
            Some(drain) if drained && (drain.shutting_down || drain.then.is_some()) => {
                drain.shutting_down = true;
                drain.exit = Some(0);
                Some("the host is going down (stop job); the node is empty already")
            }
            Some(_) | None => None,
        };
        if let Some(text) = joined {
            self.tell(Level::Info, "StopJob", text.into());
        } else {
            let reason = if trigger.reason.is_empty() {
                "the host is going down (stop job)".into()
            } else {
                trigger.reason.clone()
            };
            self.begin(Some(trigger), &reason, deadline, true, now);
        }
        if let Some(drain) = &mut self.drain {
            drain.stopping = true;
        }
        self.persist();
        let id = self.drain_id().unwrap_or_default().to_owned();
        self.answer(token, Ok(id));
    }

    /// How long a drain that somebody asked for may take.
    pub(super) fn span_of(&self, trigger: &Trigger) -> Duration {
        let span = trigger
            .deadline
            .or(self.policy.deadline)
            .unwrap_or(self.policy.timing.default_deadline);
        if trigger.shutdown_vms {
            // The power goes then: the host itself needs some of that time.
            return span.saturating_sub(self.policy.margin.min(span / 5));
        }
        span
    }

    pub(super) fn shutdown(&mut self, shutdown: &Shutdown, now: Mono) {
        // It has come, or an immediate one has taken its place.
        self.schedule = None;
        let what = shutdown
            .kind
            .map_or("shutdown", super::super::trigger::Then::word);
        let own = self
            .policy
            .deadline
            .unwrap_or(self.policy.timing.default_deadline);
        let deadline = match shutdown.limit {
            Some(limit) if shutdown.held => hold_deadline(now, limit, self.policy.margin),
            _ => now + own,
        };
        if !shutdown.held {
            let text = format!(
                "a {what} is in progress and our delay lock is not in effect: the host does not wait for the drain"
            );
            self.tell(Level::Error, "HoldMissing", text);
        }
        let limit = shutdown.limit.filter(|_| shutdown.held);
        let latest = limit.map(|limit| latest_deadline(now, limit, self.policy.timing.release));
        if self.asked_at_the_deadline() {
            return self.goes_at_the_deadline(what, latest);
        }
        let drained = self.phase == Phase::Drained;
        let waiting = |d: &Drain| drained && (d.shutting_down || d.scheduled || d.then.is_some());
        let draining = self.phase.is_draining();
        match &mut self.drain {
            Some(drain) if draining || waiting(drain) || drain.unconfirmed => {
                let reopened = waiting(drain);
                // A deadline that was asked for with the drain stands: logind's limit is only how long it may be.
                let own = drain.trigger.as_ref().is_some_and(|t| t.deadline.is_some());
                let stands = own && draining && !drain.shutting_down && drain.deadline > now;
                let deadline = if stands {
                    deadline.min(drain.deadline)
                } else {
                    deadline
                };
                let text = drain.announced(what, deadline);
                if reopened {
                    self.reopen();
                }
                self.tell(Level::Info, "ShutdownAnnounced", text);
            }
            Some(_) | None => {
                let reason = format!("the host is going down ({what})");
                self.begin(None, &reason, deadline, true, now);
            }
        }
        if let Some(drain) = &mut self.drain {
            drain.latest = latest;
        }
    }

    /// The node was empty; by now that may be long ago.
    fn reopen(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.exit = None;
        }
        self.watch();
        self.phase = Phase::Confirming;
        self.retry_done();
    }

    pub(super) fn begin(
        &mut self,
        trigger: Option<Trigger>,
        reason: &str,
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
        for token in self.tokens_waiting() {
            self.answer(token, Err(Refusal::RestoreWhileDraining { id: id.clone() }));
        }
        let then = trigger.as_ref().and_then(|t| t.then);
        self.drain = Some(Drain {
            id: id.clone(),
            trigger,
            reason: reason.to_owned(),
            started: now,
            deadline,
            looking_since: now,
            shutting_down,
            scheduled: false,
            unconfirmed: false,
            stopping: false,
            then,
            exit: None,
            cordoned: false,
            cordon_ours: false,
            cordon_may_land: None,
            cordon_version: 0,
            last_accepted: now,
            cluster_full: None,
            old_migrations: None,
            inherited,
            inherited_stops: BTreeMap::new(),
            abort_migrations: false,
            falling: Falling::default(),
            latest: None,
            gates: Gates::default(),
            targets: Targets::default(),
            released: false,
            undo: Undo::default(),
            guest_stopper: self.guest_stopper_now(),
            end: String::new(),
            trouble: String::new(),
            joined: None,
            unread_since: None,
            cordon_refused: false,
            contact: Contact::new(now),
            local: Local::default(),
        });
        self.start_preparing();
        // The cordon goes first: what the watches ask must not stand in its way.
        self.want_cordon(now);
        self.watch();
        self.persist();
        self.tell_once(
            "start",
            Level::Info,
            "DrainStarted",
            format!("drain {id} started: {reason}"),
        );
    }

    fn start_preparing(&mut self) {
        self.phase = Phase::Preparing;
        // A drain that begins takes the cordon over; what the boot before has left is its own from here on.
        self.restore = None;
        self.tracks.clear();
        self.others.clear();
        self.slots = crate::drain::pacing::Slots::default();
        self.told.clear();
        let kept = |p: &Pending| {
            matches!(
                p,
                Pending::Release | Pending::TakeHold | Pending::StartVm { .. }
            )
        };
        self.keep_pending(kept);
        self.starts_wait();
        self.picture = crate::drain::world::Picture::default();
        self.node = None;
        self.retry_done();
    }

    fn marks_of_before(&self) -> BTreeMap<String, ObjectRef> {
        self.marks_ours()
            .into_iter()
            .map(|vmi| (vmi.uid.clone(), vmi))
            .collect()
    }

    pub(super) fn resume_drain(&mut self, record: Record, now: Mono) {
        let reason = match &record.trigger {
            Some(trigger) if !trigger.reason.is_empty() => trigger.reason.clone(),
            Some(_) => "requested by an operator".into(),
            None if record.shutting_down => "the host is going down".into(),
            None => "a shutdown is scheduled".into(),
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
            scheduled: record.scheduled,
            unconfirmed: record.shutting_down || record.scheduled,
            stopping: false,
            exit: record.exit.filter(|_| record.phase == "cancelling"),
            cordoned: false,
            cordon_ours: record.cordon_ours,
            cordon_may_land: (!record.cordon_ours).then_some(now + self.policy.timing.request),
            cordon_version: 0,
            last_accepted: now,
            cluster_full: None,
            // What has failed before the restart counts as an attempt of this drain.
            old_migrations: Some(BTreeSet::new()),
            inherited: record
                .marks
                .into_iter()
                .map(|vmi| (vmi.uid.clone(), vmi))
                .collect(),
            inherited_stops: record
                .stops
                .into_iter()
                .map(|note| (note.pod.uid.clone(), note))
                .collect(),
            abort_migrations: record.abort_migrations,
            falling: Falling {
                asked: record.released,
                end: record.released.then_some(OnDeadline::ShutdownVms),
                ..Falling::default()
            },
            contact: Contact::new(now),
            local: Local::default(),
            latest: None,
            gates: Gates::of_record(&record.phase),
            targets: Targets::default(),
            released: false,
            undo: Undo::default(),
            guest_stopper: self.guest_stopper_now(),
            end: String::new(),
            trouble: String::new(),
            joined: None,
            unread_since: None,
            cordon_refused: false,
        });
        self.start_preparing();
        self.watch();
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
    pub(super) fn host_ready(&mut self) {
        if self.drain.as_ref().is_some_and(|d| d.unconfirmed) {
            self.schedule_gone();
            self.shutdown_vanished(
                "the host was going down before the agent was restarted, and no longer is",
            );
        }
    }

    pub(super) fn shutdown_vanished(&mut self, why: &str) {
        let Some(drain) = &mut self.drain else { return };
        // The stop jobs of a system that is going down cannot be called off; logind ends with the others.
        if !drain.shutting_down || drain.stopping {
            return;
        }
        drain.shutting_down = false;
        drain.unconfirmed = false;
        let text = format!("the shutdown is no longer pending: {why}; the drain is undone");
        self.tell(Level::Warn, "ShutdownVanished", text.clone());
        self.want_hold();
        match self.phase {
            Phase::Idle
            | Phase::Cancelling
            | Phase::Cancelled
            | Phase::Refused
            | Phase::Restoring => {}
            Phase::Preparing
            | Phase::Evacuating
            | Phase::FallingBack
            | Phase::Holding
            | Phase::Confirming
            | Phase::OtherPods
            | Phase::Gates => self.start_cancel(&text),
            Phase::Drained | Phase::Deadline => {
                self.watch();
                self.start_cancel(&text);
            }
        }
    }

    pub(super) fn order_restore(&mut self, token: Token) {
        if !self.phase.is_at_rest() {
            let id = self.drain_id().unwrap_or_default().to_owned();
            self.answer(token, Err(Refusal::RestoreWhileDraining { id }));
            return;
        }
        if self.going_down() {
            self.answer(token, Err(Refusal::GoingDown));
            return;
        }
        let id = self.effect(Pending::ReadNode(Why::Restore(token)));
        self.actions.push_back(Action::ReadNode(id));
    }

    /// The drain is over, and the host is on its way down.
    fn going_down(&self) -> bool {
        self.drain.as_ref().is_some_and(|d| d.shutting_down)
    }

    /// How much time the deadline leaves.
    pub(super) fn time_left(&self, now: Mono) -> Duration {
        self.drain
            .as_ref()
            .map(|d| d.deadline.left(now))
            .unwrap_or_default()
    }
}

impl Drain {
    /// The whole rack goes down: nobody is migrated, every guest is told at once.
    pub(super) fn is_of_the_rack(&self) -> bool {
        self.trigger.as_ref().is_some_and(|t| t.shutdown_vms)
    }

    /// The cordon is to outlive the boot.
    pub(super) fn keeps_cordon(&self) -> bool {
        self.trigger.as_ref().is_some_and(|t| t.keep_cordoned)
    }

    /// A shutdown was announced while this drain is under way. After a restart of the agent it is the one that
    /// was known before, and its deadline stands; otherwise the newest announcement counts.
    fn announced(&mut self, what: &str, deadline: Mono) -> String {
        let text = match (self.unconfirmed, self.shutting_down) {
            (true, true) => format!("the host is still going down ({what}); the drain goes on"),
            (false, true) => {
                format!("the {what} was announced again; one drain goes on, with a new deadline")
            }
            (_, false) => {
                format!("the host is going down ({what}); the drain goes on under the hold")
            }
        };
        if !(self.unconfirmed && self.shutting_down) {
            self.deadline = deadline;
        }
        self.shutting_down = true;
        self.scheduled = false;
        self.unconfirmed = false;
        self.released = false;
        // Looked at anew, with the new deadline.
        self.falling.since = None;
        self.falling.holding = false;
        text
    }
}
