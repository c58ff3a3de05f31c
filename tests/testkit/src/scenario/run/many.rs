//! Plays many stories, several at a time, each on a thread of its own.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::real::{self, Planes};
use super::{Options, Shipped, Verdict, on_binary, on_model, unplayed};
use crate::scenario::Scenario;

/// With what stories are played.
#[derive(Clone, Debug)]
pub enum Front {
    /// In this process, on a paused clock.
    Model,
    /// With the shipped binary.
    Binary(Shipped),
    /// With the shipped binary on real control planes.
    ControlPlane(Planes),
}

/// Plays all stories, `jobs` at a time; `tell` hears of each as it ends. The verdicts are in the order of the stories.
///
/// Ctrl-C and SIGTERM end the stories of the binary front with everything that they started; the others are then not played.
pub fn play_all(
    stories: &[Scenario],
    front: &Front,
    options: &Options,
    jobs: usize,
    tell: impl Fn(&Verdict) + Sync,
) -> Vec<Verdict> {
    if let Front::ControlPlane(planes) = front {
        return real::many::play_all(stories, planes, options, jobs, tell);
    }
    let next = AtomicUsize::new(0);
    let stopped = AtomicBool::new(false);
    let done: Mutex<Vec<(usize, Verdict)>> = Mutex::default();
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(story) = stories.get(number) else {
                return;
            };
            let verdict = match front {
                Front::Model => on_model(story, options),
                Front::Binary(shipped) => interruptible(story, options, shipped, &stopped),
                Front::ControlPlane(_) => unplayed(story, "it is played elsewhere".into()),
            };
            tell(&verdict);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((number, verdict));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.clamp(1, stories.len().max(1)) {
            scope.spawn(worker);
        }
        worker();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, verdict)| verdict).collect()
}

fn interruptible(
    story: &Scenario,
    options: &Options,
    shipped: &Shipped,
    stopped: &AtomicBool,
) -> Verdict {
    if stopped.load(Ordering::Relaxed) {
        return unplayed(story, "interrupted".into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return unplayed(story, format!("no runtime: {error}")),
    };
    runtime.block_on(async {
        tokio::select! {
            verdict = on_binary(story, options, shipped) => verdict,
            () = interrupted() => {
                stopped.store(true, Ordering::Relaxed);
                unplayed(story, "interrupted".into())
            }
        }
    })
}

/// Ctrl-C or SIGTERM.
pub async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}
