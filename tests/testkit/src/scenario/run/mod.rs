//! Plays a story and judges it.
//!
//! ```text
//!  timeline ──► cluster (others.rs) and stage (host + agent: model/, binary/)
//!                     │ every change
//!                     ▼
//!  observer (what became of each VM) ─► scene ─► tracker (expectations), rules (always), trace ─► verdict
//! ```

pub mod cluster;
pub mod judge;
mod model;
pub mod observer;
pub mod others;
mod player;
pub mod rules;
pub mod scene;
pub mod stage;
pub mod tracker;
pub mod trace;
pub mod verdict;

use std::time::Duration;

use vmdrain_agent::config::Settings;
use vmdrain_agent::drain::policy::Consent;

pub use judge::Judgement;
pub use rules::Breach;
pub use tracker::Miss;
pub use verdict::Verdict;

use cluster::Cluster;
use model::{ModelStage, Role};
use player::Player;
use rules::Terms;
use tracing_subscriber::layer::SubscriberExt as _;

use super::words::Rights;
use super::{Problem, Scenario};
use crate::clock::SimClock;
use crate::host::{HostOptions, ModelHost};

/// How to play.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of everything that is random.
    pub seed: u64,
    /// Whether the verdict holds the whole timeline.
    pub trace: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            trace: false,
        }
    }
}

/// Plays a story on the in-process front: a paused clock, the same result on every run.
///
/// Makes its own runtime on the calling thread, so any number of stories can be played on as many threads.
pub fn on_model(scenario: &Scenario, options: &Options) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(model_story(scenario, options)),
        Err(error) => unplayed(scenario, format!("no runtime: {error}")),
    }
}

async fn model_story(scenario: &Scenario, options: &Options) -> Verdict {
    let settings = match settings(scenario) {
        Ok(settings) => settings,
        Err(problem) => return unplayed(scenario, problem.to_string()),
    };
    if !scenario.host.kubelet_graceful_shutdown.0.is_zero() {
        return unplayed(scenario, "not yet: the kubelet's own graceful shutdown".into());
    }
    let clock = SimClock::new(1.0);
    let host = ModelHost::new(clock.clone(), HostOptions {
        systemd: scenario.host.systemd,
        limit: scenario.host.inhibit_delay_max.0,
        boot_time: scenario.host.boot_time.0,
    });
    let cluster = match Cluster::start(scenario, &clock, options.seed, &host.boot_id()) {
        Ok(cluster) => cluster,
        Err(why) => return unplayed(scenario, format!("the cluster cannot be made: {why}")),
    };
    let node = scenario.host.node.clone();
    let (machine_id, system_uuid) = cluster.ids(&node);
    let role = Role {
        machine_id,
        system_uuid,
        settings: settings.clone(),
        seed: options.seed,
        node: node.clone(),
    };
    let stage = ModelStage::new(role, cluster.agent_client(&node), host, clock.clone());
    let catcher = model::journal::Catcher {
        journal: stage::Stage::journal(&stage).clone(),
        clock,
    };
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(catcher));
    let terms = terms(scenario, &settings, Duration::ZERO);
    Player::new(scenario, &cluster, stage, terms, options.trace).play().await
}

/// The agent's configuration: the packaged defaults under the story's `[agent]`.
fn settings(scenario: &Scenario) -> Result<Settings, Problem> {
    let table = toml::Value::Table(scenario.agent.clone());
    table.try_into().map_err(|error: toml::de::Error| Problem {
        file: scenario.file.clone(),
        line: scenario.agent_line,
        text: format!("[agent] {}", error.message()),
    })
}

fn terms(scenario: &Scenario, settings: &Settings, slack: Duration) -> Terms {
    let sees = |resource: &str| match &scenario.host.rights {
        Rights::Full => true,
        Rights::Base => false,
        Rights::Granted(list) => list.iter().any(|right| right.contains(resource)),
    };
    Terms {
        allow: scenario.allow.clone(),
        always_stop: settings.drain.allow_guest_shutdown == Consent::Always,
        never_stop: settings.drain.allow_guest_shutdown == Consent::Never,
        sees_vmis: sees("virtualmachineinstances"),
        can_unmark: scenario.kubevirt.version.minor >= 7 && sees("evacuate"),
        margin: settings.budget.margin,
        slack,
    }
}

fn unplayed(scenario: &Scenario, problem: String) -> Verdict {
    Verdict::unplayed(scenario.file.clone(), &scenario.name, problem)
}
