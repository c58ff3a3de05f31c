//! Where does the state of the stand-in change? Here alone: requests, delays, jobs, restarts.

use super::facts::{INTERFACE, Kind, NAME, PATH, Refused, Version};
use super::journal::{Happened, Journal, Why};
use super::locks::{self, Foreign, Lock};
use super::manager::Manager;
use super::{Options, State};
use anyhow::Context;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use vmdrain_agent::drain::time::Mono;
use vmdrain_agent::host::clock;
use vmdrain_agent::host::login1::{Inhibitor, USEC_INFINITY};
use zbus::{Connection, Variant};

/// Who asks for a shutdown, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    uid: u32,
    key: bool,
    scheduled: Option<u64>,
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

    fn by_schedule(usec: u64) -> Self {
        Self {
            scheduled: Some(usec),
            ..Self::by_user(0)
        }
    }
}

/// A shutdown that was announced.
#[derive(Clone, Copy, Debug)]
struct Pending {
    kind: Kind,
    asked: Asked,
    /// End of the delay; far away for `infinity`.
    until: Mono,
    delayed: bool,
}

/// What was scheduled: kind, its time on the wire (`CLOCK_REALTIME`), and when that is.
#[derive(Clone, Copy, Debug)]
struct Scheduled {
    kind: Kind,
    usec: u64,
    at: Mono,
}

#[derive(Debug, Default)]
struct Inner {
    limit: Duration,
    locks: BTreeMap<u64, Lock>,
    next_lock: u64,
    pending: Option<Pending>,
    scheduled: Option<Scheduled>,
    fail_next_job: bool,
    down: bool,
    bus: Option<Connection>,
}

/// The stand-in's heart.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) version: Version,
    pub(super) journal: Journal,
    address: String,
    speed: f64,
    folder: tempfile::TempDir,
    inner: Mutex<Inner>,
    wake: Notify,
    /// One change at a time: a request is announced before the next one is judged.
    pub(super) turn: tokio::sync::Mutex<()>,
}

impl Engine {
    pub(super) fn new(address: &str, options: Options) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            version: Version(options.version),
            journal: Journal::default(),
            address: address.to_owned(),
            speed: options.speed,
            folder: tempfile::Builder::new().prefix("inhibit").tempdir()?,
            inner: Mutex::new(Inner {
                limit: options.limit,
                next_lock: 1,
                ..Inner::default()
            }),
            wake: Notify::new(),
            turn: tokio::sync::Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latency(&self, real: Duration) -> Duration {
        real.div_f64(self.speed.max(1e-3))
    }

    // ---- reading ----

    pub(super) fn inhibit_folder(&self) -> PathBuf {
        self.folder.path().to_owned()
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

    // ---- locks ----

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
        let (fifo, reader, writer) = locks::make(self.folder.path(), number)?;
        self.journal.write(Happened::Locked {
            who: entry.who.clone(),
        });
        let watch = Some(self.watch(number, reader));
        inner.locks.insert(number, Lock { entry, fifo, watch });
        Ok(writer)
    }

    fn watch(
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

    // ---- requests ----

    /// As the client does it: on any failure but a plain no, PID 1 is asked, which waits for nobody.
    pub(super) async fn systemctl(self: &Arc<Self>, kind: Kind) -> Result<(), Refused> {
        let answer = match self.state().running {
            true => self.request(kind, Asked::by_user(0)).await,
            false => Err(Refused::new(
                "org.freedesktop.DBus.Error.NoReply",
                "logind does not answer",
            )),
        };
        match answer {
            Err(e) if !e.name.ends_with("AccessDenied") && !e.name.contains(".login1.") => {
                self.go_down(kind, Why::Bypassed);
                Ok(())
            }
            answer => answer,
        }
    }

    pub(super) async fn request(self: &Arc<Self>, kind: Kind, asked: Asked) -> Result<(), Refused> {
        let turn = self.turn.lock().await;
        let (delayed, tell) = {
            let mut inner = self.lock();
            self.judge(&inner, kind, asked)?;
            // An immediate request drops what was scheduled; a scheduled one has come.
            let tell = inner.scheduled.take().is_some() || self.version.tells_schedule();
            let waits = inner.locks.values().any(Lock::delays) && !inner.limit.is_zero();
            let limit = inner.limit;
            inner.pending = Some(Pending {
                kind,
                asked,
                until: clock::now() + limit,
                delayed: waits,
            });
            (waits, tell && self.version.tells_schedule())
        };
        self.journal.write(Happened::Prepared { kind, delayed });
        if tell && !self.version.tells_deadline() {
            self.tell_schedule(("", USEC_INFINITY)).await;
        }
        self.prepare(true, Some(kind)).await;
        if tell && self.version.tells_deadline() {
            let (word, usec) = self.scheduled();
            self.tell_schedule((&word, usec)).await;
        }
        drop(turn);
        self.wake.notify_one();
        Ok(())
    }

    fn judge(&self, inner: &Inner, kind: Kind, asked: Asked) -> Result<(), Refused> {
        if let Some(pending) = inner.pending {
            return Err(self.version.busy(pending.kind, kind));
        }
        let blocked = inner.locks.values().any(Lock::blocks);
        if blocked && (asked.key || asked.uid != 0 || self.version.blocks_root()) {
            return Err(self.version.blocked());
        }
        let waits = inner.locks.values().any(Lock::delays);
        if waits && inner.limit == Duration::MAX && !self.version.counts_infinity() {
            return Err(Refused::overflow());
        }
        Ok(())
    }

    pub(super) async fn schedule_in(
        self: &Arc<Self>,
        kind: Kind,
        after: Duration,
    ) -> Result<(), Refused> {
        let usec = u64::try_from((realtime() + after).as_micros()).unwrap_or(u64::MAX);
        self.schedule(kind, usec).await
    }

    pub(super) async fn schedule(self: &Arc<Self>, kind: Kind, usec: u64) -> Result<(), Refused> {
        let left = Duration::from_micros(usec).saturating_sub(realtime());
        {
            let mut inner = self.lock();
            if inner.locks.values().any(Lock::blocks) && self.version.blocks_root() {
                return Err(self.version.blocked());
            }
            inner.scheduled = Some(Scheduled {
                kind,
                usec,
                at: clock::now() + left,
            });
        }
        if self.version.tells_schedule() {
            self.tell_schedule((kind.word(), usec)).await;
        }
        self.wake.notify_one();
        Ok(())
    }

    /// True on 256 and older even when nothing is called off: they go down all the same.
    pub(super) async fn cancel(&self) -> bool {
        let _turn = self.turn.lock().await;
        let (had, cancelled) = {
            let mut inner = self.lock();
            let scheduled = inner.scheduled.take().is_some();
            let pending = inner.pending.filter(|pending| !pending.asked.key);
            let cancels = pending.is_some() && self.version.tells_schedule();
            if cancels {
                inner.pending = None;
            }
            (scheduled || pending.is_some(), scheduled || cancels)
        };
        if cancelled {
            self.journal.write(Happened::Cancelled);
        }
        if had && self.version.tells_schedule() {
            self.tell_schedule(("", USEC_INFINITY)).await;
        }
        self.wake.notify_one();
        had
    }

    pub(super) fn fail_next_job(&self) {
        self.lock().fail_next_job = true;
    }

    pub(super) fn set_limit(&self, limit: Duration) {
        self.lock().limit = limit;
    }

    pub(super) async fn unprepare(&self) {
        let pending = self.lock().pending.take();
        if let Some(pending) = pending {
            self.journal.write(Happened::Unprepared);
            self.prepare(false, Some(pending.kind)).await;
        }
    }

    // ---- time ----

    /// Timers and the end of delays, until it is aborted.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let wake = self.wake.notified();
            let nap = self.step().await;
            let bus = self.lock().bus.clone();
            let bus_lost = async {
                match bus {
                    Some(bus) => bus.closed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wake => {}
                () = tokio::time::sleep(nap) => {}
                () = bus_lost => self.bus_lost().await,
            }
        }
    }

    /// Does what is due; how long until something else is.
    async fn step(self: &Arc<Self>) -> Duration {
        let now = clock::now();
        let (pending, scheduled, holding, on_the_bus) = {
            let inner = self.lock();
            let holding = inner.locks.values().any(Lock::delays);
            (inner.pending, inner.scheduled, holding, inner.bus.is_some())
        };
        let far = Duration::from_secs(3600);
        if self.state().down || !on_the_bus {
            return far;
        }
        if let Some(pending) = pending {
            if pending.delayed && holding && now < pending.until {
                return pending.until.left(now).min(far);
            }
            let why = match (pending.delayed, holding) {
                (false, _) => Why::NotDelayed,
                (true, false) => Why::Released,
                (true, true) => Why::Expired,
            };
            tokio::time::sleep(self.latency(Duration::from_millis(20))).await;
            self.start_job(pending.kind, why).await;
            return far;
        }
        let Some(due) = scheduled else { return far };
        if now < due.at {
            return due.at.left(now).min(far);
        }
        if let Err(error) = self.request(due.kind, Asked::by_schedule(due.usec)).await {
            tracing::debug!(%error, "the scheduled shutdown was refused");
            self.lock().scheduled = None;
        }
        Duration::ZERO
    }

    async fn start_job(&self, kind: Kind, why: Why) {
        {
            let mut inner = self.lock();
            // Called off or forgotten in the meantime.
            if inner.pending.is_none() {
                return;
            }
            let on_the_bus = inner.bus.as_ref().is_some_and(|bus| !bus.is_closed());
            if !std::mem::take(&mut inner.fail_next_job) && on_the_bus {
                drop(inner);
                self.go_down(kind, why);
                return;
            }
            inner.pending = None;
        }
        self.journal.write(Happened::JobFailed);
        self.prepare(false, Some(kind)).await;
    }

    fn go_down(&self, kind: Kind, why: Why) {
        let mut inner = self.lock();
        if !std::mem::replace(&mut inner.down, true) {
            self.journal.write(Happened::Down { kind, why });
        }
    }

    // ---- the bus ----

    /// Comes (back) onto the bus with what is on disk: locks whose holder still lives, and a schedule.
    pub(super) async fn connect(self: &Arc<Self>) -> anyhow::Result<()> {
        self.reopen_locks()?;
        let manager = Manager {
            engine: self.clone(),
        };
        let bus = zbus::connection::Builder::address(self.address.as_str())
            .serve_at(PATH, manager)
            .name(NAME)
            .build();
        let bus = tokio::time::timeout(Duration::from_secs(5), bus)
            .await
            .context("the bus does not answer")?
            .context("cannot offer org.freedesktop.login1 on the bus")?;
        self.lock().bus = Some(bus);
        self.journal.write(Happened::Back);
        self.wake.notify_one();
        Ok(())
    }

    fn reopen_locks(self: &Arc<Self>) -> anyhow::Result<()> {
        let mut inner = self.lock();
        let unwatched: Vec<u64> = inner
            .locks
            .iter()
            .filter(|(_, lock)| lock.watch.is_none())
            .map(|(number, _)| *number)
            .collect();
        for number in unwatched {
            let Some(lock) = inner.locks.get_mut(&number) else {
                continue;
            };
            match locks::reopen(&lock.fifo)? {
                Some(reader) => lock.watch = Some(self.watch(number, reader)),
                None => {
                    let who = lock.entry.who.clone();
                    inner.locks.remove(&number);
                    self.journal.write(Happened::Unlocked { who });
                }
            }
        }
        Ok(())
    }

    pub(super) async fn stop(&self) {
        let bus = {
            let mut inner = self.lock();
            // logind's ends of the FIFOs close with it; files and holders stay.
            for lock in inner.locks.values_mut() {
                if let Some(watch) = lock.watch.take() {
                    watch.abort();
                }
            }
            if let Some(pending) = inner.pending.take() {
                match pending.asked.scheduled {
                    // /run/systemd/shutdown/scheduled is still there: the next logind re-arms it in the past.
                    Some(usec) => {
                        inner.scheduled = Some(Scheduled {
                            kind: pending.kind,
                            usec,
                            at: Mono(0),
                        });
                    }
                    None => self.journal.write(Happened::Forgotten),
                }
            }
            inner.bus.take()
        };
        if let Some(bus) = bus {
            let _ = bus.close().await;
        }
        self.journal.write(Happened::Gone);
        self.wake.notify_one();
    }

    /// 252 is restarted with the bus; later versions live on without it and never come back by themselves.
    async fn bus_lost(self: &Arc<Self>) {
        if !self.version.follows_the_bus() {
            // Timers go on; nobody is told anything any more.
            self.journal.write(Happened::Gone);
            let bus = self.lock().bus.clone();
            self.await_new_bus(bus).await;
            return;
        }
        self.stop().await;
        for _ in 0..50 {
            tokio::time::sleep(self.latency(Duration::from_millis(100))).await;
            if self.connect().await.is_ok() {
                return;
            }
        }
    }

    /// Goes on with the timers on a dead connection until a restart replaces it.
    async fn await_new_bus(self: &Arc<Self>, dead: Option<Connection>) {
        loop {
            let wake = self.wake.notified();
            let nap = self.step().await;
            let replaced = {
                let inner = self.lock();
                inner.bus.as_ref().map(Connection::unique_name)
                    != dead.as_ref().map(Connection::unique_name)
                    || inner.bus.as_ref().is_none_or(|bus| !bus.is_closed())
            };
            if replaced {
                return;
            }
            tokio::select! {
                () = wake => {}
                () = tokio::time::sleep(nap) => {}
            }
        }
    }

    /// For a drop: no await, and nobody is told.
    pub(super) fn abandon(&self) {
        let mut inner = self.lock();
        inner.locks.clear();
        inner.bus = None;
    }

    async fn prepare(&self, begins: bool, kind: Option<Kind>) {
        if self.version.signals_metadata() {
            let word = kind.map_or("", Kind::word);
            let about = HashMap::from([("type", Variant::new(word))]);
            self.emit(
                INTERFACE,
                "PrepareForShutdownWithMetadata",
                &(begins, about),
            )
            .await;
        }
        self.emit(INTERFACE, "PrepareForShutdown", &begins).await;
    }

    async fn tell_schedule(&self, value: (&str, u64)) {
        let changed = HashMap::from([("ScheduledShutdown", Variant::new(value))]);
        let body = (INTERFACE, changed, Vec::<&str>::new());
        self.emit(
            "org.freedesktop.DBus.Properties",
            "PropertiesChanged",
            &body,
        )
        .await;
    }

    pub(super) async fn emit_raw<B>(&self, member: &str, body: &B) -> anyhow::Result<()>
    where
        B: serde::Serialize + zbus::DynamicType + Sync,
    {
        let bus = self.lock().bus.clone();
        let bus = bus.context("logind is not on the bus")?;
        bus.emit_signal(None::<&str>, PATH, INTERFACE, member, body)
            .await?;
        Ok(())
    }

    async fn emit<B>(&self, interface: &str, member: &str, body: &B)
    where
        B: serde::Serialize + zbus::DynamicType + Sync,
    {
        let bus = self.lock().bus.clone();
        if let Some(bus) = bus {
            // On a dead connection nothing is said, as with the real one.
            let _ = bus
                .emit_signal(None::<&str>, PATH, interface, member, body)
                .await;
        }
    }
}

/// The wire wants wall time for scheduled shutdowns; nothing else here does.
fn realtime() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME)
        .map(Duration::from)
        .unwrap_or_default()
}
