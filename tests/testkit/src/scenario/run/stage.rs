//! What a front has to offer: a host with an agent on it.

use std::future::Future;
use std::time::Duration;

use super::scene::{Glance, Journal, Results};
use crate::host::Moment;
use crate::scenario::event::agent::AgentDo;
use crate::scenario::event::host::HostDo;

/// Where the agent keeps its record, in the words of a story.
pub const STATE_FILE: &str = "/var/lib/vmdrain-agent/state.json";

/// Why an event was not played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPlayed {
    /// It belongs to something that is not built yet.
    #[error("not yet: {0}")]
    NotYet(&'static str),
    /// This front cannot do it.
    #[error("{0}")]
    Cannot(String),
}

/// A host with an agent. The cluster around it is the same for every front.
pub trait Stage {
    /// The host and its agent are up and the agent holds its lock. `Err`: a sentence.
    fn begin(&mut self) -> impl Future<Output = Result<(), String>>;
    /// Something happens to the host.
    fn host(&mut self, what: &HostDo) -> impl Future<Output = Result<(), NotPlayed>>;
    /// Something is done with the agent.
    fn agent(&mut self, what: &AgentDo) -> impl Future<Output = Result<(), NotPlayed>>;
    /// The host has gone down: no process runs on it any more.
    fn down(&mut self) -> impl Future<Output = ()>;
    /// The host has booted: its services start.
    fn up(&mut self) -> impl Future<Output = ()>;
    /// Waits until something about the host or the agent has changed.
    fn changed(&mut self) -> impl Future<Output = ()>;
    /// Takes in what the host has done until now, before anybody asks for its history.
    fn refresh(&mut self);
    /// Where they stand.
    fn glance(&self) -> Glance;
    /// The same, with the agent's status of this very moment.
    fn look(&mut self) -> impl Future<Output = Glance>;
    /// The boot id of the running system.
    fn boot_id(&self) -> String;
    /// How late this process and its clock have been in all, in the story's time: nothing where time is simulated.
    fn lateness(&self) -> Duration;
    /// Everything that happened to the host.
    fn history(&self) -> Vec<Moment>;
    /// The host or the agent's service will do something by itself.
    fn is_busy(&self) -> bool;
    /// Panics of the agent since the last call.
    fn panics(&mut self) -> Vec<String>;
    /// The agent's journal.
    fn journal(&self) -> &Journal;
    /// What commands ended with.
    fn results(&self) -> &Results;
    /// The story is over: everything that this front started ends.
    fn end(&mut self) -> impl Future<Output = ()>;
}
