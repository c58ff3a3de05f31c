//! The stage itself: how each event is played with the shipped binary.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use vmdrain_agent::drain::status::Status;

use super::super::scene::{Glance, Journal, Results};
use super::super::stage::{NotPlayed, STATE_FILE, Stage};
use super::{BinaryStage, LOOK, READY, RESTART};
use crate::host::Moment;
use crate::logind::Kind;
use crate::scenario::event::agent::AgentDo;
use crate::scenario::event::host::{DownKind, HostDo, LockMode, Way};

impl Stage for BinaryStage {
    async fn begin(&mut self) -> Result<(), String> {
        self.start();
        let holds = async {
            let mut status = self.status.clone();
            let held = |status: &Option<Arc<Status>>| {
                status.as_ref().is_some_and(|status| status.hold.held)
            };
            status.wait_for(held).await.is_ok()
        };
        if tokio::time::timeout(READY, holds).await.unwrap_or(false) {
            self.history.catch_up(&self.logind.events());
            return Ok(());
        }
        let journal: Vec<String> = self
            .journal
            .lines()
            .into_iter()
            .map(|line| line.text)
            .collect();
        Err(format!(
            "the agent did not take its lock: {}",
            journal.join(" / ")
        ))
    }

    async fn host(&mut self, what: &HostDo) -> Result<(), NotPlayed> {
        match what {
            HostDo::Down(kind, via) => match via.with {
                // A refusal is logind's answer to whoever asked, not a failure of the story.
                Way::Logind => drop(self.logind.poweroff(word(*kind)).await),
                Way::Target => Box::pin(self.begin_to_stop(word(*kind))).await?,
            },
            HostDo::Schedule(it) => {
                self.schedule = Some(self.clock.elapsed() + it.within.0);
                drop(
                    self.logind
                        .schedule(word(it.kind), self.real(it.within.0))
                        .await,
                );
            }
            HostDo::CancelSchedule => {
                self.schedule = None;
                self.logind.cancel().await;
            }
            HostDo::ShutdownFails(_) => self.logind.fail_next_job(),
            HostDo::Boot(boot) => {
                if boot.same_boot_id {
                    return Err(NotPlayed::NotYet(
                        "a boot with the same boot id on this front",
                    ));
                }
                let after = boot.after.map_or(self.boot_time, |span| span.0);
                self.boots_at = Some(self.clock.elapsed() + after);
            }
            HostDo::RestartLogind(away) => {
                self.logind.stop().await;
                self.logind_back = Some(self.clock.elapsed() + away.back_after.0);
            }
            HostDo::RestartDbus(_) => {
                if let Err(error) = self.bus.restart().await {
                    return Err(NotPlayed::Cannot(format!("{error:#}")));
                }
            }
            HostDo::Set(set) => {
                if set.kubelet_graceful_shutdown.is_some() {
                    return Err(NotPlayed::NotYet("the kubelet's own graceful shutdown"));
                }
                if let Some(limit) = set.inhibit_delay_max {
                    self.history.limit = limit.0;
                    self.logind.set_limit(self.real(limit.0));
                }
            }
            HostDo::Signal(signal) => self.signal(signal).await?,
            HostDo::Inhibitor(lock) => {
                let mode = match lock.mode {
                    LockMode::Delay => "delay",
                    LockMode::Block => "block",
                    LockMode::BlockWeak => "block-weak",
                };
                let held = self.logind.foreign(&lock.what, &lock.who, mode, 0);
                let held = held.map_err(|error| NotPlayed::Cannot(format!("{error:#}")))?;
                let until = lock.held.map(|span| self.clock.elapsed() + span.0);
                self.foreign.push((held, until));
            }
            HostDo::ClockJump(_) => return Err(NotPlayed::NotYet("a jump of the wall clock")),
            HostDo::Disk(..) => return Err(NotPlayed::NotYet("faults of the disk")),
        }
        Ok(())
    }

    async fn agent(&mut self, what: &AgentDo) -> Result<(), NotPlayed> {
        match what {
            AgentDo::Kill(away) => {
                self.wanted = false;
                self.history.agent_ends(self.logind.events().len());
                self.service.kill().await;
                self.process(away, Some(RESTART));
            }
            AgentDo::Stop(away) => {
                self.stop(false).await;
                self.process(away, None);
            }
            AgentDo::Restart(away) => {
                self.stop(true).await;
                self.process(away, Some(Duration::ZERO));
            }
            AgentDo::Start(away) => self.process(away, Some(Duration::ZERO)),
            AgentDo::Reload(_) => self.service.signal(Signal::SIGHUP),
            AgentDo::File(file) if file.path == STATE_FILE => {
                let state = self.folder.path().join("state");
                let written = std::fs::create_dir_all(&state)
                    .and_then(|()| std::fs::write(state.join("state.json"), &file.content));
                written.map_err(|error| NotPlayed::Cannot(error.to_string()))?;
            }
            AgentDo::File(_) => return Err(NotPlayed::NotYet("other files than the state file")),
            AgentDo::Trigger(_)
            | AgentDo::Cancel(_)
            | AgentDo::Extend(_)
            | AgentDo::Release(_)
            | AgentDo::Restore(_)
            | AgentDo::Plan(_)
            | AgentDo::Doctor(_) => {
                self.caller.give(what)?;
            }
        }
        Ok(())
    }

    async fn down(&mut self) {
        self.starts = None;
        // systemd needs a moment to come to the services; the last status is seen in it.
        tokio::time::sleep(LOOK * 4).await;
        self.stop(false).await;
    }

    async fn up(&mut self) {
        self.start();
    }

    async fn changed(&mut self) {
        let events = self.logind.events().len();
        let mut status = self.status.clone();
        status.borrow_and_update();
        loop {
            tokio::select! {
                changed = status.changed() => {
                    if changed.is_err() {
                        std::future::pending::<()>().await;
                    }
                    break;
                }
                () = tokio::time::sleep(LOOK) => {}
            }
            let now = self.clock.elapsed();
            let due = [self.logind_back, self.boots_at, self.starts]
                .into_iter()
                .flatten()
                .min();
            let dead = self.wanted && !self.service.is_running();
            let over = self.stop_job_ended();
            if self.logind.events().len() != events
                || due.is_some_and(|at| at <= now)
                || dead
                || over
            {
                break;
            }
        }
        self.due().await;
    }

    fn refresh(&mut self) {
        self.take_in();
    }

    fn glance(&self) -> Glance {
        Glance {
            status: self.status.borrow().clone(),
            running: self.wanted,
            hold: self.up
                && self
                    .logind
                    .state()
                    .holders
                    .iter()
                    .any(|who| who == "vmdrain-agent"),
            up: self.up,
        }
    }

    async fn look(&mut self) -> Glance {
        self.due().await;
        self.glance()
    }

    fn boot_id(&self) -> String {
        self.this_boot()
    }

    fn lateness(&self) -> Duration {
        self.lateness.total()
    }

    fn history(&self) -> Vec<Moment> {
        self.history.moments().to_vec()
    }

    fn is_busy(&self) -> bool {
        let pending = self.up && self.logind.state().preparing;
        let timers = [self.boots_at, self.starts, self.logind_back, self.schedule];
        pending || self.stopping.is_some() || timers.iter().any(Option::is_some)
    }

    fn panics(&mut self) -> Vec<String> {
        std::mem::take(&mut self.panics)
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn results(&self) -> &Results {
        &self.results
    }

    async fn end(&mut self) {
        self.looker.abort();
        self.service.stop(false).await;
        self.foreign.clear();
        self.bus.kill();
        let _ = (&self.serving, &self.folder);
    }
}

fn word(kind: DownKind) -> Kind {
    match kind {
        DownKind::Poweroff => Kind::Poweroff,
        DownKind::Reboot => Kind::Reboot,
        DownKind::Halt => Kind::Halt,
        DownKind::Kexec => Kind::Kexec,
        DownKind::SoftReboot => Kind::SoftReboot,
    }
}
