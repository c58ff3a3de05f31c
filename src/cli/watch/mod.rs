//! Waiting for a drain and following the status: what is shown, when does it end, what does Ctrl-C do?

use super::args::Format;
use super::daemon::{CallError, Daemon, Feed};
use super::exit::Exit;
use super::failure::Failure;
use super::progress;
use super::screen::Screen;
use super::table;
use crate::drain::phase::Phase;
use crate::drain::status::{Status, VmPhase};
use futures_util::{Stream, StreamExt, stream};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Within this time a second Ctrl-C asks for a cancel.
const SECOND_INTERRUPT: Duration = Duration::from_secs(3);

/// So many answers in a row may be missing (the daemon is restarted, about one a second) before we give up.
const PATIENCE: u32 = 30;

/// So many statuses may be about something else than our drain before we believe it.
const STRANGE: u32 = 5;

/// A drain to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its id.
    pub id: String,
    /// It lives in this process: Ctrl-C cannot leave it alone.
    pub ours: bool,
}

/// Statuses one after the other; the stream may be dropped between two of them without losing one.
fn statuses<F: Feed>(feed: F) -> impl Stream<Item = Result<Arc<Status>, CallError>> {
    stream::unfold(feed, |mut feed| async move {
        let next = feed.next().await;
        Some((next, feed))
    })
}

/// Waits until the drain has ended. Progress goes to the screen; `interrupts` are presses of Ctrl-C.
///
/// # Errors
/// When the daemon went away for good, forgot the drain, or the output cannot be written.
pub async fn wait_for<D: Daemon>(
    daemon: &D,
    waiting: &Waiting,
    interrupts: impl Stream<Item = ()>,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let mut statuses = pin!(statuses(daemon.follow().await?));
    let mut interrupts = pin!(interrupts.fuse());
    let mut before: Option<Arc<Status>> = None;
    let (mut missing, mut strange) = (0, 0);
    loop {
        tokio::select! {
            Some(got) = statuses.next() => match got {
                Ok(status) if is_about(&status, &waiting.id) => {
                    (missing, strange) = (0, 0);
                    show(before.as_deref(), &status, screen)?;
                    if let Some(exit) = ended(&status) {
                        screen.settle(true);
                        return finish(&status, exit);
                    }
                    before = Some(status);
                }
                Ok(_) => {
                    strange += 1;
                    if strange > STRANGE {
                        screen.settle(true);
                        return Err(forgotten(&waiting.id));
                    }
                }
                Err(error) => {
                    missing += 1;
                    if missing == 1 {
                        screen.line("the daemon does not answer; waiting for it (the drain goes on when it is back)")?;
                    }
                    if missing > PATIENCE {
                        screen.settle(true);
                        return Err(lost(&waiting.id, &error));
                    }
                }
            },
            Some(()) = interrupts.next() => {
                if let Some(exit) = interrupted(daemon, waiting, &mut interrupts, screen).await? {
                    return Ok(exit);
                }
            }
        }
    }
}

pub(super) fn is_about(status: &Status, id: &str) -> bool {
    status.drain.as_ref().is_some_and(|drain| drain.id == id)
}

/// How it ended. Past its deadline a drain has its exit code before it is undone: a process that left then
/// would leave marks and cordon behind.
pub(super) fn ended(status: &Status) -> Option<Exit> {
    let code = status.drain.as_ref()?.exit?;
    if status.state == Phase::Cancelling.name() {
        return None;
    }
    Some(Exit::from_drain(code))
}

fn show(before: Option<&Status>, now: &Status, screen: &mut Screen) -> Result<(), Failure> {
    let look = screen.look();
    if look.terminal {
        let gone = now.vms_total.saturating_sub(now.vms_remaining);
        let beside = progress::summary(now);
        screen.draw(
            Some((gone, now.vms_total, &beside)),
            &progress::lines(now, look),
        );
    } else {
        for line in progress::changes(before, now) {
            screen.line(&line)?;
        }
    }
    Ok(())
}

/// The exit. A good end was shown already; a bad one is told on stderr as any failure.
fn finish(status: &Status, exit: Exit) -> Result<Exit, Failure> {
    let told = || progress::ending(status).join("\n");
    let (means, cure) = match exit {
        Exit::Done | Exit::Cancelled => return Ok(exit),
        Exit::Left => (
            if status.vms.iter().any(|vm| vm.phase == VmPhase::Left) {
                "The VMs named above are still on this node."
            } else {
                "Whether VMs are left on this node is not known."
            },
            "`vmdrain-agent status` shows the reasons; a new `vmdrain-agent trigger` tries again.",
        ),
        Exit::NoCluster => (
            "The VMs are where they were.",
            "Check the network and `cluster.kubeconfig` of the configuration.",
        ),
        Exit::Failed
        | Exit::Usage
        | Exit::Refused
        | Exit::NoDaemon
        | Exit::Detached
        | Exit::NotSafe
        | Exit::Warnings
        | Exit::Failures => ("", ""),
    };
    Err(Failure::new(exit, told(), means, cure))
}

/// Ctrl-C: leave, unless it comes twice.
async fn interrupted<D: Daemon>(
    daemon: &D,
    waiting: &Waiting,
    interrupts: &mut (impl Stream<Item = ()> + Unpin),
    screen: &mut Screen,
) -> Result<Option<Exit>, Failure> {
    screen.settle(true);
    screen.line(if waiting.ours {
        "the drain is part of this program and goes on; press Ctrl-C again within 3 s to cancel it"
    } else {
        "no longer watching; the drain goes on (`vmdrain-agent status -w` follows it). Press Ctrl-C again within 3 s to cancel it"
    })?;
    let again = tokio::time::timeout(SECOND_INTERRUPT, interrupts.next()).await;
    if !matches!(again, Ok(Some(()))) {
        return Ok((!waiting.ours).then_some(Exit::Detached));
    }
    match daemon.cancel(false).await {
        Ok(_) => screen.line("cancelling the drain")?,
        Err(CallError::Refused(why)) => screen.line(&format!("not cancelled: {why}"))?,
        Err(error) => return Err(error.into()),
    }
    Ok(None)
}

fn forgotten(id: &str) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("the daemon no longer speaks of drain {id}"),
        "It was restarted without its record, or another drain has begun; how this one ended is not known.",
        "`vmdrain-agent status` shows what is going on now.",
    )
}

fn lost(id: &str, error: &CallError) -> Failure {
    Failure::new(
        Exit::NoDaemon,
        format!("the daemon went away while drain {id} was running: {error}"),
        "The drain goes on where it was as soon as a daemon runs again; until then nothing moves it on.",
        "Look at `systemctl status vmdrain-agent`, then follow with `vmdrain-agent status -w`.",
    )
}

/// Shows the status until Ctrl-C.
///
/// # Errors
/// When the daemon cannot be reached at first, or stays away.
pub async fn status<D: Daemon>(
    daemon: &D,
    output: Format,
    interrupts: impl Stream<Item = ()>,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let mut statuses = pin!(statuses(daemon.follow().await?));
    let mut interrupts = pin!(interrupts.fuse());
    let mut before: Option<Arc<Status>> = None;
    let mut missing = 0;
    loop {
        tokio::select! {
            Some(got) = statuses.next() => match got {
                Ok(status) => {
                    missing = 0;
                    show_status(before.as_deref(), &status, output, screen)?;
                    before = Some(status);
                }
                Err(error) if before.is_none() => return Err(error.into()),
                Err(error) => {
                    missing += 1;
                    if missing > PATIENCE {
                        screen.settle(true);
                        return Err(error.into());
                    }
                }
            },
            Some(()) = interrupts.next() => {
                screen.settle(true);
                return Ok(Exit::Done);
            }
        }
    }
}

fn show_status(
    before: Option<&Status>,
    now: &Status,
    output: Format,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let look = screen.look();
    match output {
        Format::Json => {
            if before.is_none_or(|before| !progress::same(before, now)) {
                screen.line(&json(now, false)?)?;
            }
        }
        Format::Table if look.terminal => {
            let text = table::status(now, look);
            let lines: Vec<String> = text
                .lines()
                .take(look.height.saturating_sub(2))
                .map(str::to_owned)
                .collect();
            screen.draw(None, &lines);
        }
        Format::Table => {
            for line in progress::changes(before, now) {
                screen.line(&line)?;
            }
        }
    }
    Ok(())
}

/// The status for programs.
pub(super) fn json(status: &Status, pretty: bool) -> Result<String, Failure> {
    let text = if pretty {
        serde_json::to_string_pretty(status)
    } else {
        serde_json::to_string(status)
    };
    text.map_err(|why| {
        Failure::new(
            Exit::Failed,
            format!("the status cannot be written as JSON: {why}"),
            "",
            "",
        )
    })
}

#[cfg(test)]
mod tests;
