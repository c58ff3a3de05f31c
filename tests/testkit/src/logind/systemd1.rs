//! A stand-in for PID 1's manager object: which user space of this boot is running?

use super::facts::{Refused, Version};
use anyhow::Context;
use std::time::Duration;
use zbus::Connection;

/// PID 1 on a bus. Dropping it takes it off.
#[derive(Debug)]
pub struct Systemd {
    bus: Connection,
}

/// What it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserspaceFacts {
    /// Version of systemd.
    pub version: u32,
    /// How often user space was restarted in this boot.
    pub soft_reboots: u32,
    /// When it began, in microseconds of `CLOCK_MONOTONIC`.
    pub started: u64,
}

impl Systemd {
    /// Comes onto the bus at `address`.
    pub async fn start(address: &str, facts: UserspaceFacts) -> anyhow::Result<Self> {
        let bus = zbus::connection::Builder::address(address)
            .serve_at("/org/freedesktop/systemd1", Manager { facts })
            .name("org.freedesktop.systemd1")
            .build();
        let bus = tokio::time::timeout(Duration::from_secs(5), bus)
            .await
            .context("the bus does not answer")?
            .context("cannot offer org.freedesktop.systemd1 on the bus")?;
        Ok(Self { bus })
    }

    /// Leaves the bus, and is heard to have left.
    pub async fn stop(self) {
        let _ = self.bus.close().await;
    }
}

struct Manager {
    facts: UserspaceFacts,
}

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    #[zbus(property(emits_changed_signal = "false"))]
    fn soft_reboots_count(&self) -> Result<u32, Refused> {
        if Version(self.facts.version).counts_soft_reboots() {
            return Ok(self.facts.soft_reboots);
        }
        Err(Refused::new(
            "org.freedesktop.DBus.Error.UnknownProperty",
            "Unknown interface org.freedesktop.systemd1.Manager or property SoftRebootsCount.",
        ))
    }

    #[zbus(property(emits_changed_signal = "const"))]
    fn userspace_timestamp_monotonic(&self) -> u64 {
        self.facts.started
    }
}
