//! Where does the agent stand? Asked over the bus again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use vmdrain_agent::bus::Client;
use vmdrain_agent::drain::status::Status;

/// Asks the agent for its status in this `rhythm`; the last one stays when nobody answers.
pub(super) async fn look(
    address: String,
    rhythm: Duration,
    publish: watch::Sender<Option<Arc<Status>>>,
    on: Arc<AtomicBool>,
) {
    let mut client: Option<Client> = None;
    loop {
        tokio::time::sleep(rhythm).await;
        if !on.load(Ordering::Relaxed) {
            client = None;
            continue;
        }
        if client.is_none() {
            client = Client::connect(Some(&address)).await.ok();
        }
        let asked = match &client {
            Some(client) => client.status().await,
            None => continue,
        };
        match asked {
            Ok(status) => {
                publish.send_if_modified(|old| {
                    let differs = old.as_deref().is_none_or(|old| *old != status);
                    *old = Some(Arc::new(status));
                    differs
                });
            }
            Err(_) => client = None,
        }
    }
}
