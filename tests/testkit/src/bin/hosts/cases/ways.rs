//! The ways in which a shutdown is asked for: those that logind delays, and those that pass it by.

use std::time::Duration;

use anyhow::ensure;

use super::delay::{TAIL, in_order};
use super::{between, seconds};
use crate::plan::Plan;
use crate::scene::{Scene, play};
use crate::suite::{ALL, Case, Context, NEWER, OLDER};

pub(super) const CASES: &[Case] = &[
    way("reboot", ALL, |c| delayed(c, &["reboot"], "reboot")),
    way("shutdown_now", ALL, |c| {
        delayed(c, &["shutdown", "-h", "now"], "poweroff")
    }),
    way("shutdown_plus_0", ALL, |c| {
        delayed(c, &["shutdown", "-r", "+0"], "reboot")
    }),
    way("poweroff_ignoring_inhibitors", ALL, |c| {
        delayed(c, &["systemctl", "poweroff", "-i"], "poweroff")
    }),
    way("poweroff_checking_inhibitors", ALL, |c| {
        delayed(
            c,
            &["systemctl", "poweroff", "--check-inhibitors=yes"],
            "poweroff",
        )
    }),
    way("halt", ALL, |c| delayed(c, &["systemctl", "halt"], "halt")),
    way("dbus_reboot", ALL, dbus_reboot),
    way("init_0", OLDER, |c| delayed(c, &["init", "0"], "poweroff")),
    way(
        "varlink_reboot",
        &[crate::suite::Debian::Sid],
        varlink_reboot,
    ),
    Case {
        number: "4",
        name: "a_target_started_past_logind",
        on: ALL,
        limit: 60,
        run: target,
    },
    Case {
        number: "4",
        name: "a_target_started_in_mid_delay",
        on: ALL,
        limit: 60,
        run: target_in_mid_delay,
    },
    Case {
        number: "5",
        name: "ctrl_alt_del",
        on: ALL,
        limit: 60,
        run: |c| signalled(c, "INT"),
    },
    Case {
        number: "5",
        name: "a_container_manager_powers_off",
        on: ALL,
        limit: 60,
        run: |c| signalled(c, "RTMIN+4"),
    },
    Case {
        number: "5",
        name: "forced_once_runs_no_stop_job",
        on: ALL,
        limit: 60,
        run: forced_once,
    },
    Case {
        number: "5",
        name: "forced_twice_asks_nobody",
        on: ALL,
        limit: 60,
        run: forced_twice,
    },
    Case {
        number: "24",
        name: "soft_reboot",
        on: NEWER,
        limit: 90,
        run: super::boots::soft_reboot,
    },
];

const fn way(
    name: &'static str,
    on: &'static [crate::suite::Debian],
    run: fn(&Context) -> anyhow::Result<String>,
) -> Case {
    Case {
        number: "3",
        name,
        on,
        limit: 60,
        run,
    }
}

/// One VM that needs about 3 s.
fn quick() -> Plan {
    Plan {
        story: crate::plan::vms("migration_time = \"400ms\""),
        ..Plan::moving(0.0)
    }
}

/// Whatever is typed: the VM leaves first, and the agent knows the kind where logind tells it (255 and later).
fn delayed(context: &Context, words: &[&str], kind: &str) -> anyhow::Result<String> {
    play(context, &quick(), |scene| {
        // Some of these are cut off by the shutdown that they ask for, so their exit code says nothing.
        let typed = scene.types(words)?.typed;
        let down = scene.wait_down(Duration::from_secs(30))?;
        ensure!(
            down.reboot == (kind == "reboot"),
            "asked for {kind}, but the host {}",
            if down.reboot { "reboots" } else { "is off" }
        );
        if context.systemd() >= 255 {
            scene.must_have_said(&format!("the host is going down ({kind})"))?;
        }
        in_order(scene, typed, &down)
    })
}

fn dbus_reboot(context: &Context) -> anyhow::Result<String> {
    let words = [
        "busctl",
        "call",
        "org.freedesktop.login1",
        "/org/freedesktop/login1",
        "org.freedesktop.login1.Manager",
        "Reboot",
        "b",
        "false",
    ];
    delayed(context, &words, "reboot")
}

fn varlink_reboot(context: &Context) -> anyhow::Result<String> {
    let words = [
        "varlinkctl",
        "call",
        "/run/systemd/io.systemd.Login",
        "io.systemd.Shutdown.Reboot",
        "{}",
    ];
    delayed(context, &words, "reboot")
}

/// What the stop job has to do on a host that goes down past logind: drain while everything else lives on.
fn by_stop_job(scene: &mut Scene, typed: Duration) -> anyhow::Result<String> {
    let down = scene.wait_down(Duration::from_secs(50))?;
    let measured = scene.went_empty(&down, TAIL)?;
    let sight = scene.cluster.sight();
    ensure!(
        sight.uncordons() == 0,
        "the node was given back while the host went down"
    );
    scene.nothing_twice()?;
    // Services that need the cluster, the bus and the kubelet stop only after the last VM has left.
    let clock = super::wall(scene, sight.empty_at.unwrap_or_default());
    for service in ["kubelet", "containerd", "dbus"] {
        let unit = format!("--unit={service}.service");
        let stopped = stopped_at(&scene.host.journal(&[&unit])?);
        if let Some(stopped) = stopped {
            ensure!(
                stopped >= clock,
                "{service} was stopped {:.2} s before the last VM left",
                clock - stopped
            );
        } else {
            ensure!(
                service == "dbus",
                "the journal does not tell when {service} was stopped"
            );
        }
    }
    Ok(format!(
        "VMs gone {}, {measured}, down {}",
        seconds(between(typed, sight.empty_at.unwrap_or_default())),
        seconds(between(typed, down.at))
    ))
}

/// The last `Stopping …` of a unit's journal, in Unix time.
fn stopped_at(journal: &str) -> Option<f64> {
    let line = journal.lines().rfind(|line| line.contains("Stopping "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// `systemctl start poweroff.target`: logind is not asked, the stop job drains.
fn target(context: &Context) -> anyhow::Result<String> {
    play(context, &quick(), |scene| {
        scene.wait_unit("vmdrain-hold.service", "active")?;
        let typed = scene
            .types_well(&["systemctl", "start", "--no-block", "poweroff.target"])?
            .typed;
        by_stop_job(scene, typed)
    })
}

/// The same while logind already waits: the drain goes on where it was.
fn target_in_mid_delay(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(6.0), |scene| {
        scene.wait_unit("vmdrain-hold.service", "active")?;
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait_evicting()?;
        let pause = scene.now() + Duration::from_secs(1);
        scene.patience.until(pause)?;
        scene.types_well(&["systemctl", "start", "--no-block", "poweroff.target"])?;
        by_stop_job(scene, typed)
    })
}

fn signalled(context: &Context, signal: &str) -> anyhow::Result<String> {
    play(context, &quick(), |scene| {
        scene.wait_unit("vmdrain-hold.service", "active")?;
        let typed = scene.host.signal_pid1(signal)?.typed;
        by_stop_job(scene, typed)
    })
}

/// `--force`: no stop job. The agent must not be what the host waits for.
fn forced_once(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(60.0), |scene| {
        let typed = scene.types(&["systemctl", "poweroff", "--force"])?.typed;
        let down = scene.wait_down(Duration::from_secs(20))?;
        let took = between(typed, down.at);
        ensure!(
            took < Duration::from_secs(4),
            "a forced power-off took {}",
            seconds(took)
        );
        ensure!(scene.cluster.evictions().is_empty(), "somebody has drained");
        Ok(format!("down {}", seconds(took)))
    })
}

fn forced_twice(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(60.0), |scene| {
        let typed = scene.types(&["poweroff", "-f", "-f"])?.typed;
        let down = scene.wait_down(Duration::from_secs(20))?;
        let took = between(typed, down.at);
        ensure!(took < Duration::from_secs(3), "it took {}", seconds(took));
        Ok(format!("down {}", seconds(took)))
    })
}
