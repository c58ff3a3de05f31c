//! Down and up again, with everything real but the guests.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::super::{between, seconds};
use super::{let_go_in_time, moved_away};
use crate::host::Down;
use crate::suite::{Case, Context, OLDER};
use crate::whole::stage::{Plan, Stage, play};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "w1",
        name: "poweroff_through_the_webhook",
        on: OLDER,
        limit: 240,
        run: poweroff,
    },
    Case {
        number: "w2",
        name: "reboot_gives_the_node_back",
        on: OLDER,
        limit: 300,
        run: reboot,
    },
];

/// From a Ready node to the uncordon.
const GIVEN_BACK: Duration = Duration::from_secs(30);

/// `systemctl WAY`, and the rules of an orderly shutdown.
fn down(stage: &mut Stage, way: &str) -> anyhow::Result<(String, Down)> {
    let typed = stage.types_well(&["systemctl", way])?.typed;
    let down = stage.wait_down(Duration::from_secs(60))?;
    let (measured, empty) = moved_away(stage, typed, &down, 2)?;
    let lock = let_go_in_time(&down, empty)?;
    let evacuations = stage.path("kubevirt.io/v1", "virtualmachineinstancemigrations");
    let evacuations = stage.plane.list(&evacuations)?;
    ensure!(
        evacuations.len() == 2
            && evacuations.iter().all(|one| {
                let made_for = &one["metadata"]["annotations"]["kubevirt.io/evacuationMigration"];
                *made_for == *stage.name
            }),
        "the migrations are not those of KubeVirt's evacuation: {evacuations:?}"
    );
    // The other pod got its SIGTERM only then.
    let other = stage.said("other", "SIGTERM")?;
    let other = other.context("the other pod got no SIGTERM")?;
    ensure!(
        other >= empty,
        "the other pod got SIGTERM {} before the last VM had left",
        seconds(between(other, empty))
    );
    Ok((format!("{measured}, {lock}"), down))
}

fn poweroff(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(3.0), |stage| {
        let (measured, down) = down(stage, "poweroff")?;
        ensure!(!down.reboot, "it was rebooted instead");
        Ok(measured)
    })
}

fn reboot(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(1.0), |stage| {
        let before = stage.chronicle.now().context("there is no node")?.boot_id;
        let (measured, down) = down(stage, "reboot")?;
        ensure!(down.reboot, "the host is off");
        let booted = stage.boot()?;
        stage.wait("the node is given back", GIVEN_BACK, || {
            Ok(stage.chronicle.now().is_some_and(|node| !node.cordoned))
        })?;
        let node = stage.chronicle.now().context("there is no node")?;
        ensure!(
            node.ready && node.boot_id != before,
            "not Ready in a new boot: {node:?}"
        );
        ensure!(
            node.takes_vms,
            "given back before it could take a VM: {node:?}"
        );
        ensure!(
            !node.ours,
            "the agent's mark is still on the node: {node:?}"
        );
        stage.wait_held()?;
        ensure!(
            stage.chronicle.uncordons() == 1,
            "given back {} times",
            stage.chronicle.uncordons()
        );
        Ok(format!(
            "{measured}; given back {} after PID 1",
            seconds(between(booted, node.at))
        ))
    })
}
