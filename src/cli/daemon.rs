//! What does the command line need from a daemon? A trait: the bus implements it, a drain of our own
//! process ([`Handle`], `--standalone`) and the tests do.

use crate::agent::command::{Answer, Command, Handle};
use crate::drain::plan::Plan;
use crate::drain::status::Status;
use crate::drain::trigger::{Ending, Trigger};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A status is asked for at least this often while somebody watches, because its times go on.
pub const AT_LEAST: Duration = Duration::from_secs(1);

/// Why the daemon did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There is no daemon, or no bus.
    #[error("{0}")]
    Unreachable(String),
    /// It says no, and why.
    #[error("{0}")]
    Refused(String),
    /// The caller may not.
    #[error("{0}")]
    Denied(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// A daemon.
pub trait Daemon {
    /// How its status is followed.
    type Feed: Feed;

    /// Starts a drain; answers its id.
    fn trigger(&self, trigger: &Trigger) -> impl Future<Output = Result<String, CallError>>;
    /// Calls the drain off; answers what will happen.
    fn cancel(&self, abort_migrations: bool) -> impl Future<Output = Result<String, CallError>>;
    /// Moves the deadline; answers how much is left.
    fn extend(&self, by: Duration) -> impl Future<Output = Result<String, CallError>>;
    /// Ends the drain now; answers what will happen.
    fn release(&self, ending: Ending) -> impl Future<Output = Result<String, CallError>>;
    /// Gives the node back; answers what has happened, and what was not waited for.
    fn restore(&self) -> impl Future<Output = Result<String, CallError>>;
    /// The status of now.
    fn status(&self) -> impl Future<Output = Result<Arc<Status>, CallError>>;
    /// What would become of every VM now.
    fn plan(&self) -> impl Future<Output = Result<Plan, CallError>> {
        std::future::ready(Err(CallError::Failed("no plan can be made here".into())))
    }
    /// The status of now and every further one.
    fn follow(&self) -> impl Future<Output = Result<Self::Feed, CallError>>;
}

/// Statuses, one after the other.
pub trait Feed {
    /// The next one: the first at once, then with every change and at least every [`AT_LEAST`].
    /// After an error it may be asked again: it then waits for the daemon to come back.
    fn next(&mut self) -> impl Future<Output = Result<Arc<Status>, CallError>>;
}

/// The driver of this process has ended.
fn ended() -> CallError {
    CallError::Unreachable("the drain of this process has ended".into())
}

async fn ask(
    handle: &Handle,
    command: impl FnOnce(oneshot::Sender<Answer>) -> Command,
) -> Result<String, CallError> {
    let (answer, answered) = oneshot::channel();
    handle
        .commands
        .send(command(answer))
        .await
        .map_err(|_| ended())?;
    let answer = answered.await.map_err(|_| ended())?;
    answer.map_err(|refusal| CallError::Refused(refusal.to_string()))
}

impl Daemon for Handle {
    type Feed = HandleFeed;

    async fn trigger(&self, trigger: &Trigger) -> Result<String, CallError> {
        ask(self, |answer| Command::Trigger(trigger.clone(), answer)).await
    }

    async fn cancel(&self, abort_migrations: bool) -> Result<String, CallError> {
        ask(self, |answer| Command::Cancel {
            abort_migrations,
            signal: String::new(),
            answer,
        })
        .await
    }

    async fn extend(&self, by: Duration) -> Result<String, CallError> {
        ask(self, |answer| Command::Extend { by, answer }).await
    }

    async fn release(&self, ending: Ending) -> Result<String, CallError> {
        ask(self, |answer| Command::Release { ending, answer }).await
    }

    async fn restore(&self) -> Result<String, CallError> {
        ask(self, Command::Restore).await
    }

    async fn status(&self) -> Result<Arc<Status>, CallError> {
        self.status_now().await.map(Arc::new).ok_or_else(ended)
    }

    async fn plan(&self) -> Result<Plan, CallError> {
        self.plan_now().await.ok_or_else(ended)
    }

    async fn follow(&self) -> Result<HandleFeed, CallError> {
        Ok(HandleFeed {
            handle: self.clone(),
            fresh: true,
        })
    }
}

/// Follows a drain of our own process.
#[derive(Clone, Debug)]
pub struct HandleFeed {
    handle: Handle,
    fresh: bool,
}

impl Feed for HandleFeed {
    async fn next(&mut self) -> Result<Arc<Status>, CallError> {
        if !std::mem::take(&mut self.fresh) {
            tokio::select! {
                changed = self.handle.status.changed() => changed.map_err(|_| ended())?,
                () = tokio::time::sleep(AT_LEAST) => {}
            }
        }
        self.handle.status.mark_unchanged();
        self.handle.status().await
    }
}
