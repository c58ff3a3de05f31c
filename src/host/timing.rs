//! How long does the host adapter wait for what? Every time constant of it is here.

use crate::drain::policy::seconds;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time constants of the host adapter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// Time limit of a question to logind or the bus.
    #[serde(with = "seconds")]
    pub probe: Duration,
    /// Time limit of a call that makes logind work (`Inhibit`, `PowerOff`), and of a connection.
    #[serde(with = "seconds")]
    pub work: Duration,
    /// How often logind is asked, while a shutdown is pending, whether it still is: it can vanish without a signal.
    #[serde(with = "seconds")]
    pub pending_poll: Duration,
    /// The second look after the first "no".
    #[serde(with = "seconds")]
    pub pending_confirm: Duration,
    /// How often logind's limit and our lock are looked at when nothing happens: the limit changes without a signal.
    #[serde(with = "seconds")]
    pub limit_poll: Duration,
    /// First pause before the bus or the lock is tried again; doubles.
    #[serde(with = "seconds")]
    pub retry_first: Duration,
    /// Longest such pause.
    #[serde(with = "seconds")]
    pub retry_most: Duration,
    /// How long logind may need to notice that the lock was released.
    #[serde(with = "seconds")]
    pub release_check: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            probe: ms(2000),
            work: ms(10_000),
            pending_poll: ms(5000),
            pending_confirm: ms(300),
            limit_poll: ms(60_000),
            retry_first: ms(100),
            retry_most: ms(5000),
            release_check: ms(2000),
        }
    }
}
