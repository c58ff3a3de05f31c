//! The stop job: its limits, its daemon being dead, and what it keeps alive meanwhile.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::delay::TAIL;
use super::{between, seconds, wall};
use crate::plan::Plan;
use crate::scene::{Scene, play};
use crate::suite::{ALL, Case, Context};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "23",
        name: "the_target_runs_out_of_patience",
        on: ALL,
        limit: 90,
        run: job_timeout,
    },
    Case {
        number: "23",
        name: "the_stop_job_keeps_systemd_informed",
        on: ALL,
        limit: 90,
        run: extends,
    },
    Case {
        number: "4",
        name: "a_dead_daemon_and_the_stop_job",
        on: ALL,
        limit: 90,
        run: dead_daemon,
    },
    Case {
        number: "4",
        name: "containers_outlive_the_stop_job",
        on: ALL,
        limit: 90,
        run: |c| containers(c, true),
    },
    Case {
        number: "4",
        name: "containers_around_a_reload_end_together",
        on: ALL,
        limit: 90,
        run: mixed,
    },
    Case {
        number: "4",
        name: "containers_die_without_the_drop_in",
        on: ALL,
        limit: 90,
        run: |c| containers(c, false),
    },
    Case {
        number: "6",
        name: "stopping_the_stop_job_drains_nothing",
        on: ALL,
        limit: 60,
        run: stopped_by_hand,
    },
];

/// The shutdown targets have a limit of their own, 30 minutes; here 6 s. The agent says what was left.
fn job_timeout(context: &Context) -> anyhow::Result<String> {
    // By policy nobody is shut down: else the host would be empty before.
    let plan = Plan::moving(60.0)
        .config("[drain]\non_deadline = \"proceed\"\n")
        .file(
            "/etc/systemd/system/poweroff.target.d/case.conf",
            "[Unit]\nJobTimeoutSec=6s\n",
        );
    play(context, &plan, |scene| {
        scene.wait_unit("vmdrain-hold.service", "active")?;
        let typed = go_down(scene)?;
        let down = scene.wait_down(Duration::from_secs(40))?;
        let took = between(typed, down.at);
        // The stop job ends in time by itself, or systemd ends it; either way not much later.
        ensure!(
            took >= Duration::from_secs(4) && took <= Duration::from_secs(20),
            "with a limit of 6 s the host was down after {}",
            seconds(took)
        );
        let said = scene.host.journal(&["--unit=vmdrain-hold.service"])?;
        ensure!(
            said.contains("2 VM") && said.contains("left"),
            "the stop job does not say what it left: {said}"
        );
        Ok(format!("down {} with a limit of 6 s", seconds(took)))
    })
}

/// Four seconds are allowed, the drain takes ten: the stop job says that it is at work, and systemd waits.
fn extends(context: &Context) -> anyhow::Result<String> {
    let plan = Plan::moving(9.0).file(
        "/etc/systemd/system/vmdrain-hold.service.d/case.conf",
        "[Service]\nTimeoutStopSec=4s\n",
    );
    play(context, &plan, |scene| {
        scene.wait_unit("vmdrain-hold.service", "active")?;
        let typed = go_down(scene)?;
        let down = scene.wait_down(Duration::from_secs(50))?;
        let tail = scene.went_empty(&down, TAIL)?;
        Ok(format!("{tail}, down {}", seconds(between(typed, down.at))))
    })
}

/// The daemon is dead and cannot be started: the stop job drains by itself.
fn dead_daemon(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(4.0), |scene| {
        scene.wait_unit("vmdrain-hold.service", "active")?;
        scene.types_well(&["systemctl", "mask", "--runtime", "vmdrain-agent"])?;
        scene.types_well(&["systemctl", "stop", "vmdrain-agent"])?;
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        let down = scene.wait_down(Duration::from_secs(40))?;
        let tail = scene.went_empty(&down, TAIL)?;
        Ok(format!("{tail}, down {}", seconds(between(typed, down.at))))
    })
}

/// A container's scope as runc makes it: no default dependencies, below a slice that has them. The process writes down when it
/// gets its SIGTERM.
pub(super) fn container(scene: &Scene, id: &str) -> anyhow::Result<String> {
    let unit = format!("cri-containerd-{id}.scope");
    let inside = format!(
        "trap 'cat /proc/uptime >/var/log/ended-{id}; exit 0' TERM; while :; do sleep 0.05; done"
    );
    // What runs in the scope is this command itself, moved there: it goes on when its caller is gone.
    scene.types(&[
        "systemd-run",
        "--scope",
        "--collect",
        "--quiet",
        &format!("--unit={unit}"),
        &format!("--slice=kubepods-pod{id}.slice"),
        "--property=DefaultDependencies=no",
        "sh",
        "-c",
        &inside,
    ])?;
    scene.wait_unit(&unit, "active")?;
    Ok(unit)
}

/// When a container got SIGTERM, in Unix time.
fn ended(scene: &Scene, id: &str, offset: f64) -> anyhow::Result<f64> {
    let text = scene.host.read(&format!("/var/log/ended-{id}"));
    let text = text.context("the container got no SIGTERM")?;
    let uptime: f64 = text.split_whitespace().next().unwrap_or_default().parse()?;
    Ok(uptime + offset)
}

/// A container's scope gets SIGTERM after the stop job with the drop-in, and at once without it.
fn containers(context: &Context, protected: bool) -> anyhow::Result<String> {
    const DROP_IN: &str = "/etc/systemd/system/cri-containerd-.scope.d/50-vmdrain-agent.conf";
    let plan = Plan::moving(4.0);
    let plan = if protected {
        plan
    } else {
        plan.file(DROP_IN, "")
    };
    play(context, &plan, |scene| {
        scene.wait_unit("vmdrain-hold.service", "active")?;
        container(scene, "0a")?;
        // The slice has the default dependencies that pull its containers down with it.
        let conflicts = scene.property("kubepods-pod0a.slice", "Conflicts")?;
        ensure!(
            conflicts.contains("shutdown.target"),
            "the slice stands outside a shutdown: {conflicts:?}"
        );
        let offset = uptime_offset(scene)?;
        let typed = go_down(scene)?;
        scene.wait_down(Duration::from_secs(50))?;
        let ended = ended(scene, "0a", offset)?;
        let after = ended - wall(scene, typed);
        if protected {
            let empty = empty_at(scene)?;
            ensure!(
                ended >= empty,
                "the container got SIGTERM before the last VM had left, {after:.2} s after the command"
            );
        } else {
            ensure!(
                after < 2.0,
                "without the drop-in the container lived for {after:.2} s: this case proves nothing"
            );
        }
        Ok(format!("SIGTERM {after:.2} s after the command"))
    })
}

/// Containers from before and after a `daemon-reload` end together: neither group waits for the final kill.
fn mixed(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(4.0), |scene| {
        scene.wait_unit("vmdrain-hold.service", "active")?;
        container(scene, "0a")?;
        scene.types_well(&["systemctl", "daemon-reload"])?;
        container(scene, "0b")?;
        let offset = uptime_offset(scene)?;
        let typed = go_down(scene)?;
        scene.wait_down(Duration::from_secs(50))?;
        let (old, new) = (ended(scene, "0a", offset)?, ended(scene, "0b", offset)?);
        let empty = empty_at(scene)?;
        ensure!(
            old >= empty && new >= empty,
            "a container got SIGTERM before the last VM had left"
        );
        ensure!(
            (old - new).abs() < 0.5,
            "they ended {:.2} s apart",
            (old - new).abs()
        );
        Ok(format!(
            "SIGTERM {:.2} and {:.2} s after the command",
            old - wall(scene, typed),
            new - wall(scene, typed)
        ))
    })
}

/// A shutdown that passes logind by.
pub(super) fn go_down(scene: &Scene) -> anyhow::Result<Duration> {
    let answer = scene.types_well(&["systemctl", "start", "--no-block", "poweroff.target"])?;
    Ok(answer.typed)
}

/// When the last VM had left, in Unix time.
fn empty_at(scene: &Scene) -> anyhow::Result<f64> {
    let sight = scene.cluster.sight();
    let empty = sight.empty_at.filter(|_| sight.guests == 0);
    Ok(wall(
        scene,
        empty.context("the host went down with VMs on it")?,
    ))
}

/// What has to be added to the host's uptime to have Unix time.
fn uptime_offset(scene: &Scene) -> anyhow::Result<f64> {
    let uptime = std::fs::read_to_string("/proc/uptime")?;
    let uptime: f64 = uptime
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .parse()?;
    Ok(wall(scene, scene.now()) - uptime)
}

/// Stopping or restarting the unit on a running host is no shutdown.
fn stopped_by_hand(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(4.0), |scene| {
        scene.wait_unit("vmdrain-hold.service", "active")?;
        let stop = scene.types_well(&["systemctl", "stop", "vmdrain-hold"])?;
        scene.types_well(&["systemctl", "start", "vmdrain-hold"])?;
        scene.types_well(&["systemctl", "restart", "vmdrain-hold"])?;
        let failed = scene.property("vmdrain-hold.service", "Result")?;
        ensure!(failed == "success", "the stop job's result is {failed}");
        ensure!(
            scene.cluster.sight().cordons.is_empty(),
            "the node was cordoned"
        );
        ensure!(scene.cluster.evictions().is_empty(), "somebody has drained");
        ensure!(
            stop.took < Duration::from_secs(3),
            "the stop took {}",
            seconds(stop.took)
        );
        Ok(format!("stopped in {}", seconds(stop.took)))
    })
}
