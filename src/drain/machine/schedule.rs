//! A shutdown that is scheduled (`shutdown +10`): what is begun early, and what is taken back when it is called off.
//!
//! Until its time has come nothing is done that could not be taken back: guests that cannot migrate keep running.

use super::{Machine, hold_deadline};
use crate::drain::action::{Level, Token};
use crate::drain::phase::Phase;
use crate::drain::policy::OnScheduled;
use crate::drain::time::Mono;
use crate::drain::trigger::{Schedule, Then, Trigger};

/// When the scheduled shutdown comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) kind: Option<Then>,
    pub(super) at: Mono,
}

impl Due {
    pub(super) fn what(self) -> &'static str {
        self.kind.map_or("shutdown", Then::word)
    }
}

impl Machine {
    /// The host adapter tells what is scheduled now.
    pub(super) fn scheduled(&mut self, schedule: Option<Schedule>, now: Mono) {
        self.schedule = schedule.map(|s| Due {
            kind: s.kind,
            at: now + s.within,
        });
        match self.schedule {
            Some(due) => self.schedule_known(due, now),
            None => self.schedule_gone(),
        }
    }

    fn schedule_known(&mut self, due: Due, now: Mono) {
        let when = super::show::span(due.at.left(now));
        let text = format!("a {} is scheduled in {when}", due.what());
        let deadline = self.deadline_of(due);
        let follows = self.phase.is_draining() || self.phase == Phase::Drained;
        if let Some(drain) = &mut self.drain
            && drain.scheduled
            && follows
        {
            drain.unconfirmed = false;
            drain.deadline = deadline;
            self.persist();
            return self.tell(
                Level::Info,
                "ShutdownScheduled",
                format!("{text}: the drain goes on"),
            );
        }
        let then = if self.drain.as_ref().is_some_and(|d| d.shutting_down) {
            "the host is going down already"
        } else if self.phase.is_draining() {
            "the drain that is under way goes on"
        } else if self.phase == Phase::Drained {
            "the node is drained already"
        } else if self.policy.on_scheduled == OnScheduled::Ignore {
            "by configuration the drain begins when its time has come"
        } else {
            self.begin(None, &text, deadline, false, now);
            if let Some(drain) = &mut self.drain {
                drain.scheduled = true;
            }
            self.persist();
            return;
        };
        self.tell(Level::Info, "ShutdownScheduled", format!("{text}: {then}"));
    }

    /// Somebody asks for a drain while one runs early: from now on it is theirs, and a `shutdown -c` leaves it alone.
    pub(super) fn take_over(&mut self, token: Token, trigger: Trigger, now: Mono) {
        let deadline = now + self.span_of(&trigger);
        let Some(drain) = &mut self.drain else { return };
        drain.scheduled = false;
        drain.unconfirmed = false;
        drain.deadline = deadline;
        drain.then = trigger.then;
        if !trigger.reason.is_empty() {
            drain.reason.clone_from(&trigger.reason);
        }
        drain.trigger = Some(trigger);
        let id = drain.id.clone();
        self.persist();
        let text =
            "the drain that was begun for a scheduled shutdown goes on as requested by an operator";
        self.tell(Level::Info, "DrainTakenOver", text.into());
        self.answer(token, Ok(id));
    }

    /// Nothing is scheduled (any more): what was begun for it is taken back.
    pub(super) fn schedule_gone(&mut self) {
        let Some(drain) = &mut self.drain else { return };
        if !drain.scheduled || drain.shutting_down {
            return;
        }
        drain.scheduled = false;
        drain.unconfirmed = false;
        match self.phase {
            Phase::Preparing
            | Phase::Evacuating
            | Phase::FallingBack
            | Phase::Holding
            | Phase::Confirming
            | Phase::OtherPods
            | Phase::Gates => {}
            Phase::Drained => self.watch(),
            Phase::Idle
            | Phase::Deadline
            | Phase::Cancelling
            | Phase::Cancelled
            | Phase::Refused
            | Phase::Restoring => return,
        }
        let why = "the scheduled shutdown was called off";
        self.tell(
            Level::Info,
            "ScheduleCancelled",
            format!("{why}: what was begun for it is undone"),
        );
        self.start_cancel(why);
    }

    /// The time of the shutdown, and what logind will give on top of it.
    fn deadline_of(&self, due: Due) -> Mono {
        match self.hold.limit {
            Some(limit) if self.hold.held => hold_deadline(due.at, limit, self.policy.margin),
            _ => due.at,
        }
    }

    /// A node that is cordoned early and not drained before the time has come.
    pub(super) fn only_cordons(&self) -> bool {
        self.policy.on_scheduled == OnScheduled::Cordon
            && self.phase == Phase::Preparing
            && self.drain.as_ref().is_some_and(|d| d.scheduled)
    }
}
