//! A host that stays up: its limit, other people's signals and locks, privileges, the bus.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::{between, seconds};
use crate::scene::{Plan, SOON, Scene, play};
use crate::suite::{ALL, Case, Context, Debian, NEWER};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "17",
        name: "our_limit_wins",
        on: ALL,
        limit: 120,
        run: our_limit_wins,
    },
    Case {
        number: "17",
        name: "a_limit_of_infinity",
        on: ALL,
        limit: 60,
        run: infinity,
    },
    Case {
        number: "17",
        name: "a_limit_of_zero",
        on: ALL,
        limit: 60,
        run: zero,
    },
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
    Case {
        number: "28",
        name: "a_reload_keeps_the_lock",
        on: ALL,
        limit: 60,
        run: reload,
    },
    Case {
        number: "27",
        name: "the_units_are_clean_and_confined",
        on: ALL,
        limit: 60,
        run: confined,
    },
];

/// What `status` says is wrong with the hold.
fn trouble(scene: &Scene) -> anyhow::Result<String> {
    let status = scene.status()?;
    Ok(status["hold"]["trouble"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

/// logind reads its configuration again, as the packages make it.
fn reload_logind(scene: &Scene) -> anyhow::Result<()> {
    scene.types_well(&["systemctl", "kill", "--signal=HUP", "systemd-logind"])?;
    Ok(())
}

/// unattended-upgrades and kubelet have files of their own; ours wins, and when it is taken away that is noticed.
fn our_limit_wins(context: &Context) -> anyhow::Result<String> {
    // Each minute by default, which one of the versions waits for.
    let usual = context.root.debian == Debian::Thirteen;
    let plan = Plan::moving(3.0);
    let plan = if usual { plan } else { often(plan) };
    let plan = plan
        .limit("")
        .file(
            "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf",
            "[Login]\nInhibitDelayMaxSec=30\n",
        )
        .file(
            "/etc/systemd/logind.conf.d/99-kubelet.conf",
            "[Login]\nInhibitDelayMaxSec=60\n",
        );
    play(context, &plan, |scene| {
        let limit = scene.login1("InhibitDelayMaxUSec")?;
        ensure!(limit == "t 2700000000", "logind's limit is {limit}");
        ensure!(
            scene.status()?["hold"]["limit"] == 2700.0,
            "the agent sees another limit"
        );
        ensure!(
            trouble(scene)?.is_empty(),
            "a good limit is called bad: {}",
            trouble(scene)?
        );
        scene.host.link(
            "/etc/systemd/logind.conf.d/zz-vmdrain-agent.conf",
            "/dev/null",
        )?;
        let since = scene.now();
        reload_logind(scene)?;
        scene.wait(
            "the agent notices the smaller limit",
            Duration::from_secs(70),
            || Ok(scene.status()?["hold"]["limit"] == 30.0),
        )?;
        let noticed = between(since, scene.now());
        let said = trouble(scene)?;
        ensure!(
            said.contains("30 s"),
            "a limit of 30 s is no trouble: {said:?}"
        );
        ensure!(
            said.contains("unattended-upgrades-logind-maxdelay.conf"),
            "the file that sets the limit is not named: {said:?}"
        );
        Ok(format!(
            "a smaller limit noticed after {}",
            seconds(noticed)
        ))
    })
}

/// Up to systemd 256 it switches the lock off; from 257 on it means what it says.
fn infinity(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(3.0).limit("infinity"), |scene| {
        let said = trouble(scene)?;
        let bad = context.systemd() <= 256;
        ensure!(
            said.contains("infinity") == bad,
            "on systemd {} `status` says {said:?}",
            context.systemd()
        );
        if bad {
            scene.must_have_said("infinity")?;
        }
        Ok(if bad { "refused loudly" } else { "accepted" }.to_owned())
    })
}

fn zero(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(3.0).limit("0"), |scene| {
        let said = trouble(scene)?;
        ensure!(said.contains("is 0"), "`status` says {said:?}");
        scene.must_have_said("is 0")?;
        let line = scene.property("vmdrain-agent.service", "StatusText")?;
        ensure!(!line.is_empty(), "systemctl status shows nothing");
        Ok(format!("STATUS={line}"))
    })
}

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
        ensure!(
            scene.cluster.asked().is_empty(),
            "a spoofed signal made the agent ask the cluster"
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
        ("d8-shutdown-inhibitor", "inhibit-node-shutdown"),
        ("libvirt-qemu", "own libvirt"),
    ];
    play(context, &often(Plan::moving(3.0)), |scene| {
        for (who, _) in OTHERS {
            other_lock(scene, who, "stands for another one", "/run/others-let-go")?;
        }
        let since = scene.now();
        scene.wait("all of them are named", Duration::from_secs(20), || {
            let warnings = scene.status()?["warnings"].to_string();
            Ok(OTHERS
                .iter()
                .all(|(who, what)| warnings.contains(who) && warnings.contains(what)))
        })?;
        let named = between(since, scene.now());
        for (who, _) in OTHERS {
            scene.must_have_said(who)?;
        }
        scene.types_well(&["touch", "/run/others-let-go"])?;
        scene.wait(
            "the warnings end with their locks",
            Duration::from_secs(20),
            || {
                let warnings = scene.status()?["warnings"].to_string();
                Ok(!OTHERS.iter().any(|(who, _)| warnings.contains(who)))
            },
        )?;
        Ok(format!("named after {}", seconds(named)))
    })
}

/// The agent looks at logind more often than each minute.
fn often(plan: Plan) -> Plan {
    plan.config("[timing.host]\nlimit_poll = \"2s\"\n")
}

/// kubelet's graceful node shutdown: its lock is seen and explained, and ours outlasts it.
fn kubelet_lock(context: &Context) -> anyhow::Result<String> {
    let plan = Plan::moving(5.0);
    // One of the versions waits as long as it usually takes.
    let usual = context.root.debian == Debian::Thirteen;
    let plan = if usual { plan } else { often(plan) };
    play(context, &plan, |scene| {
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
    deaf(context, &Plan::moving(3.0), "dbus")
}

/// The same with dbus-broker.
fn other_bus(context: &Context) -> anyhow::Result<String> {
    let install =
        "dpkg --install /opt/debs/dbus-broker/*.deb && systemctl enable dbus-broker.service";
    let plan = Plan {
        before: Some(install.into()),
        ..Plan::moving(3.0)
    };
    deaf(context, &plan, "dbus-broker")
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

/// SIGHUP changes deadline and log level, costs no lock, and a signal before READY=1 kills nobody.
fn reload(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(3.0), |scene| {
        let old = scene.agent_pid()?;
        scene.host.write(
            "/etc/vmdrain-agent/config.d/60-later.toml",
            "[drain]\ndeadline = \"7m\"\n[log]\nlevel = \"debug\"\n",
        )?;
        scene.types_well(&["systemctl", "reload", "vmdrain-agent"])?;
        scene.wait("the new configuration", SOON, || {
            Ok(scene
                .said("configuration read again")?
                .iter()
                .any(|line| line.contains("drain.deadline")))
        })?;
        scene.host.write(
            "/etc/vmdrain-agent/config.d/70-bad.toml",
            "[drain]\nno_such_key = 1\n",
        )?;
        scene.types_well(&["systemctl", "reload", "vmdrain-agent"])?;
        scene.wait("the bad configuration is refused", SOON, || {
            Ok(!scene.said("the old one stays in force")?.is_empty())
        })?;
        std::fs::remove_file(scene.host.live("/etc/vmdrain-agent/config.d/70-bad.toml"))?;
        ensure!(scene.agent_pid()? == old, "the reload was a restart");
        // A burst of signals from the first moment of a start.
        scene.types_well(&[
            "sh",
            "-c",
            "systemctl restart --no-block vmdrain-agent; for i in 1 2 3 4 5 6 7 8 9 10; do systemctl kill --signal=HUP vmdrain-agent; done",
        ])?;
        scene.wait_unit("vmdrain-agent.service", "active")?;
        let result = scene.property("vmdrain-agent.service", "Result")?;
        ensure!(
            result == "success",
            "after signals during the start the unit's result is {result}"
        );
        let seen = scene.host.seen();
        ensure!(seen.losses() == 0, "the lock was absent: {:?}", seen.lock);
        Ok(format!("{} looks at the lock", seen.looks))
    })
}

/// No unit of ours makes systemd complain, and what the agent may do is little.
fn confined(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(3.0), |scene| {
        let mut found = Vec::new();
        for unit in ["vmdrain-agent.service", "vmdrain-hold.service"] {
            let path = format!("/usr/lib/systemd/system/{unit}");
            let verified = scene
                .host
                .run(&["systemd-analyze", "verify", "--man=no", &path])?;
            let ours: Vec<_> = verified
                .err
                .lines()
                .filter(|line| line.contains("vmdrain") || line.contains("ignoring"))
                .collect();
            ensure!(
                ours.is_empty(),
                "systemd-analyze verify: {}",
                ours.join("\n")
            );
            let text = scene
                .host
                .ask(&["systemd-analyze", "security", "--no-pager", unit])?;
            let level = text
                .lines()
                .find(|line| line.contains("Overall exposure level"));
            let level = level.context("systemd-analyze shows no exposure level")?;
            let number = level
                .split_whitespace()
                .find_map(|word| word.parse::<f64>().ok())
                .with_context(|| format!("no number in {level:?}"))?;
            ensure!(
                number <= 2.0,
                "{unit} has an exposure of {number}, more than 2.0"
            );
            found.push(format!("{unit} {number}"));
        }
        Ok(found.join(", "))
    })
}
