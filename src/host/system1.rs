//! What does PID 1 say: is the system going down, which start of user space is this, which units stop guests? Every
//! call is limited.
//!
//! A stop job may find the bus gone: then `systemctl` is asked, which as root needs none.

use super::login1::{self, CallError, within};
use super::stopping::{Job, Seen};
use super::timing::Timing;
use crate::drain::action::{Holder, UNIT_MODE};
use crate::drain::boot::Userspace;
use std::process::Stdio;
use std::time::Duration;
use zbus::{Connection, OwnedObjectPath, OwnedVariant};

/// Our unit of net 3.
pub const HOLD_UNIT: &str = "vmdrain-hold.service";
/// Interface of every unit.
pub(super) const UNIT: &str = "org.freedesktop.systemd1.Unit";
/// Interface of services.
pub(super) const SERVICE: &str = "org.freedesktop.systemd1.Service";
/// Units that hold no lock of logind's and stop guests while the system ends.
const STOP_GUESTS: [&str; 1] = ["libvirt-guests.service"];

/// The manager object.
#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
pub trait Systemd {
    /// Every job that waits or runs.
    fn list_jobs(&self) -> zbus::Result<Vec<JobRow>>;
    /// Path of a unit that is loaded.
    fn get_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
    /// Path of a unit, loaded for it if need be.
    fn load_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
    /// Units in one of these states whose name fits one of these patterns.
    fn list_units_by_patterns(
        &self,
        states: &[&str],
        patterns: &[&str],
    ) -> zbus::Result<Vec<UnitRow>>;
    /// `starting`, `running`, `degraded`, `maintenance`, `stopping`, …
    #[zbus(property(emits_changed_signal = "false"))]
    fn system_state(&self) -> zbus::Result<String>;
    /// How often user space was restarted in this boot (256 and later).
    #[zbus(property(emits_changed_signal = "false"))]
    fn soft_reboots_count(&self) -> zbus::Result<u32>;
    /// When user space began, in microseconds of `CLOCK_MONOTONIC`: set anew by a soft-reboot, kept by `daemon-reexec`.
    #[zbus(property(emits_changed_signal = "false"))]
    fn userspace_timestamp_monotonic(&self) -> zbus::Result<u64>;
}

pub(super) async fn manager(bus: &Connection) -> Result<SystemdProxy<'_>, CallError> {
    let proxy = SystemdProxy::builder(bus)
        .cache_properties(zbus::proxy::CacheProperties::No)
        .build();
    Ok(proxy.await?)
}

/// One row of `ListJobs`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, zbus::Type)]
pub struct JobRow {
    /// Number.
    pub id: u32,
    /// Unit.
    pub unit: String,
    /// `start`, `stop`, …
    pub kind: String,
    /// `waiting` or `running`.
    pub state: String,
    /// Its object.
    pub job: OwnedObjectPath,
    /// Its unit's object.
    pub unit_path: OwnedObjectPath,
}

/// One row of `ListUnits`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, zbus::Type)]
pub struct UnitRow {
    /// Name.
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// `loaded`, …
    pub load: String,
    /// `active`, …
    pub active: String,
    /// `running`, …
    pub sub: String,
    /// The unit that it follows.
    pub following: String,
    /// Its object.
    pub path: OwnedObjectPath,
    /// Its job, 0 when it has none.
    pub job: u32,
    /// What kind of job.
    pub job_kind: String,
    /// The job's object.
    pub job_path: OwnedObjectPath,
}

/// Asks PID 1 at `address`; `None`: over the system bus, and where that is gone by its own tool.
pub async fn look(address: Option<&str>, timing: &Timing) -> Seen {
    let seen = match login1::connect(address, timing.work).await {
        Ok(bus) => over(&bus, timing.probe).await,
        Err(e) => Seen::nothing(&e.text),
    };
    if address.is_some() || seen.state.is_ok() || seen.jobs.is_ok() {
        return seen;
    }
    Seen {
        state: by_tool(timing.work).await.or(seen.state.clone()),
        ..seen
    }
}

/// The system state as `systemctl` tells it: as root that needs no bus, only PID 1's private socket.
async fn by_tool(limit: Duration) -> Result<String, String> {
    let mut tool = tokio::process::Command::new("systemctl");
    tool.arg("is-system-running")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(limit, tool.output()).await;
    let output = output
        .map_err(|_| "systemctl gives no answer".to_owned())?
        .map_err(|e| format!("systemctl cannot be started: {e}"))?;
    // Its exit status says no more than the word does.
    let text = String::from_utf8_lossy(&output.stdout);
    match text.split_whitespace().next() {
        Some("offline" | "unknown") | None => Err("systemctl cannot tell".into()),
        Some(word) => Ok(word.to_owned()),
    }
}

async fn over(bus: &Connection, limit: Duration) -> Seen {
    let manager = match manager(bus).await {
        Ok(manager) => manager,
        Err(e) => return Seen::nothing(&e.text),
    };
    let (state, rows) = tokio::join!(
        within(limit, "SystemState", manager.system_state()),
        within(limit, "ListJobs", manager.list_jobs()),
    );
    let mut seen = Seen {
        state: state.map_err(|e| e.text),
        jobs: Err(String::new()),
        ..Seen::default()
    };
    let rows = match rows {
        Ok(rows) => rows,
        Err(e) => {
            seen.jobs = Err(e.text);
            Vec::new()
        }
    };
    let mut jobs = Vec::new();
    for row in rows {
        let job = Job {
            unit: row.unit,
            kind: row.kind,
        };
        if job.ends_the_system() {
            let limit = usec(bus, &row.unit_path, UNIT, "JobTimeoutUSec", limit).await;
            seen.job_limit = seen.job_limit.into_iter().chain(limit.ok()).min();
        }
        jobs.push(job);
    }
    if seen.jobs == Err(String::new()) {
        seen.jobs = Ok(jobs);
    }
    let unit = within(limit, "GetUnit", manager.get_unit(HOLD_UNIT)).await;
    if let Ok(unit) = unit {
        let stop = usec(bus, &unit, SERVICE, "TimeoutStopUSec", limit).await;
        seen.stop_limit = stop.ok();
    }
    seen
}

/// Which start of user space this is, from the bus at `address` (`None`: the system bus). A soft-reboot changes no boot
/// id, so only PID 1 can tell (logind-semantics 9). What cannot be asked is left out: a bus that is away costs the
/// recognition of a soft-reboot, nothing else.
pub async fn userspace(address: Option<&str>, timing: &Timing) -> Userspace {
    match ask_userspace(address, timing.probe).await {
        Ok(userspace) => userspace,
        Err(why) => {
            tracing::debug!("systemd cannot be asked about soft-reboots: {why}");
            Userspace::default()
        }
    }
}

async fn ask_userspace(address: Option<&str>, limit: Duration) -> Result<Userspace, CallError> {
    let bus = login1::connect(address, limit).await?;
    let answer = userspace_over(&bus, limit).await;
    // Nobody else uses this connection; a goodbye that is not heard is none the worse.
    let _ = bus.close().await;
    answer
}

async fn userspace_over(bus: &Connection, limit: Duration) -> Result<Userspace, CallError> {
    let manager = manager(bus).await?;
    let started = manager.userspace_timestamp_monotonic();
    let started = within(limit, "UserspaceTimestampMonotonic", started).await?;
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

/// The units among [`STOP_GUESTS`] that are active: their stop is the stop of guests. What cannot be asked is left out.
pub(super) async fn guest_stoppers(bus: &Connection, limit: Duration) -> Vec<Holder> {
    let mut found = Vec::new();
    for unit in STOP_GUESTS {
        match is_active(bus, unit, limit).await {
            Ok(true) => found.push(Holder {
                who: unit.into(),
                why: "stops guests while the system ends".into(),
                mode: UNIT_MODE.into(),
                uid: 0,
            }),
            Ok(false) => {}
            Err(why) => tracing::debug!("systemd cannot be asked about {unit}: {why}"),
        }
    }
    found
}

async fn is_active(bus: &Connection, unit: &str, limit: Duration) -> Result<bool, CallError> {
    let manager = manager(bus).await?;
    // Not `LoadUnit`: what is not loaded is not active, and nothing has to be read from disk for it.
    let path = match within(limit, "GetUnit", manager.get_unit(unit)).await {
        Ok(path) => path,
        Err(why) if why.name.ends_with(".NoSuchUnit") => return Ok(false),
        Err(why) => return Err(why),
    };
    let state: String = property(bus, &path, UNIT, "ActiveState", limit).await?;
    Ok(state == "active")
}

/// A property in microseconds.
pub(super) async fn usec(
    bus: &Connection,
    path: &OwnedObjectPath,
    interface: &str,
    name: &str,
    limit: Duration,
) -> Result<u64, CallError> {
    property(bus, path, interface, name, limit).await
}

pub(super) async fn property<T: TryFrom<OwnedVariant, Error: Into<zbus::Error>>>(
    bus: &Connection,
    path: &OwnedObjectPath,
    interface: &str,
    name: &str,
    limit: Duration,
) -> Result<T, CallError> {
    let call = async {
        let body = &(interface, name);
        let reply = bus
            .call_method(
                Some("org.freedesktop.systemd1"),
                path,
                Some("org.freedesktop.DBus.Properties"),
                "Get",
                body,
            )
            .await?;
        let value: OwnedVariant = reply.body().deserialize()?;
        T::try_from(value).map_err(Into::into)
    };
    within(limit, name, call).await
}
