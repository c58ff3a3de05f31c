//! What does PID 1 say about the system and about our own stop job? Read once, every call limited.
//!
//! The bus may be gone before we ask: then `systemctl` is asked, which as root needs none.

use super::login1::{self, CallError, within};
use super::stopping::{Job, Seen};
use super::timing::Timing;
use std::process::Stdio;
use std::time::Duration;
use zbus::{Connection, OwnedObjectPath, OwnedVariant};

/// Our unit of net 3.
pub const HOLD_UNIT: &str = "vmdrain-hold.service";
/// Interface of every unit.
const UNIT: &str = "org.freedesktop.systemd1.Unit";
/// Interface of services.
const SERVICE: &str = "org.freedesktop.systemd1.Service";

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
    /// `starting`, `running`, `degraded`, `maintenance`, `stopping`, …
    #[zbus(property(emits_changed_signal = "false"))]
    fn system_state(&self) -> zbus::Result<String>;
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
    let manager = SystemdProxy::builder(bus)
        .cache_properties(zbus::proxy::CacheProperties::No)
        .build()
        .await;
    let manager = match manager {
        Ok(manager) => manager,
        Err(e) => return Seen::nothing(&e.to_string()),
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

/// A property in microseconds.
async fn usec(
    bus: &Connection,
    path: &OwnedObjectPath,
    interface: &str,
    name: &str,
    limit: Duration,
) -> Result<u64, CallError> {
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
        u64::try_from(&value)
    };
    within(limit, name, call).await
}
