//! `CLOCK_BOOTTIME` of the simulated host.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vmdrain_agent::agent::ports::Clock;
use vmdrain_agent::drain::time::Mono;

use crate::clock::SimClock;

/// Counts from the host's last boot. Cheap to clone; all clones agree.
#[derive(Clone, Debug)]
pub struct ModelClock {
    world: SimClock,
    booted: Arc<Mutex<Duration>>,
}

/// How long the host had been up when the story began: a boot clock never reads zero in practice.
const UPTIME: Duration = Duration::from_secs(3600);

impl ModelClock {
    /// A clock of a host that has been up for an hour.
    pub fn new(world: SimClock) -> Self {
        Self {
            world,
            booted: Arc::default(),
        }
    }

    /// The host has booted now.
    pub fn booted(&self) {
        *self.booted.lock().unwrap_or_else(PoisonError::into_inner) = self.world.elapsed() + UPTIME;
    }

    fn zero(&self) -> Duration {
        *self.booted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ModelClock {
    fn now(&self) -> Mono {
        Mono::default() + (self.world.elapsed() + UPTIME).saturating_sub(self.zero())
    }

    fn booted_at(&self) -> i64 {
        let uptime = i64::try_from(self.now().0).unwrap_or(i64::MAX);
        self.world.now().as_millisecond().saturating_sub(uptime)
    }

    async fn sleep_until(&self, when: Mono) {
        self.world.sleep(when.left(self.now())).await;
    }
}
