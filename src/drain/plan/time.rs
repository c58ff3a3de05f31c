//! Need against limit: how long all of it takes, and what the host gives.

use super::vms::Row;
use super::{PlanTime, Scene, Survey};
use crate::drain::eta::{Fits, Job, Knobs, Span, Stage, fits, forecast, words};
use crate::drain::fate::Fate;
use crate::drain::machine::hold_deadline;
use crate::drain::policy::Timing;
use crate::drain::time::Mono;
use crate::drain::world::MigrationState;
use std::fmt::Write as _;
use std::time::Duration;

/// The row; each VM gets its own part of it.
pub(super) fn row(vms: &mut [Row<'_>], survey: &Survey, scene: &Scene) -> PlanTime {
    let kubevirt = survey.picture.kubevirt.seen().cloned().unwrap_or_default();
    let timing = &scene.policy.timing;
    let slots = kubevirt.per_node.min(kubevirt.per_cluster).max(1);
    let jobs: Vec<Job> = vms.iter().map(|row| job(row, timing)).collect();
    let knobs = Knobs::new(scene.policy.migration_rate, slots, timing);
    let forecast = forecast(&jobs, &knobs, &scene.seen);
    for (row, eta) in vms.iter_mut().zip(&forecast.vms) {
        row.shown.eta = eta.map(Span::rounded);
    }
    // What cannot move is shut down at the end, and needs its grace period then.
    let at_the_end = vms
        .iter()
        .filter(|row| matches!(row.fate, Fate::Blocked(_) | Fate::Left { .. }));
    let grace = at_the_end.map(|row| timing.lasts(row.grace())).max();
    let grace = grace.unwrap_or_default();
    let (limit, limit_by) = limit(scene);
    let fit = limit.map(|limit| fits(forecast.whole, grace, limit));
    PlanTime {
        need: forecast.whole.rounded(),
        grace: grace.as_secs_f64(),
        limit: limit.map(|limit| limit.as_secs_f64()),
        fits: match fit {
            Some(Fits::Yes) => "yes",
            Some(Fits::Tight) => "tight",
            Some(Fits::No) => "no",
            None => "unknown",
        }
        .into(),
        slots,
        unknown: forecast.unknown,
        says: says(vms.is_empty(), forecast.whole, grace, limit, &limit_by, fit),
        limit_by,
    }
}

fn job(row: &Row<'_>, timing: &Timing) -> Job {
    let moving = row
        .vmi
        .and_then(|vmi| vmi.migration.as_ref())
        .is_some_and(MigrationState::is_running);
    let stage = match &row.fate {
        // How long it has been at it nobody has told.
        Fate::Migrates if moving => Stage::Moving(Duration::ZERO),
        Fate::Migrates => Stage::Queued,
        Fate::RestartedElsewhere { .. } | Fate::ShutDown { .. } => Stage::Ending {
            for_long: Duration::ZERO,
            grace: timing.lasts(row.grace()),
        },
        Fate::Blocked(_) | Fate::External | Fate::Left { .. } | Fate::Unknown => Stage::Unknown,
    };
    Job {
        memory: row.shown.memory,
        stage,
        stop: None,
    }
}

/// What the host, or a drain that is under way, leaves.
fn limit(scene: &Scene) -> (Option<Duration>, String) {
    if let Some(left) = scene.left {
        return (Some(left), "the deadline of the running drain".into());
    }
    let by = |hold: &str| match hold {
        "" => "logind".to_owned(),
        file => format!("logind ({file})"),
    };
    match scene.hold.limit {
        Some(limit) if scene.hold.held => {
            let end = hold_deadline(Mono::default(), limit, scene.policy.margin);
            (Some(end.since(Mono::default())), by(&scene.hold.limit_by))
        }
        Some(_) => (
            Some(Duration::ZERO),
            "no hold is set: a shutdown would not wait".into(),
        ),
        None => (None, String::new()),
    }
}

fn says(
    nothing: bool,
    need: Span,
    grace: Duration,
    limit: Option<Duration>,
    by: &str,
    fit: Option<Fits>,
) -> String {
    if nothing {
        return "nothing to do takes no time".into();
    }
    let mut text = format!("needs {}", words(need));
    if !grace.is_zero() {
        let _ = write!(
            text,
            ", and {} s for guests that have to be shut down at the end",
            grace.as_secs()
        );
    }
    let exact = |span: Duration| {
        words(Span {
            low: span,
            likely: span,
            high: span,
        })
        .trim_start_matches("about ")
        .to_owned()
    };
    match (limit, fit) {
        (Some(limit), Some(fit)) => {
            let verdict = match fit {
                Fits::Yes => "that is enough",
                Fits::Tight => "that is tight: enough only if all goes well",
                Fits::No => "that is not enough",
            };
            format!("{text}; there are {} by {by}: {verdict}", exact(limit))
        }
        _ => format!(
            "{text}; how much time there would be is not known, because logind cannot be asked"
        ),
    }
}
