//! Shutdowns through logind: whoever asks, and however, the VMs leave first.

use std::time::Duration;

use anyhow::ensure;

use super::{between, seconds};
use crate::plan::Plan;
use crate::scene::{SOON, Scene, play};
use crate::suite::{ALL, Case, Context, Figures};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "1",
        name: "poweroff_waits_for_the_vms",
        on: ALL,
        limit: 60,
        run: poweroff,
    },
    Case {
        number: "2",
        name: "a_limit_that_is_too_short",
        on: ALL,
        limit: 60,
        run: short_limit,
    },
    Case {
        number: "2b",
        name: "logind_loses_patience_with_a_stuck_agent",
        on: ALL,
        limit: 60,
        run: stuck_agent,
    },
    Case {
        number: "30",
        name: "half_an_hour_of_migrations",
        on: ALL,
        limit: 2400,
        run: long,
    },
    Case {
        number: "10",
        name: "release_and_a_foreign_lock",
        on: ALL,
        limit: 60,
        run: foreign_lock,
    },
];

/// From the command to the cordon, client start included, on a machine that boots another host meanwhile.
const PREPARE: Duration = Duration::from_millis(1500);
/// Host and cluster are looked at every 5 ms, so what happens at one time may be seen in either order.
const SHARPNESS: Duration = Duration::from_millis(50);
/// From the last VM to the lock: one quorum list, and the sampler's sharpness.
pub(super) const RELEASE: Duration = Duration::from_millis(600);
/// From the last VM to the end of all units of a host.
pub(super) const TAIL: Duration = Duration::from_secs(6);

/// Everything that has to hold when a host went down in order after `typed`.
pub(super) fn in_order(
    scene: &Scene,
    typed: Duration,
    down: &crate::host::Down,
) -> anyhow::Result<String> {
    let sight = scene.cluster.sight();
    let cordon = sight.cordons.first().map(|first| first.at);
    let Some(cordoned) = cordon else {
        anyhow::bail!("the node was never cordoned");
    };
    let prepare = between(typed, cordoned);
    // A machine that stood still for a while made the sampler late as well.
    let blur = down.seen.blur;
    ensure!(
        prepare <= PREPARE + blur,
        "cordoned only {} after the command (the host was seen every {} or oftener)",
        seconds(prepare),
        seconds(blur)
    );
    let tail = scene.went_empty(down, TAIL)?;
    let unlocked = down.seen.unlocked_at().unwrap_or(down.units_done);
    let empty = sight.empty_at.unwrap_or_default();
    ensure!(
        unlocked + SHARPNESS >= empty,
        "the lock went {} before the last VM had left",
        seconds(between(unlocked, empty))
    );
    let release = between(empty, unlocked);
    ensure!(
        release <= RELEASE + blur,
        "the lock went {} after the last VM (the host was seen every {} or oftener)",
        seconds(release),
        seconds(blur)
    );
    ensure!(
        down.seen.losses() <= 1,
        "the lock came and went: {:?}",
        down.seen.lock
    );
    ensure!(
        sight.is_cordoned(),
        "the node was given back before the host was gone"
    );
    ensure!(
        sight.uncordons() == 0,
        "the node was uncordoned in between: {:?}",
        sight.cordons
    );
    scene.nothing_twice()?;
    scene.figure(Figures {
        prepare,
        release,
        stopped: between(empty, down.units_done),
    });
    Ok(format!(
        "cordon {}, VMs gone {}, lock {} later, {tail}, down {}",
        seconds(prepare),
        seconds(between(typed, sight.empty_at.unwrap_or_default())),
        seconds(release),
        seconds(between(typed, down.at)),
    ))
}

fn poweroff(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(4.0), |scene| {
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        let down = scene.wait_down(Duration::from_secs(30))?;
        ensure!(!down.reboot, "it was rebooted instead");
        let measured = in_order(scene, typed, &down)?;
        scene.must_have_said("is empty of VMs")?;
        Ok(measured)
    })
}

/// logind allows 8 s, the VMs would need a minute, and by policy none is shut down: the agent says so before, lets go in time and
/// names what is left.
fn short_limit(context: &Context) -> anyhow::Result<String> {
    let plan = Plan::moving(60.0)
        .limit("8")
        .config("[drain]\non_deadline = \"proceed\"\n");
    play(context, &plan, |scene| {
        let status = scene.status()?;
        let trouble = status["hold"]["trouble"].as_str().unwrap_or_default();
        ensure!(
            trouble.contains("8 s"),
            "status says nothing about a limit of 8 s: {trouble:?}"
        );
        let typed = scene.types_well(&["systemctl", "reboot"])?.typed;
        // Only this net is looked at: the stop job would hold the host longer.
        scene.wait("the lock goes", Duration::from_secs(12), || {
            Ok(!scene.host.seen().is_locked())
        })?;
        let unlocked = scene.host.seen().unlocked_at().unwrap_or_default();
        let held = between(typed, unlocked);
        ensure!(
            held >= Duration::from_secs(5) && held <= Duration::from_millis(8900),
            "the lock was held for {} of 8 s",
            seconds(held)
        );
        let said = scene.said("left")?;
        ensure!(!said.is_empty(), "the agent did not say what is left");
        Ok(format!("held {}", seconds(held)))
    })
}

/// The package's own limit, and VMs that need most of it: no watchdog fires, nothing lets go.
fn long(context: &Context) -> anyhow::Result<String> {
    // Big VMs: KubeVirt gives up a migration that takes longer than 150 s for each GiB.
    let plan = Plan {
        story: crate::plan::vms("count = 2\nmemory = \"32Gi\"\nmigration_time = \"1897s\""),
        ..Plan::moving(0.0).limit("")
    };
    play(context, &plan, |scene| {
        let agent = scene.agent_pid()?;
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait("most of it is over", Duration::from_secs(1800), || {
            Ok(between(typed, scene.now()) > Duration::from_secs(1700))
        })?;
        ensure!(
            scene.agent_pid()? == agent,
            "the agent was restarted in between"
        );
        let down = scene.wait_down(Duration::from_secs(400))?;
        in_order(scene, typed, &down)
    })
}

/// An agent that does not answer: logind goes on after its limit, not later, and nobody is told.
fn stuck_agent(context: &Context) -> anyhow::Result<String> {
    // In 5 s guests would be shut down at once, and the host would be empty before anybody is stuck.
    let plan = Plan::moving(60.0)
        .limit("5")
        .config("[drain]\non_deadline = \"proceed\"\n")
        .file(
            "/etc/systemd/system/vmdrain-hold.service.d/case.conf",
            "[Service]\nExecStop=\n",
        );
    play(context, &plan, |scene| {
        let pid = scene.agent_pid()?;
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait_evicting()?;
        scene.types_well(&["sh", "-c", &format!("kill -STOP {pid}")])?;
        let down = scene.wait_down(Duration::from_secs(60))?;
        let all = scene.host.journal(&[])?;
        ensure!(
            all.contains("inhibitor timeout is reached"),
            "logind did not give up on the lock"
        );
        Ok(format!(
            "down {} with a limit of 5 s",
            seconds(between(typed, down.at))
        ))
    })
}

/// After the drain nothing of the lock is left anywhere; a lock of somebody else is theirs.
fn foreign_lock(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(3.0), |scene| {
        let _foreign = scene.types(&[
            "systemd-inhibit",
            "--what=shutdown",
            "--mode=delay",
            "--who=somebody",
            "--why=test",
            "sh",
            "-c",
            "until [ -e /run/let-go ]; do sleep 0.05; done",
        ])?;
        scene.wait("the foreign lock", SOON, || {
            Ok(scene
                .host
                .ask(&["systemd-inhibit", "--list", "--no-pager"])?
                .contains("somebody"))
        })?;
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait("our lock goes", Duration::from_secs(20), || {
            Ok(scene.cluster.sight().guests == 0 && !scene.host.seen().is_locked())
        })?;
        let stored = scene.property("vmdrain-agent.service", "NFileDescriptorStore")?;
        ensure!(
            stored == "0",
            "the fd store still holds {stored} descriptor(s)"
        );
        let ours = scene
            .host
            .ask(&["systemd-inhibit", "--list", "--no-pager"])?;
        ensure!(
            !ours.contains("vmdrain-agent"),
            "our lock is still listed: {ours}"
        );
        let pause = scene.now() + Duration::from_secs(4);
        scene.patience.until(pause)?;
        ensure!(
            scene.host.is_up(),
            "the host did not wait for the foreign lock"
        );
        scene.types_well(&["touch", "/run/let-go"])?;
        let let_go = scene.now();
        let down = scene.wait_down(Duration::from_secs(20))?;
        let tail = between(let_go, down.units_done);
        ensure!(
            tail < Duration::from_secs(5),
            "it took {} after the foreign lock",
            seconds(tail)
        );
        Ok(format!(
            "ours went {}, the foreign one {}, units stopped {} later",
            seconds(between(typed, down.seen.unlocked_at().unwrap_or_default())),
            seconds(between(typed, let_go)),
            seconds(tail)
        ))
    })
}
