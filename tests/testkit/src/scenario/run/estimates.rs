//! How good were the agent's estimates? What it said at half time of each drain, against what came.
//!
//! Measured on the moments at which a status was published: between two of them the estimate runs on with the clock.
//! Beside it xapi's rule for the same VMs, which is the floor to beat: `max(240 s, bits ÷ 1 Gbit/s)`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use vmdrain_agent::drain::eta::xapi;
use vmdrain_agent::drain::status::Status;

use super::verdict::Verdict;

/// Shorter drains say nothing: one step of a clock is a large share of them.
const SHORTEST: f64 = 20.0;

/// One drain that came to its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// How long it took, in seconds.
    pub took: f64,
    /// How long it would take in all, as said at half time.
    pub said: f64,
    /// The same by xapi's rule.
    pub xapi: f64,
    /// At half time the truth was within the range.
    pub within: bool,
}

impl Estimate {
    /// How far off what was left was at half time, as a share of it.
    pub fn error(&self) -> f64 {
        (self.said - self.took).abs() / (self.took / 2.0)
    }

    /// The same for the whole time.
    pub fn error_of_all(&self) -> f64 {
        (self.said - self.took).abs() / self.took
    }

    /// xapi's, for the whole time.
    pub fn xapi_error(&self) -> f64 {
        (self.xapi - self.took).abs() / self.took
    }
}

/// What was said, drain by drain.
#[derive(Debug, Default)]
pub(super) struct Said {
    drains: BTreeMap<String, Drain>,
}

#[derive(Debug, Default)]
struct Drain {
    /// (when it was said, the whole time as said: low, likely, high), seconds of the drain.
    said: Vec<(f64, [f64; 3])>,
    memory: u64,
    took: Option<f64>,
}

impl Said {
    /// Takes in a published status.
    pub(super) fn hear(&mut self, status: &Status) {
        let Some(now) = &status.drain else { return };
        let drain = self.drains.entry(now.id.clone()).or_default();
        if let Some(exit) = now.exit {
            if exit == 0 {
                drain.took.get_or_insert(now.running_for);
            }
            return;
        }
        let memory = status.vms.iter().filter_map(|vm| vm.memory).sum();
        drain.memory = drain.memory.max(memory);
        let Some(eta) = now.eta else { return };
        let ends = [eta.low, eta.likely, eta.high].map(|span| now.running_for + span.as_secs_f64());
        if drain
            .said
            .last()
            .is_none_or(|(at, _)| *at < now.running_for)
        {
            drain.said.push((now.running_for, ends));
        }
    }

    /// The drains that ended empty and took long enough.
    pub(super) fn estimates(&self) -> Vec<Estimate> {
        let judged = self.drains.values().filter_map(|drain| {
            let took = drain.took.filter(|took| *took >= SHORTEST)?;
            let half = drain.said.iter().rev().find(|(at, _)| *at <= took / 2.0)?;
            let [low, said, high] = half.1;
            Some(Estimate {
                took,
                said,
                xapi: xapi(drain.memory).as_secs_f64(),
                within: (low..=high).contains(&took),
            })
        });
        judged.collect()
    }
}

/// The middle one of a list; `None` of an empty one.
pub fn median(of: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = of.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// One line for each drain, and the medians.
pub fn table(verdicts: &[Verdict]) -> String {
    let mut text = String::from("took      said at 1/2  off (left)  off (all)  xapi off   story\n");
    let all: Vec<&Estimate> = verdicts.iter().flat_map(|v| &v.estimates).collect();
    for verdict in verdicts {
        for one in &verdict.estimates {
            // Writing into a String cannot fail.
            let _ = writeln!(
                text,
                "{:>6.0} s  {:>8.0} s   {:>6.0} %    {:>6.0} %   {:>6.0} %   {}",
                one.took,
                one.said,
                one.error() * 100.0,
                one.error_of_all() * 100.0,
                one.xapi_error() * 100.0,
                verdict.name
            );
        }
    }
    let percent = |of: &dyn Fn(&Estimate) -> f64| {
        median(all.iter().map(|one| of(one)))
            .map_or_else(|| "-".into(), |m| format!("{:.0} %", m * 100.0))
    };
    let within = all.iter().filter(|one| one.within).count();
    let _ = writeln!(
        text,
        "median error at half time over {} drains: {} of what was left, {} of the whole; xapi's rule: {}; within the range: {within}",
        all.len(),
        percent(&Estimate::error),
        percent(&Estimate::error_of_all),
        percent(&Estimate::xapi_error),
    );
    text
}
