//! Time as the core sees it: milliseconds of `CLOCK_BOOTTIME`, always handed in, never read here.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment on `CLOCK_BOOTTIME`, in milliseconds since the boot of the host.
///
/// That clock counts suspend and is the same for every process of one boot, so a deadline
/// that was written down survives a restart of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mono(pub u64);

impl Mono {
    /// How long ago `earlier` was; zero when it lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// How long it is until `self`, seen from `now`; zero when it has passed.
    pub fn left(self, now: Self) -> Duration {
        self.since(now)
    }
}

impl Add<Duration> for Mono {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub<Duration> for Mono {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

impl fmt::Display for Mono {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.0 / 1000, self.0 % 1000)
    }
}
