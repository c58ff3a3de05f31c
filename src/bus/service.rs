//! How is the interface kept on the bus, and when are its signals sent?
//!
//! One task: connect, serve, take the name, then follow the status; when the bus is lost, all of it again.

use super::agent1::Agent1;
use super::facts::{Facts, Newest};
use super::gate::Gate;
use super::{NAME, PATH};
use crate::agent::command::Handle;
use crate::drain::status::Status;
use crate::host::Timing;
use crate::host::clock;
use crate::host::login1::within;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use zbus::Connection;
use zbus::names::InterfaceName;
use zbus::object_server::SignalEmitter;

/// Shortest time between two rounds of signals: clients look at the newest status, not at every one.
const ROUND: Duration = Duration::from_millis(200);

/// The service's task; dropping it takes the name off the bus.
#[derive(Debug)]
pub struct Service {
    task: tokio::task::JoinHandle<()>,
    registered: watch::Receiver<Result<(), String>>,
}

impl Service {
    /// Starts serving on the bus at `address` (`None`: the system bus) and goes on until dropped, whatever
    /// happens to the bus.
    pub fn start(address: Option<String>, handle: Handle, timing: Timing) -> Self {
        let (say, registered) = watch::channel(Err("not connected to the bus yet".to_owned()));
        let server = Server {
            gate: Gate::new(address.is_some(), timing.probe),
            address,
            newest: Arc::default(),
            handle,
            timing,
        };
        Self {
            task: tokio::spawn(server.run(say)),
            registered,
        }
    }

    /// Waits until the name is ours; after `limit` the reason why it is not. It is tried for ever, so this is
    /// information and not an end.
    pub async fn registered(&self, limit: Duration) -> Result<(), String> {
        let mut registered = self.registered.clone();
        let ours = registered.wait_for(Result::is_ok);
        if tokio::time::timeout(limit, ours).await.is_ok() {
            return Ok(());
        }
        self.registered.borrow().clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Server {
    address: Option<String>,
    handle: Handle,
    gate: Gate,
    newest: Arc<Mutex<Newest>>,
    timing: Timing,
}

impl Server {
    async fn run(self, say: watch::Sender<Result<(), String>>) {
        let mut pause = self.timing.retry_first;
        let mut last = self.facts();
        loop {
            match self.register().await {
                Ok(bus) => {
                    pause = self.timing.retry_first;
                    tell(&say, Ok(()));
                    tracing::info!(name = NAME, "registered on the bus");
                    let ended = self.publish(&bus, &mut last).await;
                    if ended {
                        return;
                    }
                    tell(&say, Err("the connection to the bus was lost".into()));
                    tracing::warn!("the bus was lost; {NAME} is registered again when it is back");
                }
                Err(why) => {
                    if say.borrow().as_ref().err() != Some(&why) {
                        tracing::warn!(why, "cannot offer {NAME} on the bus");
                    }
                    tell(&say, Err(why));
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(self.timing.retry_most);
        }
    }

    async fn register(&self) -> Result<Connection, String> {
        let builder = match &self.address {
            Some(address) => zbus::connection::Builder::address(address.as_str()),
            None => zbus::connection::Builder::system(),
        };
        let object = Agent1::new(self.handle.clone(), self.gate, self.newest.clone());
        // Another agent keeps its name: two of them would fight over the node.
        let build = builder
            .serve_at(PATH, object)
            .name(NAME)
            .allow_name_replacements(false)
            .replace_existing_names(false)
            .build();
        let call = async {
            match build.await {
                Err(zbus::Error::NameTaken) => Ok(None),
                other => other.map(Some),
            }
        };
        within(self.timing.work, "the registration on the bus", call)
            .await
            .map_err(|e| format!("cannot register {NAME} on the bus: {e}"))?
            .ok_or_else(|| format!("{NAME} is taken on this bus: another vmdrain-agent is running"))
    }

    fn facts(&self) -> Facts {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.take_in(&self.handle.status.borrow(), clock::now());
        newest.facts().clone()
    }

    /// Sends signals until the bus is lost (`false`) or the driver has ended (`true`).
    async fn publish(&self, bus: &Connection, last: &mut Facts) -> bool {
        let Ok(emitter) = SignalEmitter::new(bus, PATH) else {
            return true;
        };
        let mut status = self.handle.status.clone();
        loop {
            let facts = self.facts();
            let newest = status.borrow_and_update().clone();
            // A bus that has gone shows at `closed` below.
            let _ = announce(&emitter, &facts, last, &newest).await;
            *last = facts;
            tokio::select! {
                () = bus.closed() => return false,
                changed = status.changed() => if changed.is_err() { return true },
            }
            tokio::select! {
                () = bus.closed() => return false,
                () = self.round_over(&mut status, last) => {}
            }
        }
    }

    /// The rest of the round, cut short by a change of the phase: that one is told at once.
    async fn round_over(&self, status: &mut watch::Receiver<Arc<Status>>, last: &Facts) {
        let phase = status.wait_for(|status| {
            let exit = status.drain.as_ref().and_then(|drain| drain.exit);
            status.state != last.state || exit != last.finished.as_ref().map(|(_, exit)| *exit)
        });
        // An ended driver is noticed by the caller's next look.
        let _ = tokio::time::timeout(ROUND, async {
            if phase.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
        .await;
    }
}

fn tell(say: &watch::Sender<Result<(), String>>, now: Result<(), String>) {
    say.send_modify(|registered| *registered = now);
}

async fn announce(
    emitter: &SignalEmitter<'_>,
    facts: &Facts,
    last: &Facts,
    status: &Status,
) -> zbus::Result<()> {
    let changed = facts.changed_since(last);
    if !changed.is_empty() {
        let interface = InterfaceName::from_static_str(NAME)?;
        zbus::fdo::Properties::properties_changed(emitter, interface, changed, Cow::Borrowed(&[]))
            .await?;
    }
    if facts.state != last.state {
        Agent1::phase_changed(emitter, &facts.state, &facts.drain_id, &status.says).await?;
    }
    Agent1::progress(emitter, facts.vms_total, facts.vms_remaining, &status.says).await?;
    if let Some((id, exit)) = facts.finished.as_ref()
        && facts.finished != last.finished
    {
        Agent1::finished(emitter, id, *exit, &status.says).await?;
    }
    Ok(())
}
