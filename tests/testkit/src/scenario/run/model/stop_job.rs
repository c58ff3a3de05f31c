//! The stop job of `vmdrain-hold.service` on this front: asks the driver as `vmdrain-agent hold-stop` does, and lets the host go.

use std::time::Duration;

use tokio::sync::oneshot;
use vmdrain_agent::agent::command::{Command, Handle};
use vmdrain_agent::drain::phase::Phase;
use vmdrain_agent::drain::trigger::Trigger;

use crate::host::ModelHost;

/// What is left of the 30 minutes of the targets' jobs (`host::stopping` of the agent).
const BUDGET: Duration = Duration::from_secs(28 * 60);

/// Runs it; the host goes down with its end.
pub(super) fn run(handle: Option<Handle>, host: ModelHost) {
    tokio::spawn(async move {
        if let Some(handle) = handle {
            drain(handle).await;
        }
        if let Some(kind) = host.stopping() {
            host.shut_down_past_logind(kind);
        }
    });
}

async fn drain(handle: Handle) {
    let trigger = Trigger {
        reason: "the host is going down (stop job)".into(),
        deadline: Some(BUDGET),
        stop_job: true,
        ..Trigger::default()
    };
    let (answer, answered) = oneshot::channel();
    let sent = handle
        .commands
        .send(Command::Trigger(trigger, answer))
        .await;
    if sent.is_err() || !matches!(answered.await, Ok(Ok(_))) {
        return;
    }
    let mut status = handle.status.clone();
    let over = status.wait_for(|status| {
        let exit = status.drain.as_ref().and_then(|drain| drain.exit);
        exit.is_some() && status.state != Phase::Cancelling.name()
    });
    // An agent that is gone has nothing more to say.
    let _ = over.await;
}
