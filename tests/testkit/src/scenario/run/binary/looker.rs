//! Where does the agent stand? Asked over the bus again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use vmdrain_agent::bus::Client;
use vmdrain_agent::drain::status::Status;

use super::LOOK;

/// How often the agent is asked for its status, in the story's time. It costs both sides something.
const ASK: Duration = Duration::from_millis(300);
/// But as often as this in real time, however slow the story is: what is shown at the end of a process has to be seen (it gets four times [`LOOK`]).
const ASK_MOST: Duration = Duration::from_millis(45);

/// Begins to look, at a story that runs `speed` times as fast as time.
pub(super) fn begin(
    address: String,
    speed: f64,
    publish: watch::Sender<Option<Arc<Status>>>,
    on: Arc<AtomicBool>,
) -> JoinHandle<()> {
    let rhythm = ASK.div_f64(speed).clamp(LOOK, ASK_MOST);
    tokio::spawn(look(address, rhythm, publish, on))
}

/// Asks the agent for its status in this `rhythm`; the last one stays when nobody answers.
async fn look(
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
