//! A server that ends by itself is started again, as its kubelet would: virt-controller ends when a busy machine makes it lose its lease.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::{ControlPlane, Server};

/// How often somebody looks.
const LOOK: Duration = Duration::from_millis(500);

/// Those that are worth it; without the others there is no control plane.
const MORTAL: [Server; 4] = [
    Server::ControllerManager,
    Server::Scheduler,
    Server::VirtApi,
    Server::VirtController,
];

impl ControlPlane {
    /// Starts again what has ended by itself (not what [`stop`](Self::stop) has ended), for as long as this is awaited.
    pub async fn keep_alive(&self) {
        loop {
            for server in MORTAL {
                let Some(how) = self.nursery.ended(server.name()) else {
                    continue;
                };
                // What cannot be started is tried again, and missed by whoever needs it.
                if self.launch(server).is_ok() {
                    self.noted().push(format!("{} ({how})", server.name()));
                    tracing::warn!("{} ended by itself and was started again", server.name());
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The servers that were started again so far, and how they had ended.
    pub fn revivals(&self) -> Vec<String> {
        self.noted().clone()
    }

    fn noted(&self) -> MutexGuard<'_, Vec<String>> {
        self.revivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
