//! What a person may say about the end of a drain: `extend` and `release`.

use super::Machine;
use super::index::Index;
use super::show::span;
use crate::drain::action::{Level, Token};
use crate::drain::phase::Phase;
use crate::drain::policy::{Consent, OnDeadline};
use crate::drain::time::Mono;
use crate::drain::trigger::{Ending, Refusal};
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
            Ending::Policy => {
                self.ending() == OnDeadline::ShutdownVms && self.policy.consent != Consent::Never
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
}
