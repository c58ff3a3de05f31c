//! How long does a whole drain take, compared with the shortest possible one, and what does it cost?

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde::Serialize;

use super::Programs;
use super::arena::{Arena, BOUND, HostSide, NODE, Setting, evicts};
use super::ideal::{self, SetUp};
use super::latency::{SLOTS, first};
use super::process::{Agent, AgentOptions, Cost, kubectl_drain, warm_up};
use super::release::wait_released;
use crate::api::Identity;
use crate::logind::Kind;
use crate::world::VmSpec;

/// No drain here comes near it.
const LONGEST: Duration = Duration::from_secs(900);
/// Copying time of the single VM with which the set-up time is measured.
const COPY: Duration = Duration::from_secs(6);

/// VMs of given copying times on a KubeVirt.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// KubeVirt's minor version.
    pub(super) minor: u8,
    /// Copying time of each.
    pub(super) copies: Vec<Duration>,
    /// From the bound target pod to its running guest.
    pub(super) start_up: Duration,
    /// Simulated seconds per second; the agent's durations are divided by it too.
    pub(super) speed: f64,
}

impl Case {
    /// `count` VMs of the same size in real time.
    pub(super) fn even(minor: u8, count: usize, seconds: u64) -> Self {
        Self {
            minor,
            copies: vec![Duration::from_secs(seconds); count],
            start_up: Duration::from_secs(5),
            speed: 1.0,
        }
    }

    /// `count` VMs of mixed sizes whose copying times are these in turn.
    pub(super) fn mixed(count: usize, seconds: &[u64], start_up: u64) -> Self {
        let copies = seconds.iter().copied().cycle().take(count);
        Self {
            minor: 7,
            copies: copies.map(Duration::from_secs).collect(),
            start_up: Duration::from_secs(start_up),
            speed: 1.0,
        }
    }

    fn setting(&self, seed: u64) -> Setting {
        let vms = self.copies.iter().enumerate().map(|(number, copy)| VmSpec {
            // The model copies one GiB in a second, as the agent's estimate does.
            memory: format!("{}Gi", copy.as_secs().max(1)),
            migration_time: *copy,
            start_up: self.start_up,
            ..VmSpec::new(&format!("vm-{number}"), NODE)
        });
        Setting {
            minor: self.minor,
            speed: self.speed,
            ..Setting::new(vms.collect(), seed)
        }
    }
}

/// One drain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Drain {
    /// From the signal (or the start of the command) until the host may go (or the command has ended), in simulated seconds.
    pub(super) took: f64,
    /// Until the node was empty.
    pub(super) emptied: f64,
    /// Requests to the API server.
    pub(super) requests: usize,
    /// Evictions among them.
    pub(super) evictions: usize,
    /// Requests by verb and resource.
    pub(super) kinds: BTreeMap<String, usize>,
    /// What the program used up.
    pub(super) cost: Cost,
}

/// The set-up time of a version: the mean of `runs` single VMs side by side.
pub(super) async fn set_up(case: &Case, seed: u64, runs: u64) -> anyhow::Result<SetUp> {
    let single = Case {
        copies: vec![COPY],
        speed: 1.0,
        ..case.clone()
    };
    let single = &single;
    let all = try_join_all(
        (0..runs).map(|run| async move { one_set_up(&single.setting(seed + run)).await }),
    )
    .await
    .context("the set-up time of a single migration")?;
    Ok(ideal::mean(&all))
}

async fn one_set_up(setting: &Setting) -> anyhow::Result<SetUp> {
    let arena = Arena::start(setting).await?;
    let pods: Api<Pod> = Api::all(arena.server.client(Identity::admin()));
    let launcher = pods.list(&kube::api::ListParams::default()).await?.items;
    let launcher = launcher.first().context("there is no launcher pod")?;
    let name = launcher.metadata.name.as_deref().unwrap_or_default();
    let namespace = launcher.metadata.namespace.as_deref().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(arena.server.client(Identity::admin()), namespace);
    // KubeVirt refuses and migrates; the model would tell if it did not.
    let eviction = serde_json::json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    });
    let answer: Result<serde_json::Value, kube::Error> = pods
        .create_subresource(
            "eviction",
            name,
            &kube::api::PostParams::default(),
            &eviction,
        )
        .await;
    anyhow::ensure!(
        answer.is_err(),
        "the eviction was granted, the VM does not migrate"
    );
    let evicted = first(&arena.asked(), evicts).context("no eviction was seen")?;
    let emptied = wait_empty(&arena).await?;
    let finished = arena.watcher.finished();
    let freed = *finished.first().context("there was no migration")?;
    Ok(SetUp {
        slot: freed.saturating_sub(evicted).saturating_sub(COPY),
        tail: emptied.saturating_sub(freed),
    })
}

async fn wait_empty(arena: &Arena) -> anyhow::Result<Duration> {
    let look = async {
        loop {
            if let Some(emptied) = arena.watcher.emptied() {
                return emptied;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(BOUND, look)
        .await
        .context("the single VM did not go")
}

/// The shortest drain of a case, in seconds.
pub(super) fn shortest(case: &Case, set_up: SetUp) -> f64 {
    ideal::drain(&case.copies, SLOTS, set_up).as_secs_f64()
}

/// The agent's drain. `set`: more settings.
pub(super) async fn by_agent(
    programs: &Programs,
    case: &Case,
    set: &[&str],
) -> anyhow::Result<Drain> {
    agent(&programs.agent, case, set, programs.seed)
        .await
        .context("a drain by the agent")
}

async fn agent(binary: &Path, case: &Case, set: &[&str], seed: u64) -> anyhow::Result<Drain> {
    let arena = Arena::start(&case.setting(seed)).await?;
    let host = HostSide::start().await?;
    let options = AgentOptions {
        set: set.iter().map(|&set| set.to_owned()).collect(),
        speed: case.speed,
    };
    let mut agent = Agent::start(binary, &arena, &host, &options)?;
    agent.ready().await?;
    let signal = arena.now();
    host.logind.poweroff(Kind::Poweroff).await?;
    wait_released(&host, LONGEST)
        .await
        .with_context(|| format!("the agent said: {}", agent.program.said()))?;
    let released = arena.now();
    let cost = agent.program.cost();
    result(&arena, signal, released, cost)
}

/// kubectl's drain; always in real time, because its pauses are fixed.
pub(super) async fn by_kubectl(programs: &Programs, case: &Case) -> anyhow::Result<Drain> {
    peer(&programs.kubectl, case, programs.seed)
        .await
        .context("a drain by kubectl")
}

async fn peer(binary: &Path, case: &Case, seed: u64) -> anyhow::Result<Drain> {
    let arena = Arena::start(&case.setting(seed)).await?;
    warm_up(binary, &arena).await?;
    let start = arena.now();
    let cost = kubectl_drain(binary, &arena)?.finish(LONGEST).await?;
    let ended = arena.now();
    result(&arena, start, ended, cost)
}

fn result(arena: &Arena, start: Duration, end: Duration, cost: Cost) -> anyhow::Result<Drain> {
    let emptied = arena
        .watcher
        .emptied()
        .context("the drain ended although the node is not empty")?;
    let asked = arena.asked();
    let mut kinds = BTreeMap::new();
    for entry in &asked {
        let kind = format!("{} {}", entry.verb, entry.resource);
        *kinds.entry(kind).or_default() += 1;
    }
    Ok(Drain {
        took: end.saturating_sub(start).as_secs_f64(),
        emptied: emptied.saturating_sub(start).as_secs_f64(),
        requests: asked.len(),
        evictions: asked.iter().filter(|entry| evicts(entry)).count(),
        kinds,
        cost,
    })
}
