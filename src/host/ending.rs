//! The host as a drain sees it inside the stop job: nothing is left to hold, and logind is gone.
//!
//! logind ends with the other units; a question to it would wait for an activation that can never come.

use super::notify;
use crate::agent::ports::{Host, HostEvent};
use crate::drain::action::{HoldView, LogindAnswer};
use crate::drain::trigger::Then;
use tokio::sync::mpsc;

/// A host that is going down; the stop job itself is what holds it.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndingHost;

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

    fn status_line(&self, text: &str) {
        notify::status(text);
    }
}
