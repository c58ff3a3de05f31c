//! What does a node with 10, 100 or 1,000 VMs cost?

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use super::Programs;
use super::arena::{Arena, BOUND, HostSide, Setting, evicts};
use super::latency::{first, movers};
use super::process::{Agent, AgentOptions, Cost, kubectl_drain, warm_up};
use crate::logind::Kind;

/// How long a drain is followed.
const FOLLOWED: Duration = Duration::from_secs(10);

/// The beginning of one drain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Beginning {
    /// From the signal (or the start of the command) to the first eviction, in seconds.
    pub(super) first: f64,
    /// After the first seconds of the drain.
    pub(super) cost: Cost,
}

/// The first seconds of the agent's drain of so many VMs.
pub(super) async fn by_agent(programs: &Programs, vms: usize) -> anyhow::Result<Beginning> {
    let arena = Arena::start(&setting(vms, programs.seed)).await?;
    let host = HostSide::start().await?;
    let options = AgentOptions::default();
    let mut agent = Agent::start(&programs.agent, &arena, &host, &options)?;
    agent.ready().await?;
    let signal = arena.now();
    host.logind.poweroff(Kind::Poweroff).await?;
    let evicted = arena
        .wait_asked("eviction", BOUND, |entries| first(entries, evicts))
        .await
        .with_context(|| format!("the agent said: {}", agent.program.said()))?;
    tokio::time::sleep(FOLLOWED).await;
    Ok(Beginning {
        first: evicted.saturating_sub(signal).as_secs_f64(),
        cost: agent.program.cost(),
    })
}

/// The first seconds of kubectl's.
pub(super) async fn by_kubectl(programs: &Programs, vms: usize) -> anyhow::Result<Beginning> {
    let arena = Arena::start(&setting(vms, programs.seed)).await?;
    warm_up(&programs.kubectl, &arena).await?;
    let start = arena.now();
    let mut drain = kubectl_drain(&programs.kubectl, &arena)?;
    let evicted = arena
        .wait_asked("eviction", BOUND, |entries| first(entries, evicts))
        .await
        .with_context(|| format!("kubectl said: {}", drain.said()))?;
    tokio::time::sleep(FOLLOWED).await;
    Ok(Beginning {
        first: evicted.saturating_sub(start).as_secs_f64(),
        cost: drain.cost(),
    })
}

fn setting(vms: usize, seed: u64) -> Setting {
    Setting::new(vec![movers(vms)], seed)
}
