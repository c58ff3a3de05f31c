//! The core alone in a random world: seeds decide everything that happens, rules decide what may.
//!
//! `VMDRAIN_SIM_SEEDS=100000` runs more of them, `VMDRAIN_SIM_SEED=n` one; `VMDRAIN_SIM_TRACE=1` prints all of it.

mod boots;
mod cluster;
mod controllers;
mod front;
mod here;
mod host;
mod picture;
mod plan;
mod rng;
mod rules;
mod run;
mod server;
mod stops;
mod watcher;
mod wire;

use run::Run;

const SEEDS: u64 = 2000;
/// After so many broken seeds no more are tried.
const MANY: usize = 30;
/// Lines of the trace that a failure shows.
const TAIL: usize = 60;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The report of a broken rule, with the end of the trace.
fn report(seed: u64, broken: &str) -> String {
    let mut run = Run::new(seed, true);
    let again = run.run();
    let trace = run.take_trace();
    let from = trace.len().saturating_sub(TAIL);
    let same = again.is_err_and(|b| b == broken);
    format!(
        "seed {seed}: {broken}{}\n{}\nreplay: VMDRAIN_SIM_SEED={seed} VMDRAIN_SIM_TRACE=1 cargo test --test it simulation -- --nocapture",
        if same {
            ""
        } else {
            " (NOT THE SAME WHEN REPLAYED)"
        },
        trace[from..].join("\n"),
    )
}

#[test]
fn no_seed_breaks_a_rule() {
    let one = number("VMDRAIN_SIM_SEED");
    let seeds = one.map_or(0..number("VMDRAIN_SIM_SEEDS").unwrap_or(SEEDS), |n| {
        n..n + 1
    });
    let trace = number("VMDRAIN_SIM_TRACE").is_some();
    let mut failed = Vec::new();
    for seed in seeds {
        let mut run = Run::new(seed, trace);
        let result = run.run();
        for line in run.take_trace() {
            println!("{line}");
        }
        failed.extend(result.err().map(|broken| (seed, broken)));
        if failed.len() >= MANY {
            break;
        }
    }
    if let Some((seed, broken)) = failed.first() {
        let others: Vec<_> = failed
            .iter()
            .map(|(s, b)| format!("seed {s}: {b}"))
            .collect();
        panic!("{}\n{}", others.join("\n"), report(*seed, broken));
    }
}
