//! Stories on a real control plane: real API server, controllers, scheduler, virt-api and virt-controller; the host with its agent is
//! that of the binary front, kubelets and virt-handlers are played.
//!
//! ```text
//!  agent ─► server (logs, misbehaves as the story says) ─► real API server ◄─ played nodes, other people
//!                                                             │ watches
//!  observer, rules, expectations ◄── store (a mirror) ◄───────┘
//! ```
//!
//! - `fit`: which stories cannot be told here, and why. `setup`, `clean`: their objects come and go.
//! - `beside`: `kubectl drain` in the same story. `identity`: credentials that run out, other nodes' objects.
//! - `upstream`, `mirror`: how requests get there and changes come back. `many`: one control plane for many stories.

pub mod beside;
mod clean;
pub mod fit;
pub mod identity;
pub mod many;
mod mirror;
mod owners;
pub(super) mod setup;
mod upstream;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

pub use many::Planes;
pub use mirror::Mirror;

use super::cluster::{Cluster, inventory, rights, settings as simulated};
use super::live::Live;
use super::verdict::Took;
use super::{Options, Shipped, Verdict, this_machine};
use crate::actors::Role;
use crate::api::server::Server;
use crate::api::{Identity, Store};
use crate::clock::SimClock;
use crate::kubevirt::VirtApi;
use crate::plane::{self, Caller, ControlPlane, Nodes, Server as Process};
use crate::scenario::Scenario;
use crate::scenario::words::Version;
use crate::world::World;
use upstream::Real as RealServer;

/// How long a story goes on after its end, in the story's time: long enough for a VM to start elsewhere.
const AFTERWARDS: Duration = Duration::from_secs(20);

/// How much later than in the story things may come, in real time: before and after each migration real controllers, with their own
/// rhythms of 1 to 5 s, have to notice, and no clock of ours makes them faster.
pub(super) fn behind(scenario: &Scenario) -> Duration {
    const ONCE: Duration = Duration::from_secs(4);
    const EACH: Duration = Duration::from_secs(4);
    let vms: u32 = scenario.vms.iter().map(|vm| vm.count).sum();
    let lanes = scenario
        .kubevirt
        .parallel_outbound_migrations_per_node
        .max(1);
    ONCE + EACH * vms.div_ceil(lanes)
}

/// Tokens of a story.
const TOKEN: Duration = Duration::from_secs(3600);

/// What a story on a real control plane has beside its mirror.
pub struct Real {
    /// The servers.
    pub plane: Arc<ControlPlane>,
    /// The played nodes.
    pub nodes: Nodes,
    /// Watches everything.
    pub mirror: Mirror,
    /// As virt-controller, which may write the status of a VMI.
    pub controller: Caller,
}

/// Plays a story on a control plane that is up, and leaves it as empty as before.
pub async fn on_plane(
    scenario: &Scenario,
    options: &Options,
    shipped: &Shipped,
    plane: &Arc<ControlPlane>,
) -> Verdict {
    let version = plane.version();
    let reasons = fit::unfit(scenario, version);
    if !reasons.is_empty() {
        return Verdict::skipped(scenario.file.clone(), &scenario.name, reasons.join("; "));
    }
    let mut scenario = scenario.clone();
    scenario.kubevirt.version = Version {
        major: 1,
        minor: version.minor(),
    };
    let played = Box::pin(play(&scenario, options, shipped, plane)).await;
    let since = SimClock::new(1.0);
    let cleaned = clean::clean(plane, &scenario)
        .await
        .context("the story's objects cannot be removed");
    let mut verdict =
        played.unwrap_or_else(|error| super::unplayed(&scenario, format!("{error:#}")));
    if let Some(took) = &mut verdict.took {
        took.cleared = since.elapsed().as_secs_f64();
    }
    match cleaned {
        Ok(()) => verdict,
        Err(error) => verdict.and_problem(format!("{error:#}")),
    }
}

async fn play(
    scenario: &Scenario,
    options: &Options,
    shipped: &Shipped,
    plane: &Arc<ControlPlane>,
) -> anyhow::Result<Verdict> {
    let since = SimClock::new(1.0);
    let clock = SimClock::from_wall(shipped.speed);
    let cluster = cluster(scenario, options, plane, &clock).await?;
    let live = Box::pin(Live::around(scenario, shipped, cluster, clock, None)).await?;
    let ready = since.elapsed();
    let (mut verdict, _) = Box::pin(live.play(options.trace, AFTERWARDS)).await?;
    verdict.took = Some(Took {
        set_up: ready.as_secs_f64(),
        played: since.elapsed().saturating_sub(ready).as_secs_f64(),
        cleared: 0.0,
    });
    Ok(verdict)
}

/// Puts the story's objects in and waits until everything has settled.
async fn cluster(
    scenario: &Scenario,
    options: &Options,
    plane: &Arc<ControlPlane>,
    clock: &SimClock,
) -> anyhow::Result<Cluster> {
    let store = Store::new(clock.clone(), options.seed);
    let virt_api = VirtApi::new(
        store.clone(),
        simulated(scenario).map_err(anyhow::Error::msg)?,
    );
    let mirror = Mirror::start(plane.admin(), &store, &virt_api);
    let nodes = Nodes::new(clock.clone().among_real(), options.seed);
    let wanted = inventory(scenario, &this_machine(), clock.speed());
    let granted = rights(&scenario.host.rights).map_err(anyhow::Error::msg)?;
    setup::prepare(plane, &nodes, scenario, &wanted, &granted, &store).await?;
    let server = Server::before(
        Arc::new(RealServer::new(plane.clone())),
        store.clone(),
        Arc::new(virt_api.clone()),
    );
    mirror.asks(&server.log);
    let played = server.clone();
    let clients = Arc::new(move |role: Role| {
        played.client(match role {
            Role::Kubelet(node) => Identity::kubelet(&node),
            Role::VirtHandler => Identity::service_account("kubevirt", "kubevirt-handler"),
        })
    });
    let physics = (nodes.fabric().clone(), nodes.ledger().clone());
    let world = World::onlooker(&store, &virt_api, physics, clients);
    let token = plane
        .token(("kubevirt", "kubevirt-controller"), None, TOKEN)
        .await?;
    let controller = Caller::new(&plane.token_kubeconfig("story-controller", &token)?).await?;
    Ok(Cluster {
        server,
        world,
        premises: None,
        real: Some(Real {
            plane: plane.clone(),
            nodes,
            mirror,
            controller,
        }),
    })
}

/// Starts a control plane, does something with it while its servers are kept alive, and ends it. `dir`: where it keeps its files, which
/// then stay there.
pub async fn with_plane<T>(
    version: plane::Version,
    dir: Option<PathBuf>,
    work: impl AsyncFnOnce(&Arc<ControlPlane>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let folder = tempfile::Builder::new().prefix("vmdrain-plane").tempdir()?;
    let dir = dir.unwrap_or_else(|| folder.path().to_owned());
    let options = plane::Options::new(version, dir);
    let plane = ControlPlane::start(options, |_| {})
        .await
        .context("the control plane does not start")?;
    let plane = Arc::new(plane);
    tokio::select! {
        done = work(&plane) => done,
        () = plane.keep_alive() => anyhow::bail!("the control plane is kept alive by nobody"),
    }
}

/// Starts again whatever a story has stopped.
async fn mend(plane: &ControlPlane) -> anyhow::Result<()> {
    let runs = plane.processes();
    for server in [Process::VirtApi, Process::VirtController] {
        if !runs.iter().any(|(name, _)| name == server.name()) {
            plane.resume(server).await?;
        }
    }
    Ok(())
}
