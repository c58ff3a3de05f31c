//! What time is it? The only place that reads a clock.

use crate::agent::ports::Clock;
use crate::drain::time::Mono;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Longest single sleep of [`BootClock::sleep_until`]: tokio's timers stand still while the host is
/// suspended, `CLOCK_BOOTTIME` does not, so a long sleep looks at the clock now and then.
const LONGEST_NAP: Duration = Duration::from_secs(60);

/// Now, on `CLOCK_BOOTTIME`.
pub fn now() -> Mono {
    read(ClockId::CLOCK_BOOTTIME)
}

/// Now, on `CLOCK_MONOTONIC`: the clock of logind's deadlines (systemd 257 and later).
pub fn monotonic() -> Mono {
    read(ClockId::CLOCK_MONOTONIC)
}

/// When `CLOCK_BOOTTIME` began on the wall clock as it goes now, in milliseconds since 1970. A step of the wall clock
/// moves it: never keep it.
pub fn booted_at() -> i64 {
    let millis = |moment: Mono| i64::try_from(moment.0).unwrap_or(i64::MAX);
    millis(read(ClockId::CLOCK_REALTIME)).saturating_sub(millis(now()))
}

/// A moment of `CLOCK_MONOTONIC` on `CLOCK_BOOTTIME`: as far back from now, and as much further as the host was
/// suspended, which a server never is.
pub fn from_monotonic(moment: Mono) -> Mono {
    now() - monotonic().since(moment)
}

/// Now, on `CLOCK_REALTIME`, since 1970: the clock of scheduled shutdowns. Jumps when somebody sets it.
pub fn realtime() -> std::time::Duration {
    clock_gettime(ClockId::CLOCK_REALTIME)
        .map(std::time::Duration::from)
        .unwrap_or_default()
}

/// Now, on the clock of tokio's timers, which a test can pause: for a program that only waits. Stands still while the host
/// is suspended.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the file that reads clocks"
)]
pub fn timer() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

fn read(clock: ClockId) -> Mono {
    // Both clocks exist on every Linux that systemd runs on; the call cannot fail there.
    clock_gettime(clock)
        .map(|t| Mono(Duration::from(t).as_millis().try_into().unwrap_or(u64::MAX)))
        .unwrap_or_default()
}

/// The host's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Mono {
        now()
    }

    fn booted_at(&self) -> i64 {
        booted_at()
    }

    async fn sleep_until(&self, when: Mono) {
        loop {
            let left = when.left(now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LONGEST_NAP)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_is_in_the_past_and_moments_move_between_the_clocks() {
        let wall = read(ClockId::CLOCK_REALTIME).0;
        let booted = u64::try_from(booted_at()).unwrap();
        let uptime = now().0;
        assert!(
            booted <= wall && wall - booted <= uptime + 60_000,
            "{booted} {wall} {uptime}"
        );
        let moved = from_monotonic(monotonic());
        assert!(now().since(moved) < Duration::from_secs(60), "{moved}");
    }

    #[tokio::test]
    async fn sleeps_at_least_until_then() {
        let clock = BootClock;
        let when = clock.now() + Duration::from_millis(30);
        clock.sleep_until(when).await;
        let late = clock.now().since(when);
        assert!(clock.now() >= when);
        assert!(late < Duration::from_secs(5), "woke {late:?} late");
        clock.sleep_until(when).await; // in the past: returns at once
    }
}
