//! logind's limit: who sets it, what it means, and what the agent says when it is bad.

use std::time::Duration;

use anyhow::ensure;

use super::{between, often, seconds};
use crate::plan::Plan;
use crate::scene::{Scene, play};
use crate::suite::{ALL, Case, Context, Debian};

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
        // A file of the same name takes the place of the package's.
        scene.host.write(
            "/etc/systemd/logind.conf.d/zz-vmdrain-agent.conf",
            "[Login]\n",
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
