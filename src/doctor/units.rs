//! Units and drop-ins: is the stop job armed, and do containers outlive it?

use super::host::span;
use super::{Check, Facts, List, UnitState};
use std::time::Duration;

const UNITS: Check = Check("units", "operating.md#what-runs");
const AGENT: Check = Check("units.agent", "operating.md#what-runs");
const HOLD: Check = Check("units.hold", "operating.md#what-runs");
const JOBS: Check = Check("units.job_timeout", "operating.md#sizing-the-limit");
const SCOPES: Check = Check("units.containers", "operating.md#containers-at-a-shutdown");

pub(super) fn judge(facts: &Facts, list: &mut List) {
    let units = match &facts.units {
        Ok(units) => units,
        Err(why) => {
            return list.unknown(
                UNITS,
                format!("PID 1 cannot be asked: {why}"),
                "check `systemctl status dbus`",
            );
        }
    };
    unit(AGENT, "vmdrain-agent.service", &units.agent, list);
    unit(HOLD, "vmdrain-hold.service", &units.hold, list);
    jobs(units.stop_limit, &units.job_limits, list);
    let bad: Vec<&str> = units
        .scopes
        .iter()
        .filter(|scope| !scope.after_hold)
        .map(|scope| scope.name.as_str())
        .collect();
    match (units.scopes.len(), bad.as_slice()) {
        (0, _) => list.note(
            SCOPES,
            "no container of containerd, CRI-O or Docker has a scope of its own here: either none runs, or the runtime uses the cgroupfs driver, for which the stop job's drop-ins do nothing",
        ),
        (all, []) => list.ok(
            SCOPES,
            format!("all {all} running containers are stopped only after the stop job"),
        ),
        (all, [first, ..]) => list.fail(
            SCOPES,
            format!(
                "{} of {all} running containers get SIGTERM 50 ms after the stop phase begins, beside the stop job (Before=vmdrain-hold.service is missing on {first})",
                bad.len()
            ),
            "`systemctl daemon-reload` gives running containers the packaged drop-in (/usr/lib/systemd/system/cri-containerd-.scope.d and others). When that does not help, the runtime names its scopes differently: copy the drop-in for that prefix",
        ),
    }
}

fn unit(check: Check, name: &str, state: &UnitState, list: &mut List) {
    if state.needs_reload {
        list.warn(
            check,
            format!("the files of {name} have changed since systemd read them"),
            "`systemctl daemon-reload`",
        );
    }
    match (state.active.as_str(), state.file.as_str()) {
        (_, "") => list.fail(
            check,
            format!("there is no unit {name}"),
            "install the package, or copy the units of systemd/ and `systemctl daemon-reload`",
        ),
        ("active" | "activating" | "reloading", "enabled" | "enabled-runtime" | "static") => {
            list.ok(
                check,
                format!("{name} is {} and {}", state.active, state.file),
            );
        }
        ("active" | "activating" | "reloading", file) => list.warn(
            check,
            format!(
                "{name} is {} but {file}: after the next boot it is not there",
                state.active
            ),
            format!("`systemctl enable {name}`"),
        ),
        (active, file) => list.fail(
            check,
            format!("{name} is {active} ({file}): it does nothing at a shutdown"),
            format!("`systemctl enable --now {name}`"),
        ),
    }
}

/// The targets' own limit beats the unit's: then PID 1 forces the host down in the middle of the stop job.
fn jobs(
    stop_limit: Option<Duration>,
    limits: &std::collections::BTreeMap<String, Option<Duration>>,
    list: &mut List,
) {
    let Some(stop) = stop_limit else {
        return list.note(
            JOBS,
            "the stop job has no time limit of its own; JobTimeoutSec= of the shutdown targets ends it",
        );
    };
    let shortest = limits
        .iter()
        .filter_map(|(target, limit)| limit.map(|limit| (limit, target)))
        .min();
    match shortest {
        Some((limit, target)) if limit <= stop => list.warn(
            JOBS,
            format!(
                "the stop job may take {}, but JobTimeoutSec= of {target} is {}: PID 1 forces the host down in the middle of it",
                span(stop),
                span(limit)
            ),
            format!("raise JobTimeoutSec= of {target} in a drop-in, or lower TimeoutStopSec= of vmdrain-hold.service below it"),
        ),
        Some((limit, _)) => list.ok(
            JOBS,
            format!(
                "the stop job may take {}, the shutdown targets allow {}",
                span(stop),
                span(limit)
            ),
        ),
        None => list.ok(JOBS, format!("the stop job may take {}", span(stop))),
    }
}
