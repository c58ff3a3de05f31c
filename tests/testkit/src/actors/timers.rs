//! When was something first seen, and when is the next thing due?

use std::collections::BTreeMap;
use std::time::Duration;

/// First-seen times and the next moment at which an actor has to look again.
#[derive(Debug, Default)]
pub struct Timers {
    first: BTreeMap<String, Duration>,
    now: Duration,
    next: Option<Duration>,
}

impl Timers {
    /// Begins a look at this time.
    pub fn begin(&mut self, now: Duration) {
        self.now = now;
        self.next = None;
    }

    /// The time of this look.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Whether `delay` has passed since `key` was asked about the first time; looks again when it has.
    pub fn due(&mut self, key: &str, delay: Duration) -> bool {
        let first = *self.first.entry(key.to_owned()).or_insert(self.now);
        self.reached(first.saturating_add(delay))
    }

    /// Whether this moment has come; looks again when it has.
    pub fn reached(&mut self, at: Duration) -> bool {
        if self.now >= at {
            return true;
        }
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
        false
    }

    /// Forgets a key, so that its time begins again.
    pub fn forget(&mut self, key: &str) {
        self.first.remove(key);
    }

    /// The next moment to look, if time alone can change anything.
    pub fn next(&self) -> Option<Duration> {
        self.next
    }
}
