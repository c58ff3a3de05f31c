//! Plays a story and judges it.
//!
//! ```text
//!  timeline ──► cluster (others.rs) and stage (host + agent: model/, binary/)
//!                     │ every change
//!                     ▼
//!  observer (what became of each VM) ─► scene ─► tracker (expectations), rules (always), trace ─► verdict
//! ```

mod binary;
pub mod changes;
pub mod cluster;
pub mod ending;
pub mod estimates;
pub mod judge;
mod live;
pub mod many;
mod model;
pub mod observer;
pub mod others;
mod player;
pub mod real;
pub mod rules;
pub mod scene;
pub mod stage;
pub mod trace;
pub mod tracker;
pub mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use vmdrain_agent::config::Settings;
use vmdrain_agent::drain::others::Scope;
use vmdrain_agent::drain::policy::Consent;

pub use ending::Ending;
pub use judge::Judgement;
pub use live::Live;
pub use rules::Breach;
pub use tracker::Miss;
pub use verdict::Verdict;

use cluster::{Cluster, Machine};
use model::{ModelStage, Role};
use player::Player;
use rules::Terms;
use tracing_subscriber::layer::SubscriberExt as _;
use tracker::Slack;

use super::event::Do;
use super::event::agent::AgentDo;
use super::words::Rights;
use super::world::Hook;
use super::{Problem, Scenario};
use crate::clock::SimClock;
use crate::host::{HostHook, HostOptions, ModelHost};

/// How to play.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of everything that is random.
    pub seed: u64,
    /// Whether the verdict holds the whole timeline.
    pub trace: bool,
    /// How often the status is asked for, as people do who wait, for what it says about the end (on the model); `None`: only what
    /// the agent publishes by itself is heard.
    pub ask_every: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            trace: false,
            ask_every: None,
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

/// How to play on the front of the shipped binary.
#[derive(Clone, Debug)]
pub struct Shipped {
    /// The binary.
    pub binary: PathBuf,
    /// How many seconds of the story pass in a real one.
    pub speed: f64,
}

/// How far a real clock may be off. In the story's time that is `speed` times as much.
const SLACK: Duration = Duration::from_millis(300);

/// And this part of the time that has passed.
const SLACK_SHARE: f64 = 0.05;

/// No story takes longer in real time.
const LIMIT: Duration = Duration::from_secs(600);

/// Plays a story with the shipped binary: HTTPS, a private bus, a stand-in logind. Whatever it starts ends with it.
pub async fn on_binary(scenario: &Scenario, options: &Options, shipped: &Shipped) -> Verdict {
    if let Some(why) = binary::unfit(scenario) {
        return Verdict::skipped(scenario.file.clone(), &scenario.name, why);
    }
    let story = async {
        match Box::pin(binary_story(scenario, options, shipped)).await {
            Ok(verdict) => verdict,
            Err(error) => unplayed(scenario, format!("{error:#}")),
        }
    };
    match tokio::time::timeout(LIMIT, Box::pin(story)).await {
        Ok(verdict) => verdict,
        Err(_) => unplayed(
            scenario,
            format!(
                "the story did not end within {} real seconds",
                LIMIT.as_secs()
            ),
        ),
    }
}

async fn binary_story(
    scenario: &Scenario,
    options: &Options,
    shipped: &Shipped,
) -> anyhow::Result<Verdict> {
    let live = Live::start(scenario, shipped, options.seed).await?;
    let (verdict, _) = Box::pin(live.play(options.trace, player::AFTERWARDS)).await?;
    Ok(verdict)
}

/// The ids of the machine on which the binary really runs.
fn this_machine() -> Machine {
    let machine = vmdrain_agent::host::Identity::read();
    Machine {
        boot_id: machine.boot_id,
        machine_id: machine.machine_id,
        system_uuid: machine.system_uuid,
    }
}

fn binary_terms(scenario: &Scenario, speed: f64) -> Result<Terms, Problem> {
    let slack = Slack {
        fixed: SLACK.mul_f64(speed),
        share: SLACK_SHARE,
        late: Duration::ZERO,
        behind: Duration::ZERO,
    };
    Ok(terms(scenario, &settings(scenario)?, slack))
}

async fn model_story(scenario: &Scenario, options: &Options) -> Verdict {
    let settings = match settings(scenario) {
        Ok(settings) => settings,
        Err(problem) => return unplayed(scenario, problem.to_string()),
    };
    if !scenario.host.kubelet_graceful_shutdown.0.is_zero() {
        return unplayed(
            scenario,
            "not yet: the kubelet's own graceful shutdown".into(),
        );
    }
    let clock = SimClock::new(1.0);
    let host = ModelHost::new(
        clock.clone(),
        HostOptions {
            systemd: scenario.host.systemd,
            limit: scenario.host.inhibit_delay_max.0,
            boot_time: scenario.host.boot_time.0,
            hooks: scenario.hooks.iter().map(on_host).collect(),
        },
    );
    let cluster = match Cluster::start(
        scenario,
        &clock,
        options.seed,
        &Machine::booted(host.boot_id()),
    ) {
        Ok(cluster) => cluster,
        Err(why) => return unplayed(scenario, format!("the cluster cannot be made: {why}")),
    };
    let node = scenario.host.node.clone();
    if let Some(premises) = &cluster.premises {
        host.runs(premises.clone());
    }
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
    let terms = terms(scenario, &settings, Slack::default());
    Player::new(scenario, &cluster, stage, terms, options.trace)
        .asking(options.ask_every)
        .play()
        .await
}

fn on_host(hook: &Hook) -> HostHook {
    HostHook {
        gate: hook.gate,
        name: hook.name.clone(),
        takes: hook.takes.0,
        exit: hook.exit,
    }
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

fn terms(scenario: &Scenario, settings: &Settings, slack: Slack) -> Terms {
    let sees = |resource: &str| match &scenario.host.rights {
        Rights::Full => true,
        Rights::Base => false,
        Rights::Granted(list) => list.iter().any(|right| right.contains(resource)),
    };
    Terms {
        allow: scenario.allow.clone(),
        always_stop: settings.drain.allow_guest_shutdown == Consent::Always,
        never_stop: settings.drain.allow_guest_shutdown == Consent::Never,
        all_pods: settings.drain.scope == Scope::AllPods || asks_for_all(scenario),
        allow_empty_dir: settings.drain.allow_empty_dir,
        allow_unmanaged: settings.drain.allow_unmanaged_pods,
        sees_vmis: sees("virtualmachineinstances"),
        can_unmark: scenario.kubevirt.version.minor >= 7 && sees("evacuate"),
        margin: settings.budget.margin,
        slack,
    }
}

/// A trigger of the story drains all pods.
fn asks_for_all(scenario: &Scenario) -> bool {
    let mut events = scenario.timeline.iter();
    let all = Some(Scope::AllPods.word());
    events.any(|event| {
        matches!(&event.what, Do::Agent(AgentDo::Trigger(keys)) if keys.scope.as_deref() == all)
    })
}

fn unplayed(scenario: &Scenario, problem: String) -> Verdict {
    Verdict::unplayed(scenario.file.clone(), &scenario.name, problem)
}
