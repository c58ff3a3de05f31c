//! What does the stop job of `vmdrain-hold.service` do (net 3)?
//!
//! ```text
//!  PID 1: going down? ── no ──► says so, exit 0 (restart, upgrade, systemctl stop)
//!        │ yes: how long may it take?
//!        ▼
//!  daemon on the bus: Trigger(stop_job) ── dead, hangs, refuses ──► drain in this process
//!        └── progress to stdout and STATUS=, EXTEND_TIMEOUT_USEC while it lasts ──► exit, always in time
//! ```
//!
//! Nothing here may fail because nobody reads the output: at this point of a shutdown the reader may be gone.

use super::args::Global;
use super::commands::{sources, start_log};
use super::daemon::{CallError, Daemon, Feed};
use super::exit::Exit;
use super::look::clock;
use super::progress;
use super::run::{self, Standalone};
use super::screen::Screen;
use super::watch::{ended, is_about};
use crate::bus::Client;
use crate::drain::status::Status;
use crate::drain::trigger::{Then, Trigger};
use crate::host::clock::timer;
use crate::host::stopping::{self, Fate};
use crate::host::{Timing, notify, system1};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The daemon must have taken the request by then: it only queues it.
const ANSWER: Duration = Duration::from_secs(10);
/// A daemon whose status stands still so long hangs: while a drain runs its clock goes on.
const STILL: Duration = Duration::from_secs(15);
/// So many answers in a row may be missing, about one a second: nobody restarts a daemon in a system that ends.
const MISSING: u32 = 5;
/// A line at least this often, so that whoever stands before the console sees that something happens.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// How often PID 1 is asked for more time, and for how much.
const EXTEND: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));
/// After the deadline of the drain this much is left for its end to be told, but never more than a tenth of it.
const AFTER: Duration = Duration::from_secs(30);
/// A drain of this process ends within this after it was told to.
const FAREWELL: Duration = Duration::from_secs(5);

/// The command.
pub(super) async fn run(global: &Global, screen: &mut Screen) -> Exit {
    let seen = system1::look(global.bus.as_deref(), &Timing::default()).await;
    let mut out = Out::new(screen);
    let (then, says) = match stopping::fate(&seen) {
        Fate::Down { then, says } => (then, says),
        Fate::Up { says } => {
            out.line(&format!(
                "nothing to do: the system is not going down ({says}), so no VM is moved"
            ));
            return Exit::Done;
        }
    };
    let extends = std::env::var_os("NOTIFY_SOCKET").is_some();
    let job = Job::new(then, stopping::budget(&seen, extends));
    out.line(&format!(
        "the system is going down ({says}): it waits until the VMs of this host are away, at most {}",
        clock(job.left().as_secs_f64())
    ));
    let extending = tokio::spawn(extend());
    let daemon = Client::connect(global.bus.as_deref()).await;
    let exit = drain(
        &job,
        daemon.map_err(CallError::from),
        || own_drain(global),
        &mut out,
    )
    .await;
    extending.abort();
    // Its last line, and no word that comes after our end.
    notify::flush(Duration::from_secs(1));
    exit
}

/// Asks PID 1 for more time, as long as this job lives.
async fn extend() {
    loop {
        notify::extend_timeout(EXTEND.1);
        tokio::time::sleep(EXTEND.0).await;
    }
}

/// What has to be done, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    then: Option<Then>,
    /// The deadline of the drain.
    deadline: Instant,
    /// Then this program ends, whatever else has happened.
    end: Instant,
}

impl Job {
    fn new(then: Option<Then>, budget: Duration) -> Self {
        let deadline = timer() + budget;
        Self {
            then,
            deadline,
            end: deadline + AFTER.min(budget / 10),
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(timer())
    }

    fn trigger(&self) -> Trigger {
        let what = self.then.map_or("shutdown", Then::word);
        Trigger {
            reason: format!("the host is going down ({what}, stop job)"),
            // Zero is no deadline on the wire: one that has passed is met at once.
            deadline: Some(self.left().max(Duration::from_millis(1))),
            stop_job: true,
            ..Trigger::default()
        }
    }
}

/// A drain of this process. Its way to the cluster is the only thing that it needs.
async fn own_drain(global: &Global) -> Result<Standalone, String> {
    let loaded = sources(global).load().map_err(|why| why.to_string())?;
    // Without a journal its warnings are lost; its progress is not.
    let _ = start_log("warn");
    run::stopping(&loaded.settings)
        .await
        .map_err(|why| why.to_string().replace('\n', " "))
}

/// A drain that this process runs by itself.
pub(super) trait Own {
    /// How it is asked and followed.
    type Daemon: Daemon;
    /// It.
    fn daemon(&self) -> &Self::Daemon;
    /// Ends it where it is.
    fn end(self) -> impl Future<Output = ()>;
}

impl Own for Standalone {
    type Daemon = crate::agent::command::Handle;

    fn daemon(&self) -> &Self::Daemon {
        &self.handle
    }

    async fn end(self) {
        // Without a listener it has ended already.
        let _ = self.stop.send(());
        let _ = tokio::time::timeout(FAREWELL, self.task).await;
    }
}

/// Drains by the daemon, else by a drain of our own.
pub(super) async fn drain<D: Daemon, O: Own, F: Future<Output = Result<O, String>>>(
    job: &Job,
    daemon: Result<D, CallError>,
    own: impl FnOnce() -> F,
    out: &mut Out<'_>,
) -> Exit {
    let lost = match daemon {
        Ok(daemon) => match tokio::time::timeout_at(job.end, follow(&daemon, job, out)).await {
            Ok(Followed::Ended(exit)) => return out.farewell(exit),
            Ok(Followed::Lost(why)) => why,
            Err(_) => return out.too_late(),
        },
        Err(error) => error.to_string(),
    };
    out.line(&format!(
        "the daemon does not do it ({lost}): this program drains by itself"
    ));
    let own = match tokio::time::timeout_at(job.end, own()).await {
        Ok(Ok(own)) => own,
        Ok(Err(why)) => {
            out.line(&format!(
                "no VM can be moved: {why}. The VMs that run here are ended with the host"
            ));
            return Exit::NoCluster;
        }
        Err(_) => return out.too_late(),
    };
    let followed = tokio::time::timeout_at(job.end, follow(own.daemon(), job, out)).await;
    own.end().await;
    match followed {
        Ok(Followed::Ended(exit)) => out.farewell(exit),
        Ok(Followed::Lost(why)) => {
            out.line(&format!("the drain has broken off: {why}"));
            Exit::Failed
        }
        Err(_) => out.too_late(),
    }
}

enum Followed {
    Ended(Exit),
    Lost(String),
}

/// Starts or joins the drain and waits for its end.
async fn follow<D: Daemon>(daemon: &D, job: &Job, out: &mut Out<'_>) -> Followed {
    let asked = tokio::time::timeout(ANSWER, async {
        let id = daemon.trigger(&job.trigger()).await?;
        Ok::<_, CallError>((id, daemon.follow().await?))
    });
    let (id, mut feed) = match asked.await {
        Ok(Ok(begun)) => begun,
        Ok(Err(error)) => return Followed::Lost(error.to_string()),
        Err(_) => return Followed::Lost(format!("no answer in {} s", ANSWER.as_secs())),
    };
    let (mut missing, mut strange) = (0, 0);
    let mut alive = (f64::MIN, timer());
    loop {
        let Ok(next) = tokio::time::timeout(STILL, feed.next()).await else {
            return Followed::Lost(format!("no status in {} s", STILL.as_secs()));
        };
        match next {
            Ok(status) if is_about(&status, &id) => {
                (missing, strange) = (0, 0);
                out.show(&status);
                if let Some(exit) = ended(&status) {
                    return Followed::Ended(exit);
                }
                let clock = status.drain.as_ref().map_or(0.0, |drain| drain.running_for);
                if clock > alive.0 {
                    alive = (clock, timer());
                } else if timer() - alive.1 >= STILL {
                    return Followed::Lost(format!("it stands still since {} s", STILL.as_secs()));
                }
            }
            Ok(_) => {
                strange += 1;
                if strange > MISSING {
                    return Followed::Lost(format!("it no longer speaks of drain {id}"));
                }
            }
            Err(error) => {
                missing += 1;
                if missing >= MISSING {
                    return Followed::Lost(error.to_string());
                }
            }
        }
    }
}

/// Lines for journal and console, and the line of `systemctl status`.
pub(super) struct Out<'s> {
    screen: &'s mut Screen,
    last: Option<Arc<Status>>,
    said: Instant,
}

impl<'s> Out<'s> {
    pub(super) fn new(screen: &'s mut Screen) -> Self {
        Self {
            screen,
            last: None,
            said: timer(),
        }
    }

    fn line(&mut self, text: &str) {
        // A reader that went away must not end the drain.
        let _ = self.screen.line(text);
        self.said = timer();
    }

    fn show(&mut self, status: &Arc<Status>) {
        let lines = progress::changes(self.last.as_deref(), status);
        if lines.is_empty() && timer() - self.said >= HEARTBEAT {
            self.line(&format!("{}: {}", status.state, status.says));
        }
        for line in &lines {
            self.line(line);
        }
        if self
            .last
            .as_ref()
            .is_none_or(|last| last.says != status.says)
        {
            notify::status(&status.says);
        }
        self.last = Some(status.clone());
    }

    fn farewell(&mut self, exit: Exit) -> Exit {
        if exit == Exit::Done {
            self.line("no VM is left on this host, it may go down");
            return exit;
        }
        let lines = self.last.as_deref().map(progress::ending);
        for line in lines.into_iter().flatten() {
            self.line(&line);
        }
        self.line("the host goes down now; VMs that still run here are ended with it");
        exit
    }

    fn too_late(&mut self) -> Exit {
        self.line("the time of this stop job is over: PID 1 would end it by force");
        self.farewell(Exit::Left)
    }
}

#[cfg(test)]
mod tests;
