//! The gates of a drain (design section 3.6): when do hooks run, for how long, and what does a failure do?
//!
//! A gate opens once per drain. Hooks never take time that the guests need: all hooks of a gate together get a quarter of
//! what is left to the deadline, and before the release half of what is left to logind's limit.

use super::Machine;
use super::pending::Pending;
use super::volumes::Volumes;
use crate::drain::action::{Action, Level};
use crate::drain::hooks::{About, Gate, OnFailure, Report, Run};
use crate::drain::phase::Phase;
use crate::drain::status::VmPhase;
use crate::drain::time::Mono;
use crate::drain::track::Track;
use std::collections::BTreeSet;
use std::time::Duration;

/// Which gates of this drain are open.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Gates {
    open: BTreeSet<Gate>,
    /// logind was asked to go down.
    pub(super) asked: bool,
    /// Volumes that are waited for.
    pub(super) volumes: Volumes,
}

impl Gates {
    /// Of a drain that goes on after a restart: what ran before is not run again.
    pub(super) fn of_record(phase: &str) -> Self {
        let begun = phase != Phase::Preparing.name();
        Self {
            open: begun.then_some(Gate::PreDrain).into_iter().collect(),
            ..Self::default()
        }
    }
}

impl Machine {
    /// Which gates have hooks, as far as the host adapter sees; looked at when a drain begins.
    pub fn set_hooks(&mut self, gates: BTreeSet<Gate>) {
        self.hooks = gates;
    }

    /// Whether the drain may pass; starts the hooks when it may not yet.
    pub(super) fn passes(&mut self, gate: Gate, now: Mono) -> bool {
        let Some(drain) = &self.drain else {
            return true;
        };
        if !self.hooks.contains(&gate) || drain.gates.open.contains(&gate) {
            return true;
        }
        if self.waits_for(|p| matches!(p, Pending::Hooks { .. })) {
            return false;
        }
        let all = self.time_for_hooks(gate, now);
        let each = self.policy.hooks.timeout.min(all);
        if each.is_zero() {
            let text = format!("the {gate} hooks are left out: there is no time for them");
            self.open(gate);
            self.loud(Level::Warn, "HooksLeftOut", text);
            return true;
        }
        let run = Run {
            gate,
            each,
            all,
            about: self.about(now),
        };
        self.tell(
            Level::Info,
            "HooksRun",
            format!(
                "running the {gate} hooks, for {} s at most",
                all.as_secs_f64().ceil()
            ),
        );
        let lost = now + all + self.policy.timing.request.min(all / 2);
        let id = self.effect(Pending::Hooks { gate, lost });
        self.actions.push_back(Action::RunHooks { id, run });
        false
    }

    fn open(&mut self, gate: Gate) {
        if let Some(drain) = &mut self.drain {
            drain.gates.open.insert(gate);
        }
    }

    /// All hooks of the gate together.
    fn time_for_hooks(&self, gate: Gate, now: Mono) -> Duration {
        let Some(drain) = &self.drain else {
            return Duration::ZERO;
        };
        let ten = self.policy.hooks.timeout * 10;
        let left = match gate {
            Gate::PreDrain | Gate::PostDrain => drain.deadline.left(now) / 4,
            Gate::PreRelease if drain.shutting_down => match drain.latest {
                Some(latest) => latest.left(now) / 2,
                // Without a limit that is known nobody waits, or nobody says for how long.
                None => self.policy.margin,
            },
            Gate::PreRelease => ten,
        };
        left.min(ten)
    }

    fn about(&self, now: Mono) -> About {
        let here = |t: &&Track| t.ended.is_none_or(|(phase, _)| phase == VmPhase::Left);
        let left = self.tracks.values().filter(here).count();
        let Some(drain) = &self.drain else {
            return About::default();
        };
        About {
            drain: drain.id.clone(),
            phase: self.phase.name().into(),
            reason: drain.reason.clone(),
            node: self.policy.node_name.clone(),
            deadline: drain.deadline.left(now).as_secs(),
            vms_left: left,
            then: drain.then,
            shutting_down: drain.shutting_down,
        }
    }

    pub(super) fn hooks_ended(&mut self, gate: Gate, result: Result<Report, String>) {
        let report = result.unwrap_or_else(|why| Report {
            failed: vec![why],
            ..Report::default()
        });
        self.open(gate);
        for text in &report.passed_over {
            self.tell(Level::Warn, "HookPassedOver", text.clone());
        }
        let failed = report.failed.join("; ");
        let stays_up = self
            .drain
            .as_ref()
            .is_some_and(|d| !d.shutting_down && !d.stopping && !d.scheduled);
        let abort = gate == Gate::PreDrain && self.policy.hooks.failure == OnFailure::Abort;
        if !failed.is_empty() {
            let text = if abort && !stays_up {
                format!(
                    "{failed}; the host is going down, so the drain goes on whatever gates.hook_failure says"
                )
            } else {
                failed.clone()
            };
            self.loud(Level::Warn, "HookFailed", text);
        }
        if self.phase == Phase::Gates {
            // Nothing was looked at meanwhile: only fresh lists say that the node is still empty.
            self.phase = Phase::Confirming;
            self.retry_done();
        }
        if abort && stays_up && !failed.is_empty() && self.phase.is_draining() {
            self.start_cancel(&format!("a pre-drain hook failed: {failed}"));
        }
    }

    /// What the status says while hooks run; `None`: none do.
    pub(super) fn hooks_say(&self) -> Option<String> {
        let gate = Gate::ALL.into_iter().find(|gate| {
            self.waits_for(|p| matches!(p, Pending::Hooks { gate: at, .. } if at == gate))
        })?;
        Some(format!("the {gate} hooks run"))
    }
}
