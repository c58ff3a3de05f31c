//! Other people's signals, locks and buses.

use std::time::Duration;

use anyhow::ensure;

use super::{between, often, seconds};
use crate::plan::Plan;
use crate::scene::{Scene, play};
use crate::suite::{ALL, Case, Context, Debian, NEWER};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "21",
        name: "a_spoofed_signal",
        on: ALL,
        limit: 60,
        run: spoofed,
    },
    Case {
        number: "22",
        name: "the_kubelet_holds_a_lock_too",
        on: ALL,
        limit: 110,
        run: kubelet_lock,
    },
    Case {
        number: "22",
        name: "others_who_touch_vms",
        on: ALL,
        limit: 60,
        run: other_holders,
    },
    Case {
        number: "15",
        name: "the_bus_is_restarted",
        on: &[Debian::Twelve],
        limit: 60,
        run: bus_restart,
    },
    Case {
        number: "15",
        name: "the_bus_is_restarted_and_logind_stays_deaf",
        on: NEWER,
        limit: 120,
        run: deaf_logind,
    },
    Case {
        number: "15",
        name: "the_other_bus_is_restarted",
        on: &[Debian::Thirteen],
        limit: 120,
        run: other_bus,
    },
];

/// Anybody may send a signal that looks like logind's.
fn spoofed(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(3.0), |scene| {
        for words in [
            &["PrepareForShutdown", "b", "true"][..],
            &["PrepareForShutdown"],
            &["PrepareForShutdown", "s", "true"],
            &[
                "PrepareForShutdownWithMetadata",
                "ba{sv}",
                "true",
                "1",
                "type",
                "s",
                "poweroff",
            ],
        ] {
            let mut all = vec![
                "setpriv",
                "--reuid=daemon",
                "--clear-groups",
                "busctl",
                "emit",
            ];
            all.extend(["/org/freedesktop/login1", "org.freedesktop.login1.Manager"]);
            all.extend(words);
            scene.types_well(&all)?;
        }
        let pause = scene.now() + Duration::from_secs(2);
        scene.patience.until(pause)?;
        // Events about the hold are no drain.
        let mut asked = scene.cluster.asked();
        asked.retain(|entry| entry.resource != "events" && entry.verb != "get");
        ensure!(
            asked.is_empty(),
            "a spoofed signal made the agent ask the cluster: {asked:?}"
        );
        ensure!(
            scene.status()?["state"] == "idle",
            "a spoofed signal began a drain"
        );
        Ok("four signals ignored".into())
    })
}

/// Somebody else's delay lock, held until this file exists.
fn other_lock(scene: &Scene, who: &str, why: &str, until: &str) -> anyhow::Result<()> {
    scene.types(&[
        "systemd-inhibit",
        "--what=shutdown",
        "--mode=delay",
        &format!("--who={who}"),
        &format!("--why={why}"),
        "sh",
        "-c",
        &format!("until [ -e {until} ]; do sleep 0.05; done"),
    ])?;
    Ok(())
}

/// Each of those that act on VMs, or hold the host for them, is named with what it does.
fn other_holders(context: &Context) -> anyhow::Result<String> {
    const OTHERS: [(&str, &str); 3] = [
        ("vm-shutdown-hook", "powers every guest off"),
        ("Deckhouse node-manager", "inhibit-node-shutdown"),
        ("Libvirt", "own libvirt"),
    ];
    const UNIT: &str = "libvirt-guests.service";
    let stands = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=true\n";
    let plan = often(Plan::moving(3.0)).file(&format!("/etc/systemd/system/{UNIT}"), stands);
    play(context, &plan, |scene| {
        ensure!(
            !scene.status()?["warnings"].to_string().contains(UNIT),
            "a unit that was never started is named"
        );
        scene.types_well(&["systemctl", "start", UNIT])?;
        for (who, _) in OTHERS {
            other_lock(scene, who, "stands for another one", "/run/others-let-go")?;
        }
        let since = scene.now();
        scene.wait("all of them are named", Duration::from_secs(20), || {
            let warnings = scene.status()?["warnings"].to_string();
            Ok(warnings.contains(UNIT)
                && OTHERS
                    .iter()
                    .all(|(who, what)| warnings.contains(who) && warnings.contains(what)))
        })?;
        let named = between(since, scene.now());
        for (who, _) in OTHERS {
            scene.must_have_said(who)?;
        }
        let table = scene.host.ask(&["vmdrain-agent", "status"])?;
        ensure!(
            table.contains("libvirt-guests.service acts on a shutdown as well"),
            "the table does not name the unit: {table}"
        );
        scene.types_well(&["touch", "/run/others-let-go"])?;
        scene.types_well(&["systemctl", "stop", UNIT])?;
        scene.wait(
            "the warnings end with their locks",
            Duration::from_secs(20),
            || {
                let warnings = scene.status()?["warnings"].to_string();
                Ok(!warnings.contains(UNIT)
                    && !OTHERS.iter().any(|(who, _)| warnings.contains(who)))
            },
        )?;
        Ok(format!("named after {}", seconds(named)))
    })
}

/// kubelet's graceful node shutdown: its lock is seen and explained, and ours outlasts it.
fn kubelet_lock(context: &Context) -> anyhow::Result<String> {
    play(context, &often(Plan::moving(5.0)), |scene| {
        other_lock(
            scene,
            "kubelet",
            "Kubelet needs time to handle node shutdown",
            "/run/kubelet-lets-go",
        )?;
        let since = scene.now();
        scene.wait(
            "status warns about kubelet",
            Duration::from_secs(70),
            || Ok(scene.status()?["warnings"].to_string().contains("kubelet")),
        )?;
        let noticed = between(since, scene.now());
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait_evicting()?;
        scene.types_well(&["touch", "/run/kubelet-lets-go"])?;
        let down = scene.wait_down(Duration::from_secs(30))?;
        Ok(format!(
            "warned after {}; {}",
            seconds(noticed),
            super::delay::in_order(scene, typed, &down)?
        ))
    })
}

/// 252: systemd starts logind anew when the bus is; the agent comes back by itself.
fn bus_restart(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(3.0), |scene| {
        let since = scene.types_well(&["systemctl", "restart", "dbus"])?.typed;
        scene.wait(
            "the agent is back on the bus",
            Duration::from_secs(20),
            || {
                Ok(scene
                    .status()
                    .is_ok_and(|status| status["hold"]["held"] == true))
            },
        )?;
        let back = between(since, scene.now());
        ensure!(
            scene.host.seen().losses() == 0,
            "the lock was absent: {:?}",
            scene.host.seen().lock
        );
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        let down = scene.wait_down(Duration::from_secs(30))?;
        Ok(format!(
            "back after {}; {}",
            seconds(back),
            super::delay::in_order(scene, typed, &down)?
        ))
    })
}

/// 253 and later: logind stays off the bus until it is restarted. The agent has to say so; the lock is there all the time.
fn deaf_logind(context: &Context) -> anyhow::Result<String> {
    // One of the versions waits as long as it usually takes.
    let usual = context.root.debian == Debian::Thirteen;
    let plan = Plan::moving(3.0);
    let plan = if usual { plan } else { impatient(plan) };
    deaf(context, &plan, "dbus")
}

/// The same with dbus-broker.
fn other_bus(context: &Context) -> anyhow::Result<String> {
    let install =
        "dpkg --install /opt/debs/dbus-broker/*.deb && systemctl enable dbus-broker.service";
    let plan = Plan {
        before: Some(install.into()),
        ..impatient(Plan::moving(3.0))
    };
    deaf(context, &plan, "dbus-broker")
}

/// A silent logind is told sooner than after half a minute.
fn impatient(plan: Plan) -> Plan {
    plan.config("[timing]\nhold_patience = \"5s\"\n")
}

fn deaf(context: &Context, plan: &Plan, bus: &str) -> anyhow::Result<String> {
    play(context, plan, |scene| {
        scene.wait_unit(&format!("{bus}.service"), "active")?;
        let since = scene.types_well(&["systemctl", "restart", bus])?.typed;
        scene.wait(
            "the agent says that logind is gone",
            Duration::from_secs(45),
            || {
                Ok(scene
                    .said("systemd-logind")?
                    .iter()
                    .any(|line| line.contains("restart")))
            },
        )?;
        let said = between(since, scene.now());
        ensure!(
            scene.host.seen().losses() == 0,
            "the lock was absent: {:?}",
            scene.host.seen().lock
        );
        scene.types_well(&["systemctl", "restart", "systemd-logind"])?;
        scene.wait(
            "the hold is confirmed again",
            Duration::from_secs(40),
            || {
                Ok(scene
                    .status()
                    .is_ok_and(|status| status["hold"]["held"] == true))
            },
        )?;
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        let down = scene.wait_down(Duration::from_secs(30))?;
        Ok(format!(
            "said after {}; {}",
            seconds(said),
            super::delay::in_order(scene, typed, &down)?
        ))
    })
}
