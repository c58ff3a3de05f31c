//! Shutdowns that do not happen: cancelled, or forgotten by a logind that was restarted.

use std::time::Duration;

use anyhow::ensure;

use super::delay::in_order;
use super::{between, seconds};
use crate::plan::Plan;
use crate::scene::{Scene, play};
use crate::suite::{ALL, Case, Context, Debian, NEWER};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "11",
        name: "a_cancel_that_does_not_cancel",
        on: &[Debian::Twelve],
        limit: 60,
        run: cancel_in_vain,
    },
    Case {
        number: "11",
        name: "a_cancelled_shutdown",
        on: NEWER,
        limit: 90,
        run: cancelled,
    },
    Case {
        number: "12",
        name: "logind_forgets_the_shutdown",
        on: ALL,
        limit: 90,
        run: forgotten,
    },
];

/// How long it may take to notice that a shutdown is gone; nothing tells.
const NOTICED: Duration = Duration::from_secs(7);

/// More VMs than slots: some are on their way and some are not when the shutdown vanishes.
fn four() -> Plan {
    Plan {
        story: crate::plan::vms("count = 4\nmigration_time = \"3s\""),
        ..Plan::moving(0.0)
    }
}

/// `CancelScheduledShutdown`, as `shutdown -c` asks it.
fn cancel(scene: &Scene) -> anyhow::Result<(Duration, String)> {
    let answer = scene.types_well(&[
        "busctl",
        "call",
        "org.freedesktop.login1",
        "/org/freedesktop/login1",
        "org.freedesktop.login1.Manager",
        "CancelScheduledShutdown",
    ])?;
    Ok((answer.typed, answer.text().to_owned()))
}

/// Up to systemd 256 logind says that it has cancelled, and goes down all the same.
fn cancel_in_vain(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(6.0), |scene| {
        let typed = scene.types_well(&["systemctl", "poweroff"])?.typed;
        scene.wait_evicting()?;
        let (_, answer) = cancel(scene)?;
        ensure!(answer == "b true", "logind answered {answer:?}");
        let down = scene.wait_down(Duration::from_secs(30))?;
        in_order(scene, typed, &down)
    })
}

/// The shutdown is gone: the node is given back, and the next shutdown finds everything as it was.
fn cancelled(context: &Context) -> anyhow::Result<String> {
    play(context, &four(), |scene| {
        scene.types_well(&["systemctl", "poweroff"])?;
        scene.wait_evicting()?;
        let pause = scene.now() + Duration::from_secs(1);
        scene.patience.until(pause)?;
        let (typed, answer) = cancel(scene)?;
        ensure!(answer == "b true", "logind answered {answer:?}");
        let noticed = between(typed, scene.wait_uncordoned(NOTICED)?);
        goes_again(scene, noticed)
    })
}

/// A restart of logind in the middle of the delay of an immediate shutdown: it is forgotten and nobody is told.
fn forgotten(context: &Context) -> anyhow::Result<String> {
    play(context, &four(), |scene| {
        scene.types_well(&["systemctl", "poweroff"])?;
        scene.wait_evicting()?;
        let typed = scene
            .types_well(&["systemctl", "restart", "systemd-logind"])?
            .typed;
        let noticed = between(typed, scene.wait_uncordoned(NOTICED)?);
        goes_again(scene, noticed)
    })
}

/// After a shutdown that was called off: held as before, and the next one drains and goes.
fn goes_again(scene: &mut Scene, noticed: Duration) -> anyhow::Result<String> {
    ensure!(scene.host.is_up(), "the host went down");
    scene.wait("the drain has ended", Duration::from_secs(20), || {
        let status = scene.status()?;
        let state = status["state"].as_str().unwrap_or_default();
        Ok(matches!(state, "idle" | "cancelled") && status["hold"]["held"] == true)
    })?;
    ensure!(
        scene.host.seen().losses() == 0,
        "the lock was absent: {:?}",
        scene.host.seen().lock
    );
    let again = scene.types_well(&["systemctl", "poweroff"])?.typed;
    scene.wait_cordoned()?;
    let down = scene.wait_down(Duration::from_secs(40))?;
    let tail = scene.went_empty(&down, super::delay::TAIL)?;
    Ok(format!(
        "noticed after {}; the second one: {tail}, down {}",
        seconds(noticed),
        seconds(between(again, down.at))
    ))
}
