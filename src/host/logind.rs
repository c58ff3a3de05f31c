//! What may the driver ask of logind? The port [`Host`], carried out.

use super::ask;
use super::guests::{self, Guests};
use super::hold::{self, Hold};
use super::hooks::Hooks;
use super::login1::{self, CallError};
use super::timing::Timing;
use super::worker::{Request, Worker};
use super::{clock, notify};
use crate::agent::ports::{Host, HostEvent};
use crate::drain::action::{HoldView, LogindAnswer};
use crate::drain::hooks::{Gate, Report, Run};
use crate::drain::local::{LocalGuest, LocalView};
use crate::drain::trigger::Then;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use zbus::Connection;

/// Where logind keeps its locks, below its folder.
const LOCKS: &str = "inhibit";

/// How the adapter is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the bus; `None`: the system bus.
    pub bus: Option<String>,
    /// Below this the limit of logind is called too short.
    pub least_limit: Duration,
    /// Where logind keeps its files; `None`: not known, as for a stand-in on a private bus.
    pub folder: Option<PathBuf>,
    /// Below this are the files of logind's configuration; `None`: not known, as for a stand-in.
    pub root: Option<PathBuf>,
    /// Hooks at the gates of a drain; `None`: there are none.
    pub hooks: Option<Hooks>,
    /// The processes of this host; `None`: they cannot be seen.
    pub guests: Option<Guests>,
    /// Time constants.
    pub timing: Timing,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bus: None,
            least_limit: Duration::from_secs(60),
            folder: Some("/run/systemd".into()),
            root: Some("/".into()),
            hooks: None,
            guests: None,
            timing: Timing::default(),
        }
    }
}

/// logind and our hold on the host. Dropping it ends its task and closes the descriptor, but not the
/// copy in the service manager's fd store.
#[derive(Debug)]
pub struct Logind {
    options: Arc<Options>,
    hold: Arc<Hold>,
    requests: mpsc::Sender<Request>,
    bus: watch::Receiver<Option<Connection>>,
    parts: Mutex<Option<Parts>>,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

/// What the worker needs and gets at the start.
#[derive(Debug)]
struct Parts {
    requests: mpsc::Receiver<Request>,
    bus: watch::Sender<Option<Connection>>,
}

impl Logind {
    /// Nothing happens before [`Host::start`].
    pub fn new(options: Options) -> Self {
        let (requests, from_us) = mpsc::channel(8);
        let (to_us, bus) = watch::channel(None);
        Self {
            options: Arc::new(options),
            hold: Arc::default(),
            requests,
            bus,
            parts: Mutex::new(Some(Parts {
                requests: from_us,
                bus: to_us,
            })),
            task: Mutex::default(),
        }
    }

    /// Takes over a lock that the service manager kept (see [`notify::inherited_hold`]). Before
    /// [`Host::start`]; whether logind still lists it is checked there.
    pub fn adopt(&self, fd: OwnedFd) -> Result<(), String> {
        let folder = self.options.folder.as_ref().map(|all| all.join(LOCKS));
        if !hold::looks_like_a_lock(&fd, folder.as_deref()) {
            // Its place in the store is needed for the new one.
            notify::forget_hold();
            return Err(
                "the file descriptor that was handed back is no lock of logind; a new one is taken"
                    .into(),
            );
        }
        self.hold.want();
        self.hold.keep(fd);
        Ok(())
    }

    /// The connection, waiting a little when it is just being made again.
    async fn connection(&self) -> Result<Connection, CallError> {
        let mut bus = self.bus.clone();
        let found = async {
            let bus = bus.wait_for(Option::is_some).await;
            bus.map_or(None, |bus| bus.clone())
        };
        let found = tokio::time::timeout(self.options.timing.probe, found).await;
        found.unwrap_or_default().ok_or_else(|| CallError {
            name: String::new(),
            text: "there is no connection to the bus".into(),
        })
    }

    /// Asks until logind no longer lists our lock: it notices the closed descriptor by itself.
    async fn gone(&self) -> Result<HoldView, String> {
        let timing = self.options.timing;
        let until = clock::now() + timing.release_check;
        let mut pause = Duration::from_millis(5);
        loop {
            match self.still_listed().await {
                Ok(false) => return Ok(hold::view(false, None, "")),
                Ok(true) if clock::now() < until => {}
                Ok(true) => {
                    return Err("the lock was released here, but logind still lists one of ours: another process holds a copy, and the host waits for it".into());
                }
                // A host that goes down takes logind with it: then there is nobody left to ask.
                Err(e) => {
                    return Ok(hold::view(
                        false,
                        None,
                        format!("released; logind could not confirm it: {e}"),
                    ));
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    async fn still_listed(&self) -> Result<bool, CallError> {
        let bus = self.connection().await?;
        let manager = login1::manager(&bus).await?;
        let call = manager.list_inhibitors();
        let all = login1::within(self.options.timing.probe, "ListInhibitors", call).await?;
        Ok(hold::listed(&all, nix::unistd::geteuid().as_raw()))
    }
}

impl Host for Logind {
    async fn start(&self, events: mpsc::Sender<HostEvent>) -> Result<HoldView, String> {
        let parts = self
            .parts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(parts) = parts else {
            return Err("the host adapter was started twice".into());
        };
        self.hold.want();
        let (first, view) = oneshot::channel();
        let worker = Worker::new(
            self.options.clone(),
            self.hold.clone(),
            events,
            parts.bus,
            first,
        );
        let task = tokio::spawn(worker.run(parts.requests));
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        view.await
            .map_err(|_| "the host adapter ended while it started".into())
    }

    async fn take_hold(&self) -> Result<HoldView, String> {
        self.hold.want();
        let (answer, view) = oneshot::channel();
        let ended = "the host adapter is not running";
        self.requests
            .send(Request::Take(answer))
            .await
            .map_err(|_| ended)?;
        view.await.map_err(|_| ended)?
    }

    async fn release(&self) -> Result<HoldView, String> {
        self.hold.release();
        let mut view = self.gone().await?;
        // The worker tells everybody else, and it alone knows the limit.
        let (answer, seen) = oneshot::channel();
        if self.requests.try_send(Request::Look(answer)).is_ok()
            && let Ok(Ok(seen)) = tokio::time::timeout(self.options.timing.probe, seen).await
        {
            view.limit = seen.limit;
        }
        Ok(view)
    }

    async fn ask_logind(&self, then: Then) -> LogindAnswer {
        match self.connection().await {
            Ok(bus) => ask::ask(&bus, then, &self.options.timing).await,
            Err(e) => LogindAnswer::Failed(format!("logind cannot be asked to {then}: {e}")),
        }
    }

    fn hooks(&self) -> BTreeSet<Gate> {
        let hooks = self.options.hooks.as_ref();
        hooks.map(Hooks::gates).unwrap_or_default()
    }

    async fn run_hooks(&self, run: &Run) -> Report {
        match &self.options.hooks {
            Some(hooks) => hooks.run(run).await,
            None => Report::default(),
        }
    }

    async fn look_here(&self) -> Result<LocalView, String> {
        guests::look(self.options.guests.clone()).await
    }

    async fn tell_guest(&self, guest: &LocalGuest) -> Result<(), String> {
        guests::tell(self.options.guests.clone(), guest).await
    }

    fn status_line(&self, text: &str) {
        notify::status(text);
    }
}

impl Drop for Logind {
    fn drop(&mut self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.as_ref() {
            task.abort();
        }
    }
}
