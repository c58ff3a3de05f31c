//! What does a maintenance signal change in a drain that is under way, and which drains may one call off?
//!
//! A signal that comes again changes nothing: the earlier deadline stands, what was asked for is asked for.

use super::Machine;
use crate::drain::action::{Level, Source, Token};
use crate::drain::phase::Phase;
use crate::drain::status::MaintenanceStatus;
use crate::drain::time::Mono;
use crate::drain::trigger::{Refusal, Then, Trigger};

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
