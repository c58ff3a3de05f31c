//! How long to wait after a failure: growing, bounded, and not at the same moment on every node.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Growing pauses with jitter.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    factor: u32,
    next: Duration,
    /// Differs per node and kind, so that a thousand agents do not come back in step.
    seed: u64,
    count: u64,
}

impl Backoff {
    /// Pauses from `first` to `most`, each `factor` times the one before.
    pub(crate) fn new(first: Duration, most: Duration, factor: u32, salt: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        Self {
            first,
            most,
            factor,
            next: first,
            seed: hasher.finish(),
            count: 0,
        }
    }

    /// The next pause: between the planned one and a quarter more.
    pub(crate) fn pause(&mut self) -> Duration {
        let planned = self.next.min(self.most);
        self.next = planned.saturating_mul(self.factor).min(self.most);
        let mut hasher = DefaultHasher::new();
        (self.seed, self.count).hash(&mut hasher);
        self.count += 1;
        let share = u32::try_from(hasher.finish() % 256).unwrap_or(0);
        planned + planned * share / 1024
    }

    /// Things work again.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_a_bound_and_starts_again() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(200), ms(1000), 2, "node1 pods");
        for planned in [200, 400, 800, 1000, 1000] {
            let pause = backoff.pause();
            assert!(
                pause >= ms(planned) && pause <= ms(planned * 5 / 4),
                "{pause:?}"
            );
        }
        backoff.reset();
        assert!(backoff.pause() <= ms(250));
    }

    #[test]
    fn nodes_differ() {
        let pauses = |salt| {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1), 2, salt);
            [backoff.pause(), backoff.pause(), backoff.pause()]
        };
        assert_ne!(pauses("node1"), pauses("node2"));
        assert_eq!(pauses("node1"), pauses("node1"));
    }
}
