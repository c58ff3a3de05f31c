//! Where the command line meets the agent: the daemon, and a drain without one.

use super::exit::Exit;
use super::failure::Failure;
use crate::agent::command::Handle;
use crate::config::Live;
use crate::telemetry::logging::Level;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What the agent is told besides its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Address of the bus of logind and of our own name; `None`: the system bus.
    pub bus: Option<String>,
}

/// A drain inside this process.
#[derive(Debug)]
pub struct Standalone {
    /// Takes the trigger, tells the status.
    pub handle: Handle,
    /// Ends the driver; what is under way is left where it is.
    pub stop: oneshot::Sender<()>,
    /// The driver.
    pub task: JoinHandle<()>,
}

/// The daemon: until the service manager stops it. `level` changes what is logged after a reload.
#[allow(clippy::unused_async, reason = "the agent that is called here is")]
pub async fn run(_settings: Live, _options: Options, _level: Level) -> Result<Exit, Failure> {
    Err(not_wired("run"))
}

/// The parts of a drain without a daemon, with the hold of this process.
#[allow(clippy::unused_async, reason = "the agent that is called here is")]
pub async fn standalone(_settings: Live, _options: Options) -> Result<Standalone, Failure> {
    Err(not_wired("trigger --standalone"))
}

fn not_wired(command: &str) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("`vmdrain-agent {command}` is not yet wired to the agent"),
        "Nothing was started.",
        "",
    )
}
