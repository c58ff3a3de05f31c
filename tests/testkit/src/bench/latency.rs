//! How soon after the signal is the node cordoned, and how soon are the evictions on their way?

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::Programs;
use super::arena::{Arena, BOUND, HostSide, NODE, Setting, cordons, evicts};
use super::numbers::Samples;
use super::process::{Agent, AgentOptions, kubectl, kubectl_drain, warm_up};
use crate::api::Entry;
use crate::logind::Kind;
use crate::world::{VmOwner, VmSpec};

/// VMs that a drain shuts down; they wait for no slot.
const STAY: usize = 10;
/// VMs that migrate.
const MOVE: usize = 90;
/// Migrations that KubeVirt lets start at once: its default per node.
pub(super) const SLOTS: usize = 2;

/// What the runs have told.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    /// The agent: start to READY.
    pub(super) ready: Samples,
    /// The agent: signal to cordon.
    pub(super) cordon: Samples,
    /// The agent: signal to its first eviction.
    pub(super) first: Samples,
    /// The agent: signal to the last of the evictions that need not wait.
    pub(super) evictions: Samples,
    /// `kubectl cordon`: start to cordon.
    pub(super) kubectl_cordon: Samples,
    /// `kubectl drain`: start to its first eviction.
    pub(super) kubectl_first: Samples,
}

/// Runs both `runs` times, in turns.
pub(super) async fn measure(programs: &Programs, runs: u64) -> anyhow::Result<Latencies> {
    let mut all = Latencies::default();
    for run in 0..runs {
        let setting = Setting::new(hundred(), programs.seed + run);
        agent(&programs.agent, &setting, &mut all)
            .await
            .context("the agent's latency")?;
        peer(&programs.kubectl, &setting, &mut all)
            .await
            .context("kubectl's latency")?;
    }
    Ok(all)
}

fn hundred() -> Vec<VmSpec> {
    let stay = VmSpec {
        count: STAY,
        owner: VmOwner::Vm("Always".to_owned()),
        eviction_strategy: Some("None".to_owned()),
        memory: "1Gi".to_owned(),
        ..VmSpec::new("stay", NODE)
    };
    vec![stay, movers(MOVE)]
}

/// VMs that migrate.
pub(super) fn movers(count: usize) -> VmSpec {
    VmSpec {
        count,
        memory: "1Gi".to_owned(),
        ..VmSpec::new("move", NODE)
    }
}

async fn agent(binary: &Path, setting: &Setting, all: &mut Latencies) -> anyhow::Result<()> {
    let arena = Arena::start(setting).await?;
    let host = HostSide::start().await?;
    let start = arena.now();
    let mut agent = Agent::start(binary, &arena, &host, &AgentOptions::default())?;
    agent.ready().await?;
    all.ready.take(arena.now().saturating_sub(start));
    let signal = arena.now();
    host.logind.poweroff(Kind::Poweroff).await?;
    let (cordon, eviction, evictions) = arena
        .wait_asked("eviction of all that need not wait", BOUND, |entries| {
            let cordon = first(entries, cordons)?;
            Some((cordon, first(entries, evicts)?, all_asked(entries)?))
        })
        .await?;
    all.cordon.take(cordon.saturating_sub(signal));
    all.first.take(eviction.saturating_sub(signal));
    all.evictions.take(evictions.saturating_sub(signal));
    Ok(())
}

async fn peer(binary: &Path, setting: &Setting, all: &mut Latencies) -> anyhow::Result<()> {
    let arena = Arena::start(setting).await?;
    warm_up(binary, &arena).await?;
    let start = arena.now();
    kubectl(binary, &arena, &["cordon", NODE])?
        .end(BOUND)
        .await?;
    let cordon = first(&arena.asked(), cordons).context("kubectl did not cordon")?;
    all.kubectl_cordon.take(cordon.saturating_sub(start));
    arena.server.store.update("nodes", "", NODE, |node| {
        node["spec"]["unschedulable"] = false.into();
    });
    arena.server.log.clear();
    let start = arena.now();
    let _drain = kubectl_drain(binary, &arena)?;
    let eviction = arena
        .wait_asked("eviction", BOUND, |entries| first(entries, evicts))
        .await?;
    all.kubectl_first.take(eviction.saturating_sub(start));
    Ok(())
}

/// When the first such request came.
pub(super) fn first(entries: &[Entry], which: fn(&Entry) -> bool) -> Option<Duration> {
    entries
        .iter()
        .find(|entry| which(entry))
        .map(|entry| entry.at)
}

/// When the last eviction came that has nothing to wait for: of every VM that stays, and one per slot.
fn all_asked(entries: &[Entry]) -> Option<Duration> {
    let mut times: BTreeMap<&str, Duration> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| evicts(entry)) {
        times.entry(&entry.name).or_insert(entry.at);
    }
    let of = |vm: &str| {
        let prefix = format!("virt-launcher-{vm}-");
        let mut of: Vec<Duration> = times
            .iter()
            .filter(|(pod, _)| pod.starts_with(&prefix))
            .map(|(_, at)| *at)
            .collect();
        of.sort_unstable();
        of
    };
    let (stay, moved) = (of("stay"), of("move"));
    Some(*stay.get(STAY - 1)?.max(moved.get(SLOTS - 1)?))
}
