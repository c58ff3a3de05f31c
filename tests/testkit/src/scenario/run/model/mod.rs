//! The in-process front: the agent's own driver and adapters in this process, under tokio's paused clock.

pub(super) mod commands;
pub(super) mod journal;
mod signals;
mod stop_job;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use vmdrain_agent::agent::command::Handle;
use vmdrain_agent::agent::driver::{self, Parts};
use vmdrain_agent::cluster;
use vmdrain_agent::config::Settings;
use vmdrain_agent::drain::policy::Policy;
use vmdrain_agent::drain::status::Status;

use super::scene::{Glance, Journal, Results};
use super::stage::{NotPlayed, STATE_FILE, Stage};
use crate::clock::SimClock;
use crate::host::logind::Mode;
use crate::host::{MemoryStore, ModelHost, Moment};
use crate::scenario::event::agent::{AgentDo, Away};
use crate::scenario::event::host::{DownKind, HostDo, LockMode, Way};
use vmdrain_agent::drain::trigger::Then;

/// What systemd waits before it starts a service again (`RestartSec=`).
const RESTART: Duration = Duration::from_secs(1);

/// How often the other tasks get a turn before a stage that is not ready is given up: no time passes meanwhile.
const PATIENCE: usize = 10_000;

/// Who the agent is, and with what it runs.
#[derive(Clone, Debug)]
pub(super) struct Role {
    /// Its node.
    pub(super) node: String,
    /// `/etc/machine-id`.
    pub(super) machine_id: String,
    /// The DMI product UUID.
    pub(super) system_uuid: String,
    /// Its configuration.
    pub(super) settings: Settings,
    /// Seed of its jitter.
    pub(super) seed: u64,
}

/// The stage of the in-process front.
pub(super) struct ModelStage {
    role: Role,
    client: kube::Client,
    clock: SimClock,
    host: ModelHost,
    store: MemoryStore,
    journal: Journal,
    results: Results,
    agent: Option<Running>,
    /// The agent's last status.
    last: Option<Arc<Status>>,
    /// When the service manager starts the agent again.
    starts: Option<Duration>,
    panics: Vec<String>,
    machine: JoinHandle<()>,
}

/// A running agent.
struct Running {
    handle: Handle,
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    reload: watch::Sender<Policy>,
}

impl ModelStage {
    /// A host that is up, the agent not started. `client` speaks with the agent's credentials.
    pub(super) fn new(role: Role, client: kube::Client, host: ModelHost, clock: SimClock) -> Self {
        Self {
            role,
            client,
            machine: tokio::spawn(host.clone().run()),
            host,
            clock,
            store: MemoryStore::default(),
            journal: Journal::default(),
            results: Results::default(),
            agent: None,
            last: None,
            starts: None,
            panics: Vec::new(),
        }
    }

    fn policy(&self) -> Policy {
        Policy {
            machine_id: self.role.machine_id.clone(),
            system_uuid: self.role.system_uuid.clone(),
            boot_id: self.host.boot_id(),
            userspace: self.host.userspace(),
            up_since: self.host.up_since(),
            ..self.role.settings.policy(&self.role.node)
        }
    }

    fn checkup(&self) -> commands::Checkup {
        let state = |agent: &Running| agent.handle.status.borrow().state.clone();
        commands::Checkup {
            connected: cluster::with_client(
                self.client.clone(),
                &self.role.node,
                self.host.boot_clock(),
                &self.role.settings.timing.cluster,
            ),
            policy: self.policy(),
            hold: self.host.look(),
            daemon: self.agent.as_ref().map(state),
        }
    }

    fn start(&mut self) {
        self.starts = None;
        if self.agent.is_some() || !self.host.is_up() {
            return;
        }
        let clock = self.host.boot_clock();
        let connected = cluster::with_client(
            self.client.clone(),
            &self.role.node,
            clock.clone(),
            &self.role.settings.timing.cluster,
        );
        let parts = Parts {
            cluster: Arc::new(connected.cluster),
            host: Arc::new(self.host.clone()),
            store: Arc::new(self.store.clone()),
            clock: Arc::new(clock),
        };
        let (stop, stopped) = oneshot::channel();
        let (reload, reloaded) = watch::channel(self.policy());
        let (handle, work) = driver::start(parts, self.policy(), self.role.seed, reloaded, async {
            // A dropped sender is an abort of the whole task, which needs no orderly stop.
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        });
        self.agent = Some(Running {
            handle,
            task: tokio::spawn(work),
            stop,
            reload,
        });
    }

    /// SIGKILL.
    fn kill(&mut self, stored: bool) {
        if let Some(agent) = self.agent.take() {
            self.last = Some(agent.handle.status.borrow().clone());
            agent.task.abort();
        }
        self.host.agent_gone(stored);
    }

    /// SIGTERM, and wait for the end.
    async fn stop(&mut self, stored: bool) {
        if let Some(agent) = self.agent.take() {
            let _ = agent.stop.send(());
            if let Err(error) = agent.task.await
                && error.is_panic()
            {
                self.panics.push(format!("the agent panicked: {error}"));
            }
            self.last = Some(agent.handle.status.borrow().clone());
        }
        self.host.agent_gone(stored);
    }

    fn process(&mut self, away: &Away, usual: Option<Duration>) {
        let after = away.back_after.map(|span| span.0).or(usual);
        self.starts = after.map(|after| self.clock.elapsed() + after);
    }

    /// A driver that has ended by itself has panicked.
    fn reap(&mut self) {
        if self
            .agent
            .as_ref()
            .is_some_and(|agent| agent.task.is_finished())
        {
            self.panics
                .push("the agent's task has ended by itself".into());
            self.kill(true);
            self.starts = Some(self.clock.elapsed() + RESTART);
        }
    }
}

impl Stage for ModelStage {
    async fn begin(&mut self) -> Result<(), String> {
        self.start();
        for _ in 0..PATIENCE {
            let ready = self
                .agent
                .as_ref()
                .is_some_and(|agent| agent.handle.status.borrow().hold.held);
            if ready {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
        Err("the agent did not take its lock".into())
    }

    async fn host(&mut self, what: &HostDo) -> Result<(), NotPlayed> {
        let host = &self.host;
        match what {
            HostDo::Down(kind, via) => match via.with {
                Way::Logind => host.shut_down(then(*kind)),
                Way::Target => {
                    host.begin_to_stop(then(*kind));
                    // A daemon that is dead is replaced by the stop job itself: the same driver, the same record.
                    self.start();
                    let handle = self.agent.as_ref().map(|agent| agent.handle.clone());
                    stop_job::run(handle, self.host.clone());
                }
            },
            HostDo::Schedule(schedule) => host.schedule(then(schedule.kind), schedule.within.0),
            HostDo::CancelSchedule => host.cancel_schedule(),
            HostDo::ShutdownFails(fails) => host.fail_next(fails.after.0),
            HostDo::Boot(boot) => host.boot(boot.after.map(|span| span.0), boot.same_boot_id),
            HostDo::RestartLogind(away) => host.restart_logind(away.back_after.0),
            HostDo::RestartDbus(away) => host.restart_bus(away.back_after.0),
            HostDo::Set(set) => {
                if set.kubelet_graceful_shutdown.is_some() {
                    return Err(NotPlayed::NotYet("the kubelet's own graceful shutdown"));
                }
                if let Some(limit) = set.inhibit_delay_max {
                    host.set_limit(limit.0);
                }
            }
            HostDo::Signal(signal) => self.signal(signal).await,
            HostDo::Inhibitor(lock) => {
                let mode = match lock.mode {
                    LockMode::Delay => Mode::Delay,
                    LockMode::Block => Mode::Block,
                    LockMode::BlockWeak => Mode::BlockWeak,
                };
                host.foreign_lock(&lock.who, &lock.what, mode, lock.held.map(|span| span.0));
            }
            HostDo::ClockJump(_) => return Err(NotPlayed::NotYet("a jump of the wall clock")),
            HostDo::Disk(..) => return Err(NotPlayed::NotYet("faults of the disk")),
        }
        Ok(())
    }

    async fn agent(&mut self, what: &AgentDo) -> Result<(), NotPlayed> {
        match what {
            AgentDo::Kill(away) => {
                self.kill(true);
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
            AgentDo::Reload(_) => {
                let policy = self.policy();
                if let Some(agent) = &self.agent {
                    agent.reload.send_replace(policy);
                }
            }
            AgentDo::Plan(keys) => {
                let handle = self.agent.as_ref().map(|agent| agent.handle.clone());
                commands::plan(handle, keys.save.clone(), self.results.clone());
            }
            AgentDo::Doctor(keys) => {
                let checkup = self.checkup();
                commands::doctor(checkup, keys.save.clone(), self.results.clone());
            }
            AgentDo::File(file) if file.path == STATE_FILE => self.store.put(&file.content),
            AgentDo::File(_) => return Err(NotPlayed::NotYet("other files than the state file")),
            AgentDo::Trigger(_)
            | AgentDo::Cancel(_)
            | AgentDo::Extend(_)
            | AgentDo::Release(_)
            | AgentDo::Restore(_) => {
                let handle = self.agent.as_ref().map(|agent| agent.handle.clone());
                commands::give(what, handle, self.results.clone())?;
            }
        }
        Ok(())
    }

    async fn down(&mut self) {
        self.starts = None;
        self.stop(false).await;
    }

    async fn up(&mut self) {
        self.start();
    }

    async fn changed(&mut self) {
        let mut host = self.host.changed();
        host.borrow_and_update();
        let starts = self.starts;
        let due = async {
            match starts {
                Some(at) => self.clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let status = async {
            match &mut self.agent {
                // The sender goes away with the driver: that is a change as well.
                Some(agent) => drop(agent.handle.status.changed().await),
                None => std::future::pending().await,
            }
        };
        let started = tokio::select! {
            _ = host.changed() => false,
            () = status => false,
            () = due => true,
        };
        if started {
            self.start();
        }
        self.reap();
    }

    fn refresh(&mut self) {}

    fn glance(&self) -> Glance {
        let status = match &self.agent {
            Some(agent) => Some(agent.handle.status.borrow().clone()),
            None => self.last.clone(),
        };
        Glance {
            status,
            running: self.agent.is_some(),
            hold: self.host.holds(),
            up: self.host.is_up(),
        }
    }

    async fn look(&mut self) -> Glance {
        let mut glance = self.glance();
        if let Some(agent) = &self.agent
            && let Some(status) = agent.handle.status_now().await
        {
            glance.status = Some(Arc::new(status));
        }
        glance
    }

    fn boot_id(&self) -> String {
        self.host.boot_id()
    }

    fn lateness(&self) -> Duration {
        Duration::ZERO
    }

    fn history(&self) -> Vec<Moment> {
        self.host.history()
    }

    fn is_busy(&self) -> bool {
        self.host.is_busy() || self.starts.is_some()
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
        self.stop(false).await;
        self.machine.abort();
    }
}

/// The agent's word for a way to go down.
pub(super) fn then(kind: DownKind) -> Then {
    match kind {
        DownKind::Poweroff => Then::Poweroff,
        DownKind::Reboot => Then::Reboot,
        DownKind::Halt => Then::Halt,
        DownKind::Kexec => Then::Kexec,
        DownKind::SoftReboot => Then::SoftReboot,
    }
}
