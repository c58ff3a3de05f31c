//! What does the stand-in know, and who holds which lock?

use super::facts::{Kind, Refused, Version};
use super::files::Files;
use super::journal::{Happened, Journal};
use super::locks::{self, Foreign, Lock};
use super::{Options, State};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use vmdrain_agent::drain::time::Mono;
use vmdrain_agent::host::clock;
use vmdrain_agent::host::login1::{Inhibitor, USEC_INFINITY};
use zbus::Connection;

/// Who asks for a shutdown, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) uid: u32,
    pub(super) key: bool,
    pub(super) scheduled: Option<u64>,
}

impl Asked {
    pub(super) fn by_user(uid: u32) -> Self {
        Self {
            uid,
            key: false,
            scheduled: None,
        }
    }

    pub(super) fn by_key() -> Self {
        Self {
            key: true,
            ..Self::by_user(0)
        }
    }

    pub(super) fn by_schedule(usec: u64) -> Self {
        Self {
            scheduled: Some(usec),
            ..Self::by_user(0)
        }
    }
}

/// A shutdown that was announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) kind: Kind,
    pub(super) asked: Asked,
    /// End of the delay; far away for `infinity`.
    pub(super) until: Mono,
    pub(super) delayed: bool,
}

/// What was scheduled: kind, its time on the wire (`CLOCK_REALTIME`), and when that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scheduled {
    pub(super) kind: Kind,
    pub(super) usec: u64,
    pub(super) at: Mono,
}

/// Everything that changes.
#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) limit: Duration,
    pub(super) locks: BTreeMap<u64, Lock>,
    pub(super) next_lock: u64,
    pub(super) pending: Option<Pending>,
    pub(super) scheduled: Option<Scheduled>,
    pub(super) fail_next_job: bool,
    pub(super) down: bool,
    pub(super) bus: Option<Connection>,
}

/// The stand-in's heart.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) version: Version,
    pub(super) journal: Journal,
    pub(super) address: String,
    speed: f64,
    pub(super) files: Files,
    inner: Mutex<Inner>,
    pub(super) wake: Notify,
    /// logind has one thread: a request is announced before anything else is answered.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl Engine {
    pub(super) fn new(address: &str, options: Options, files: Files) -> Arc<Self> {
        Arc::new(Self {
            version: Version(options.version),
            journal: Journal::default(),
            address: address.to_owned(),
            speed: options.speed,
            files,
            inner: Mutex::new(Inner {
                limit: options.limit,
                next_lock: 1,
                ..Inner::default()
            }),
            wake: Notify::new(),
            turn: Arc::default(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn latency(&self, real: Duration) -> Duration {
        real.div_f64(self.speed.max(1e-3))
    }

    pub(super) fn inhibit_folder(&self) -> PathBuf {
        self.files.locks()
    }

    pub(super) fn inhibitors(&self) -> Vec<Inhibitor> {
        let inner = self.lock();
        inner
            .locks
            .values()
            .map(|lock| lock.entry.clone())
            .collect()
    }

    pub(super) fn limit_usec(&self) -> u64 {
        u64::try_from(self.lock().limit.as_micros()).unwrap_or(USEC_INFINITY)
    }

    pub(super) fn preparing(&self) -> Option<Kind> {
        self.lock().pending.map(|pending| pending.kind)
    }

    /// `ScheduledShutdown` on the wire.
    pub(super) fn scheduled(&self) -> (String, u64) {
        let inner = self.lock();
        match (inner.pending, inner.scheduled) {
            (Some(pending), _) => {
                let usec = if self.version.tells_schedule() {
                    let left = pending.until.left(clock::now());
                    (clock::monotonic() + left).0.saturating_mul(1000)
                } else {
                    pending.asked.scheduled.unwrap_or(0)
                };
                (pending.kind.word().into(), usec)
            }
            (None, Some(scheduled)) => (scheduled.kind.word().into(), scheduled.usec),
            (None, None) => (String::new(), USEC_INFINITY),
        }
    }

    pub(super) fn state(&self) -> State {
        let inner = self.lock();
        let holding = inner.locks.values().filter(|lock| lock.delays());
        State {
            running: inner.bus.as_ref().is_some_and(|bus| !bus.is_closed()),
            preparing: inner.pending.is_some(),
            scheduled: inner.scheduled.map(|scheduled| scheduled.kind),
            holders: holding.map(|lock| lock.entry.who.clone()).collect(),
            down: inner.down,
        }
    }

    pub(super) fn inhibit(self: &Arc<Self>, entry: Inhibitor) -> Result<OwnedFd, Refused> {
        match entry.mode.as_str() {
            "delay" | "block" => {}
            "block-weak" if self.version.has_block_weak() => {}
            _ => return Err(Refused::invalid("Invalid mode specification")),
        }
        if entry.on_shutdown() && self.preparing().is_some() {
            return Err(Refused::lock_too_late());
        }
        self.add(entry)
            .map_err(|e| Refused::new("org.freedesktop.DBus.Error.Failed", e.to_string()))
    }

    pub(super) fn foreign(
        self: &Arc<Self>,
        what: &str,
        who: &str,
        mode: &str,
        uid: u32,
    ) -> anyhow::Result<Foreign> {
        let entry = Inhibitor {
            what: what.into(),
            who: who.into(),
            why: "played by a test".into(),
            mode: mode.into(),
            uid,
            pid: std::process::id(),
        };
        Ok(Foreign::new(self.inhibit(entry)?))
    }

    fn add(self: &Arc<Self>, entry: Inhibitor) -> anyhow::Result<OwnedFd> {
        let mut inner = self.lock();
        let number = inner.next_lock;
        inner.next_lock += 1;
        let (fifo, reader, writer) = locks::make(&self.files.locks(), number)?;
        self.journal.write(Happened::Locked {
            who: entry.who.clone(),
        });
        let watch = Some(self.watch(number, reader));
        inner.locks.insert(number, Lock { entry, fifo, watch });
        Ok(writer)
    }

    pub(super) fn watch(
        self: &Arc<Self>,
        number: u64,
        reader: tokio::net::unix::pipe::Receiver,
    ) -> tokio::task::AbortHandle {
        let engine = Arc::downgrade(self);
        let watch = async move {
            locks::ended(reader).await;
            if let Some(engine) = engine.upgrade() {
                engine.drop_lock(number);
            }
        };
        tokio::spawn(watch).abort_handle()
    }

    fn drop_lock(&self, number: u64) {
        let gone = self.lock().locks.remove(&number);
        if let Some(mut lock) = gone {
            // This may be its own watch: it must not end itself here.
            lock.watch = None;
            let who = lock.entry.who.clone();
            self.journal.write(Happened::Unlocked { who });
            self.wake.notify_one();
        }
    }

    pub(super) fn lose_locks(&self) {
        let lost = std::mem::take(&mut self.lock().locks);
        for lock in lost.values() {
            let who = lock.entry.who.clone();
            self.journal.write(Happened::Unlocked { who });
        }
        self.wake.notify_one();
    }
}
