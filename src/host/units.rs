//! What a check-up asks PID 1: our units, the limits of the shutdown targets, the containers that run.

use super::login1::{self, CallError, within};
use super::system1::{HOLD_UNIT, SERVICE, SystemdProxy, UNIT, manager, property, usec};
use super::timing::Timing;
use crate::doctor::{Scope, UnitFacts, UnitState};
use std::collections::BTreeMap;
use std::time::Duration;
use zbus::{Connection, OwnedObjectPath};

/// Our daemon.
const AGENT_UNIT: &str = "vmdrain-agent.service";
/// With these the system ends.
const TARGETS: [&str; 4] = [
    "poweroff.target",
    "reboot.target",
    "halt.target",
    "kexec.target",
];
/// Scopes of containers, by runtime; k3s and RKE2 use containerd's.
const SCOPES: [&str; 4] = [
    "cri-containerd-*.scope",
    "crio-*.scope",
    "crio-conmon-*.scope",
    "docker-*.scope",
];
/// More containers than that are not looked at one by one.
const MOST_SCOPES: usize = 1000;

/// Asks PID 1 at `address`; `None`: over the system bus.
///
/// # Errors
/// Why it cannot be asked.
pub async fn look(address: Option<&str>, timing: &Timing) -> Result<UnitFacts, String> {
    let bus = login1::connect(address, timing.probe)
        .await
        .map_err(|e| e.text)?;
    let facts = over(&bus, timing.probe).await.map_err(|e| e.text);
    // Nobody else uses this connection; a goodbye that is not heard is none the worse.
    let _ = bus.close().await;
    facts
}

async fn over(bus: &Connection, limit: Duration) -> Result<UnitFacts, CallError> {
    let systemd = manager(bus).await?;
    let (agent, _) = unit(bus, &systemd, AGENT_UNIT, limit).await?;
    let (hold, path) = unit(bus, &systemd, HOLD_UNIT, limit).await?;
    let stop_limit = match path {
        Some(path) => finite(
            usec(bus, &path, SERVICE, "TimeoutStopUSec", limit)
                .await
                .ok(),
        ),
        None => None,
    };
    let mut job_limits = BTreeMap::new();
    for target in TARGETS {
        let path = within(limit, "LoadUnit", systemd.load_unit(target)).await?;
        let timeout = usec(bus, &path, UNIT, "JobTimeoutUSec", limit).await.ok();
        job_limits.insert(target.to_owned(), finite(timeout));
    }
    Ok(UnitFacts {
        agent,
        hold,
        stop_limit,
        job_limits,
        scopes: scopes(bus, &systemd, limit).await?,
    })
}

/// Zero and infinity both mean "no limit".
fn finite(usec: Option<u64>) -> Option<Duration> {
    usec.filter(|usec| *usec > 0 && *usec != login1::USEC_INFINITY)
        .map(Duration::from_micros)
}

async fn unit(
    bus: &Connection,
    systemd: &SystemdProxy<'_>,
    name: &str,
    limit: Duration,
) -> Result<(UnitState, Option<OwnedObjectPath>), CallError> {
    let path = within(limit, "LoadUnit", systemd.load_unit(name)).await?;
    let text = async |property_name: &str| -> Result<String, CallError> {
        property(bus, &path, UNIT, property_name, limit).await
    };
    let loaded = text("LoadState").await? == "loaded";
    if !loaded {
        return Ok((UnitState::default(), None));
    }
    let state = UnitState {
        active: text("ActiveState").await?,
        file: text("UnitFileState").await?,
        fragment: text("FragmentPath").await?,
        needs_reload: property(bus, &path, UNIT, "NeedDaemonReload", limit).await?,
    };
    Ok((state, Some(path)))
}

/// Whether each running container is stopped only after the stop job: what counts is what PID 1 has loaded, not what is
/// in the files.
async fn scopes(
    bus: &Connection,
    systemd: &SystemdProxy<'_>,
    limit: Duration,
) -> Result<Vec<Scope>, CallError> {
    let call = systemd.list_units_by_patterns(&["active"], &SCOPES);
    let rows = within(limit, "ListUnitsByPatterns", call).await?;
    let mut scopes = Vec::new();
    for row in rows.into_iter().take(MOST_SCOPES) {
        let before = property::<Vec<String>>(bus, &row.path, UNIT, "Before", limit).await;
        // One that has ended meanwhile has no say.
        if let Ok(before) = before {
            scopes.push(Scope {
                name: row.name,
                after_hold: before.iter().any(|unit| unit == HOLD_UNIT),
            });
        }
    }
    scopes.sort_by(|a, b| a.name.cmp(&b.name));
    scopes.dedup();
    Ok(scopes)
}
