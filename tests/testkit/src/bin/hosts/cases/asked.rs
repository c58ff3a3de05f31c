//! Net 1: `vmdrain-agent poweroff` and its kin drain first and ask logind afterwards.

use std::time::Duration;

use anyhow::ensure;

use super::delay::TAIL;
use super::{between, seconds};
use crate::plan::Plan;
use crate::scene::{SOON, play};
use crate::suite::{ALL, Case, Context, NEWER};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "n1",
        name: "drain_then_poweroff",
        on: ALL,
        limit: 60,
        run: |c| then(c, "poweroff", false),
    },
    Case {
        number: "n1",
        name: "drain_then_reboot",
        on: ALL,
        limit: 60,
        run: |c| then(c, "reboot", true),
    },
    Case {
        number: "n1",
        name: "drain_then_halt",
        on: NEWER,
        limit: 60,
        run: |c| then(c, "halt", false),
    },
    Case {
        number: "n1",
        name: "a_block_lock_is_respected",
        on: ALL,
        limit: 90,
        run: blocked,
    },
];

fn then(context: &Context, kind: &str, reboot: bool) -> anyhow::Result<String> {
    play(context, &Plan::moving(4.0), |scene| {
        let typed = scene
            .types(&["vmdrain-agent", kind, "--reason", "new memory"])?
            .typed;
        let cordoned = between(typed, scene.wait_cordoned()?);
        ensure!(
            scene.login1("PreparingForShutdown")? == "b false",
            "logind was asked before the VMs had left"
        );
        let down = scene.wait_down(Duration::from_secs(40))?;
        ensure!(down.reboot == reboot, "another kind of shutdown");
        let tail = scene.went_empty(&down, TAIL)?;
        scene.nothing_twice()?;
        Ok(format!(
            "cordon {}, {tail}, down {}",
            seconds(cordoned),
            seconds(between(typed, down.at))
        ))
    })
}

/// Somebody forbids shutdowns: the node is drained, the host stays up, and it is said who forbids it. systemd 252 would let root pass.
fn blocked(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(3.0), |scene| {
        let _blocker = scene.types(&[
            "systemd-inhibit",
            "--what=shutdown",
            "--mode=block",
            "--who=backup",
            "--why=the nightly backup runs",
            "sleep",
            "600",
        ])?;
        scene.wait("the block lock", SOON, || {
            Ok(scene
                .host
                .ask(&["systemd-inhibit", "--list", "--no-pager"])?
                .contains("backup"))
        })?;
        let answer = scene.host.run(&["vmdrain-agent", "reboot"])?;
        let said = format!("{}{}", answer.out, answer.err);
        ensure!(
            !answer.status.success(),
            "it says that it has rebooted the host"
        );
        ensure!(
            said.contains("backup"),
            "it does not say who forbids it: {said}"
        );
        ensure!(scene.host.is_up(), "the host went down");
        ensure!(
            scene.login1("PreparingForShutdown")? == "b false",
            "a shutdown is under way"
        );
        ensure!(
            scene.cluster.sight().guests == 0,
            "the node was not drained"
        );
        Ok(format!("refused after {}", seconds(answer.took)))
    })
}
