//! The host as a drain sees it inside the stop job: nothing is left to hold, and logind is gone.
//!
//! logind ends with the other units; a question to it would wait for an activation that can never come.

use super::guests::{self, Guests};
use super::hooks::Hooks;
use super::notify;
use crate::agent::ports::{Host, HostEvent};
use crate::drain::action::{HoldView, LogindAnswer};
use crate::drain::hooks::{Gate, Report, Run};
use crate::drain::local::{LocalGuest, LocalView};
use crate::drain::trigger::Then;
use std::collections::BTreeSet;
use tokio::sync::mpsc;

/// A host that is going down; the stop job itself is what holds it.
#[derive(Clone, Debug, Default)]
pub struct EndingHost {
    /// Hooks at the gates of a drain; `None`: there are none.
    pub hooks: Option<Hooks>,
    /// The processes of this host; `None`: they cannot be seen.
    pub guests: Option<Guests>,
}

impl Host for EndingHost {
    async fn start(&self, _events: mpsc::Sender<HostEvent>) -> Result<HoldView, String> {
        Ok(HoldView::default())
    }

    async fn take_hold(&self) -> Result<HoldView, String> {
        Err("the host is going down: no lock can hold it any more".into())
    }

    async fn release(&self) -> Result<HoldView, String> {
        Ok(HoldView::default())
    }

    async fn ask_logind(&self, then: Then) -> LogindAnswer {
        LogindAnswer::Failed(format!(
            "the host is going down already, so nobody is asked to {then}"
        ))
    }

    fn hooks(&self) -> BTreeSet<Gate> {
        self.hooks.as_ref().map(Hooks::gates).unwrap_or_default()
    }

    async fn run_hooks(&self, run: &Run) -> Report {
        match &self.hooks {
            Some(hooks) => hooks.run(run).await,
            None => Report::default(),
        }
    }

    async fn look_here(&self) -> Result<LocalView, String> {
        guests::look(self.guests.clone()).await
    }

    async fn tell_guest(&self, guest: &LocalGuest) -> Result<(), String> {
        guests::tell(self.guests.clone(), guest).await
    }

    fn status_line(&self, text: &str) {
        notify::status(text);
    }
}
