//! Which user space of this boot is running? A soft-reboot changes no boot id; only PID 1 can tell (logind-semantics 9).

use super::login1::{self, CallError, within};
use super::timing::Timing;
use crate::drain::boot::Userspace;
use std::time::Duration;
use zbus::Connection;

/// PID 1's manager object, as far as it is used. `UserspaceTimestampMonotonic` is set anew by a soft-reboot and kept by
/// `daemon-reexec`.
#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait Manager {
    /// How often user space was restarted in this boot (256 and later).
    #[zbus(property(emits_changed_signal = "false"))]
    fn soft_reboots_count(&self) -> zbus::Result<u32>;
    /// When user space began, in microseconds of `CLOCK_MONOTONIC`.
    #[zbus(property(emits_changed_signal = "false"))]
    fn userspace_timestamp_monotonic(&self) -> zbus::Result<u64>;
}

/// This start of user space at the bus at `address` (`None`: the system bus). What cannot be asked is left out: a bus
/// that is away costs the recognition of a soft-reboot, nothing else.
pub async fn ask_systemd(address: Option<&str>, timing: &Timing) -> Userspace {
    match ask(address, timing).await {
        Ok(userspace) => userspace,
        Err(why) => {
            tracing::debug!("systemd cannot be asked about soft-reboots: {why}");
            Userspace::default()
        }
    }
}

async fn ask(address: Option<&str>, timing: &Timing) -> Result<Userspace, CallError> {
    let limit = timing.probe;
    let bus = login1::connect(address, limit).await?;
    let answer = of(&bus, limit).await;
    // Nobody else uses this connection; a goodbye that is not heard is none the worse.
    let _ = bus.close().await;
    answer
}

async fn of(bus: &Connection, limit: Duration) -> Result<Userspace, CallError> {
    let manager = ManagerProxy::builder(bus)
        .cache_properties(zbus::proxy::CacheProperties::No)
        .build()
        .await?;
    let started = within(
        limit,
        "UserspaceTimestampMonotonic",
        manager.userspace_timestamp_monotonic(),
    )
    .await?;
    let count = within(limit, "SoftRebootsCount", manager.soft_reboots_count()).await;
    let soft_reboots = match count {
        Ok(count) => Some(u64::from(count)),
        Err(why) if why.unknown() => None,
        Err(why) => return Err(why),
    };
    Ok(Userspace {
        soft_reboots,
        // Zero is systemd's word for "never".
        started: Some(started).filter(|at| *at > 0),
    })
}
