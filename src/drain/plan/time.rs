//! Need against limit: how long all of it takes, and what the host gives.

use super::vms::Row;
use super::{PlanTime, Scene, Survey};
use crate::drain::eta::{self, Fits, Job, Knobs, Span, Stage, Stop, fits, words};
use crate::drain::fallback::{Guest, Schedule, stop_order};
use crate::drain::fate::Fate;
use crate::drain::machine::hold_deadline;
use crate::drain::policy::Timing;
use crate::drain::time::Mono;
use crate::drain::turns::{Turns, Waiting};
use crate::drain::world::MigrationState;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The row; each VM gets its own part of it.
pub(super) fn row(vms: &mut [Row<'_>], survey: &Survey, scene: &Scene) -> PlanTime {
    let kubevirt = survey.picture.kubevirt.seen().cloned().unwrap_or_default();
    let timing = &scene.policy.timing;
    let slots = kubevirt.per_node.min(kubevirt.per_cluster).max(1);
    let (limit, limit_by) = limit(scene);
    let mut jobs: Vec<Job> = vms.iter().map(|row| job(row, timing)).collect();
    let knobs = Knobs::new(scene.policy.migration_rate, slots, timing);
    let forecast = eta::forecast(&jobs, &knobs, &scene.seen);
    let held = limit.filter(|_| scene.left.is_some() || scene.hold.held);
    let late = held.map_or_else(BTreeMap::new, |limit| late(vms, scene, slots, limit));
    for (at, &begins) in &late {
        if let (Some(row), Some(job)) = (vms.get_mut(*at), jobs.get_mut(*at)) {
            shut_down(row, begins, timing);
            job.stop = Some(Stop {
                begins,
                grace: timing.lasts(row.grace()),
            });
        }
    }
    let own = eta::forecast(&jobs, &knobs, &scene.seen);
    for (row, eta) in vms.iter_mut().zip(&own.vms) {
        row.shown.eta = eta.map(Span::rounded);
    }
    // What cannot move is shut down at the end, and needs its grace period then.
    let at_the_end = vms
        .iter()
        .filter(|row| matches!(row.fate, Fate::Blocked(_) | Fate::Left { .. }));
    let grace = at_the_end.map(|row| timing.lasts(row.grace())).max();
    let grace = grace.unwrap_or_default();
    let fit = limit.map(|limit| fits(forecast.whole, grace, limit));
    // Enough for the migrations is not enough for a guest that has to be told before its own.
    let fit = fit.map(|fit| if late.is_empty() { fit } else { Fits::No });
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
        says: says(vms.is_empty(), forecast.whole, grace, limit, &limit_by, fit)
            + &short(late.len()),
        limit_by,
    }
}

/// VMs that would migrate, but not before their guests have to be told, by their places, and when that is: the same
/// reckoning as the drain's own.
fn late(vms: &[Row<'_>], scene: &Scene, slots: u32, limit: Duration) -> BTreeMap<usize, Duration> {
    let timing = &scene.policy.timing;
    let start = Mono::default();
    let guest = |row: &Row<'_>| Guest {
        key: row.pod.pod.uid.clone(),
        order: row
            .pod
            .stop_order
            .as_deref()
            .map_or(0, |text| stop_order(text).unwrap_or(0)),
        needs: timing.lasts(row.grace()) + timing.stop_slack,
    };
    let here = vms
        .iter()
        .filter(|row| !matches!(row.fate, Fate::Left { .. }));
    let schedule = Schedule::of(here.map(guest).collect(), start + limit, start);
    let moments: BTreeMap<&str, Mono> = schedule
        .moments()
        .map(|(guest, latest)| (guest.key.as_str(), latest))
        .collect();
    let takes = |row: &Row<'_>| {
        scene
            .policy
            .copies_for(row.shown.memory.unwrap_or_default())
    };
    let mut free = vec![start; usize::try_from(slots).unwrap_or(1)];
    let mut queue = BTreeMap::new();
    let moves = |row: &&Row<'_>| row.fate == Fate::Migrates && row.late.stops_guest();
    for (at, row) in vms.iter().enumerate().filter(|(_, row)| moves(row)) {
        let uid = row.pod.pod.uid.as_str();
        if is_moving(row) {
            if let Some(slot) = free.iter_mut().min() {
                *slot = *slot + takes(row);
            }
            continue;
        }
        let vm = Waiting {
            memory: row.shown.memory.unwrap_or_default(),
            takes: timing.set_up + takes(row),
            latest: moments.get(uid).copied(),
        };
        queue.insert(uid, (at, vm));
    }
    let (places, waiting): (Vec<usize>, Vec<Waiting>) = queue.into_values().unzip();
    let without = Turns::of(&waiting, &free).without.into_iter();
    let found = without.filter_map(|at| {
        let latest = waiting.get(at)?.latest?;
        // In a short drain nothing is gained by waiting.
        let begins = if limit <= timing.short_drain {
            Duration::ZERO
        } else {
            latest.since(start)
        };
        Some((*places.get(at)?, begins))
    });
    found.collect()
}

/// The row of a VM for whose migration there is no time.
fn shut_down(row: &mut Row<'_>, begins: Duration, timing: &Timing) {
    let needs = (timing.lasts(row.grace()) + timing.stop_slack).as_secs();
    let when = match begins.as_secs() {
        0 => "at once".into(),
        seconds => format!("after {seconds} s"),
    };
    row.fate = row.late.clone();
    row.shown.fate = row.fate.word().into();
    row.shown.says = format!(
        "there is no time for its migration before its guest needs {needs} s to shut down, which begins {when}: {}",
        row.fate
    );
}

fn short(late: usize) -> String {
    match late {
        0 => String::new(),
        late => format!(
            "; for {late} VM(s) there is no time to migrate, because their guests have to be told before"
        ),
    }
}

fn is_moving(row: &Row<'_>) -> bool {
    row.vmi
        .and_then(|vmi| vmi.migration.as_ref())
        .is_some_and(MigrationState::is_running)
}

fn job(row: &Row<'_>, timing: &Timing) -> Job {
    let moving = is_moving(row);
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
