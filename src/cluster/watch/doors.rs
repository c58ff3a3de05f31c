//! Who may open a connection now? At the signal seven lists and five watches want to begin at once, and
//! their TLS handshakes would stand in the way of the cordon and of the first eviction.
//!
//! First come, first served: all lists come before the first watch, and share connections.

use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Lists and openings of watches at one time.
const DOORS: usize = 2;
/// A server that leaves one list hanging must not keep the others from their turn for long.
const PATIENCE: Duration = Duration::from_millis(250);

/// The doors of one set of watches.
#[derive(Debug)]
pub(super) struct Doors(Semaphore);

impl Doors {
    pub(super) fn new() -> Self {
        Self(Semaphore::new(DOORS))
    }

    /// Waits for a turn, but not for long: then it goes on without one.
    pub(super) async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        timeout(PATIENCE, self.0.acquire()).await.ok()?.ok()
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
}
