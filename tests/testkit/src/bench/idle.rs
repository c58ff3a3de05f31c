//! What does the agent do while nothing happens?

use std::time::Duration;

use serde::Serialize;

use super::Programs;
use super::arena::{Arena, HostSide, Setting};
use super::latency::movers;
use super::numbers::float;
use super::process::{Agent, AgentOptions};

/// VMs on the node of an idle agent.
const VMS: usize = 10;
/// After the start, until it is called idle.
const SETTLE: Duration = Duration::from_secs(3);

/// An idle agent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Idle {
    /// How long it was watched, in seconds.
    pub(super) watched: f64,
    /// Requests to the API server in an hour.
    pub(super) requests: f64,
    /// Wake-ups of its threads in a minute.
    pub(super) wakeups: f64,
    /// Memory, in bytes.
    pub(super) rss: u64,
}

/// Watches it for `span`.
pub(super) async fn measure(programs: &Programs, span: Duration) -> anyhow::Result<Idle> {
    let arena = Arena::start(&Setting::new(vec![movers(VMS)], programs.seed)).await?;
    let host = HostSide::start().await?;
    let options = AgentOptions::default();
    let mut agent = Agent::start(&programs.agent, &arena, &host, &options)?;
    agent.ready().await?;
    tokio::time::sleep(SETTLE).await;
    let (asked, sleeps, start) = (arena.asked().len(), agent.program.sleeps(), arena.now());
    tokio::time::sleep(span).await;
    let watched = arena.now().saturating_sub(start).as_secs_f64();
    let requests = arena.asked().len().saturating_sub(asked);
    let wakeups = agent.program.sleeps().saturating_sub(sleeps);
    let rss = agent.program.cost().rss;
    agent.program.stop().await?;
    Ok(Idle {
        watched,
        requests: float(requests as u64) * 3600.0 / watched,
        wakeups: float(wakeups) * 60.0 / watched,
        rss,
    })
}
