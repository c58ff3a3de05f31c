//! What the stop job meets on hosts that are not as its package left them: units of before, a PID 1 that tells no jobs.

use std::time::Duration;

use anyhow::ensure;

use super::delay::{TAIL, in_order};
use super::stop_job::go_down;
use super::{between, seconds};
use crate::plan::Plan;
use crate::scene::{Scene, play};
use crate::suite::{ALL, Case, Context};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "T72",
        name: "a_unit_of_before_and_logind",
        on: ALL,
        limit: 90,
        run: |c| units_of_before(c, true),
    },
    Case {
        number: "T72",
        name: "a_unit_of_before_and_its_stop_job",
        on: ALL,
        limit: 90,
        run: |c| units_of_before(c, false),
    },
    Case {
        number: "4",
        name: "a_job_list_that_cannot_be_read",
        on: ALL,
        limit: 90,
        run: no_job_list,
    },
];

/// The units as they were first, see `tests/systemd/earlier/README.md`.
const BEFORE: [(&str, &str); 2] = [
    (
        "vmdrain-agent.service",
        include_str!("../../../../../systemd/earlier/vmdrain-agent.service"),
    ),
    (
        "vmdrain-hold.service",
        include_str!("../../../../../systemd/earlier/vmdrain-hold.service"),
    ),
];

/// The package was upgraded and nobody has rebooted: systemd remembers the units of before, the binary is the new one.
fn units_of_before(context: &Context, by_logind: bool) -> anyhow::Result<String> {
    let place = |unit: &str| format!("/etc/systemd/system/{unit}");
    let plan = BEFORE.iter().fold(Plan::moving(4.0), |plan, (unit, text)| {
        plan.file(&place(unit), text)
    });
    play(context, &plan, |scene| {
        scene.wait_unit("vmdrain-hold.service", "active")?;
        for (unit, _) in BEFORE {
            let from = scene.property(unit, "FragmentPath")?;
            ensure!(from == place(unit), "{unit} was loaded from {from}");
            // Nobody has told systemd.
            std::fs::remove_file(scene.host.live(&place(unit)))?;
            let stale = scene.property(unit, "NeedDaemonReload")?;
            ensure!(
                stale == "yes",
                "systemd knows already that {unit} is another one"
            );
        }
        let typed = if by_logind {
            scene.types_well(&["systemctl", "poweroff"])?.typed
        } else {
            go_down(scene)?
        };
        let down = scene.wait_down(Duration::from_secs(50))?;
        ended_well(scene)?;
        if by_logind {
            return in_order(scene, typed, &down);
        }
        let tail = scene.went_empty(&down, TAIL)?;
        Ok(format!("{tail}, down {}", seconds(between(typed, down.at))))
    })
}

/// The stop job has understood how it was called, and has ended with success.
fn ended_well(scene: &Scene) -> anyhow::Result<()> {
    let said = scene.host.journal(&["--unit=vmdrain-hold.service"])?;
    ensure!(
        said.contains("no VM is left on this host"),
        "the stop job does not say how it ended: {said}"
    );
    ensure!(
        !said.contains("Failed with result"),
        "the stop job has failed: {said}"
    );
    Ok(())
}

/// The bus lets nobody see the jobs: the state of the system decides, and that is said.
fn no_job_list(context: &Context) -> anyhow::Result<String> {
    const FORBIDDEN: &str = concat!(
        "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN\"\n",
        "  \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n",
        "<busconfig><policy context=\"mandatory\">\n",
        "  <deny send_destination=\"org.freedesktop.systemd1\" send_interface=\"org.freedesktop.systemd1.Manager\" send_member=\"ListJobs\"/>\n",
        "</policy></busconfig>\n"
    );
    let plan = Plan::moving(4.0).file("/etc/dbus-1/system.d/zz-case.conf", FORBIDDEN);
    play(context, &plan, |scene| {
        scene.wait_unit("vmdrain-hold.service", "active")?;
        // A system that stays up, looked at without its jobs: nothing is drained.
        scene.types_well(&["systemctl", "restart", "vmdrain-hold"])?;
        let decided = |state: &str| -> anyhow::Result<()> {
            let said = scene.host.journal(&["--unit=vmdrain-hold.service"])?;
            let line = format!("the system state is \"{state}\"; the job list cannot be read");
            ensure!(
                said.contains(&line) && said.contains("the state alone decides"),
                "the stop job does not say that the state {state} has decided: {said}"
            );
            Ok(())
        };
        let state = scene.host.run(&["systemctl", "is-system-running"])?;
        decided(state.text())?;
        ensure!(scene.cluster.evictions().is_empty(), "somebody has drained");
        let typed = go_down(scene)?;
        let down = scene.wait_down(Duration::from_secs(50))?;
        let said = scene.host.journal(&["--unit=vmdrain-hold.service"])?;
        ensure!(
            said.contains("the system state is \"stopping\"; the job list cannot be read"),
            "the stop job does not say that the state has decided: {said}"
        );
        let tail = scene.went_empty(&down, TAIL)?;
        Ok(format!("{tail}, down {}", seconds(between(typed, down.at))))
    })
}
