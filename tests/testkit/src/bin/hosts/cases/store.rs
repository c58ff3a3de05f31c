//! The life of the lock: what restarts, crashes and stops of the agent do to it.

use std::time::Duration;

use anyhow::ensure;

use super::delay::in_order;
use super::{between, seconds};
use crate::plan::Plan;
use crate::scene::{Scene, play};
use crate::suite::{ALL, Case, Context};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "6",
        name: "a_restart_never_drops_the_lock",
        on: ALL,
        limit: 60,
        run: restart,
    },
    Case {
        number: "7",
        name: "a_killed_agent_goes_on",
        on: ALL,
        limit: 90,
        run: killed,
    },
    Case {
        number: "7",
        name: "a_stuck_agent_is_restarted",
        on: ALL,
        limit: 90,
        run: stuck,
    },
    Case {
        number: "7",
        name: "a_crash_loop_lets_go_and_the_stop_job_drains",
        on: ALL,
        limit: 90,
        run: crash_loop,
    },
    Case {
        number: "8",
        name: "a_stopped_agent_lets_go",
        on: ALL,
        limit: 60,
        run: stopped,
    },
];

/// The lock was there at every look. Answers how sharp the looks were.
fn never_absent(scene: &Scene) -> anyhow::Result<String> {
    let seen = scene.host.seen();
    ensure!(
        seen.is_locked() && seen.losses() == 0,
        "the lock was absent: {:?}",
        seen.lock
    );
    Ok(format!(
        "{} looks, at most {} ms apart",
        seen.looks,
        seen.blur.as_millis()
    ))
}

/// Waits until another process than `old` is the agent, and is ready.
fn another(scene: &Scene, old: &str) -> anyhow::Result<()> {
    scene.wait("another agent", Duration::from_secs(20), || {
        let pid = scene.agent_pid()?;
        Ok(pid != "0" && pid != old)
    })?;
    scene.wait_unit("vmdrain-agent.service", "active")?;
    Ok(())
}

/// The new process was handed the lock of the old one: descriptor 3 is logind's FIFO, not a new lock.
fn inherited(scene: &Scene) -> anyhow::Result<()> {
    let environment = scene.agent_pid()?;
    let environment = std::fs::read(scene.host.live(&format!("/proc/{environment}/environ")))?;
    let text = String::from_utf8_lossy(&environment).replace('\0', "\n");
    ensure!(
        text.contains("LISTEN_FDNAMES=vmdrain-hold"),
        "the restarted agent was not handed the lock:\n{text}"
    );
    Ok(())
}

fn restart(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(4.0), |scene| {
        let old = scene.agent_pid()?;
        scene.types_well(&["systemctl", "restart", "vmdrain-agent"])?;
        another(scene, &old)?;
        inherited(scene)?;
        scene.types_well(&["systemctl", "daemon-reexec"])?;
        let idle = never_absent(scene)?;
        ensure!(
            scene.cluster.sight().cordons.is_empty(),
            "a restart has cordoned the node"
        );
        ensure!(
            scene.cluster.evictions().is_empty(),
            "a restart has drained"
        );
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait_evicting()?;
        let old = scene.agent_pid()?;
        scene.types_well(&["systemctl", "restart", "vmdrain-agent"])?;
        another(scene, &old)?;
        inherited(scene)?;
        never_absent(scene)?;
        let down = scene.wait_down(Duration::from_secs(30))?;
        Ok(format!("{idle}; {}", in_order(scene, typed, &down)?))
    })
}

/// SIGKILL in the middle of a drain, after logind was restarted: without `FDPOLL=0` the store would be empty by then.
fn killed(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(5.0), |scene| {
        scene.types_well(&["systemctl", "restart", "systemd-logind"])?;
        scene.wait("logind is back", Duration::from_secs(10), || {
            Ok(scene.login1("DelayInhibited")?.contains("shutdown"))
        })?;
        let stored = scene.property("vmdrain-agent.service", "NFileDescriptorStore")?;
        ensure!(
            stored == "1",
            "the store holds {stored} descriptors after a restart of logind"
        );
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait_evicting()?;
        let old = scene.agent_pid()?;
        scene.types_well(&["systemctl", "kill", "--signal=KILL", "vmdrain-agent"])?;
        another(scene, &old)?;
        inherited(scene)?;
        never_absent(scene)?;
        let down = scene.wait_down(Duration::from_secs(40))?;
        in_order(scene, typed, &down)
    })
}

/// An agent that hangs in the middle of a drain: systemd's watchdog kills it, the lock stays, the next one goes on.
fn stuck(context: &Context) -> anyhow::Result<String> {
    let plan = Plan::moving(8.0).file(
        "/etc/systemd/system/vmdrain-agent.service.d/case.conf",
        "[Service]\nWatchdogSec=3s\n",
    );
    play(context, &plan, |scene| {
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait_evicting()?;
        let old = scene.agent_pid()?;
        let stopped = scene.types_well(&["sh", "-c", &format!("kill -STOP {old}")])?;
        another(scene, &old)?;
        let back = between(stopped.typed, scene.now());
        inherited(scene)?;
        never_absent(scene)?;
        let down = scene.wait_down(Duration::from_secs(40))?;
        Ok(format!(
            "back after {}; {}",
            seconds(back),
            in_order(scene, typed, &down)?
        ))
    })
}

/// An agent that can never be started again in the middle of a drain: after the start limit systemd gives the lock up, so that no
/// host hangs, and the stop job finishes the drain.
fn crash_loop(context: &Context) -> anyhow::Result<String> {
    const BROKEN: &str = "[Unit]\nStartLimitBurst=3\n[Service]\nExecStart=\nExecStart=/bin/false\n";
    play(context, &Plan::moving(11.0), |scene| {
        scene.wait_unit("vmdrain-hold.service", "active")?;
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait_evicting()?;
        scene.host.write(
            "/etc/systemd/system/vmdrain-agent.service.d/case.conf",
            BROKEN,
        )?;
        scene.types_well(&["systemctl", "daemon-reload"])?;
        let killed = scene.types_well(&["systemctl", "kill", "--signal=KILL", "vmdrain-agent"])?;
        let gone = scene.wait("the lock is given up", Duration::from_secs(15), || {
            Ok(!scene.host.seen().is_locked())
        })?;
        ensure!(
            scene.cluster.sight().guests > 0,
            "the VMs had left already: this shows nothing"
        );
        let down = scene.wait_down(Duration::from_secs(50))?;
        let tail = scene.went_empty(&down, super::delay::TAIL)?;
        let sight = scene.cluster.sight();
        ensure!(
            sight.uncordons() == 0,
            "the node was given back in between: {:?}",
            sight.cordons
        );
        scene.nothing_twice()?;
        Ok(format!(
            "lock given up {} after the crash; {tail}, down {}",
            seconds(between(killed.typed, gone)),
            seconds(between(typed, down.at))
        ))
    })
}

/// `systemctl stop` in the middle of a drain means it: the lock goes at once. What is left is the stop job's.
fn stopped(context: &Context) -> anyhow::Result<String> {
    // Here the stop job is taken out to see this net alone.
    let plan = Plan::moving(60.0).file(
        "/etc/systemd/system/vmdrain-hold.service.d/case.conf",
        "[Service]\nExecStop=\n",
    );
    play(context, &plan, |scene| {
        scene.types_well(&["systemctl", "poweroff"])?;
        scene.wait_evicting()?;
        let stopped = scene
            .types_well(&["systemctl", "stop", "--no-block", "vmdrain-agent"])?
            .typed;
        let down = scene.wait_down(Duration::from_secs(30))?;
        let unlocked = down.seen.unlocked_at().unwrap_or(down.units_done);
        let held = between(stopped, unlocked);
        ensure!(
            held < Duration::from_secs(2),
            "the lock stayed for {}",
            seconds(held)
        );
        Ok(format!(
            "lock gone after {}, down after {}",
            seconds(held),
            seconds(between(stopped, down.at))
        ))
    })
}
