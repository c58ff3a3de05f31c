//! A drain of ten VMs: its first credentials are replaced in time, the second ones run out before anybody renews them. The agent says so,
//! and goes on as soon as there are new ones.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::sync::watch;
use vmdrain_agent::drain::status::Status;

use super::super::super::scene::Journal;
use super::super::super::{Live, Options, Shipped};
use super::super::{AFTERWARDS, clean, cluster};
use super::papers::{Kind, Papers};
use super::{apply, withdraw};
use crate::clock::SimClock;
use crate::plane::ControlPlane;
use crate::scenario::Scenario;

/// The story.
const STORY: &str = include_str!("renewal.toml");

/// What a service account needs to drain.
const PARTS: [&str; 3] = ["service-account", "own-node-policy", "reads"];

/// The first credentials outlive the start of the agent.
const FIRST: Duration = Duration::from_secs(120);
/// The second ones run out well before the drain is over.
const SECOND: Duration = Duration::from_secs(5);
/// The last ones outlive everything.
const LAST: Duration = Duration::from_secs(600);
/// How late the renewal comes after the agent has complained.
const LATE: Duration = Duration::from_secs(4);
/// Each step takes no longer in real time.
const STEP: Duration = Duration::from_secs(60);

/// What the agent says once it has read its credentials again.
const READ_AGAIN: &str = "credentials were read again";
/// What it says of a 401: a VM's eviction was refused, or the pods cannot be listed.
const REFUSED: [&str; 2] = [
    "does not accept our credentials",
    "pods cannot be seen (cannot list pods on node n1: Unauthorized (401))",
];

pub(super) async fn play(
    kind: Kind,
    shipped: &Shipped,
    plane: &Arc<ControlPlane>,
) -> anyhow::Result<String> {
    let story = Scenario::parse(Path::new("renewal.toml"), STORY)?;
    if kind == Kind::Token {
        apply(plane, &PARTS).await?;
    }
    let played = Box::pin(drained(kind, &story, shipped, plane)).await;
    clean::clean(plane, &story).await?;
    withdraw(plane, &PARTS).await?;
    played
}

async fn drained(
    kind: Kind,
    story: &Scenario,
    shipped: &Shipped,
    plane: &Arc<ControlPlane>,
) -> anyhow::Result<String> {
    let clock = SimClock::from_wall(shipped.speed);
    let cluster = cluster(story, &Options::default(), plane, &clock).await?;
    let papers = Papers::new(kind, plane, FIRST).await?;
    let own = Some(papers.kubeconfig());
    let live = Box::pin(Live::around(story, shipped, cluster, clock, own)).await?;
    let seen = Seen {
        journal: live.journal(),
        status: live.status(),
    };
    let renewed = renewals(&papers, &seen);
    let played = live.play(false, AFTERWARDS);
    let (told, (verdict, _)) = Box::pin(async { tokio::try_join!(renewed, played) }).await?;
    ensure!(verdict.passed, "{}", verdict.text());
    Ok(told)
}

/// What the agent says.
struct Seen {
    journal: Journal,
    status: watch::Receiver<Option<Arc<Status>>>,
}

impl Seen {
    fn drain_runs(&self) -> bool {
        let status = self.status.borrow();
        let drain = status.as_ref().and_then(|status| status.drain.as_ref());
        drain.is_some_and(|drain| drain.exit.is_none())
    }

    fn times(&self, words: &str) -> usize {
        let lines = self.journal.lines();
        lines
            .iter()
            .filter(|line| line.text.contains(words))
            .count()
    }

    /// Where its status says that it is refused: a VM's reason, or what cannot be seen.
    fn refused(&self) -> Option<String> {
        let status = self.status.borrow();
        let vms = status.iter().flat_map(|status| status.vms.iter());
        let told = vms.map(|vm| format!("status of {}: {}", vm.name, vm.says));
        let unseen = status.iter().flat_map(|status| status.blind.iter());
        let mut all = told.chain(unseen.cloned());
        all.find(|text| REFUSED.iter().any(|words| text.contains(words)))
    }
}

async fn renewals(papers: &Papers, seen: &Seen) -> anyhow::Result<String> {
    until("a drain begins", || seen.drain_runs()).await?;
    papers.renew(SECOND).await?;
    until("the agent takes the second credentials", || {
        seen.times(READ_AGAIN) == 1
    })
    .await?;
    let expired = async {
        while !papers.are_refused().await? {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok::<(), anyhow::Error>(())
    };
    tokio::time::timeout(STEP, expired)
        .await
        .context("the server goes on to accept them")??;
    until("the agent says that it is refused", || {
        seen.refused().is_some()
    })
    .await?;
    let told = seen.refused().unwrap_or_default();
    tokio::time::sleep(LATE).await;
    ensure!(
        seen.drain_runs(),
        "the drain was over before the credentials were renewed: this shows nothing"
    );
    let before = seen.times(READ_AGAIN);
    papers.renew(LAST).await?;
    until("the agent takes the last credentials", || {
        seen.times(READ_AGAIN) > before
    })
    .await?;
    Ok(format!(
        "replaced in time; then refused by the server ({told}); {} s later renewed, and the drain went on to its end",
        LATE.as_secs()
    ))
}

async fn until(what: &str, so: impl Fn() -> bool) -> anyhow::Result<()> {
    let waits = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(STEP, waits)
        .await
        .with_context(|| format!("{what}: not within {} s", STEP.as_secs()))
}
