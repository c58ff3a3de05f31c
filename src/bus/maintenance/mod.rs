//! Which maintenance signals came, and from whom? One task that turns the entries of `[[maintenance]]` into commands.
//!
//! ```text
//!  bus ──signals──► session.rs (is it the sender's?) ──► config::maintenance (is it meant?) ──► command::Handle ──► driver
//! ```
//!
//! It has a connection of its own, and none at all without an entry. What is ignored is told once for each entry: anybody
//! on the host can send as many signals as they like.

pub mod body;
mod credentials;
mod orders;
mod session;

use crate::agent::command::{Answer, Command, Handle};
use crate::config::Maintenance;
use crate::config::maintenance::Order;
use crate::drain::action::Source;
use crate::drain::trigger::Refusal;
use crate::host::Timing;
use orders::Orders;
use session::{Session, Update};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// How long a cancel that is under way may keep a signal waiting: it gives up after about four minutes itself.
const CANCEL: Duration = Duration::from_secs(300);

/// How long an answer may take: a restore asks the API server first.
const ANSWER: Duration = Duration::from_secs(60);

/// The task; dropping it ends it.
#[derive(Debug)]
pub struct Listener {
    task: tokio::task::JoinHandle<()>,
}

impl Listener {
    /// Listens on the bus at `address` (`None`: the system bus) for what `entries` say, also after they have changed.
    pub fn start(
        address: Option<String>,
        handle: Handle,
        entries: watch::Receiver<Vec<Maintenance>>,
        timing: Timing,
    ) -> Self {
        let listening = Listening {
            address,
            orders: Orders::start(handle.clone()),
            handle,
            entries,
            timing,
        };
        Self {
            task: tokio::spawn(listening.run()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Listening {
    address: Option<String>,
    orders: Orders,
    handle: Handle,
    entries: watch::Receiver<Vec<Maintenance>>,
    timing: Timing,
}

impl Listening {
    async fn run(mut self) {
        let mut pause = self.timing.retry_first;
        loop {
            let entries = self.entries.borrow_and_update().clone();
            if entries.is_empty() {
                self.say(Vec::new()).await;
                if self.entries.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let why = match Session::open(self.address.as_deref(), &entries, self.timing).await {
                Ok(session) => {
                    pause = self.timing.retry_first;
                    if self.serve(session).await {
                        return;
                    }
                    "the connection to the bus was lost".to_owned()
                }
                Err(error) => error.text,
            };
            let now = self.entries.borrow().clone();
            self.say(sources(&now, |_| format!("not listened to: {why}")))
                .await;
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(self.timing.retry_most),
                changed = self.entries.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Until the bus is lost (`false`), or nobody needs us any more (`true`).
    async fn serve(&mut self, mut session: Session) -> bool {
        loop {
            self.say(session.sources()).await;
            tokio::select! {
                biased;
                changed = self.entries.changed() => {
                    if changed.is_err() {
                        return true;
                    }
                    let entries = self.entries.borrow_and_update().clone();
                    // Without an entry there is nothing to be connected for; what cannot be subscribed to is tried anew.
                    let Ok(meant) = session.change(&entries).await else {
                        return false;
                    };
                    self.give(meant);
                    if entries.is_empty() {
                        return false;
                    }
                }
                update = session.next() => match update {
                    Update::Signal(message) => {
                        let meant = session.understand(&message).await;
                        self.give(meant);
                    }
                    Update::Owners => {}
                    Update::Lost => return false,
                },
            }
        }
    }

    async fn say(&self, sources: Vec<Source>) {
        // A driver that has ended needs no news.
        let _ = self.handle.commands.send(Command::Sources(sources)).await;
    }

    /// Hands what is meant over, in its order.
    fn give(&self, meant: Vec<Maintenance>) {
        for entry in meant {
            self.orders.give(entry);
        }
    }
}

type Answered = oneshot::Receiver<Answer>;

/// Tells a refusal. One that came because we were undoing something at that moment is asked once more: nobody sends the
/// signal a second time.
async fn see_to(handle: Handle, entry: Maintenance, answered: Answered) {
    let refused = refusal(answered).await;
    let Some(Refusal::AlreadyDraining {
        phase: "cancelling",
        ..
    }) = refused
    else {
        return tell(&entry, refused);
    };
    let mut status = handle.status.clone();
    let over = status.wait_for(|status| status.state != "cancelling");
    if !matches!(tokio::time::timeout(CANCEL, over).await, Ok(Ok(_))) {
        return tell(&entry, refused);
    }
    let again = ask(&handle, &entry).await;
    tell(&entry, refusal(again).await);
}

async fn refusal(answered: Answered) -> Option<Refusal> {
    let answer = tokio::time::timeout(ANSWER, answered).await;
    answer.ok()?.ok()?.err()
}

/// Sends the command.
async fn ask(handle: &Handle, entry: &Maintenance) -> Answered {
    let (answer, answered) = oneshot::channel();
    // A driver that has ended drops the way to answer as well.
    let _ = handle.commands.send(command(entry, answer)).await;
    answered
}

/// The command that an entry stands for.
pub fn command(entry: &Maintenance, answer: oneshot::Sender<Answer>) -> Command {
    match entry.order() {
        Order::Drain(trigger) => Command::Trigger(*trigger, answer),
        Order::Restore => Command::Restore(answer),
        Order::Cancel => Command::Cancel {
            abort_migrations: false,
            signal: entry.name.clone(),
            answer,
        },
    }
}

fn tell(entry: &Maintenance, refused: Option<Refusal>) {
    if let Some(refusal) = refused {
        tracing::warn!(
            vmdrain_reason = "MaintenanceRefused",
            "{}: not carried out: {refusal}",
            entry.reason()
        );
    }
}

/// The entries as the status shows them.
fn sources(entries: &[Maintenance], trouble: impl Fn(&Maintenance) -> String) -> Vec<Source> {
    let source = |entry: &Maintenance| Source {
        name: entry.name.clone(),
        sender: entry.sender.clone(),
        action: entry.action.word().into(),
        trouble: trouble(entry),
    };
    entries.iter().map(source).collect()
}
