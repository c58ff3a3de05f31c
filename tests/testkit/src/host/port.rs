//! The host as the agent's driver sees it.

use std::collections::BTreeSet;

use tokio::sync::mpsc;
use vmdrain_agent::agent::ports::{Host, HostEvent};
use vmdrain_agent::drain::action::{HoldView, LogindAnswer};
use vmdrain_agent::drain::hooks::{Gate, Report, Run};
use vmdrain_agent::drain::local::{LocalGuest, LocalView};
use vmdrain_agent::drain::trigger::Then;

use super::machine::ModelHost;
use super::state::Told;
use crate::actors::premises::Premises;

impl Host for ModelHost {
    async fn start(&self, events: mpsc::Sender<HostEvent>) -> Result<HoldView, String> {
        self.with(|state, now| {
            state.listener = Some(events);
            state.told_schedule = Told::Nothing;
            // An agent that starts inside a delay gets no lock; the one in the fd store is adopted.
            let _ = state.take(now);
            if state.logind.preparing() && state.logind.answers() {
                let left = state.logind.deadline().unwrap_or(now).saturating_sub(now);
                state.announce(left);
            }
            Ok(state.view())
        })
    }

    async fn take_hold(&self) -> Result<HoldView, String> {
        self.with(|state, now| state.take(now).map(|()| state.view()))
    }

    async fn release(&self) -> Result<HoldView, String> {
        self.with(|state, now| {
            state.give_up(now);
            Ok(state.view())
        })
    }

    async fn ask_logind(&self, then: Then) -> LogindAnswer {
        self.with(|state, now| {
            if let Some(blocker) = state.blocker() {
                return LogindAnswer::Blocked(format!(
                    "{} forbids it with a block lock",
                    blocker.who
                ));
            }
            if state.logind.preparing() {
                return LogindAnswer::Accepted;
            }
            match state.logind.request(then, now) {
                Ok(says) => {
                    state.said(says, now);
                    LogindAnswer::Accepted
                }
                Err(why) => LogindAnswer::Failed(why),
            }
        })
    }

    async fn look_here(&self) -> Result<LocalView, String> {
        self.premises().map(Premises::look)
    }

    async fn tell_guest(&self, guest: &LocalGuest) -> Result<(), String> {
        // One that has ended meanwhile was told.
        self.premises()?.tell(&guest.pod_uid);
        Ok(())
    }

    fn hooks(&self) -> BTreeSet<Gate> {
        let state = self.lock();
        state.options.hooks.iter().map(|hook| hook.gate).collect()
    }

    /// With the limits and the words of the real adapter.
    async fn run_hooks(&self, run: &Run) -> Report {
        let mut hooks = self.lock().options.hooks.clone();
        hooks.retain(|hook| hook.gate == run.gate);
        hooks.sort_by(|a, b| a.name.cmp(&b.name));
        let end = self.clock.elapsed() + run.all;
        let mut report = Report::default();
        for hook in hooks {
            let name = format!("{}.d/{}", hook.gate, hook.name);
            let now = self.clock.elapsed();
            let limit = run.each.min(end.saturating_sub(now));
            if limit.is_zero() {
                let text = format!("hook {name} was not run: the time for hooks is over");
                report.failed.push(text);
                continue;
            }
            self.clock.sleep_until(now + hook.takes.min(limit)).await;
            if hook.takes > limit {
                let limit = limit.as_secs_f64();
                let text = format!("hook {name} was ended at its limit of {limit} s");
                report.failed.push(text);
            } else if hook.exit == 0 {
                report.done += 1;
            } else {
                report
                    .failed
                    .push(format!("hook {name} ended with {}", hook.exit));
            }
        }
        report
    }

    fn status_line(&self, text: &str) {
        // Nobody waits for this line, so nobody is woken.
        text.clone_into(&mut self.lock().status_line);
    }
}
