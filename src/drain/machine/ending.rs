//! What is said about the end of a drain while it runs: `extend`, `release`, `cancel`, a rack that goes down, a shutdown that was
//! asked for at the deadline.

use super::index::Index;
use super::requests::REQUEST;
use super::show::span;
use super::{Drain, Machine};
use crate::drain::action::{Level, Token};
use crate::drain::phase::Phase;
use crate::drain::policy::{Consent, OnDeadline};
use crate::drain::request::REQUEST_ANNOTATION;
use crate::drain::time::Mono;
use crate::drain::trigger::{Ending, Refusal, Trigger};
use std::time::Duration;

impl Machine {
    /// Moves the deadline. logind's limit stands: what it does not give cannot be had.
    pub(super) fn order_extend(&mut self, token: Token, by: Duration, now: Mono) {
        let draining = self.phase.is_draining();
        let Some(drain) = self.drain.as_mut().filter(|_| draining) else {
            return self.answer(token, Err(Refusal::NoDrain { what: "extend" }));
        };
        // From now on, where it has passed already.
        let wanted = drain.deadline.max(now) + by;
        if let Some(latest) = drain.latest.filter(|latest| wanted > *latest) {
            let limit = self.hold.limit.unwrap_or_default();
            let refusal = Refusal::PastLimit {
                limit: span(limit),
                most: span(latest.left(drain.deadline.max(now))),
            };
            return self.answer(token, Err(refusal));
        }
        drain.deadline = wanted;
        drain.falling.holding = false;
        if !drain.falling.asked {
            // Whether guests have to be told is looked at anew; those that were told go on.
            drain.falling.since = None;
        }
        self.told.remove("holding");
        self.told.remove("fallback");
        let text = format!(
            "the deadline was moved by {}: {} are left",
            span(by),
            span(wanted.left(now))
        );
        self.persist();
        self.loud(Level::Info, "DeadlineMoved", text.clone());
        self.answer(token, Ok(text));
    }

    /// Enough: ends the drain now, by policy or as asked. Said again, it does not wait for guests any more.
    pub(super) fn order_release(&mut self, token: Token, ending: Ending, now: Mono) {
        let draining = self.phase.is_draining();
        let Some(drain) = self.drain.as_ref().filter(|_| draining) else {
            return self.answer(token, Err(Refusal::NoDrain { what: "release" }));
        };
        let again = drain.falling.asked;
        let stops = match ending {
            Ending::Proceed => false,
            Ending::ShutdownVms => true,
            // A hold and an abort name no ending: then nobody is killed for want of a word more.
            Ending::Policy => {
                self.ending() != OnDeadline::Proceed && self.policy.consent != Consent::Never
            }
        };
        if stops && self.policy.consent == Consent::Never {
            return self.answer(token, Err(Refusal::ConsentNever));
        }
        if stops && !again {
            return self.release_with_shutdown(token, now);
        }
        let text = if again && stops {
            "the host is let go at once; guests that are still shutting down may be cut off"
        } else {
            "the host is let go as it is; VMs that are left are named in the journal"
        };
        if let Some(drain) = &mut self.drain {
            drain.falling.end = Some(OnDeadline::Proceed);
            drain.falling.holding = false;
            drain.deadline = drain.deadline.min(now);
        }
        self.loud(
            Level::Warn,
            "HoldEnded",
            format!("somebody has ended the drain: {text}"),
        );
        self.answer(token, Ok(text.into()));
        if self.phase == Phase::Preparing {
            self.tell(
                Level::Warn,
                "NothingSeen",
                "the drain had not begun to move anything".into(),
            );
        }
    }

    fn release_with_shutdown(&mut self, token: Token, now: Mono) {
        let guests = self.guests_left(&Index::of(&self.picture));
        let longest = guests.iter().map(|guest| guest.needs).max();
        if let Some(drain) = &mut self.drain {
            drain.falling.asked = true;
            drain.falling.end = Some(OnDeadline::ShutdownVms);
            drain.falling.holding = false;
            // Whoever asks for that wants them to have their time, as far as logind gives it.
            let needs = now + longest.unwrap_or_default();
            let most = drain.latest.unwrap_or(needs);
            drain.deadline = drain.deadline.max(needs.min(most));
        }
        self.persist();
        let text = "the guests that are left are shut down now; said again, `vmdrain-agent release` does not wait for them";
        self.loud(
            Level::Warn,
            "HoldEnded",
            format!("somebody has ended the drain: {text}"),
        );
        self.answer(token, Ok(text.into()));
    }

    /// Its deadline has passed, and logind was asked all the same.
    pub(super) fn asked_at_the_deadline(&self) -> bool {
        let asked = |d: &Drain| d.then.is_some() && !d.shutting_down;
        self.phase == Phase::Deadline && self.drain.as_ref().is_some_and(asked)
    }

    /// The shutdown that was asked for comes: the host is let go at once.
    pub(super) fn goes_at_the_deadline(&mut self, what: &str, latest: Option<Mono>) {
        if let Some(drain) = &mut self.drain {
            drain.shutting_down = true;
            drain.latest = latest;
        }
        let text = format!("the host is going down ({what}), as it was asked to at the deadline");
        self.tell(Level::Info, "ShutdownAnnounced", text);
        self.persist();
    }

    /// The whole rack goes down while a drain is under way: from now on nobody is migrated.
    pub(super) fn join_rack(&mut self, token: Token, trigger: &Trigger, now: Mono) {
        let deadline = now + self.span_of(trigger);
        let Some(drain) = &mut self.drain else { return };
        drain.deadline = drain.deadline.min(deadline);
        drain.scheduled = false;
        let id = drain.id.clone();
        let mut joined = drain.trigger.take().unwrap_or_default();
        joined.shutdown_vms = true;
        joined.deadline = trigger.deadline.or(joined.deadline);
        joined.then = drain.then.or(trigger.then);
        drain.then = joined.then;
        if !trigger.reason.is_empty() {
            joined.reason.clone_from(&trigger.reason);
            drain.reason.clone_from(&trigger.reason);
        }
        drain.trigger = Some(joined);
        self.persist();
        let text = "nobody is migrated any more: the guests of all VMs that are left are shut down";
        self.tell(Level::Warn, "WholeRack", text.into());
        self.answer(token, Ok(id));
    }

    pub(super) fn order_cancel(&mut self, token: Token, abort_migrations: bool, signal: &str) {
        if let Err(refusal) = self.may_call_off(signal) {
            return self.all_clear(token, signal, refusal);
        }
        let drained = self.phase == Phase::Drained;
        let early = drained && self.drain.as_ref().is_some_and(|d| d.scheduled);
        let drained_for = |d: &Drain| drained && d.then.is_some();
        let waiting = self.drain.as_ref().is_some_and(drained_for);
        let Some(drain) = &mut self.drain else {
            self.answer(token, Err(Refusal::NothingToCancel));
            return;
        };
        if drain.shutting_down || (waiting && drain.exit == Some(0)) {
            self.answer(token, Err(Refusal::ShutdownPending));
            return;
        }
        if !self.phase.is_draining() && self.phase != Phase::Cancelling && !waiting && !early {
            self.answer(token, Err(Refusal::NothingToCancel));
            return;
        }
        drain.abort_migrations |= abort_migrations;
        // The shutdown itself stays scheduled; when it comes, the drain begins anew.
        drain.scheduled = false;
        let id = drain.id.clone();
        if early {
            self.watch();
        }
        if self.phase != Phase::Cancelling {
            let by = match signal {
                "" if token == REQUEST => format!("cancelled by {REQUEST_ANNOTATION} on the Node"),
                "" => "cancelled by an operator".to_owned(),
                signal => format!("cancelled by maintenance signal {signal}"),
            };
            self.start_cancel(&by);
        }
        let text = format!(
            "drain {id} is being cancelled; `vmdrain-agent status` shows what could not be undone"
        );
        self.answer(token, Ok(text));
    }
}
