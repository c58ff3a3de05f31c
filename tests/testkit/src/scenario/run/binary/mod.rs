//! The front of the shipped binary: HTTPS, a private bus, a stand-in logind, a played service manager.
//!
//! Everything runs `speed` times as fast as in the story. Real clocks meet no exact moment, so expectations are given some slack.

mod commands;
mod history;
mod notify;
mod service;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use vmdrain_agent::bus::Client;
use vmdrain_agent::config::Settings;
use vmdrain_agent::drain::status::Status;

use super::scene::{Glance, Journal, Results};
use super::stage::{NotPlayed, Stage};
use crate::api::front::{Options as HttpsOptions, Serving, serve_https};
use crate::clock::SimClock;
use crate::host::Moment;
use crate::logind::{Bus, Foreign, Kind, Logind, Options as LogindOptions};
use crate::scenario::Scenario;
use crate::scenario::event::agent::{AgentDo, Away};
use crate::scenario::event::host::{DownKind, HostDo, LockMode, Sender, Signal as DbusSignal, Way};
use commands::Caller;
use history::History;
use service::Service;

/// What systemd waits before it starts a service again (`RestartSec=`), in the story's time.
const RESTART: Duration = Duration::from_secs(1);
/// How often logind and the agent are looked at, in real time.
const LOOK: Duration = Duration::from_millis(15);
/// The agent has so much real time to take its lock at the beginning.
const READY: Duration = Duration::from_secs(30);

/// What the front is made of.
pub(super) struct Setup {
    /// The shipped binary.
    pub(super) binary: PathBuf,
    /// How much faster than in the story.
    pub(super) speed: f64,
    /// The agent's configuration in the story's time.
    pub(super) settings: Settings,
}

/// The stage of the binary front.
pub(super) struct BinaryStage {
    setup: Setup,
    boot_time: Duration,
    clock: SimClock,
    /// Holds configuration, credentials and state; removed at the end.
    folder: TempDir,
    bus: Bus,
    logind: Logind,
    serving: Serving,
    service: Service,
    caller: Caller,
    history: History,
    journal: Journal,
    results: Results,
    foreign: Vec<(Foreign, Option<Duration>)>,
    up: bool,
    boots: u32,
    boots_at: Option<Duration>,
    starts: Option<Duration>,
    logind_back: Option<Duration>,
    schedule: Option<Duration>,
    /// The agent is meant to run.
    wanted: bool,
    panics: Vec<String>,
    status: watch::Receiver<Option<Arc<Status>>>,
    looking: Arc<AtomicBool>,
    looker: JoinHandle<()>,
}

impl BinaryStage {
    /// Starts everything but the agent. The cluster behind `server` runs on `clock`.
    pub(super) async fn new(
        setup: Setup,
        scenario: &Scenario,
        server: Arc<crate::api::server::Server>,
        clock: SimClock,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("vmdrain-scenario")
            .tempdir()?;
        let serving = serve_https(server, HttpsOptions::in_dir(folder.path().join("api"))).await?;
        let bus = Bus::start().await?;
        let address = bus.address();
        let limit = scenario.host.inhibit_delay_max.0;
        let options = LogindOptions {
            version: scenario.host.systemd,
            limit: limit.div_f64(setup.speed),
            speed: setup.speed,
        };
        let logind = Logind::start(&address, options).await?;
        let node = &scenario.host.node;
        let kubeconfig = serving
            .paths
            .kubelets
            .get(node)
            .context("the host has no kubeconfig")?;
        let mut fast = setup
            .settings
            .scaled(setup.speed)
            .map_err(anyhow::Error::msg)?;
        fast.cluster.kubeconfig = kubeconfig.display().to_string();
        fast.cluster.node_name.clone_from(node);
        fast.host.state_dir = folder.path().join("state");
        let config = folder.path().join("config.toml");
        std::fs::write(&config, fast.to_toml().map_err(anyhow::Error::msg)?)?;
        let global = vec![
            "--bus".to_owned(),
            address.clone(),
            "--config".to_owned(),
            config.display().to_string(),
        ];
        let journal = Journal::default();
        let results = Results::default();
        let mut arguments = global.clone();
        arguments.push("run".into());
        let service = Service::new(
            &setup.binary,
            arguments,
            folder.path(),
            journal.clone(),
            clock.clone(),
        )?;
        let (publish, status) = watch::channel(None);
        let looking = Arc::new(AtomicBool::new(false));
        Ok(Self {
            looker: tokio::spawn(look(address, publish, looking.clone())),
            caller: Caller {
                binary: setup.binary.clone(),
                global,
                speed: setup.speed,
                results: results.clone(),
            },
            history: History::new(clock.clone(), scenario.host.systemd, limit),
            boot_time: scenario.host.boot_time.0,
            setup,
            clock,
            folder,
            bus,
            logind,
            serving,
            service,
            journal,
            results,
            foreign: Vec::new(),
            up: true,
            boots: 0,
            boots_at: None,
            starts: None,
            logind_back: None,
            schedule: None,
            wanted: false,
            panics: Vec::new(),
            status,
            looking,
        })
    }

    /// Options with which the binary is called: bus and configuration.
    pub(super) fn global(&self) -> &[String] {
        &self.caller.global
    }

    fn real(&self, span: Duration) -> Duration {
        span.div_f64(self.setup.speed)
    }

    fn start(&mut self) {
        self.starts = None;
        self.wanted = true;
        self.history.catch_up(&self.logind.events());
        self.history.agent_starts();
        if self.up
            && let Err(error) = self.service.start()
        {
            self.panics.push(format!("{error:#}"));
        }
        self.looking.store(true, Ordering::Relaxed);
    }

    fn process(&mut self, away: &Away, usual: Option<Duration>) {
        let after = away.back_after.map(|span| span.0).or(usual);
        self.starts = after.map(|after| self.clock.elapsed() + after);
    }

    async fn stop(&mut self, keep: bool) {
        self.wanted = false;
        self.looking.store(false, Ordering::Relaxed);
        self.history.agent_ends(self.logind.events().len());
        self.service.stop(keep).await;
    }

    /// Whatever is due by the clock, and whatever ended by itself.
    async fn due(&mut self) {
        let now = self.clock.elapsed();
        self.foreign
            .retain(|(_, until)| until.is_none_or(|until| now < until));
        if self.logind_back.is_some_and(|at| at <= now) {
            self.logind_back = None;
            if let Err(error) = self.logind.come_back().await {
                self.panics.push(format!("logind: {error:#}"));
            }
        }
        if self.boots_at.is_some_and(|at| at <= now) {
            self.boot().await;
        }
        if self.wanted
            && let Some(how) = self.service.ended_by_itself()
        {
            self.panics.push(how);
            self.starts = Some(now + RESTART);
        }
        if self.starts.is_some_and(|at| at <= now) {
            self.start();
        }
        self.schedule = self.schedule.filter(|at| *at > now);
        self.history.catch_up(&self.logind.events());
        if self.up && self.history.is_down() {
            self.up = false;
            self.boots_at = self.history.boots().then(|| now + self.boot_time);
        }
    }

    /// A new logind for a new boot; the player is told by the history.
    async fn boot(&mut self) {
        self.boots_at = None;
        let options = LogindOptions {
            version: self.history.version,
            limit: self.real(self.history.limit),
            speed: self.setup.speed,
        };
        match Logind::start(&self.bus.address(), options).await {
            Ok(logind) => {
                self.logind = logind;
                self.up = true;
                self.boots += 1;
                self.history.up();
            }
            Err(error) => self.panics.push(format!("logind: {error:#}")),
        }
    }
}

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
                Way::Target => {
                    return Err(NotPlayed::NotYet("a shutdown past logind on this front"));
                }
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
            AgentDo::Extend(_) => return Err(NotPlayed::NotYet("`extend`")),
            AgentDo::Release(_) => return Err(NotPlayed::NotYet("`release`")),
            AgentDo::Plan(_) => return Err(NotPlayed::NotYet("`plan`")),
            AgentDo::Doctor(_) => return Err(NotPlayed::NotYet("`doctor`")),
            AgentDo::File(_) => return Err(NotPlayed::NotYet("files of the agent")),
            AgentDo::Trigger(_) | AgentDo::Cancel(_) | AgentDo::Restore(_) => {
                self.caller.give(what)?
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
            if self.logind.events().len() != events || due.is_some_and(|at| at <= now) || dead {
                break;
            }
        }
        self.due().await;
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
        // The agent reads the boot id of the machine on which it really runs.
        let real = vmdrain_agent::host::Identity::read().boot_id;
        if self.boots == 0 {
            real
        } else {
            format!("{real}-{}", self.boots)
        }
    }

    fn history(&self) -> Vec<Moment> {
        self.history.moments().to_vec()
    }

    fn is_busy(&self) -> bool {
        let pending = self.up && self.logind.state().preparing;
        let timers = [self.boots_at, self.starts, self.logind_back, self.schedule];
        pending || timers.iter().any(Option::is_some)
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

impl BinaryStage {
    async fn signal(&mut self, signal: &DbusSignal) -> Result<(), NotPlayed> {
        let cannot = |error: anyhow::Error| NotPlayed::Cannot(format!("{error:#}"));
        let ours = signal.path == "/org/freedesktop/login1"
            && signal.interface == "org.freedesktop.login1.Manager";
        if !ours {
            return Err(NotPlayed::NotYet("signals of other objects on this front"));
        }
        let from_logind = signal.sender == Sender::Logind;
        let member = signal.member.as_str();
        let address = self.bus.address();
        match (signal.signature.as_str(), signal.body.first()) {
            ("b", Some(toml::Value::Boolean(value))) if from_logind => {
                self.logind.emit_raw(member, value).await
            }
            ("s", Some(toml::Value::String(text))) if from_logind => {
                self.logind.emit_raw(member, text).await
            }
            ("b", Some(toml::Value::Boolean(value))) => {
                crate::logind::spoof(&address, None, member, value).await
            }
            ("s", Some(toml::Value::String(text))) => {
                crate::logind::spoof(&address, None, member, text).await
            }
            ("", None) if from_logind => self.logind.emit_raw(member, &()).await,
            ("", None) => crate::logind::spoof(&address, None, member, &()).await,
            _ => {
                return Err(NotPlayed::NotYet(
                    "signals with this signature on this front",
                ));
            }
        }
        .map_err(cannot)
    }
}

/// Asks the agent for its status over and over; the last one stays when nobody answers.
async fn look(address: String, publish: watch::Sender<Option<Arc<Status>>>, on: Arc<AtomicBool>) {
    let mut client: Option<Client> = None;
    loop {
        tokio::time::sleep(LOOK).await;
        if !on.load(Ordering::Relaxed) {
            client = None;
            continue;
        }
        if client.is_none() {
            client = Client::connect(Some(&address)).await.ok();
        }
        let asked = match &client {
            Some(client) => client.status().await,
            None => continue,
        };
        match asked {
            Ok(status) => {
                publish.send_if_modified(|old| {
                    let differs = old.as_deref().is_none_or(|old| *old != status);
                    *old = Some(Arc::new(status));
                    differs
                });
            }
            Err(_) => client = None,
        }
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
