//! Commands that reach the driver from the bus or from a test, each with a way to answer.

use crate::drain::action::Source;
use crate::drain::plan::Plan;
use crate::drain::status::Status;
use crate::drain::trigger::{Ending, Refusal, Trigger};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// The answer to a command: an id or a sentence for people, or why not.
pub type Answer = Result<String, Refusal>;

/// A command.
#[derive(Debug)]
pub enum Command {
    /// Start a drain; answers its id.
    Trigger(Trigger, oneshot::Sender<Answer>),
    /// Call it off.
    Cancel {
        /// Also delete the VMIMs of the VMs that we marked.
        abort_migrations: bool,
        /// Name of the maintenance signal that asks; empty: a person or a program.
        signal: String,
        /// The answer.
        answer: oneshot::Sender<Answer>,
    },
    /// Move the deadline.
    Extend {
        /// By how much.
        by: Duration,
        /// The answer.
        answer: oneshot::Sender<Answer>,
    },
    /// End the hold now.
    Release {
        /// How.
        ending: Ending,
        /// The answer.
        answer: oneshot::Sender<Answer>,
    },
    /// Give the node back.
    Restore(oneshot::Sender<Answer>),
    /// Who sends maintenance signals.
    Sources(Vec<Source>),
    /// The status of this very moment: the published one tells times as of the last change.
    Status(oneshot::Sender<Status>),
    /// What would become of every VM now.
    Plan(oneshot::Sender<Plan>),
}

/// What a client of the driver holds: a queue for commands and the newest status.
#[derive(Clone, Debug)]
pub struct Handle {
    /// Commands, bounded.
    pub commands: mpsc::Sender<Command>,
    /// The newest status; every change of any field wakes the receiver.
    pub status: watch::Receiver<Arc<Status>>,
}

impl Handle {
    /// The status of now; `None` when the driver has ended.
    pub async fn status_now(&self) -> Option<Status> {
        let (answer, status) = oneshot::channel();
        self.commands.send(Command::Status(answer)).await.ok()?;
        status.await.ok()
    }

    /// What would become of every VM now; `None` when the driver has ended.
    pub async fn plan_now(&self) -> Option<Plan> {
        let (answer, plan) = oneshot::channel();
        self.commands.send(Command::Plan(answer)).await.ok()?;
        plan.await.ok()
    }
}
