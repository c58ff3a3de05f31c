//! A stand-in for systemd-logind on a private bus: everything that a holder of a delay lock can run into.
//!
//! ```text
//!  Bus (bus.rs)        a private dbus-daemon in a temporary folder, killed on drop
//!  Logind (this file)  the test's side: ask for a shutdown, cancel, restart, add locks, read what happened
//!   └ engine.rs        the state: locks, what is pending, what is scheduled
//!      ├ requests.rs   how a shutdown is asked for, delayed, called off and carried out
//!      ├ wire.rs       on and off the bus, restarts, signals
//!      ├ manager.rs    org.freedesktop.login1.Manager as a client sees it
//!      ├ files.rs      what it keeps on disk
//!      ├ locks.rs      locks over FIFOs: a killed holder is noticed as by the real one
//!      ├ facts.rs      what differs between versions, and errors by their D-Bus names
//!      └ journal.rs    what happened, and when
//! ```
//!
//! Any other signal on the bus: emit.rs.
//!
//! Its behaviour is that of real systemd 252, 257 and 262 as measured by experiment; versions between are set by
//! the release that introduced a change. It has real FIFOs, real time and a real bus, and nothing else of a host:
//! [`Happened::Down`] is where the host would be gone.

mod bus;
mod emit;
mod engine;
mod facts;
mod files;
mod journal;
mod locks;
mod manager;
mod requests;
mod wire;

pub use bus::{Bus, spoof};
pub use emit::{Emission, emit, sender};
pub use facts::{Kind, Refused};
pub use journal::{Event, Happened, Why};
pub use locks::Foreign;

use engine::{Asked, Engine};
use files::Files;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How the stand-in behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Version of systemd: 252 and later.
    pub version: u32,
    /// `InhibitDelayMaxSec`; [`Duration::MAX`] is `infinity`.
    pub limit: Duration,
    /// Divides the stand-in's own latencies (20 ms from the last release to the job, 100 ms for a restart after the
    /// bus). The limit and all times of requests are real times.
    pub speed: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: 257,
            limit: Duration::from_secs(45 * 60),
            speed: 1.0,
        }
    }
}

/// What `Logind::state` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// On the bus.
    pub running: bool,
    /// `PreparingForShutdown`.
    pub preparing: bool,
    /// What was scheduled and has not come yet.
    pub scheduled: Option<Kind>,
    /// The holders of delay locks on shutdown, in the order in which they came.
    pub holders: Vec<String>,
    /// The host is gone.
    pub down: bool,
}

/// The stand-in. Dropping it takes it off the bus.
#[derive(Debug)]
pub struct Logind {
    engine: Arc<Engine>,
    task: tokio::task::JoinHandle<()>,
}

impl Logind {
    /// Starts it on the bus at `address`.
    pub async fn start(address: &str, options: Options) -> anyhow::Result<Self> {
        Self::with(address, options, Files::new()?).await
    }

    /// The same with `folder` for `/run/systemd`, emptied as by a boot.
    pub async fn start_in(address: &str, options: Options, folder: &Path) -> anyhow::Result<Self> {
        Self::with(address, options, Files::within(folder)?).await
    }

    async fn with(address: &str, options: Options, files: Files) -> anyhow::Result<Self> {
        let engine = Engine::new(address, options, files);
        engine.connect().await?;
        let task = tokio::spawn(engine.clone().run());
        Ok(Self { engine, task })
    }

    /// `systemctl poweroff` (or what `kind` says) by root. When logind fails, the real client goes on through
    /// PID 1, and so does this: the host is down at once, no lock is waited for.
    pub async fn poweroff(&self, kind: Kind) -> Result<(), Refused> {
        self.engine.systemctl(kind).await
    }

    /// The power key: a block lock stops it on every version, and nobody can call it off.
    pub async fn power_key(&self) -> Result<(), Refused> {
        self.engine.request(Kind::Poweroff, Asked::by_key()).await
    }

    /// `shutdown` in `after` from now.
    pub async fn schedule(&self, kind: Kind, after: Duration) -> Result<(), Refused> {
        self.engine.schedule_in(kind, after).await
    }

    /// `shutdown -c`; what the method answered.
    pub async fn cancel(&self) -> bool {
        self.engine.cancel().await
    }

    /// The job of the pending shutdown is taken away while logind lives: `PrepareForShutdown(false)`.
    pub async fn unprepare(&self) {
        self.engine.unprepare().await;
    }

    /// The next shutdown's job fails when it is to start, after the delay: `PrepareForShutdown(false)`.
    pub fn fail_next_job(&self) {
        self.engine.fail_next_job();
    }

    /// `systemctl restart systemd-logind`; back on the bus after `back_after`, which is waited for.
    pub async fn restart(&self, back_after: Duration) -> anyhow::Result<()> {
        self.stop().await;
        tokio::time::sleep(back_after).await;
        self.come_back().await
    }

    /// Leaves the bus and forgets what it had only in memory.
    pub async fn stop(&self) {
        self.engine.stop().await;
    }

    /// The other half of a restart.
    pub async fn come_back(&self) -> anyhow::Result<()> {
        self.engine.connect().await
    }

    /// Somebody else's lock; it lasts until the value is dropped.
    pub fn foreign(&self, what: &str, who: &str, mode: &str, uid: u32) -> anyhow::Result<Foreign> {
        self.engine.foreign(what, who, mode, uid)
    }

    /// Answers nobody and starts nothing until the value is dropped, as a logind that hangs.
    pub async fn hang(&self) -> Hang {
        Hang {
            _turn: self.engine.turn.clone().lock_owned().await,
        }
    }

    /// Loses every lock without its holder doing anything (its file was deleted).
    pub fn lose_locks(&self) {
        self.engine.lose_locks();
    }

    /// The configuration was changed and reloaded: no signal tells, and a running delay is not moved.
    pub fn set_limit(&self, limit: Duration) {
        self.engine.set_limit(limit);
    }

    /// Sends a signal of any form from logind's own connection.
    pub async fn emit_raw<B>(&self, member: &str, body: &B) -> anyhow::Result<()>
    where
        B: serde::Serialize + zbus::DynamicType + Sync,
    {
        self.engine.emit_raw(member, body).await
    }

    /// What stands for `/run/systemd`.
    pub fn folder(&self) -> PathBuf {
        self.engine.files.root().to_owned()
    }

    /// Where the locks' FIFOs are.
    pub fn inhibit_folder(&self) -> PathBuf {
        self.engine.inhibit_folder()
    }

    /// The host goes down past logind, whatever is held.
    pub fn bypass(&self, kind: Kind) {
        self.engine.go_down(kind, Why::Bypassed);
    }

    /// What is true now.
    pub fn state(&self) -> State {
        self.engine.state()
    }

    /// What happened so far.
    pub fn events(&self) -> Vec<Event> {
        self.engine.journal.all()
    }

    /// The first event, past or to come, that `wanted` is true for; `None` when `limit` passes without one.
    pub async fn wait_for(
        &self,
        limit: Duration,
        wanted: impl Fn(&Happened) -> bool,
    ) -> Option<Event> {
        self.engine.journal.wait_for(limit, wanted).await
    }

    /// The moment at which the host was gone, and why.
    pub async fn wait_down(&self, limit: Duration) -> Option<Event> {
        self.wait_for(limit, |what| matches!(what, Happened::Down { .. }))
            .await
    }
}

/// See [`Logind::hang`].
#[derive(Debug)]
pub struct Hang {
    _turn: tokio::sync::OwnedMutexGuard<()>,
}

impl Drop for Logind {
    fn drop(&mut self) {
        self.task.abort();
        self.engine.abandon();
    }
}
