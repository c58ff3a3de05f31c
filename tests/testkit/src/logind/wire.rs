//! How does logind come onto the bus and leave it, and what does it say there?

use super::engine::{Engine, Scheduled};
use super::facts::{INTERFACE, Kind, NAME, PATH};
use super::journal::Happened;
use super::locks;
use super::manager::Manager;
use anyhow::Context;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use vmdrain_agent::drain::time::Mono;
use zbus::{Connection, Variant};

impl Engine {
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
            if let Some(reader) = locks::reopen(&lock.fifo)? {
                lock.watch = Some(self.watch(number, reader));
            } else {
                let who = lock.entry.who.clone();
                inner.locks.remove(&number);
                self.journal.write(Happened::Unlocked { who });
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
    pub(super) async fn bus_lost(self: &Arc<Self>) {
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

    pub(super) async fn prepare(&self, begins: bool, kind: Option<Kind>) {
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

    pub(super) async fn tell_schedule(&self, value: (&str, u64)) {
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
