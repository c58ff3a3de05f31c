//! How soon after the last VM is gone may the host go?

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::try_join_all;

use super::Programs;
use super::arena::{Arena, BOUND, HostSide, NODE, Setting};
use super::numbers::Samples;
use super::process::{Agent, AgentOptions, kubectl_drain, warm_up};
use crate::logind::{Happened, Kind};
use crate::world::VmSpec;

/// These worlds run faster than real time, so that a drain takes a second. Both programs keep their own pace, and what is measured is
/// real time after the last VM is gone.
const SPEED: f64 = 8.0;
/// kubectl asks again after so long; its runs are spread evenly over this time.
const KUBECTL_PAUSE: Duration = Duration::from_secs(5);
/// How our lock is called.
const WHO: &str = vmdrain_agent::host::hold::WHO;

/// What the runs have told.
#[derive(Debug)]
pub(super) struct Releases {
    /// The agent: until logind noticed.
    pub(super) agent: Samples,
    /// kubectl: until it ended.
    pub(super) kubectl: Samples,
}

/// The agent `runs` times one after the other, kubectl `peers` times side by side (its seconds are not disturbed by that).
pub(super) async fn measure(
    programs: &Programs,
    runs: u64,
    peers: u32,
) -> anyhow::Result<Releases> {
    let mut agent = Samples::default();
    for run in 0..runs {
        let setting = setting(Duration::ZERO, programs.seed + run);
        agent.take(
            released(&programs.agent, &setting)
                .await
                .context("the agent's release")?,
        );
    }
    let kubectl = try_join_all((0..peers).map(|run| async move {
        let later = KUBECTL_PAUSE * run / peers.max(1);
        let setting = setting(later, programs.seed + u64::from(run));
        ended(&programs.kubectl, &setting)
            .await
            .context("kubectl's end")
    }))
    .await?;
    Ok(Releases {
        agent,
        kubectl: kubectl.into_iter().collect(),
    })
}

/// One VM that migrates and one that is shut down; the drain takes `later` (in real time) longer than it has to.
fn setting(later: Duration, seed: u64) -> Setting {
    let moves = VmSpec {
        migration_time: Duration::from_secs(1) + later.mul_f64(SPEED),
        ..VmSpec::new("move", NODE)
    };
    let stays = VmSpec {
        eviction_strategy: Some("None".to_owned()),
        guest_shutdown: Some(Duration::from_secs(1)),
        ..VmSpec::new("stay", NODE)
    };
    Setting {
        speed: SPEED,
        ..Setting::new(vec![moves, stays], seed)
    }
}

async fn released(binary: &Path, setting: &Setting) -> anyhow::Result<Duration> {
    let arena = Arena::start(setting).await?;
    let host = HostSide::start().await?;
    let mut agent = Agent::start(binary, &arena, &host, &AgentOptions::default())?;
    agent.ready().await?;
    host.logind.poweroff(Kind::Poweroff).await?;
    wait_released(&host, BOUND).await.with_context(|| {
        format!(
            "the hold was not released; the agent said: {}",
            agent.program.said()
        )
    })?;
    let released = arena.now();
    let emptied = arena
        .watcher
        .emptied()
        .context("the hold was released although the node is not empty")?;
    Ok(arena.real(released.saturating_sub(emptied)))
}

/// Waits until logind has noticed that our lock is gone.
pub(super) async fn wait_released(host: &HostSide, limit: Duration) -> anyhow::Result<()> {
    let ours = |what: &Happened| matches!(what, Happened::Unlocked { who } if who == WHO);
    let event = host.logind.wait_for(limit, ours).await;
    event
        .map(|_| ())
        .with_context(|| format!("the lock was still held after {limit:?}"))
}

async fn ended(binary: &Path, setting: &Setting) -> anyhow::Result<Duration> {
    let arena = Arena::start(setting).await?;
    warm_up(binary, &arena).await?;
    kubectl_drain(binary, &arena)?.end(BOUND).await?;
    let ended = arena.now();
    let emptied = arena
        .watcher
        .emptied()
        .context("kubectl ended although the node is not empty")?;
    Ok(arena.real(ended.saturating_sub(emptied)))
}
