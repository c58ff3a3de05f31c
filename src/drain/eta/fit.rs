//! What this drain has taught: how long the fixed part of a migration really takes, and how fast memory is copied.

use super::Knobs;
use super::span::Span;
use std::time::Duration;

/// A migration of this drain that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Memory in bytes.
    pub memory: u64,
    /// From its eviction (or from when it got a slot) to its arrival.
    pub took: Duration,
    /// From there to the end of its old pod; `None`: it still ends.
    pub tail: Option<Duration>,
}

/// The model with its corrections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Of those that run: by what is over.
    seen: Line,
    /// Of those that wait: also by those that run and are late.
    all: Line,
    tail: f64,
    /// How far off it may be, as a share.
    spread: f64,
}

/// Seconds of a migration by its size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    setup: f64,
    /// Seconds per byte.
    per_byte: f64,
}

impl Line {
    fn of(knobs: &Knobs, setup: f64, (a, b): (f64, f64)) -> Self {
        Self {
            setup: a * setup,
            per_byte: b * copying(1 << 30, knobs.rate) / f64::from(1 << 30),
        }
    }

    fn takes(&self, memory: u64) -> Duration {
        seconds(self.setup + self.per_byte * bytes(memory))
    }
}

/// How much the model's own numbers weigh against one migration that was seen.
const OWN_WEIGHT: f64 = 0.15;
/// Nothing seen: half as long or twice as long is no surprise.
const UNSEEN_SPREAD: f64 = 1.0;
/// However much was seen, the next one may be a little different.
const LEAST_SPREAD: f64 = 0.05;

impl Fit {
    /// From the model, what was seen, and what runs (memory and time so far): one that runs for longer than it should
    /// has taught something as well.
    pub fn of(
        knobs: &Knobs,
        seen: &[Seen],
        running: impl Iterator<Item = (u64, Duration)>,
    ) -> Self {
        let setup = knobs.setup.as_secs_f64().max(0.1);
        let mut samples: Vec<(f64, f64)> = seen
            .iter()
            .map(|seen| (copying(seen.memory, knobs.rate), seen.took.as_secs_f64()))
            .collect();
        let (a, b) = solve(setup, &samples);
        let mut all = (a, b);
        for (memory, so_far) in running {
            let copy = copying(memory, knobs.rate);
            let so_far = so_far.as_secs_f64();
            let late = so_far - (a * setup + b * copy);
            // As late as it is, as late it may be once more.
            if late > 0.0 {
                samples.push((copy, so_far + late));
            }
        }
        if samples.len() > seen.len() {
            all = solve(setup, &samples);
        }
        Self {
            seen: Line::of(knobs, setup, (a, b)),
            all: Line::of(knobs, setup, all),
            tail: tail(knobs.tail, seen),
            spread: spread(setup, all, &samples),
        }
    }

    /// How long a migration of this size takes that has not begun.
    pub fn takes(&self, memory: u64) -> Duration {
        self.all.takes(memory)
    }

    /// How long one takes that runs, had it kept to what was seen: what it is late by is its own.
    pub fn runs(&self, memory: u64) -> Duration {
        self.seen.takes(memory)
    }

    /// How long its old pod stays afterwards.
    pub fn tail(&self) -> Duration {
        seconds(self.tail)
    }

    /// The range around it.
    pub fn span(&self, likely: Duration) -> Span {
        Span {
            low: likely.div_f64(1.0 + self.spread),
            likely,
            high: likely.mul_f64(1.0 + self.spread),
        }
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "sizes of machines fit well enough"
)]
fn bytes(memory: u64) -> f64 {
    memory as f64
}

fn copying(memory: u64, rate: u64) -> f64 {
    bytes(memory) / bytes(rate.max(1))
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.0, 1e9)).unwrap_or_default()
}

/// The factors (of the fixed part, of the copying) that fit best: least squares, with the model's own factors of 1 as
/// something seen before. Samples are (copying time by the model, real time).
fn solve(setup: f64, samples: &[(f64, f64)]) -> (f64, f64) {
    if samples.is_empty() {
        return (1.0, 1.0);
    }
    let sum = |f: &dyn Fn(&(f64, f64)) -> f64| samples.iter().map(f).sum::<f64>();
    #[allow(clippy::cast_precision_loss, reason = "a count of VMs")]
    let count = samples.len() as f64;
    let copies = sum(&|(copy, _)| copy * copy);
    // A prior that is worth a fixed share of one typical sample, in the same units.
    let own = OWN_WEIGHT * (setup * setup + copies / count);
    let (ss, sc, cc) = (
        setup * setup * count + own,
        setup * sum(&|(copy, _)| *copy),
        copies + own,
    );
    let (st, ct) = (
        setup * sum(&|(_, took)| *took) + own,
        sum(&|(copy, took)| copy * took) + own,
    );
    let determinant = ss * cc - sc * sc;
    if determinant <= f64::EPSILON {
        return (1.0, 1.0);
    }
    let a = (st * cc - ct * sc) / determinant;
    let b = (ss * ct - sc * st) / determinant;
    match (a < 0.0, b < 0.0) {
        (false, false) => (a, b),
        // No part of it takes less than no time: all of it is the other part.
        (true, _) => (0.0, (ct / cc).max(0.0)),
        (false, true) => ((st / ss).max(0.0), 0.0),
    }
}

/// The mean of the tails, with the model's own as one of them.
fn tail(own: Duration, seen: &[Seen]) -> f64 {
    let tails: Vec<Duration> = seen.iter().filter_map(|seen| seen.tail).collect();
    let sum: Duration = tails.iter().sum();
    let count = u32::try_from(tails.len()).unwrap_or(u32::MAX);
    let own_share = if tails.is_empty() { 1.0 } else { OWN_WEIGHT };
    (sum.as_secs_f64() + own.as_secs_f64() * own_share) / (f64::from(count) + own_share)
}

/// What was seen strays so much around the fit; and few samples say little.
fn spread(setup: f64, (a, b): (f64, f64), samples: &[(f64, f64)]) -> f64 {
    if samples.is_empty() {
        return UNSEEN_SPREAD;
    }
    #[allow(clippy::cast_precision_loss, reason = "a count of VMs")]
    let count = samples.len() as f64;
    let off = |(copy, took): &(f64, f64)| {
        let by_fit = (a * setup + b * copy).max(0.1);
        (took / by_fit - 1.0).powi(2)
    };
    let strays = (samples.iter().map(off).sum::<f64>() / count).sqrt();
    (2.0 * strays + UNSEEN_SPREAD / (1.0 + 2.0 * count)).clamp(LEAST_SPREAD, UNSEEN_SPREAD)
}
