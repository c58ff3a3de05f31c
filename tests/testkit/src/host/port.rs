//! The host as the agent's driver sees it.

use tokio::sync::mpsc;
use vmdrain_agent::agent::ports::{Host, HostEvent};
use vmdrain_agent::drain::action::{HoldView, LogindAnswer};
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

    fn status_line(&self, text: &str) {
        // Nobody waits for this line, so nobody is woken.
        text.clone_into(&mut self.lock().status_line);
    }
}
