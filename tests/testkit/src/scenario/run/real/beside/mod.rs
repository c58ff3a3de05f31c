//! The same node of the same control plane in the same world, emptied by the agent and by `kubectl drain`: where does each VM end, how
//! many requests does it take, and how long?
//!
//! ```text
//!  story ─► agent (the story's own expectations are judged) ─► clean ─► the same objects again ─► kubectl drain ─► clean
//! ```
//!
//! kubectl runs with the administrator's rights, as people type it, and gives up when the story's host would go down. Where a story is
//! sped up, the world and the agent's own pauses are; kubectl's pause of 5 s is its own. So times compare in real time only.

mod kubectl;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

pub use report::{Comparison, Place, Side, is_slow, misses};

use vmdrain_agent::drain::others::Scope;

use super::super::asks_for_all;
use super::super::observer::Key;
use super::super::player::Player;
use super::super::{Options, Shipped, Verdict, binary_terms};
use super::{clean, cluster, fit};
use crate::api::log::Entry;
use crate::clock::SimClock;
use crate::host::Change;
use crate::plane::ControlPlane;
use crate::scenario::Scenario;
use crate::scenario::event::Do;
use crate::scenario::event::agent::AgentDo;
use crate::scenario::event::host::HostDo;
use crate::scenario::run::{Ending, Live};
use crate::scenario::words::Version;
use kubectl::{Drain, KubectlStage};

/// How long a world is looked at after the end, in real time: a VM that was shut down starts elsewhere.
const AFTERWARDS: Duration = Duration::from_secs(6);

/// With what a world is compared.
#[derive(Clone, Debug)]
pub struct Peers {
    /// The agent, and how much faster than in the story.
    pub shipped: Shipped,
    /// kubectl; by default the one of the control plane.
    pub kubectl: Option<PathBuf>,
    /// Of everything random.
    pub options: Options,
}

/// Plays a world twice and leaves the control plane as empty as before. Fails when either could not be played.
pub async fn compare(
    story: &Scenario,
    peers: &Peers,
    plane: &Arc<ControlPlane>,
) -> anyhow::Result<Comparison> {
    let version = plane.version();
    let reasons = fit::unfit(story, version);
    anyhow::ensure!(
        reasons.is_empty(),
        "not for the control plane: {}",
        reasons.join("; ")
    );
    let mut story = story.clone();
    story.kubevirt.version = Version {
        major: 1,
        minor: version.minor(),
    };
    let played = Box::pin(by_agent(&story, peers, plane)).await;
    clean::clean(plane, &story).await?;
    let (verdict, agent) = played.context("the agent")?;
    let played = Box::pin(by_kubectl(&story, peers, plane)).await;
    clean::clean(plane, &story).await?;
    Ok(Comparison {
        story: story.name.clone(),
        file: story.file.clone(),
        version: version.full().to_owned(),
        speed: peers.shipped.speed,
        verdict,
        agent,
        kubectl: played.context("kubectl")?,
    })
}

/// The node is emptied of all pods, not of VMs alone.
fn takes_all_pods(story: &Scenario) -> bool {
    let configured = story
        .agent
        .get("drain")
        .and_then(|drain| drain.get("scope"));
    configured.and_then(toml::Value::as_str) == Some(Scope::AllPods.word()) || asks_for_all(story)
}

/// When the story has the node emptied.
fn begins(story: &Scenario) -> anyhow::Result<Duration> {
    let begins = |what: &Do| {
        matches!(
            what,
            Do::Host(HostDo::Down(..)) | Do::Agent(AgentDo::Trigger(_))
        )
    };
    let mut events = story.timeline.iter();
    let found = events.find(|event| begins(&event.what));
    let event =
        found.context("nobody shuts the host down or asks for a drain: this is no world")?;
    Ok(event.time.0)
}

async fn by_agent(
    story: &Scenario,
    peers: &Peers,
    plane: &Arc<ControlPlane>,
) -> anyhow::Result<(Verdict, Side)> {
    let speed = peers.shipped.speed;
    let clock = SimClock::from_wall(speed);
    let cluster = cluster(story, &peers.options, plane, &clock).await?;
    let live = Box::pin(Live::around(story, &peers.shipped, cluster, clock, None)).await?;
    let afterwards = AFTERWARDS.mul_f64(speed);
    let (verdict, ending) = Box::pin(live.play(peers.options.trace, afterwards)).await?;
    let start = ending.origin + begins(story)?;
    let happened = |wanted: fn(&Change) -> bool| {
        let mut moments = ending.history.iter();
        let found = moments.find(|moment| moment.at >= start && wanted(&moment.change));
        found.map(|moment| moment.at)
    };
    let announced = happened(|change| matches!(change, Change::Announced { .. }));
    let released = happened(|change| matches!(change, Change::LockGone(_)));
    // Without a shutdown nobody is let go: the drain ends when its status says so.
    let ended = released
        .or(ending.drained)
        .context("the drain has not ended")?;
    let exit = ending
        .status
        .as_ref()
        .and_then(|status| status.drain.as_ref()?.exit);
    let exit = match exit {
        Some(exit) => format!("exit {exit}"),
        None => "no drain".into(),
    };
    let told = if released.is_some() {
        format!("{exit}, host let go")
    } else {
        exit
    };
    let side = side(
        (&ending, story),
        (announced.unwrap_or(start), ended),
        &ending.asked,
        told,
        speed,
    );
    Ok((verdict, side))
}

async fn by_kubectl(
    story: &Scenario,
    peers: &Peers,
    plane: &Arc<ControlPlane>,
) -> anyhow::Result<Side> {
    let speed = peers.shipped.speed;
    // What the agent has to do is no matter of kubectl's.
    let mut world = story.clone();
    world.expectations.clear();
    let clock = SimClock::from_wall(speed);
    let cluster = cluster(&world, &peers.options, plane, &clock).await?;
    let usual = || plane.binaries().program("kubectl");
    let program = peers.kubectl.clone().unwrap_or_else(usual);
    let stage = KubectlStage::new(&program, &world, &cluster.server, speed).await?;
    let drain = stage.drain();
    let terms = binary_terms(&world, speed)?;
    let player = Player::new(&world, &cluster, stage, terms, false);
    let player = player.afterwards(AFTERWARDS.mul_f64(speed));
    let (verdict, ending) = Box::pin(player.play_out()).await;
    anyhow::ensure!(
        verdict.problems.is_empty(),
        "{}",
        verdict.problems.join("; ")
    );
    let Drain {
        started,
        ended,
        exit,
        said,
        requests_before,
    } = Drain::of(&drain);
    let (started, ended) = (
        started.context("it was never started")?,
        ended.context("it has not ended")?,
    );
    let mut asked = cluster.server.log.entries_from(requests_before);
    asked.retain(|entry| entry.agent.starts_with("kubectl"));
    let told = if said.is_empty() {
        exit
    } else {
        format!("{exit}: {said}")
    };
    Ok(side(
        (&ending, story),
        (started, ended),
        &asked,
        told,
        speed,
    ))
}

fn side(
    (ending, world): (&Ending, &Scenario),
    (start, end): (Duration, Duration),
    asked: &[Entry],
    ended: String,
    speed: f64,
) -> Side {
    let real = |moment: Duration| moment.saturating_sub(start).as_secs_f64() / speed;
    Side {
        took: real(end),
        emptied: ending.emptied.map(real),
        requests: asked.len(),
        evictions: asked
            .iter()
            .filter(|entry| entry.subresource == "eviction")
            .count(),
        ended,
        cordoned: ending.cordoned,
        places: ending
            .vms
            .iter()
            .map(|((_, name), story)| (name.clone(), Place::of(story, &world.host.node)))
            .collect(),
        pods: if takes_all_pods(world) {
            let named = |(space, name): &Key| {
                let mut pods = world.pods.iter();
                pods.any(|pod| pod.namespace == *space && pod.name == *name)
            };
            let pods = ending.pods.iter().filter(|(key, _)| named(key));
            pods.map(|((space, name), gone)| (format!("{space}/{name}"), *gone))
                .collect()
        } else {
            std::collections::BTreeMap::new()
        },
    }
}
