//! What time is it in the simulated world?
//!
//! The only clock of the simulator. It runs on tokio's clock, so a test that pauses tokio's time pauses the world, and it may run
//! faster than real time (`--speed` of the binary front): one real second is then `speed` simulated seconds.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z, the moment at which every in-process world begins.
const EPOCH_SECONDS: i64 = 1_767_225_600;

/// A clock that starts at zero when it is made. Cheap to clone; all clones agree.
#[derive(Clone, Debug)]
pub struct SimClock {
    start: Instant,
    epoch: Timestamp,
    speed: f64,
    among_real: bool,
}

impl SimClock {
    /// A clock that starts now, at 2026-01-01T00:00:00Z of simulated time, and runs `speed` times as fast as tokio's clock.
    ///
    /// A `speed` that is not a positive finite number counts as 1.
    pub fn new(speed: f64) -> Self {
        let speed = if speed.is_finite() && speed > 0.0 {
            speed
        } else {
            1.0
        };
        Self {
            start: instant_now(),
            epoch: Timestamp::from_second(EPOCH_SECONDS).unwrap_or(Timestamp::UNIX_EPOCH),
            speed,
            among_real: false,
        }
    }

    /// The same clock among servers that read the real date: see [`date`](Self::date).
    #[must_use]
    pub fn among_real(mut self) -> Self {
        self.among_real = true;
        self
    }

    /// The same clock with another date at its beginning (`clustersim serve` shows ages against the real date).
    #[must_use]
    pub fn with_epoch(mut self, epoch: Timestamp) -> Self {
        self.epoch = epoch;
        self
    }

    /// A clock that begins at the real date, for people who look at the world with `kubectl`.
    pub fn from_wall(speed: f64) -> Self {
        Self::new(speed).with_epoch(wall_now())
    }

    /// Simulated time since the clock was made.
    pub fn elapsed(&self) -> Duration {
        let real = instant_now().saturating_duration_since(self.start);
        if self.is_real_time() {
            real
        } else {
            real.mul_f64(self.speed)
        }
    }

    /// The simulated date and time.
    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.elapsed()).unwrap_or(SignedDuration::ZERO);
        self.epoch.checked_add(elapsed).unwrap_or(self.epoch)
    }

    /// The date for others to compare with their own clocks: the simulated one, but the real one among real servers, however fast the
    /// story runs. A migration that ends in their future is one that still runs to them.
    pub fn date(&self) -> Timestamp {
        if self.among_real {
            wall_now()
        } else {
            self.now()
        }
    }

    /// Waits for a simulated duration; really `duration / speed`.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(self.real(duration)).await;
    }

    /// Waits until [`elapsed`](Self::elapsed) has reached `elapsed`; returns at once when it has.
    pub async fn sleep_until(&self, elapsed: Duration) {
        match self.start.checked_add(self.real(elapsed)) {
            Some(moment) => tokio::time::sleep_until(moment).await,
            None => std::future::pending().await,
        }
    }

    /// How many simulated seconds pass in one real second.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// At speed 1 nothing is rounded.
    fn is_real_time(&self) -> bool {
        (self.speed - 1.0).abs() < f64::EPSILON
    }

    /// How long `simulated` really takes; at most [`Duration::MAX`].
    pub fn real(&self, simulated: Duration) -> Duration {
        if self.is_real_time() {
            return simulated;
        }
        Duration::try_from_secs_f64(simulated.as_secs_f64() / self.speed).unwrap_or(Duration::MAX)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock of the simulated world"
)]
fn instant_now() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock of the simulated world"
)]
fn wall_now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sleeps_in_simulated_time() {
        let clock = SimClock::new(4.0);
        clock.sleep(Duration::from_secs(40)).await;
        assert_eq!(clock.elapsed(), Duration::from_secs(40));
        assert_eq!(clock.now().to_string(), "2026-01-01T00:00:40Z");
        clock.sleep_until(Duration::from_secs(60)).await;
        assert_eq!(clock.elapsed(), Duration::from_secs(60));
        clock.sleep_until(Duration::from_secs(1)).await;
        assert_eq!(clock.elapsed(), Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn among_real_servers_dates_are_real() {
        let (own, real) = (SimClock::new(4.0), SimClock::new(4.0).among_real());
        assert_eq!(own.date(), own.now());
        assert!(real.date() > real.now());
        real.sleep(Duration::from_secs(40)).await;
        assert_eq!(real.elapsed(), Duration::from_secs(40));
    }

    #[test]
    fn a_senseless_speed_is_one() {
        for speed in [0.0, -3.0, f64::NAN, f64::INFINITY] {
            assert!((SimClock::new(speed).speed() - 1.0).abs() < f64::EPSILON);
        }
    }
}
