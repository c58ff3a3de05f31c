//! Which figures make the report, and what is aimed at with each? The targets of the design, section 10.

use std::time::Duration;

use super::drains::Drain;
use super::idle::Idle;
use super::latency::Latencies;
use super::numbers::{Samples, float};
use super::plan::{Compared, Measured};
use super::release::Releases;
use super::report::{Figure, Goal, Unit};

const MIB: f64 = 1_048_576.0;
/// Drain time divided by the shortest possible one.
const NEAR: f64 = 1.02;
/// Times fewer requests than kubectl.
const FEWER: f64 = 25.0;

/// All figures with their verdicts.
pub(super) fn judge(measured: &Measured) -> Vec<Figure> {
    let mut all: Vec<Figure> = measured.latencies.iter().flat_map(signal).collect();
    all.extend(measured.releases.iter().flat_map(release));
    all.extend(measured.drains.iter().flat_map(drain));
    all.extend(measured.drains.last().into_iter().flat_map(cost));
    all.extend(measured.long.iter().flat_map(long));
    all.extend(measured.idle.iter().flat_map(idle));
    all.extend(growth(measured));
    all.push(Figure::new(
        "shipped",
        "binary",
        Unit::Bytes,
        float(measured.binary),
        None,
        &[Goal::AtMost(9.0 * MIB)],
    ));
    all
}

/// The median and the 99th percentile; goals are of the latter. With less than a hundred samples that is the longest.
fn spread(
    group: &'static str,
    what: &str,
    agent: &Samples,
    kubectl: Option<&Samples>,
    goals: &[Goal],
) -> Vec<Figure> {
    let seconds = |samples: &Samples, percent| {
        let found = samples.percentile(percent);
        found.map_or(f64::NAN, |found: Duration| found.as_secs_f64())
    };
    let one = |percent, goals: &[Goal]| {
        let what = format!("{what}, p{percent} of {}", agent.count());
        let peer = kubectl.map(|samples| seconds(samples, percent));
        let own = seconds(agent, percent);
        Figure::new(group, what, Unit::Milliseconds, own, peer, goals)
    };
    vec![one(50, &[]), one(99, goals)]
}

fn signal(latencies: &Latencies) -> Vec<Figure> {
    const GROUP: &str = "the signal (kubectl: the start of the command)";
    let mut all = spread(
        GROUP,
        "to the cordon",
        &latencies.cordon,
        Some(&latencies.kubectl_cordon),
        &[Goal::Guide(0.020), Goal::TimesLess(10.0)],
    );
    all.extend(spread(
        GROUP,
        "100 VMs: to the first eviction",
        &latencies.first,
        Some(&latencies.kubectl_first),
        &[Goal::TimesLess(10.0)],
    ));
    all.extend(spread(
        GROUP,
        "100 VMs: to all evictions that need not wait (kubectl: its first)",
        &latencies.evictions,
        Some(&latencies.kubectl_first),
        &[Goal::Guide(0.150), Goal::TimesLess(10.0)],
    ));
    all.extend(spread(
        "start",
        "to READY (the hold is listed)",
        &latencies.ready,
        None,
        &[Goal::AtMost(0.050)],
    ));
    all
}

fn release(releases: &Releases) -> Vec<Figure> {
    spread(
        "the last VM is gone",
        "to the released lock (kubectl: to its end)",
        &releases.agent,
        Some(&releases.kubectl),
        &[Goal::Guide(0.050), Goal::TimesLess(50.0)],
    )
}

fn drain(compared: &Compared) -> Vec<Figure> {
    const GROUP: &str = "drain time, 2 slots";
    let Compared {
        name,
        shorter,
        shortest,
        agent,
        all,
        kubectl,
    } = compared;
    let figure = |what: &str, unit, own, peer, goals: &[Goal]| {
        Figure::new(GROUP, format!("{name}: {what}"), unit, own, peer, goals)
    };
    let saved = |other: f64| (1.0 - agent.took / other) * 100.0;
    let least = [Goal::AtLeast(*shorter)];
    vec![
        figure(
            "signal to release (kubectl: to its end)",
            Unit::Seconds,
            agent.took,
            Some(kubectl.took),
            &[],
        ),
        figure(
            "divided by the shortest possible",
            Unit::Times,
            agent.took / shortest,
            Some(kubectl.took / shortest),
            &[Goal::AtMost(NEAR)],
        ),
        figure(
            "until the node is empty, divided by the same",
            Unit::Times,
            agent.emptied / shortest,
            Some(kubectl.emptied / shortest),
            &[],
        ),
        figure(
            "shorter than kubectl's",
            Unit::Percent,
            saved(kubectl.took),
            None,
            if *shorter > 0.0 { &least } else { &[] },
        ),
        figure(
            "shorter than with pacing = all",
            Unit::Percent,
            saved(all.took),
            None,
            &[],
        ),
    ]
}

fn cost(compared: &Compared) -> Vec<Figure> {
    const GROUP: &str = "what that last drain costs";
    let Compared {
        name,
        agent,
        kubectl,
        ..
    } = compared;
    let figure = |what: &str, unit, own, peer, goals: &[Goal]| {
        Figure::new(
            GROUP,
            format!("{name}: {what}"),
            unit,
            own,
            Some(peer),
            goals,
        )
    };
    vec![
        figure(
            "API requests",
            Unit::Count,
            float(agent.requests as u64),
            float(kubectl.requests as u64),
            &[Goal::TimesLess(FEWER)],
        ),
        figure(
            "evictions among them",
            Unit::Count,
            float(agent.evictions as u64),
            float(kubectl.evictions as u64),
            &[],
        ),
        figure(
            "CPU time",
            Unit::Seconds,
            agent.cost.cpu,
            kubectl.cost.cpu,
            &[Goal::TimesLess(10.0)],
        ),
        figure(
            "peak RSS",
            Unit::Bytes,
            float(agent.cost.peak),
            float(kubectl.cost.peak),
            &[Goal::TimesLess(3.0)],
        ),
    ]
}

fn long((drain, shortest): &(Drain, f64)) -> Vec<Figure> {
    const GROUP: &str = "50 VMs, 2 slots, 10 minutes (a world that runs faster, and an agent with as much shorter pauses)";
    vec![
        Figure::new(
            GROUP,
            "minutes of simulated time",
            Unit::Count,
            drain.took / 60.0,
            None,
            &[],
        ),
        Figure::new(
            GROUP,
            "API requests",
            Unit::Count,
            float(drain.requests as u64),
            None,
            &[Goal::AtMost(120.0)],
        ),
        Figure::new(
            GROUP,
            "divided by the shortest possible",
            Unit::Times,
            drain.took / shortest,
            None,
            &[Goal::AtMost(NEAR)],
        ),
    ]
}

fn idle(idle: &Idle) -> Vec<Figure> {
    let group = "idle, 10 VMs";
    let watched = idle.watched.round();
    vec![
        Figure::new(
            group,
            format!("API requests an hour (of {watched} s)"),
            Unit::Count,
            idle.requests,
            None,
            &[Goal::AtMost(0.0)],
        ),
        Figure::new(
            group,
            format!("wake-ups a minute (of {watched} s)"),
            Unit::Count,
            idle.wakeups,
            None,
            &[Goal::AtMost(2.0)],
        ),
        Figure::new(
            group,
            "RSS",
            Unit::Bytes,
            float(idle.rss),
            None,
            &[Goal::AtMost(10.0 * MIB)],
        ),
    ]
}

fn growth(measured: &Measured) -> Vec<Figure> {
    const GROUP: &str = "the first 10 s of a drain";
    let mut all = Vec::new();
    for (vms, agent, kubectl) in &measured.growth {
        let mut add = |what: &str, unit, own, peer, goals: &[Goal]| {
            let what = format!("{vms} VMs: {what}");
            all.push(Figure::new(GROUP, what, unit, own, Some(peer), goals));
        };
        let first = Unit::Milliseconds;
        add("first eviction", first, agent.first, kubectl.first, &[]);
        let limit = match vms {
            100 => Some(14.0 * MIB),
            1000 => Some(40.0 * MIB),
            _ => None,
        };
        let limit: Vec<Goal> = limit.map(Goal::AtMost).into_iter().collect();
        let (own, peer) = (float(agent.cost.peak), float(kubectl.cost.peak));
        add("peak RSS", Unit::Bytes, own, peer, &limit);
        let (own, peer) = (agent.cost.cpu, kubectl.cost.cpu);
        add("CPU time", Unit::Seconds, own, peer, &[]);
    }
    all
}
