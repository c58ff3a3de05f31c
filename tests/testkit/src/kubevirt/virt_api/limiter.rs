//! How fast may virt-api's own API client ask? A token bucket as in client-go (`QPS`, `Burst`).

use std::time::Duration;

/// A token bucket whose tokens are reserved in the order of the calls.
#[derive(Debug)]
pub(super) struct Limiter {
    rate: f64,
    burst: f64,
    tokens: f64,
    last: Duration,
}

impl Limiter {
    pub(super) fn new(rate: f64, burst: f64) -> Self {
        Self {
            rate,
            burst,
            tokens: burst,
            last: Duration::ZERO,
        }
    }

    /// Takes one token and says how long to wait until it is there.
    pub(super) fn reserve(&mut self, now: Duration) -> Duration {
        let gained = now.saturating_sub(self.last).as_secs_f64() * self.rate;
        self.tokens = (self.tokens + gained).min(self.burst) - 1.0;
        self.last = self.last.max(now);
        Duration::from_secs_f64((-self.tokens / self.rate).max(0.0))
    }
}
