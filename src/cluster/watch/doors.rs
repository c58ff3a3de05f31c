//! Who may open a connection now? At the signal seven lists and five watches want to begin at once, and
//! their TLS handshakes would stand in the way of the cordon and of the first evictions.
//!
//! What the drain itself sends goes first. Then first come, first served: all lists come before the first
//! watch, and share connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Lists and openings of watches at one time.
const DOORS: usize = 2;
/// A server that leaves one request hanging must not keep the others from their turn for long.
const PATIENCE: Duration = Duration::from_millis(250);

/// The doors to one server.
#[derive(Debug)]
pub(in crate::cluster) struct Doors {
    turns: Semaphore,
    urgent: AtomicUsize,
    /// Wakes in the order of waiting, so that the same simulation is the same on every run.
    calm: Notify,
}

/// A request of the drain is under way as long as this lives.
#[derive(Debug)]
pub(in crate::cluster) struct Urgent(Arc<Doors>);

impl Doors {
    pub(in crate::cluster) fn new() -> Self {
        Self {
            turns: Semaphore::new(DOORS),
            urgent: AtomicUsize::new(0),
            calm: Notify::new(),
        }
    }

    /// Others wait until this is dropped.
    pub(in crate::cluster) fn urgent(self: &Arc<Self>) -> Urgent {
        self.urgent.fetch_add(1, Ordering::SeqCst);
        Urgent(Arc::clone(self))
    }

    /// Waits for a turn, but not for long: then it goes on without one.
    pub(super) async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        timeout(PATIENCE, self.turn()).await.ok()?
    }

    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        let turn = self.turns.acquire().await.ok();
        self.calm().await;
        turn
    }

    async fn calm(&self) {
        loop {
            let calm = self.calm.notified();
            if self.urgent.load(Ordering::SeqCst) == 0 {
                return;
            }
            calm.await;
        }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if self.0.urgent.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.calm.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn two_at_a_time_and_nobody_waits_for_one_that_hangs() {
        let doors = Doors::new();
        let (first, second) = (doors.enter().await, doors.enter().await);
        assert!(first.is_some() && second.is_some());
        assert!(
            timeout(PATIENCE / 2, doors.enter()).await.is_err(),
            "no turn yet"
        );
        assert!(doors.enter().await.is_none(), "on without a turn");
        drop(second);
        let turn = timeout(PATIENCE / 2, doors.enter()).await;
        assert!(turn.is_ok_and(|turn| turn.is_some()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_drain_sends_goes_first() {
        let doors = Arc::new(Doors::new());
        let (cordon, eviction) = (doors.urgent(), doors.urgent());
        drop(cordon);
        assert!(timeout(PATIENCE / 2, doors.enter()).await.is_err());
        assert!(doors.enter().await.is_none(), "on without a turn");
        drop(eviction);
        let turn = timeout(PATIENCE / 2, doors.enter()).await;
        assert!(turn.is_ok_and(|turn| turn.is_some()));
    }
}
