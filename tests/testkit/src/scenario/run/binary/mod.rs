//! The front of the shipped binary: HTTPS, a private bus, a stand-in logind, a played service manager.
//!
//! Everything runs `speed` times as fast as in the story. Real clocks meet no exact moment, so expectations are given some slack.

mod commands;
mod history;
mod lateness;
mod looker;
mod notify;
mod play;
mod processes;
mod service;
mod signals;
mod stop_job;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use vmdrain_agent::config::Settings;
use vmdrain_agent::drain::status::Status;
use vmdrain_agent::host::clock as boot_clock;

use super::scene::{Journal, Results};
use crate::actors::premises::Premises;
use crate::api::front::{Options as HttpsOptions, Serving, serve_https};
use crate::clock::SimClock;
use crate::logind::{Bus, Foreign, Kind, Logind, Options as LogindOptions};
use crate::scenario::Scenario;
use crate::scenario::event::agent::{AgentDo, Away};
use crate::scenario::event::{Do, Event};
use crate::scenario::world::Hook;
use crate::systemd1::{System, Systemd};
use commands::Caller;
use history::History;
use lateness::Lateness;
use processes::Processes;
use service::Service;

/// What systemd waits before it starts a service again (`RestartSec=`), in the story's time.
const RESTART: Duration = Duration::from_secs(1);
/// What stands for `/run/systemd`, in the stage's folder.
const LOGIND: &str = "logind";
/// What stands for `/proc`.
const PROC: &str = "proc";
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
    /// Credentials instead of those for the story's own server.
    pub(super) kubeconfig: Option<PathBuf>,
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
    /// PID 1. Its time limits are the story's.
    pid1: Systemd,
    /// The stop job, and what comes after it.
    stopping: Option<(tokio::process::Child, Kind)>,
    serving: Serving,
    service: Service,
    caller: Caller,
    history: History,
    journal: Journal,
    results: Results,
    foreign: Vec<(Foreign, Option<Duration>)>,
    /// Programs on the bus that have sent a signal, by the names that they own.
    senders: BTreeMap<String, zbus::Connection>,
    up: bool,
    boots: u32,
    soft_reboots: u32,
    /// When its user space began, on the real monotonic clock in microseconds.
    userspace: u64,
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
    lateness: Lateness,
    /// The launchers of the host, where the story needs them.
    processes: Option<Processes>,
}

/// Why a story cannot be played by this front, if so.
pub(super) fn unfit(scenario: &Scenario) -> Option<String> {
    let rack =
        |event: &Event| matches!(&event.what, Do::Agent(AgentDo::Trigger(t)) if t.shutdown_vms);
    let any = scenario.timeline.iter().any(rack);
    any.then(|| {
        "no command line asks for the whole rack; the same by a maintenance signal can be played"
            .into()
    })
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
        let logind = Logind::start_in(&address, options, &folder.path().join(LOGIND)).await?;
        let system = System {
            version: scenario.host.systemd,
            ..System::running()
        };
        let pid1 = Systemd::start(&address, system).await?;
        let config = configure(&setup, scenario, &serving, folder.path())?;
        let global = vec![
            "--bus".to_owned(),
            address.clone(),
            "--config".to_owned(),
            config.display().to_string(),
        ];
        let (journal, results) = (Journal::default(), Results::default());
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
        let lateness = Lateness::measure(clock.clone());
        Ok(Self {
            looker: looker::begin(address, setup.speed, publish, looking.clone()),
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
            pid1,
            stopping: None,
            serving,
            service,
            journal,
            results,
            foreign: Vec::new(),
            senders: BTreeMap::new(),
            up: true,
            boots: 0,
            soft_reboots: 0,
            userspace: 1,
            boots_at: None,
            starts: None,
            logind_back: None,
            schedule: None,
            wanted: false,
            panics: Vec::new(),
            lateness,
            processes: None,
            status,
            looking,
        })
    }

    /// These launchers run on the host.
    pub(super) fn runs(&mut self, scenario: &Scenario, premises: Premises) -> anyhow::Result<()> {
        if processes::needed(scenario) {
            let folder = self.folder.path().join(PROC);
            self.processes = Some(Processes::play(&folder, premises)?);
        }
        Ok(())
    }

    /// Options with which the binary is called: bus and configuration.
    pub(super) fn global(&self) -> &[String] {
        &self.caller.global
    }

    /// The agent's status, as it changes.
    pub(super) fn status(&self) -> watch::Receiver<Option<Arc<Status>>> {
        self.status.clone()
    }

    fn real(&self, span: Duration) -> Duration {
        span.div_f64(self.setup.speed)
    }

    fn start(&mut self) {
        self.starts = None;
        self.wanted = true;
        self.history.catch_up(&self.logind.events());
        self.history.agent_starts();
        self.service.boot_id = self.this_boot();
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
            // Whoever waits for this may give up in between: it is done only when it is done.
            if let Err(error) = self.logind.come_back().await {
                self.panics.push(format!("logind: {error:#}"));
            }
            self.logind_back = None;
        }
        if self.boots_at.is_some_and(|at| at <= now) {
            Box::pin(self.boot()).await;
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
        self.stop_job_over();
        self.take_in();
    }

    /// What logind has done until now, and what it means for the host.
    fn take_in(&mut self) {
        self.history.catch_up(&self.logind.events());
        if self.up && self.history.is_down() {
            self.up = false;
            let at = self.clock.elapsed() + self.boot_time;
            self.boots_at = self.history.boots().then_some(at);
        }
    }

    /// A new logind for a new boot; the player is told by the history.
    async fn boot(&mut self) {
        let options = LogindOptions {
            version: self.history.version,
            limit: self.real(self.history.limit),
            speed: self.setup.speed,
        };
        let folder = self.folder.path().join(LOGIND);
        let started = Logind::start_in(&self.bus.address(), options, &folder).await;
        self.boots_at = None;
        let soft = self.history.was_soft();
        match started {
            Ok(logind) => {
                self.logind = logind;
                self.up = true;
                (self.boots, self.soft_reboots) = if soft {
                    (self.boots, self.soft_reboots + 1)
                } else {
                    (self.boots + 1, 0)
                };
                self.userspace = boot_clock::monotonic().0 * 1000;
                self.history.up(soft);
            }
            Err(error) => self.panics.push(format!("logind: {error:#}")),
        }
        self.pid1.set(self.system(System::running()));
    }

    /// What PID 1 shows in this start of the host.
    fn system(&self, system: System) -> System {
        System {
            version: self.history.version,
            soft_reboots: self.soft_reboots,
            userspace: self.userspace,
            ..system
        }
    }

    /// Boot id of this start of the host: the machine's own, until it has booted in the story.
    fn this_boot(&self) -> String {
        let real = vmdrain_agent::host::Identity::read().boot_id;
        if self.boots == 0 {
            real
        } else {
            format!("{real}-{}", self.boots)
        }
    }
}

/// Writes the agent's configuration: the story's, made faster, with this front's places.
fn configure(
    setup: &Setup,
    scenario: &Scenario,
    serving: &Serving,
    folder: &Path,
) -> anyhow::Result<PathBuf> {
    let node = &scenario.host.node;
    let kubeconfig = setup
        .kubeconfig
        .as_ref()
        .or_else(|| serving.paths.kubelets.get(node));
    let kubeconfig = kubeconfig.context("the host has no kubeconfig")?;
    let fast = setup.settings.scaled(setup.speed);
    let mut fast = fast.map_err(anyhow::Error::msg)?;
    fast.cluster.kubeconfig = kubeconfig.display().to_string();
    fast.cluster.node_name.clone_from(node);
    fast.host.state_dir = folder.join("state");
    fast.host.logind_dir = folder.join(LOGIND);
    fast.host.proc_dir = folder.join(PROC);
    fast.gates.hooks = folder.join("hooks");
    for hook in &scenario.hooks {
        lay(&fast.gates.hooks, hook, setup.speed)?;
    }
    let config = folder.join("config.toml");
    std::fs::write(&config, fast.to_toml().map_err(anyhow::Error::msg)?)?;
    Ok(config)
}

/// Writes a hook as a program, `speed` times as fast as in the story.
fn lay(folder: &Path, hook: &Hook, speed: f64) -> anyhow::Result<()> {
    let folder = folder.join(format!("{}.d", hook.gate));
    std::fs::create_dir_all(&folder)?;
    std::fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
    let file = folder.join(&hook.name);
    let takes = hook.takes.0.div_f64(speed).as_secs_f64();
    let text = format!("#!/bin/sh\nsleep {takes:.3}\nexit {}\n", hook.exit);
    std::fs::write(&file, text)?;
    std::fs::set_permissions(&file, Permissions::from_mode(0o755))?;
    Ok(())
}
