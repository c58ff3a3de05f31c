//! What does a maintenance signal change in a drain that is under way, and which drains may one call off?
//!
//! A signal that comes again changes nothing: the earlier deadline stands, what was asked for is asked for.

use super::Machine;
use crate::drain::action::{Level, Source, Token};
use crate::drain::phase::Phase;
use crate::drain::status::MaintenanceStatus;
use crate::drain::time::Mono;
use crate::drain::trigger::{Refusal, Then, Trigger};

/// An operator's drain as it was before a signal joined it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Joined {
    deadline: Mono,
    then: Option<Then>,
    trigger: Option<Trigger>,
}

impl Machine {
    /// A signal asks for a drain while one is under way.
    pub(super) fn join_drain(&mut self, token: Token, asked: &Trigger, now: Mono) {
        // Only a deadline of its own: a signal without one must not stretch or cut what is there.
        let deadline = asked.deadline.map(|span| now + span);
        let Some(drain) = &mut self.drain else { return };
        let before = (drain.deadline, drain.then, drain.trigger.clone());
        if let Some(deadline) = deadline {
            drain.deadline = drain.deadline.min(deadline);
        }
        let mut merged = drain.trigger.clone().unwrap_or_default();
        merged.on_deadline = asked.on_deadline.or(merged.on_deadline);
        merged.allow_guest_shutdown |= asked.allow_guest_shutdown;
        if merged.reason.is_empty() {
            merged.reason.clone_from(&drain.reason);
        }
        // When logind waits already, it alone knows what comes then.
        if !drain.shutting_down {
            merged.then = both(merged.then, asked.then);
            drain.then = merged.then;
        }
        drain.trigger = Some(merged);
        let id = drain.id.clone();
        if before != (drain.deadline, drain.then, drain.trigger.clone()) {
            let operators = before.2.as_ref().is_none_or(|t| t.signal.is_empty());
            if operators && drain.joined.is_none() {
                let (deadline, then, trigger) = before;
                drain.joined = Some(Joined {
                    deadline,
                    then,
                    trigger,
                });
            }
            let then = drain.then.filter(|_| !drain.shutting_down);
            let then = then.map_or_else(String::new, |then| format!(", then {then}"));
            let left = super::show::span(drain.deadline.left(now));
            let text = format!(
                "{}: the drain that is running goes on, with {left} to its deadline{then}",
                asked.reason
            );
            self.loud(Level::Warn, "MaintenanceSignal", text);
            self.persist();
        }
        self.answer(token, Ok(id));
    }

    /// Whether the drain that a signal wants to call off was begun by one.
    pub(super) fn may_call_off(&self, signal: &str) -> Result<(), Refusal> {
        let Some(drain) = &self.drain else {
            return Ok(());
        };
        let by_signal = drain.trigger.as_ref().is_some_and(|t| !t.signal.is_empty());
        let over = self.phase.is_at_rest() && self.phase != Phase::Drained;
        if signal.is_empty() || by_signal || over || drain.shutting_down {
            return Ok(());
        }
        Err(Refusal::NotASignalsDrain {
            id: drain.id.clone(),
        })
    }

    /// A signal calls off what is not its own: it takes back what a signal has added, or is told why it changes nothing.
    pub(super) fn all_clear(&mut self, token: Token, signal: &str, refusal: Refusal) {
        let asked = self.drain.as_mut().and_then(|drain| {
            let counts = !drain.shutting_down && !drain.falling.asked;
            drain.joined.take().filter(|_| counts)
        });
        let (Some(before), Some(drain)) = (asked, self.drain.as_mut()) else {
            let text = format!("maintenance signal {signal} changes nothing: {refusal}");
            self.loud(Level::Warn, "MaintenanceSignal", text);
            return self.answer(token, Err(refusal));
        };
        // Somebody may have extended it since.
        drain.deadline = drain.deadline.max(before.deadline);
        drain.then = before.then;
        drain.trigger = before.trigger;
        let text = format!(
            "maintenance signal {signal}: the deadline and the shutdown that a signal has added are taken back; drain {} is an operator's and goes on",
            drain.id
        );
        self.loud(Level::Warn, "MaintenanceSignal", text.clone());
        self.persist();
        self.answer(token, Ok(text));
    }

    /// Who sends what, as the adapter sees it.
    pub(super) fn sources_seen(&mut self, sources: Vec<Source>) {
        self.sources = sources;
    }

    pub(super) fn maintenance_rows(&self) -> Vec<MaintenanceStatus> {
        let row = |source: &Source| MaintenanceStatus {
            name: source.name.clone(),
            sender: source.sender.clone(),
            action: source.action.clone(),
            trouble: source.trouble.clone(),
        };
        self.sources.iter().map(row).collect()
    }

    pub(super) fn maintenance_warnings(&self) -> impl Iterator<Item = String> {
        let troubled = self.sources.iter().filter(|s| !s.trouble.is_empty());
        troubled.map(|s| format!("maintenance signal {}: {}", s.name, s.trouble))
    }
}

/// What follows when two ask: a host without power cannot come up again, so off wins.
fn both(first: Option<Then>, second: Option<Then>) -> Option<Then> {
    match (first, second) {
        (Some(Then::Poweroff), _) | (_, Some(Then::Poweroff)) => Some(Then::Poweroff),
        (first, second) => first.or(second),
    }
}
