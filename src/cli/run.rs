//! Where the command line meets the agent: the daemon, and a drain without one.

use super::exit::Exit;
use super::failure::Failure;
use crate::agent::command::Handle;
use crate::agent::service::{self, RunError, Setup};
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
pub async fn run(settings: Live, options: Options, level: Level) -> Result<Exit, Failure> {
    let setup = Setup {
        live: settings,
        bus: options.bus,
        level: Some(level),
    };
    service::run(setup).await?;
    Ok(Exit::Done)
}

/// The parts of a drain without a daemon, with the hold of this process.
pub async fn standalone(settings: Live, options: Options) -> Result<Standalone, Failure> {
    let (stop, stopped) = oneshot::channel();
    let until = async {
        // A sender that was dropped has nobody left who could stop us either.
        let _ = stopped.await;
    };
    let current = settings.current();
    let (handle, driving) = service::standalone(&current.settings, options.bus, until).await?;
    let task = tokio::spawn(driving);
    Ok(Standalone { handle, stop, task })
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let what = error.to_string();
        match error {
            RunError::Cluster(_) => Self::new(
                Exit::NoCluster,
                what,
                "Without the cluster no VM can be moved; nothing was changed.",
                "",
            ),
            RunError::Host(_) => Self::new(Exit::Failed, what, "Nothing was started.", ""),
        }
    }
}
