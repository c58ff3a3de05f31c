//! The units themselves: reloads, and how little they may do.

use anyhow::{Context as _, ensure};

use crate::plan::Plan;
use crate::scene::{SOON, play};
use crate::suite::{ALL, Case, Context};

pub(super) const CASES: &[Case] = &[
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
