//! How long will it take? Memory ÷ rate for every VM, over the migration slots, in the drain's own order; corrected by what this
//! drain has seen. A range, never a moment: nobody knows how much a guest writes while it is copied.
//!
//! The rule to beat is xapi's (`max(240 s, bits ÷ 1 Gbit/s)`, peers.md 1.9): the same for every cluster, and blind to
//! what happens.

mod fit;
mod span;

pub use fit::{Fit, Seen};
pub use span::{Span, words};

use super::policy::Timing;
use super::time::Mono;
use super::turns::{Turns, Waiting};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Size of a VM that nobody can tell.
const UNKNOWN_MEMORY: u64 = 4 << 30;

/// Where a VM stands, as far as its time is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It will be migrated and waits for a slot.
    Queued,
    /// It has a slot, for so long.
    Moving(Duration),
    /// It has moved, its old pod ends, for so long.
    Leaving(Duration),
    /// Its guest is shut down, for so long; at most `grace`.
    Ending {
        /// For how long already.
        for_long: Duration,
        /// When it is ended by force.
        grace: Duration,
    },
    /// Nothing moves it: until its stop, or until the drain ends.
    Stays,
    /// Its guest is shut down when all others are gone.
    Last {
        /// When it is ended by force, from then.
        grace: Duration,
    },
    /// Nobody can say when it goes.
    Unknown,
}

/// One VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Where it stands.
    pub stage: Stage,
    /// Its guest is shut down for want of another way, unless it is gone before; `None`: nobody does that.
    pub stop: Option<Stop>,
}

impl Job {
    /// When the slot that it got is free again: its migration is aborted when its guest has to be told.
    fn until(&self, free: Duration, ends: Duration) -> Duration {
        self.stop
            .map_or(ends, |stop| ends.min(stop.begins.max(free)))
    }
}

/// When a guest that is still here is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// From now.
    pub begins: Duration,
    /// When it is ended by force, from then.
    pub grace: Duration,
}

/// What the model starts from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knobs {
    /// Bytes per second of one migration: configured, or the default.
    pub rate: u64,
    /// Time of a migration that does not depend on its size: target pod, hand-off.
    pub setup: Duration,
    /// Time between the end of a migration and the end of its old pod.
    pub tail: Duration,
    /// A guest that obeys its shutdown signal is usually down by then.
    pub guest_shutdown: Duration,
    /// Migrations at a time.
    pub slots: u32,
    /// From now to the deadline, when the drain ends there whatever is left; `None`: it does not, or nobody asks.
    pub ends_in: Option<Duration>,
}

impl Knobs {
    /// The defaults for this rate: what real control planes needed beside the copying
    /// (control-plane.md 5: 2–5 s with a target image that is there).
    pub fn new(rate: u64, slots: u32, timing: &Timing) -> Self {
        let s = |seconds| timing.lasts(Duration::from_secs(seconds));
        Self {
            rate: rate.max(1),
            setup: s(5),
            tail: s(2),
            guest_shutdown: s(10),
            slots: slots.max(1),
            ends_in: None,
        }
    }
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forecast {
    /// From now to the end of each VM, in the order of the jobs; `None`: nobody can say.
    pub vms: Vec<Option<Span>>,
    /// From now to the end of the last one of these.
    pub whole: Span,
    /// VMs about which nobody can say.
    pub unknown: usize,
}

/// Predicts. `seen`: migrations of this drain that are over.
pub fn forecast(jobs: &[Job], knobs: &Knobs, seen: &[Seen]) -> Forecast {
    let running = jobs.iter().filter_map(|job| match job.stage {
        Stage::Moving(so_far) => Some((memory(job), so_far)),
        Stage::Queued
        | Stage::Leaving(_)
        | Stage::Ending { .. }
        | Stage::Stays
        | Stage::Last { .. }
        | Stage::Unknown => None,
    });
    let fit = Fit::of(knobs, seen, running);
    // When each slot is free again.
    let mut slots: BinaryHeap<Reverse<Duration>> = BinaryHeap::new();
    let mut queued: Vec<usize> = Vec::new();
    let mut vms: Vec<Option<Span>> = Vec::with_capacity(jobs.len());
    for (at, job) in jobs.iter().enumerate() {
        vms.push(match job.stage {
            Stage::Queued => {
                queued.push(at);
                None
            }
            Stage::Moving(so_far) => {
                let left = left_of(fit.runs(memory(job)), so_far);
                slots.push(Reverse(job.until(Duration::ZERO, left)));
                Some(fit.span(left + fit.tail()))
            }
            Stage::Leaving(so_far) => Some(fit.span(left_of(fit.tail(), so_far))),
            Stage::Ending { for_long, grace } => Some(ending(knobs, for_long, grace)),
            // Until its stop, if there is one.
            Stage::Stays => knobs.ends_in.filter(|_| job.stop.is_none()).map(Span::at),
            Stage::Last { .. } | Stage::Unknown => None,
        });
    }
    let count = usize::try_from(knobs.slots).unwrap_or(usize::MAX).max(1);
    let wanted = count.min(slots.len() + queued.len());
    slots.extend((slots.len()..wanted).map(|_| Reverse(Duration::ZERO)));
    // More run than there are slots now (the limit was lowered): the first to end free none.
    while slots.len() > count {
        slots.pop();
    }
    for at in in_turn(&queued, jobs, &fit, &slots) {
        let (Some(job), Some(vm)) = (jobs.get(at), vms.get_mut(at)) else {
            continue;
        };
        let Reverse(free) = slots.pop().unwrap_or_default();
        let end = free + fit.takes(memory(job));
        slots.push(Reverse(job.until(free, end)));
        *vm = Some(fit.span(end + fit.tail()));
    }
    for (vm, job) in vms.iter_mut().zip(jobs) {
        if !matches!(job.stage, Stage::Unknown | Stage::Last { .. }) {
            *vm = or_stopped(knobs, *vm, job.stop);
        }
    }
    let others = Span::longest(vms.iter().flatten().copied());
    for (vm, job) in vms.iter_mut().zip(jobs) {
        if let Stage::Last { grace } = job.stage {
            let own = others.and_then(ending(knobs, Duration::ZERO, grace));
            *vm = or_stopped(knobs, Some(own), job.stop);
        }
    }
    let longest = Span::longest(vms.iter().flatten().copied());
    Forecast {
        whole: knobs.ends_in.map_or(longest, |end| longest.ends_by(end)),
        unknown: vms.iter().filter(|vm| vm.is_none()).count(),
        vms,
    }
}

/// Those that wait, in the order in which they are sent.
fn in_turn(
    queued: &[usize],
    jobs: &[Job],
    fit: &Fit,
    slots: &BinaryHeap<Reverse<Duration>>,
) -> Vec<usize> {
    let mono = |span: Duration| Mono::default() + span;
    let slots: Vec<Mono> = slots.iter().map(|Reverse(free)| mono(*free)).collect();
    let wait = |job: &Job| Waiting {
        memory: memory(job),
        takes: fit.takes(memory(job)),
        latest: job.stop.map(|stop| mono(stop.begins)),
    };
    let queue = queued.iter().filter_map(|at| jobs.get(*at));
    let waiting: Vec<Waiting> = queue.map(wait).collect();
    let order = Turns::of(&waiting, &slots).order.into_iter();
    order.filter_map(|at| queued.get(at).copied()).collect()
}

/// Whatever comes first: its own end, or its stop.
fn or_stopped(knobs: &Knobs, vm: Option<Span>, stop: Option<Stop>) -> Option<Span> {
    let Some(stop) = stop else { return vm };
    let ends = ending(knobs, Duration::ZERO, stop.grace);
    let stopped = Span {
        low: stop.begins,
        likely: stop.begins + ends.likely,
        high: stop.begins + ends.high,
    };
    Some(match vm {
        None => stopped,
        Some(own) if own.likely > stopped.likely => Span {
            low: own.low.min(stopped.low),
            ..stopped
        },
        Some(own) => Span {
            high: own.high.min(stopped.high).max(own.likely),
            ..own
        },
    })
}

fn memory(job: &Job) -> u64 {
    job.memory.unwrap_or(UNKNOWN_MEMORY)
}

/// What is left of something that takes so long. One that is late has shown that it takes longer, nobody knows how
/// much: as late as it is, as late it may be once more.
fn left_of(takes: Duration, so_far: Duration) -> Duration {
    let late = so_far.saturating_sub(takes);
    takes
        .saturating_sub(so_far)
        .max(late + Duration::from_secs(1).min(takes))
}

/// A guest that is being shut down: any moment, and at the latest at the end of its grace period.
fn ending(knobs: &Knobs, for_long: Duration, grace: Duration) -> Span {
    let most = grace.saturating_sub(for_long);
    Span {
        low: Duration::ZERO,
        likely: left_of(knobs.guest_shutdown, for_long).min(most),
        high: most,
    }
}

/// Whether there is enough time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fits {
    /// Also when it takes long.
    Yes,
    /// Only when it does not take long.
    Tight,
    /// Not even when all goes as reckoned.
    No,
}

/// Compares what is needed with what there is: `grace` is kept for guests that have to be shut down at the end.
pub fn fits(need: Span, grace: Duration, available: Duration) -> Fits {
    if need.high + grace <= available {
        Fits::Yes
    } else if need.likely + grace <= available {
        Fits::Tight
    } else {
        Fits::No
    }
}

/// xapi's rule for the same VMs: the floor to beat. It knows neither slots nor what has happened.
pub fn xapi(memory: u64) -> Duration {
    const LEAST: u64 = 240;
    const GIGABIT: u64 = 1_000_000_000;
    Duration::from_secs((memory.saturating_mul(8) / GIGABIT).max(LEAST))
}

#[cfg(test)]
mod tests;
