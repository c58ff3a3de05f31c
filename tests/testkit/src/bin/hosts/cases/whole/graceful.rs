//! The kubelet's own reaction to a shutdown: graceful node shutdown.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::super::{between, seconds};
use crate::suite::{Case, Context, Debian, OLDER};
use crate::whole::stage::{Plan, Stage, play};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "w5",
        name: "the_kubelet_races_us",
        on: OLDER,
        limit: 240,
        run: race,
    },
    Case {
        number: "w6",
        name: "a_restarted_kubelet_starts_nothing",
        on: OLDER,
        limit: 240,
        run: restarted,
    },
    Case {
        number: "w7",
        name: "not_ready_after_a_cancelled_shutdown",
        on: &[Debian::Thirteen],
        limit: 240,
        run: cancelled,
    },
];

/// The agent looks at logind every 2 s in these cases.
const NOTICED: Duration = Duration::from_secs(30);
/// Both get the signal at the same moment.
const AT_ONCE: Duration = Duration::from_secs(15);

/// The warning about the kubelet is there before anything happens.
fn warned(stage: &Stage) -> anyhow::Result<()> {
    stage.wait("the agent warns of the kubelet", NOTICED, || {
        Ok(stage.status()?["warnings"]
            .to_string()
            .contains("shutdownGracePeriod"))
    })?;
    Ok(())
}

/// The kubelet ends the launchers while we want to move their VMs: said before, and told as what it was.
fn race(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(30.0).graceful(20), |stage| {
        warned(stage)?;
        let typed = stage.types_well(&["systemctl", "poweroff"])?.typed;
        let not_ready = stage.wait("the kubelet says that it ends", AT_ONCE, || {
            let node = stage.chronicle.now();
            Ok(node.is_some_and(|node| node.message.contains("node is shutting down")))
        })?;
        let down = stage.wait_down(Duration::from_secs(60))?;
        let killed = stage.killed();
        ensure!(killed.is_empty(), "guests lost their memory: {killed:?}");
        for vm in ["db", "web"] {
            let told = format!("{}/{vm}: stopped by kubelet, not by this drain", stage.name);
            ensure!(
                !stage.journal("vmdrain-agent.service", &told)?.is_empty(),
                "the agent does not tell of {vm} that the kubelet has stopped it"
            );
        }
        let end = "2 of them were stopped by others, not moved";
        ensure!(
            !stage.journal("vmdrain-agent.service", end)?.is_empty(),
            "the agent takes this for a drain that worked"
        );
        Ok(format!(
            "kubelet reacted {} after the command, down {}",
            seconds(between(typed, not_ready)),
            seconds(between(typed, down.at))
        ))
    })
}

/// A kubelet that is restarted in the middle of the delay has forgotten the shutdown and says Ready: only our cordon is left.
fn restarted(context: &Context) -> anyhow::Result<String> {
    let mut plan = Plan::moving(30.0).graceful(20);
    for vm in &mut plan.vms {
        vm.shutdown = Duration::from_secs(16);
    }
    play(context, &plan, |stage| {
        let typed = stage.types_well(&["systemctl", "poweroff"])?.typed;
        stage.wait("the kubelet says that it ends", AT_ONCE, || {
            let node = stage.chronicle.now();
            Ok(node.is_some_and(|node| !node.ready && node.cordoned))
        })?;
        stage.wait("the launchers get SIGTERM", AT_ONCE, || {
            Ok(stage.terminating() == 2)
        })?;
        stage.types_well(&["systemctl", "restart", "kubelet"])?;
        let ready = stage.wait("the new kubelet says Ready", NOTICED, || {
            Ok(stage.chronicle.now().is_some_and(|node| node.ready))
        })?;
        let before = stage.containers();
        stage.add_pod("late", 0)?;
        let late = format!("{}/late", stage.pods());
        stage.wait("the scheduler refuses the late pod", NOTICED, || {
            let pod = stage.plane.get(&late)?.unwrap_or_default();
            let refused = pod["status"]["conditions"].to_string();
            Ok(refused.contains("Unschedulable"))
        })?;
        ensure!(
            stage.host.seen().is_locked(),
            "the delay was over before the kubelet was back: this shows nothing"
        );
        ensure!(
            stage.containers() <= before,
            "a container was started on a host that goes down"
        );
        let down = stage.wait_down(Duration::from_secs(90))?;
        let pod = stage.plane.get(&late)?.context("the late pod is gone")?;
        ensure!(
            pod["spec"]["nodeName"].is_null(),
            "the late pod was sent here: {}",
            pod["status"]
        );
        let killed = stage.killed();
        ensure!(killed.is_empty(), "guests lost their memory: {killed:?}");
        Ok(format!(
            "Ready again {} after the command, nothing started, down {}",
            seconds(between(typed, ready)),
            seconds(between(typed, down.at))
        ))
    })
}

/// 257: the shutdown is called off, and the kubelet stays NotReady for ever. The agent says so, with the cure, which works.
fn cancelled(context: &Context) -> anyhow::Result<String> {
    let mut plan = Plan::moving(30.0).graceful(20);
    for vm in &mut plan.vms {
        vm.shutdown = Duration::from_secs(12);
    }
    play(context, &plan, |stage| {
        stage.types_well(&["systemctl", "poweroff"])?;
        stage.wait("the kubelet says that it ends", AT_ONCE, || {
            let node = stage.chronicle.now();
            Ok(node.is_some_and(|node| !node.ready && node.cordoned))
        })?;
        let called_off = stage.types_well(&["shutdown", "-c"])?.typed;
        stage.wait("the node is given back", Duration::from_secs(40), || {
            Ok(stage.chronicle.now().is_some_and(|node| !node.cordoned))
        })?;
        stage.wait("the cure is told", NOTICED, || {
            let said = stage.journal("vmdrain-agent.service", "systemctl restart kubelet")?;
            Ok(!said.is_empty())
        })?;
        let status = stage.status()?.to_string();
        ensure!(
            status.contains("systemctl restart kubelet"),
            "status does not tell the cure: {status}"
        );
        let node = stage.chronicle.now().context("the node is gone")?;
        ensure!(
            !node.ready && node.message.contains("node is shutting down"),
            "the kubelet is not stuck: this shows nothing ({node:?})"
        );
        let told = stage.now();
        stage.types_well(&["systemctl", "restart", "kubelet"])?;
        let cured = stage.wait("the node is Ready again", NOTICED, || {
            Ok(stage.chronicle.now().is_some_and(|node| node.ready))
        })?;
        ensure!(
            stage.host.seen().is_locked(),
            "the agent does not hold the host again"
        );
        Ok(format!(
            "told {} after the cancel, Ready {} after the restart",
            seconds(between(called_off, told)),
            seconds(between(told, cured))
        ))
    })
}
