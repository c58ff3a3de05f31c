//! The daemon and the drain without a daemon: the only place that knows every part.

use super::command::Handle;
use super::driver::{self, Parts};
use super::patience;
use super::ports::Host;
use crate::bus::{self, maintenance::Listener};
use crate::cluster::{self, ConnectError, Connected, KubeCluster, Origin};
use crate::config::{Live, Settings};
use crate::drain::policy::Policy;
use crate::host::{
    self, BootClock, EndingHost, FileStore, Guests, Hooks, Identity, Instance, Logind, NotAlone,
    Signal, Signals, notify,
};
use crate::telemetry::catalog::message_id;
use crate::telemetry::logging;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long READY=1 waits for the hold; systemd gives a start 90 s.
const WITHOUT_HOLD: Duration = Duration::from_secs(30);

/// Why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No way to the cluster.
    #[error(transparent)]
    Cluster(#[from] ConnectError),
    /// Another agent runs, or the state directory cannot be used.
    #[error("{0}")]
    Host(String),
}

/// What the daemon is started with.
#[derive(Debug)]
pub struct Setup {
    /// The configuration, which can be read again.
    pub live: Live,
    /// Address of the bus; `None`: the system bus.
    pub bus: Option<String>,
    /// Changes the log level.
    pub level: Option<logging::Level>,
}

/// How long the end of the process waits for a service manager that does not listen.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// Runs the daemon until TERM or INT. A drain that is under way stays where it is and goes on after the
/// next start: neither the hold nor the cordon is given up here.
pub async fn run(mut setup: Setup) -> Result<(), RunError> {
    let mut signals = Signals::install().map_err(RunError::Host)?;
    let settings = setup.live.current().settings.clone();
    let alone = alone_if_possible(&settings)?;
    let mut kept = notify::inherited_hold();
    let connected = connect_patiently(&settings, &mut signals, &mut kept).await;
    let Some(Connected { cluster, node_name }) = connected else {
        return Ok(());
    };
    let identity = Identity::ask(setup.bus.as_deref(), &settings.timing.host).await;
    let logind = logind(&settings, setup.bus.clone());
    if let Some(fd) = kept
        && let Err(why) = logind.adopt(fd)
    {
        tracing::warn!("{why}");
    }
    let (policies, reload) = watch::channel(policy(&settings, &node_name, &identity));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let parts = parts(&settings, cluster, logind);
    let policy_now = policies.borrow().clone();
    let (handle, driving) = driver::start(parts, policy_now, seed(), reload, async {
        let _ = stopped.await;
    });
    let mut driving = tokio::spawn(driving);
    let service = bus::Service::start(setup.bus.clone(), handle.clone(), settings.timing.host);
    let (entries, watched) = watch::channel(settings.maintenance.clone());
    let listener = Listener::start(
        setup.bus.clone(),
        handle.clone(),
        watched,
        settings.timing.host,
    );
    let ready = tokio::spawn(ready_when_held(handle.clone()));
    let watchdog = tokio::spawn(watchdog(handle.clone()));
    loop {
        let signal = tokio::select! {
            signal = signals.next() => signal,
            // Only a bug ends it before we say so. Its hold has gone with it: better to be started anew.
            ended = &mut driving => {
                let why = ended.err().map_or_else(String::new, |error| format!(": {error}"));
                return Err(RunError::Host(format!("internal error, the driver has ended by itself{why}")));
            }
        };
        match signal {
            Signal::Terminate | Signal::Interrupt => break,
            Signal::Reload => {
                reload_settings(&mut setup, &node_name, &identity, &policies);
                let now = &setup.live.current().settings.maintenance;
                entries.send_if_modified(|entries| {
                    let news = entries != now;
                    entries.clone_from(now);
                    news
                });
            }
            Signal::Report => report(&handle).await,
        }
    }
    notify::stopping();
    drop(listener);
    drop(stop);
    ready.abort();
    watchdog.abort();
    if let Err(error) = driving.await {
        tracing::error!("the driver ended badly: {error}");
    }
    drop(service);
    drop(alone);
    notify::flush(STOP_PATIENCE);
    Ok(())
}

/// A drain in this process, without a daemon.
pub async fn standalone(
    settings: &Settings,
    bus: Option<String>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(Handle, impl Future<Output = ()> + Send + 'static), RunError> {
    let alone = alone(settings).map_err(|why| {
        let cure = match why {
            NotAlone::Another(_) => "leave off --standalone to ask the running daemon",
            NotAlone::Unusable(_) => {
                "`--set host.state_dir=DIRECTORY` names another place for the record of the drain"
            }
        };
        RunError::Host(format!("{why}; {cure}"))
    })?;
    let identity = Identity::ask(bus.as_deref(), &settings.timing.host).await;
    let host = logind(settings, bus);
    alone_with(settings, host, identity, Some(alone), stop).await
}

/// A drain in this process in the stop job of a system that is going down, when the daemon is dead or hangs: a daemon
/// that still has the lock file is passed over, because waiting for it would cost the VMs.
pub async fn stopping(
    settings: &Settings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(Handle, impl Future<Output = ()> + Send + 'static), RunError> {
    let alone = alone(settings)
        .inspect_err(|why| {
            tracing::warn!(
                vmdrain_reason = "NotAlone",
                "{why}; the host is going down, so the drain goes on all the same"
            );
        })
        .ok();
    let identity = Identity::ask(None, &settings.timing.host).await;
    let host = EndingHost {
        hooks: hooks(settings),
        guests: Some(guests(settings)),
    };
    alone_with(settings, host, identity, alone, stop).await
}

async fn alone_with<H: Host>(
    settings: &Settings,
    host: H,
    identity: Identity,
    alone: Option<Instance>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(Handle, impl Future<Output = ()> + Send + 'static), RunError> {
    let Connected { cluster, node_name } =
        cluster::connect(cluster_options(settings), BootClock).await?;
    let policy = policy(settings, &node_name, &identity);
    let (policies, reload) = watch::channel(policy.clone());
    let parts = parts(settings, cluster, host);
    let (handle, driving) = driver::start(parts, policy, seed(), reload, stop);
    let whole = async move {
        driving.await;
        drop((policies, alone));
    };
    Ok((handle, whole))
}

fn parts<H: Host>(
    settings: &Settings,
    cluster: KubeCluster<BootClock>,
    host: H,
) -> Parts<KubeCluster<BootClock>, H, FileStore, BootClock> {
    Parts {
        cluster: Arc::new(cluster),
        host: Arc::new(host),
        store: Arc::new(FileStore::new(&settings.host.state_dir)),
        clock: Arc::new(BootClock),
    }
}

/// A host that has not joined a cluster yet has no credentials: wait for them, and say so. `None`: asked to stop.
async fn connect_patiently(
    settings: &Settings,
    signals: &mut Signals,
    kept: &mut Option<OwnedFd>,
) -> Option<Connected<BootClock>> {
    let options = cluster_options(settings);
    let connect = || cluster::connect(options.clone(), BootClock);
    let ends = async || matches!(signals.next().await, Signal::Terminate | Signal::Interrupt);
    patience::wait_for(connect, ends, kept).await
}

/// READY=1 once logind lists our lock. A host whose logind refuses it (a shutdown is already under way, no
/// bus) must not end in a start that times out and takes the drain with it: after a while READY=1 comes all
/// the same, and STATUS= and the journal say what is missing.
async fn ready_when_held(handle: Handle) {
    let mut status = handle.status.clone();
    let held = tokio::time::timeout(WITHOUT_HOLD, status.wait_for(|s| s.hold.held)).await;
    match held {
        Ok(Ok(_)) => notify::ready(),
        // The driver has ended.
        Ok(Err(_)) => {}
        Err(_) => {
            let trouble = handle.status.borrow().hold.trouble.clone();
            tracing::error!(
                vmdrain_reason = "HoldMissing",
                message_id = message_id("HoldMissing"),
                "ready without a hold on the host: {trouble}"
            );
            notify::ready();
        }
    }
}

/// The watchdog is fed through the driver: when its loop stands still, systemd restarts the service.
async fn watchdog(handle: Handle) {
    let Some(interval) = notify::watchdog_interval() else {
        return;
    };
    while handle.status_now().await.is_some() {
        notify::watchdog();
        tokio::time::sleep(interval).await;
    }
}

async fn report(handle: &Handle) {
    if let Some(status) = handle.status_now().await {
        match serde_json::to_string(&status) {
            Ok(json) => tracing::info!(vmdrain_reason = "Status", "{json}"),
            Err(why) => tracing::error!("the status cannot be written: {why}"),
        }
    }
}

/// A bad reload keeps what is in force.
fn reload_settings(
    setup: &mut Setup,
    node_name: &str,
    identity: &Identity,
    policies: &watch::Sender<Policy>,
) {
    notify::reloading();
    match setup.live.reload() {
        Ok(changed) if changed.is_empty() => {
            tracing::info!("configuration read again, nothing has changed");
        }
        Ok(changed) => {
            let settings = setup.live.current().settings.clone();
            policies.send_replace(policy(&settings, node_name, identity));
            if let Some(level) = &setup.level
                && let Err(why) = level.set(&settings.log.level)
            {
                tracing::warn!("log.level: {why}");
            }
            tracing::info!("configuration read again, changed: {}", changed.join(", "));
            let late: Vec<_> = changed
                .iter()
                .filter(|k| k.starts_with("cluster.") || k.starts_with("host."))
                .collect();
            if !late.is_empty() {
                tracing::warn!("these keys take effect at the next start of the service: {late:?}");
            }
        }
        Err(why) => {
            tracing::error!("the new configuration is bad, the old one stays in force: {why}");
        }
    }
    notify::ready();
}

fn alone(settings: &Settings) -> Result<Instance, NotAlone> {
    Instance::take(&settings.host.state_dir.join("lock"))
}

/// A disk that is full, broken or read-only must not leave the host without a hold: the daemon then runs
/// without the lock (the name on the bus is still its own) and without a record.
fn alone_if_possible(settings: &Settings) -> Result<Option<Instance>, RunError> {
    match alone(settings) {
        Ok(instance) => Ok(Some(instance)),
        Err(NotAlone::Another(why)) => Err(RunError::Host(why)),
        Err(NotAlone::Unusable(why)) => {
            tracing::error!(
                vmdrain_reason = "StateDirUnusable",
                message_id = message_id("StateDirUnusable"),
                "{why}; the agent runs all the same, but after a crash it could not tell its own marks: make {} writable, then `systemctl restart vmdrain-agent`",
                settings.host.state_dir.display()
            );
            Ok(None)
        }
    }
}

pub(crate) fn policy(settings: &Settings, node_name: &str, identity: &Identity) -> Policy {
    Policy {
        machine_id: identity.machine_id.clone(),
        system_uuid: identity.system_uuid.clone(),
        boot_id: identity.boot_id.clone(),
        userspace: identity.userspace,
        up_since: identity.up_since(),
        ..settings.policy(node_name)
    }
}

pub(crate) fn cluster_options(settings: &Settings) -> cluster::Options {
    cluster::Options {
        origin: Origin::from_setting(&settings.cluster.kubeconfig),
        node_name: settings.cluster.node_name.clone(),
        hostname: Identity::read().hostname,
        timing: settings.timing.cluster,
    }
}

fn logind(settings: &Settings, bus: Option<String>) -> Logind {
    Logind::new(host::Options {
        // A stand-in on a private bus does not read this host's files.
        root: bus.is_none().then(|| "/".into()),
        bus,
        folder: Some(settings.host.logind_dir.clone()),
        timing: settings.timing.host,
        hooks: hooks(settings),
        guests: Some(guests(settings)),
        ..host::Options::default()
    })
}

fn guests(settings: &Settings) -> Guests {
    Guests::new(settings.host.proc_dir.clone())
}

fn hooks(settings: &Settings) -> Option<Hooks> {
    let folder = &settings.gates.hooks;
    (!folder.as_os_str().is_empty()).then(|| Hooks::new(folder.clone()))
}

/// Jitter and drain ids only have to differ from one start to the next.
fn seed() -> u64 {
    host::clock::now().0 ^ (u64::from(std::process::id()) << 32)
}
