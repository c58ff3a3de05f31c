//! Where the command line meets the agent: the daemon, and a drain without one.

use super::exit::Exit;
use super::failure::Failure;
use crate::agent::command::Handle;
use crate::agent::service::{self, RunError, Setup};
use crate::config::Settings;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

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

/// The daemon: until the service manager stops it.
///
/// # Errors
/// When it cannot start.
pub async fn run(setup: Setup) -> Result<Exit, Failure> {
    service::run(setup).await?;
    Ok(Exit::Done)
}

/// The parts of a drain without a daemon, with the hold of this process.
///
/// # Errors
/// When a daemon runs already, or there is no way to the cluster.
pub async fn standalone(settings: &Settings, bus: Option<String>) -> Result<Standalone, Failure> {
    let (stop, stopped) = oneshot::channel();
    let asked_to_stop = async {
        // Dropped counts as asked: the program is ending.
        let _ = stopped.await;
    };
    let (handle, driving) = service::standalone(settings, bus, asked_to_stop).await?;
    let task = tokio::spawn(driving);
    Ok(Standalone { handle, stop, task })
}

/// The same in the stop job of a system that is going down.
///
/// # Errors
/// When there is no way to the cluster.
pub async fn stopping(settings: &Settings) -> Result<Standalone, Failure> {
    let (stop, stopped) = oneshot::channel();
    let asked_to_stop = async {
        let _ = stopped.await;
    };
    let (handle, driving) = service::stopping(settings, asked_to_stop).await?;
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
                "Without the API server no VM can be moved away.",
                "`vmdrain-agent config show` tells which settings are in force and who set them.",
            ),
            RunError::Host(_) => Self::new(Exit::Failed, what, "Nothing was started.", ""),
        }
    }
}
