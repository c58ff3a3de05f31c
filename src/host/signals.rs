//! Which Unix signals reach the daemon, and what do they mean?

use futures_util::StreamExt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

/// A signal that the daemon reacts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// TERM: end in order (the service manager stops or restarts us).
    Terminate,
    /// INT: the same from a terminal.
    Interrupt,
    /// HUP: read the configuration again.
    Reload,
    /// USR1: write the status to the journal.
    Report,
}

/// The stream of these signals. Made before READY=1: systemd 260 and later look for the HUP handler.
pub struct Signals {
    inner: signal_hook_tokio::Signals,
}

impl Signals {
    /// Installs the handlers; needs a tokio runtime.
    pub fn install() -> Result<Self, String> {
        signal_hook_tokio::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])
            .map(|inner| Self { inner })
            .map_err(|e| format!("cannot install the signal handlers: {e}"))
    }

    /// The next signal; never ends while the process lives. Safe to drop half-way.
    pub async fn next(&mut self) -> Signal {
        loop {
            match self.inner.next().await {
                Some(SIGTERM) => return Signal::Terminate,
                Some(SIGINT) => return Signal::Interrupt,
                Some(SIGHUP) => return Signal::Reload,
                Some(SIGUSR1) => return Signal::Report,
                Some(_) => {}
                None => return std::future::pending().await,
            }
        }
    }
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn signals_arrive_in_order() {
        let mut signals = Signals::install().unwrap();
        for (raw, meant) in [(SIGHUP, Signal::Reload), (SIGUSR1, Signal::Report)] {
            signal_hook::low_level::raise(raw).unwrap();
            let got = tokio::time::timeout(Duration::from_secs(5), signals.next()).await;
            assert_eq!(got, Ok(meant));
        }
    }
}
