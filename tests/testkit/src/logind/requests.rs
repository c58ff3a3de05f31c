//! How is a shutdown asked for, delayed, called off and carried out?

use super::engine::{Asked, Engine, Inner, Pending, Scheduled};
use super::facts::{Kind, Refused};
use super::journal::{Happened, Why};
use super::locks::Lock;
use std::sync::Arc;
use std::time::Duration;
use vmdrain_agent::host::clock;
use vmdrain_agent::host::login1::USEC_INFINITY;

impl Engine {
    /// As the client does it: on any failure but a plain no, PID 1 is asked, which waits for nobody.
    pub(super) async fn systemctl(self: &Arc<Self>, kind: Kind) -> Result<(), Refused> {
        let answer = if self.state().running {
            self.request(kind, Asked::by_user(0)).await
        } else {
            Err(Refused::new(
                "org.freedesktop.DBus.Error.NoReply",
                "logind does not answer",
            ))
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
            if asked.scheduled.is_none() {
                self.files.unschedule();
            }
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
        if let Err(error) = self.files.schedule(kind, usec) {
            tracing::warn!(%error, "the stand-in cannot write its schedule");
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
            if scheduled || cancels {
                self.files.unschedule();
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
    pub(super) async fn step(self: &Arc<Self>) -> Duration {
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

    pub(super) fn go_down(&self, kind: Kind, why: Why) {
        let mut inner = self.lock();
        if !std::mem::replace(&mut inner.down, true) {
            self.journal.write(Happened::Down { kind, why });
        }
    }
}

/// The wire wants wall time for scheduled shutdowns; nothing else here does.
fn realtime() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME)
        .map(Duration::from)
        .unwrap_or_default()
}
