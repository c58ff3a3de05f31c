//! What happened on the played host, and when?

use super::facts::Kind;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use vmdrain_agent::drain::time::Mono;
use vmdrain_agent::host::clock;

/// Why the host went down when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The last delay lock was released.
    Released,
    /// The limit was reached with a lock still held.
    Expired,
    /// Nothing delayed it: no lock, or a limit of 0.
    NotDelayed,
    /// logind was passed over.
    Bypassed,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A lock was given.
    Locked {
        /// Its holder.
        who: String,
    },
    /// The last copy of its descriptor was closed.
    Unlocked {
        /// Its holder.
        who: String,
    },
    /// A shutdown was announced; `delayed`: somebody is waited for.
    Prepared {
        /// What kind.
        kind: Kind,
        /// Whether it waits.
        delayed: bool,
    },
    /// A pending shutdown was called off.
    Cancelled,
    /// A pending shutdown was forgotten by a restart.
    Forgotten,
    /// `PrepareForShutdown(false)` was sent.
    Unprepared,
    /// logind left the bus.
    Gone,
    /// logind is (back) on the bus.
    Back,
    /// The delay ended and the host could not be told to go down; it stays up.
    JobFailed,
    /// The host went down.
    Down {
        /// What kind.
        kind: Kind,
        /// Why then.
        why: Why,
    },
}

/// With its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// On `CLOCK_BOOTTIME`.
    pub at: Mono,
    /// What.
    pub what: Happened,
}

/// The list.
#[derive(Debug)]
pub(super) struct Journal {
    events: Mutex<Vec<Event>>,
    count: watch::Sender<usize>,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            events: Mutex::default(),
            count: watch::channel(0).0,
        }
    }
}

impl Journal {
    pub(super) fn write(&self, what: Happened) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        tracing::debug!(?what, "stand-in logind");
        events.push(Event {
            at: clock::now(),
            what,
        });
        self.count.send_replace(events.len());
    }

    pub(super) fn all(&self) -> Vec<Event> {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) async fn wait_for(
        &self,
        limit: Duration,
        wanted: impl Fn(&Happened) -> bool,
    ) -> Option<Event> {
        let mut count = self.count.subscribe();
        let search = async {
            loop {
                count.mark_unchanged();
                if let Some(event) = self.all().into_iter().find(|event| wanted(&event.what)) {
                    return Some(event);
                }
                if count.changed().await.is_err() {
                    return None;
                }
            }
        };
        tokio::time::timeout(limit, search).await.unwrap_or(None)
    }
}
