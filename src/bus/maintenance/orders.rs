//! What signals ask for is carried out in their order, and what is said twice in a row not twice in a moment.
//!
//! Whoever may send a signal may send it a thousand times. A repetition means what the first one meant; a restore reads the
//! Node every time, and a drain of an empty node is a new drain. So the same entry again waits a few seconds, and however
//! many come meanwhile are one. Another entry in between (power lost, back, lost) is news, and is never held up.

use super::{ask, see_to};
use crate::agent::command::Handle;
use crate::config::Maintenance;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep};

/// From one order to the same again.
const REPEAT: Duration = Duration::from_secs(5);

/// Orders that wait for their turn; more than that are told and dropped.
const WAITING: usize = 64;

/// The queue; dropping it ends its task.
#[derive(Debug)]
pub(super) struct Orders {
    queue: mpsc::Sender<Maintenance>,
    task: JoinHandle<()>,
}

impl Orders {
    pub(super) fn start(handle: Handle) -> Self {
        let (queue, orders) = mpsc::channel(WAITING);
        Self {
            queue,
            task: tokio::spawn(carry_out(orders, handle)),
        }
    }

    pub(super) fn give(&self, entry: Maintenance) {
        if let Err(mpsc::error::TrySendError::Full(entry)) = self.queue.try_send(entry) {
            tracing::warn!(
                vmdrain_reason = "MaintenanceIgnored",
                "{} was ignored: {WAITING} orders wait already",
                entry.reason()
            );
        }
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry_out(mut orders: mpsc::Receiver<Maintenance>, handle: Handle) {
    let mut last: Option<(String, Pin<Box<Sleep>>)> = None;
    let mut held: Option<Maintenance> = None;
    loop {
        let entry = match held.take() {
            Some(entry) => entry,
            None => match orders.recv().await {
                Some(entry) => entry,
                None => return,
            },
        };
        if let Some((name, pause)) = &mut last
            && *name == entry.name
        {
            held = other(&mut orders, &entry, pause).await;
        }
        // Nobody on the bus waits for an answer, so the journal gets it.
        tracing::info!(
            vmdrain_reason = "MaintenanceSignal",
            "{}: {}",
            entry.reason(),
            entry.action.word()
        );
        last = Some((entry.name.clone(), Box::pin(sleep(REPEAT))));
        let answered = ask(&handle, &entry).await;
        tokio::spawn(see_to(handle.clone(), entry, answered));
    }
}

/// Waits for the end of the pause, or until another order than this one has come.
async fn other(
    orders: &mut mpsc::Receiver<Maintenance>,
    same: &Maintenance,
    pause: &mut Pin<Box<Sleep>>,
) -> Option<Maintenance> {
    loop {
        tokio::select! {
            () = pause.as_mut() => return None,
            next = orders.recv() => match next {
                Some(next) if next.name == same.name => {
                    tracing::debug!("{} came once more", next.reason());
                }
                next => return next,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::command::Command;
    use crate::drain::status::Status;
    use std::sync::Arc;
    use tokio::sync::watch;
    use tokio::time::Instant;

    fn entry(name: &str, action: &str) -> Maintenance {
        let text = format!(
            "name = \"{name}\"\nsender = \"org.example.A\"\npath = \"/a\"\ninterface = \"org.example.A\"\nmember = \"B\"\naction = \"{action}\""
        );
        toml::from_str(&text).expect("an entry")
    }

    /// What was ordered in this time, with the second.
    #[allow(
        clippy::disallowed_methods,
        reason = "the paused clock of this test is tokio's"
    )]
    async fn ordered(given: &[(u64, Maintenance)], until: u64) -> Vec<(u64, &'static str)> {
        let (commands, mut heard) = mpsc::channel(64);
        let (_status, status) = watch::channel(Arc::new(Status::default()));
        let orders = Orders::start(Handle { commands, status });
        let began = Instant::now();
        let mut found = Vec::new();
        let mut given = given.iter().peekable();
        loop {
            let next = given.peek().map_or(until, |(at, _)| *at);
            tokio::select! {
                biased;
                Some(command) = heard.recv() => {
                    let word = if matches!(command, Command::Restore(_)) {
                        "restore"
                    } else if matches!(command, Command::Cancel { .. }) {
                        "cancel"
                    } else {
                        "drain"
                    };
                    found.push((began.elapsed().as_secs(), word));
                }
                () = tokio::time::sleep_until(began + Duration::from_secs(next)) => match given.next() {
                    Some((_, entry)) => orders.give(entry.clone()),
                    None => return found,
                },
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_restores_are_one_every_few_seconds() {
        let many: Vec<_> = (0..1000).map(|_| (1, entry("back", "restore"))).collect();
        let found = ordered(&many, 60).await;
        assert_eq!(found[0], (1, "restore"));
        assert!(found.len() <= 3, "{found:?}");
        let spread: Vec<_> = (0..20).map(|s| (s, entry("back", "restore"))).collect();
        let found = ordered(&spread, 60).await;
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn another_order_is_never_held_up() {
        let low = || entry("low", "drain-then-poweroff");
        let back = || entry("back", "cancel");
        let given = [(0, low()), (1, low()), (2, back()), (3, low())];
        let found = ordered(&given, 60).await;
        let wanted = [(0, "drain"), (2, "drain"), (2, "cancel"), (3, "drain")];
        assert_eq!(found, wanted);
    }
}
