//! The stop job with real containers: logind was passed by, the system is already going down.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::super::{between, seconds};
use super::moved_away;
use crate::suite::{Case, Context, Debian, OLDER};
use crate::whole::stage::{Plan, Stage, play};

pub(super) const CASES: &[Case] = &[
    Case {
        number: "w3",
        name: "pods_outlive_the_stop_job_and_end_together",
        on: OLDER,
        limit: 240,
        run: outlive,
    },
    Case {
        number: "w3",
        name: "pods_die_at_once_without_the_drop_in",
        on: &[Debian::Thirteen],
        limit: 240,
        run: unprotected,
    },
    Case {
        number: "w4",
        name: "an_eviction_in_the_stop_phase",
        on: OLDER,
        limit: 240,
        run: eviction,
    },
];

/// Containers that systemd stops in one go get their SIGTERM within this time.
const TOGETHER: Duration = Duration::from_millis(700);
/// A sign that the stop phase has begun.
const BEGINS: Duration = Duration::from_secs(20);

/// A shutdown that passes logind by; returns when the stop job is at work. Answers when it was typed.
fn go_down(stage: &Stage) -> anyhow::Result<Duration> {
    let typed = stage.types_well(&["systemctl", "start", "--no-block", "poweroff.target"])?;
    stage.wait("the stop job is at work", BEGINS, || {
        Ok(stage.life("vmdrain-hold.service").is_some())
    })?;
    Ok(typed.typed)
}

/// While the stop job is at work, those on whom it depends are.
fn all_alive(stage: &Stage) -> anyhow::Result<()> {
    let state = stage.host.peek(&["systemctl", "is-system-running"]);
    ensure!(
        state == "stopping",
        "the system is {state:?}, not on its way down"
    );
    for unit in [
        "kubelet.service",
        "containerd.service",
        "dbus.service",
        "vmdrain-hold.service",
    ] {
        let state = stage.host.peek(&["systemctl", "is-active", unit]);
        // The stop job itself is being stopped: that is its work.
        ensure!(
            matches!(state.as_str(), "active" | "deactivating"),
            "{unit} is {state:?} while the stop job works"
        );
    }
    Ok(())
}

/// Pods from before and after a `daemon-reload`: all live until the stop job has ended, and are then stopped together.
fn outlive(context: &Context) -> anyhow::Result<String> {
    play(context, &Plan::moving(4.0), |stage| {
        stage.types_well(&["systemctl", "daemon-reload"])?;
        stage.add_pod("after", 1)?;
        stage.wait_running("after")?;
        let running = stage.containers();
        let typed = go_down(stage)?;
        all_alive(stage)?;
        ensure!(
            stage.containers() >= running,
            "of {running} containers only {} outlived the beginning of the stop phase",
            stage.containers()
        );
        let down = stage.wait_down(Duration::from_secs(60))?;
        let (measured, _) = moved_away(stage, typed, &down, 2)?;
        let ended = |unit: &str| {
            let life = stage.life(unit).and_then(|life| life.ended);
            life.with_context(|| format!("{unit} was never seen to end"))
        };
        let hold = ended("vmdrain-hold.service")?;
        let mut terms = Vec::new();
        for pod in ["other", "after"] {
            let said = stage.said(pod, "SIGTERM")?;
            let said = said.with_context(|| format!("the pod {pod:?} got no SIGTERM"))?;
            ensure!(
                said + super::SHARPNESS >= hold,
                "the pod {pod:?} got SIGTERM {} before the stop job had ended",
                seconds(between(said, hold))
            );
            terms.push(said);
        }
        let apart = terms[0].abs_diff(terms[1]);
        ensure!(apart <= TOGETHER, "they ended {} apart", seconds(apart));
        for unit in ["kubelet.service", "containerd.service"] {
            let ended = ended(unit)?;
            ensure!(
                ended + super::SHARPNESS >= hold,
                "{unit} ended {} before the stop job",
                seconds(between(ended, hold))
            );
        }
        Ok(format!(
            "{measured}; stop job ended {}, SIGTERM {} and {}",
            seconds(between(typed, hold)),
            seconds(between(typed, terms[0])),
            seconds(between(typed, terms[1]))
        ))
    })
}

/// The same without the package's drop-in for containers: what the case before shows is the drop-in's doing.
fn unprotected(context: &Context) -> anyhow::Result<String> {
    const DROP_IN: &str = "/etc/systemd/system/cri-containerd-.scope.d/50-vmdrain-agent.conf";
    let mut plan = Plan::moving(4.0);
    plan.files.push((DROP_IN, ""));
    play(context, &plan, |stage| {
        let typed = go_down(stage)?;
        let down = stage.wait_down(Duration::from_secs(60))?;
        let said = stage.said("other", "SIGTERM")?;
        let said = said.context("the other pod got no SIGTERM")?;
        let after = between(typed, said);
        ensure!(
            after < Duration::from_secs(2),
            "without the drop-in the pod lived for {}: the case with it proves nothing",
            seconds(after)
        );
        Ok(format!(
            "SIGTERM {} after the command, down {}",
            seconds(after),
            seconds(between(typed, down.at))
        ))
    })
}

/// What the API server is asked for in the stop phase happens as ever, but nothing can start.
fn eviction(context: &Context) -> anyhow::Result<String> {
    let mut plan = Plan::moving(10.0);
    plan.pods.push(("victim", 1));
    play(context, &plan, |stage| {
        let typed = go_down(stage)?;
        let asked = stage.now();
        stage.evict("victim")?;
        let told = stage.wait(
            "SIGTERM at the evicted pod",
            Duration::from_secs(15),
            || Ok(stage.said("victim", "SIGTERM")?.is_some()),
        )?;
        stage.wait(
            "the evicted pod is gone from the API",
            Duration::from_secs(20),
            || {
                let pod = format!("{}/victim", stage.pods());
                Ok(stage.plane.get(&pod)?.is_none())
            },
        )?;
        let gone = stage.now();
        all_alive(stage)?;
        stage.add_pod("late", 0)?;
        let down = stage.wait_down(Duration::from_secs(60))?;
        let (measured, _) = moved_away(stage, typed, &down, 2)?;
        let late = stage.plane.get(&format!("{}/late", stage.pods()))?;
        let late = late.context("the late pod has vanished")?;
        ensure!(
            late["spec"]["nodeName"].is_null(),
            "a pod was sent to a host that goes down: {}",
            late["status"]
        );
        Ok(format!(
            "{measured}; evicted pod: SIGTERM {} and gone {} after the request",
            seconds(between(asked, told)),
            seconds(between(asked, gone))
        ))
    })
}
