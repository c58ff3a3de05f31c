//! How busy is the machine? A real clock that runs many times as fast makes much of a little delay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::clock::SimClock;

/// How often the clock is looked at, in real time.
const TICK: Duration = Duration::from_millis(10);
/// A timer may be as late as this without anything being busy.
const FINE: Duration = Duration::from_millis(2);

/// Adds up by how much short sleeps of this process were too long.
#[derive(Debug)]
pub(super) struct Lateness {
    /// Microseconds of the story's time.
    total: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Lateness {
    /// Begins to measure.
    pub(super) fn measure(clock: SimClock) -> Self {
        let total = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(tick(clock, total.clone()));
        Self { total, task }
    }

    /// All delays so far, in the story's time.
    pub(super) fn total(&self) -> Duration {
        Duration::from_micros(self.total.load(Ordering::Relaxed))
    }
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn tick(clock: SimClock, total: Arc<AtomicU64>) {
    let fine = (TICK + FINE).mul_f64(clock.speed());
    loop {
        let before = clock.elapsed();
        tokio::time::sleep(TICK).await;
        let late = clock.elapsed().saturating_sub(before + fine);
        let late = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        total.fetch_add(late, Ordering::Relaxed);
    }
}
