//! `shutdown +N`: what is known before logind announces anything.

use std::time::Duration;

use anyhow::ensure;

use super::delay::TAIL;
use super::{between, seconds};
use crate::plan::Plan;
use crate::scene::{SOON, Scene, play};
use crate::suite::{ALL, Case, Context};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "13",
        name: "scheduled_and_called_off",
        on: ALL,
        limit: 90,
        run: called_off,
    },
    Case {
        number: "13",
        name: "scheduled_only_cordons",
        on: ALL,
        limit: 60,
        run: only_cordons,
    },
    Case {
        number: "12",
        name: "a_schedule_that_comes_twice",
        on: ALL,
        limit: 90,
        run: comes_twice,
    },
];

/// `shutdown +15` is seen at once on every version, also where no signal tells.
const SEEN: Duration = Duration::from_secs(1);

/// The drain begins when the shutdown is scheduled; `shutdown -c` takes all of it back.
fn called_off(context: &Context) -> anyhow::Result<String> {
    let plan = Plan {
        story: crate::plan::vms("count = 4\nmigration_time = \"3s\""),
        ..Plan::moving(0.0)
    };
    play(context, &plan, |scene| {
        let typed = scene.types_well(&["shutdown", "-r", "+15"])?.typed;
        let cordoned = between(typed, scene.wait_cordoned()?);
        ensure!(
            cordoned <= SEEN,
            "cordoned only {} after the command",
            seconds(cordoned)
        );
        scene.wait_evicting()?;
        let typed = scene.types_well(&["shutdown", "-c"])?.typed;
        let free = between(typed, scene.wait_uncordoned(SOON)?);
        no_marks(scene)?;
        ensure!(
            scene.host.seen().losses() == 0,
            "the lock was absent: {:?}",
            scene.host.seen().lock
        );
        // Whatever came of it: an ordinary shutdown afterwards is an ordinary shutdown.
        scene.wait("the drain has ended", Duration::from_secs(20), || {
            let state = scene.status()?["state"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            Ok(matches!(state.as_str(), "idle" | "cancelled"))
        })?;
        scene.types_well(&["systemctl", "poweroff"])?;
        scene.wait_cordoned()?;
        let down = scene.wait_down(Duration::from_secs(40))?;
        let tail = scene.went_empty(&down, TAIL)?;
        Ok(format!(
            "cordoned {}, given back {}; {tail}",
            seconds(cordoned),
            seconds(free)
        ))
    })
}

/// No VM is still marked for evacuation a moment after a cancel; what already migrates may arrive.
fn no_marks(scene: &Scene) -> anyhow::Result<()> {
    scene.wait("no VM is marked any more", Duration::from_secs(15), || {
        Ok(scene.cluster.marked().is_empty())
    })?;
    Ok(())
}

fn only_cordons(context: &Context) -> anyhow::Result<String> {
    let plan = Plan::moving(3.0).config("[host]\non_scheduled_shutdown = \"cordon\"\n");
    play(context, &plan, |scene| {
        let typed = scene.types_well(&["shutdown", "-r", "+15"])?.typed;
        let cordoned = between(typed, scene.wait_cordoned()?);
        let pause = scene.now() + Duration::from_secs(2);
        scene.patience.until(pause)?;
        ensure!(scene.cluster.evictions().is_empty(), "a drain has begun");
        let typed = scene.types_well(&["shutdown", "-c"])?.typed;
        let free = between(typed, scene.wait_uncordoned(SOON)?);
        Ok(format!(
            "cordoned {}, given back {}",
            seconds(cordoned),
            seconds(free)
        ))
    })
}

/// A restart of logind in the delay of a *scheduled* shutdown: the new logind announces it again. One drain.
fn comes_twice(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(8.0), |scene| {
        let soon = scene.patience.clock.now().as_microsecond() + 2_000_000;
        let typed = scene
            .types_well(&[
                "busctl",
                "call",
                "org.freedesktop.login1",
                "/org/freedesktop/login1",
                "org.freedesktop.login1.Manager",
                "ScheduleShutdown",
                "st",
                "poweroff",
                &soon.to_string(),
            ])?
            .typed;
        scene.wait("logind waits for us", SOON, || {
            Ok(scene.login1("PreparingForShutdown")? == "b true")
        })?;
        scene.wait_evicting()?;
        scene.types_well(&["systemctl", "restart", "systemd-logind"])?;
        let down = scene.wait_down(Duration::from_secs(40))?;
        let tail = scene.went_empty(&down, TAIL)?;
        scene.nothing_twice()?;
        let sight = scene.cluster.sight();
        ensure!(
            sight.uncordons() == 0,
            "the node was given back in between: {:?}",
            sight.cordons
        );
        Ok(format!("{tail}, down {}", seconds(between(typed, down.at))))
    })
}
