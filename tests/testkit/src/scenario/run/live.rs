//! A story with the shipped binary that somebody watches: set up first, then played.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use vmdrain_agent::drain::status::Status;

use super::binary::{BinaryStage, Setup};
use super::cluster::Cluster;
use super::ending::Ending;
use super::player::Player;
use super::scene::Journal;
use super::stage::Stage as _;
use super::{Shipped, Verdict, binary_terms, real, settings, this_machine};
use crate::clock::SimClock;
use crate::scenario::Scenario;

/// A host with the running agent, before anything has happened.
pub struct Live<'a> {
    scenario: &'a Scenario,
    cluster: Cluster,
    stage: BinaryStage,
    speed: f64,
}

impl<'a> Live<'a> {
    /// Starts cluster, bus, logind and agent, and waits until the agent holds its lock.
    pub async fn start(
        scenario: &'a Scenario,
        shipped: &Shipped,
        seed: u64,
    ) -> anyhow::Result<Self> {
        // The real date: the binary compares what virt-handler has written with the boot of this machine.
        let clock = SimClock::from_wall(shipped.speed);
        let cluster =
            Cluster::start(scenario, &clock, seed, &this_machine()).map_err(anyhow::Error::msg)?;
        Self::around(scenario, shipped, cluster, clock, None).await
    }

    /// The same in a cluster that runs on this clock. With a kubeconfig the agent passes the story's own server by, which then sees
    /// nothing of what it asks.
    pub(super) async fn around(
        scenario: &'a Scenario,
        shipped: &Shipped,
        cluster: Cluster,
        clock: SimClock,
        kubeconfig: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let mut settings = settings(scenario)?;
        if cluster.real.is_some() {
            // What the agent waits for real servers is as long as it really is: they run no faster.
            let real = |span: &mut Duration| *span = span.mul_f64(shipped.speed);
            real(&mut settings.timing.core.settle);
            if !real::fit::hangs(scenario) {
                real(&mut settings.cluster.request_timeout);
            }
        }
        let setup = Setup {
            binary: shipped.binary.clone(),
            speed: shipped.speed,
            settings,
            kubeconfig,
        };
        let mut stage = BinaryStage::new(setup, scenario, cluster.server.clone(), clock).await?;
        if let Some(premises) = &cluster.premises {
            stage.runs(scenario, premises.clone())?;
        }
        stage.begin().await.map_err(anyhow::Error::msg)?;
        Ok(Self {
            scenario,
            cluster,
            stage,
            speed: shipped.speed,
        })
    }

    /// Options with which the binary is called: bus and configuration.
    pub fn global(&self) -> &[String] {
        self.stage.global()
    }

    /// The agent's journal.
    pub fn journal(&self) -> Journal {
        self.stage.journal().clone()
    }

    /// The agent's status, as it changes.
    pub fn status(&self) -> watch::Receiver<Option<Arc<Status>>> {
        self.stage.status()
    }

    /// Plays the timeline, goes on for `afterwards`, ends everything.
    pub async fn play(
        self,
        trace: bool,
        afterwards: Duration,
    ) -> anyhow::Result<(Verdict, Ending)> {
        let mut terms = binary_terms(self.scenario, self.speed)?;
        if self.cluster.real.is_some() {
            terms.slack.behind = real::behind(self.scenario).mul_f64(self.speed);
        }
        let player = Player::new(self.scenario, &self.cluster, self.stage, terms, trace);
        Ok(player.afterwards(afterwards).play_out().await)
    }
}
