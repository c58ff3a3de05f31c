//! `clustersim compare` and `clustersim identity`: work on a control plane that is started for it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use testkit::plane::{ControlPlane, Version};
use testkit::scenario::Scenario;
use testkit::scenario::run::many::interrupted;
use testkit::scenario::run::real::{self, beside, identity, with_plane};
use testkit::scenario::run::{Options, Shipped};

use super::{Format, REAL_SPEED, agent, complain, runtime, say};

#[derive(Debug, clap::Args)]
pub(super) struct CompareArguments {
    /// The worlds: scenario files in which a host goes down or a drain is asked for.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The agent's binary; by default the one beside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// kubectl; by default the one that was built with the control plane.
    #[arg(long)]
    kubectl: Option<PathBuf>,
    /// Which KubeVirt: 1.5, 1.7 or 1.8.
    #[arg(long, default_value = "1.7")]
    kubevirt: Version,
    /// How much faster than in the story. Only in real time (1) are the two comparable, and is the agent's end judged.
    #[arg(long, default_value_t = 1.0)]
    speed: f64,
    /// The agent has to be so many percent faster.
    #[arg(long, value_name = "PERCENT")]
    shorter: Option<f64>,
    /// How often a world is played when it misses `--shorter` at first; then all rounds together decide.
    #[arg(long, default_value_t = 1, requires = "shorter")]
    rounds: u32,
    /// Where the control plane keeps its files, which then stay there.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Prints the agent's timeline.
    #[arg(long)]
    trace: bool,
    /// How the figures are printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct IdentityArguments {
    /// Stories about rights, which are played on the same control plane.
    files: Vec<PathBuf>,
    /// The agent's binary; by default the one beside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Which KubeVirt: 1.5, 1.7 or 1.8.
    #[arg(long, default_value = "1.7")]
    kubevirt: Version,
    /// Only cases whose name contains this.
    #[arg(long)]
    only: Vec<String>,
    /// How many seconds of a story pass in a real one.
    #[arg(long, default_value_t = REAL_SPEED)]
    speed: f64,
    /// Where the control plane keeps its files, which then stay there.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// `compare`.
pub(super) fn compare(arguments: CompareArguments) -> anyhow::Result<ExitCode> {
    let stories = stories(&arguments.files)?;
    let peers = beside::Peers {
        shipped: Shipped {
            binary: agent(arguments.binary.as_deref())?,
            speed: arguments.speed,
        },
        kubectl: arguments.kubectl,
        options: Options {
            trace: arguments.trace,
            ..Options::default()
        },
    };
    let work = async |plane: &Arc<ControlPlane>| {
        let mut seen = Vec::new();
        for story in &stories {
            let mut rounds = Vec::new();
            for round in 0..arguments.rounds.max(1) {
                // The first is enough when it says it plainly.
                if round == 1 && !beside::is_slow(&rounds, arguments.shorter) {
                    break;
                }
                let compared = beside::compare(story, &peers, plane).await;
                let compared =
                    compared.map_err(|error| error.context(story.file.display().to_string()))?;
                if matches!(arguments.output, Format::Text) {
                    say(&format!("{}\n", compared.text()));
                }
                rounds.push(compared);
            }
            seen.push(rounds);
        }
        Ok(seen)
    };
    let seen = on_plane(arguments.kubevirt, arguments.dir, work)?;
    if matches!(arguments.output, Format::Json) {
        say(&format!(
            "{}\n",
            serde_json::to_string_pretty(&seen.concat())?
        ));
    }
    let mut code = ExitCode::SUCCESS;
    for rounds in &seen {
        let Some(world) = rounds.first() else {
            continue;
        };
        for miss in beside::misses(rounds, arguments.shorter) {
            code = ExitCode::FAILURE;
            complain(&format!(
                "FAIL {} on KubeVirt {}: {miss}",
                world.file.display(),
                world.version
            ));
        }
    }
    Ok(code)
}

/// `identity`.
pub(super) fn identities(arguments: &IdentityArguments) -> anyhow::Result<ExitCode> {
    let shipped = Shipped {
        binary: agent(arguments.binary.as_deref())?,
        speed: arguments.speed,
    };
    let wanted = |name: &str| {
        let only = &arguments.only;
        only.is_empty() || only.iter().any(|part| name.contains(part.as_str()))
    };
    let cases: Vec<_> = identity::Case::ALL
        .into_iter()
        .filter(|(_, name)| wanted(name))
        .collect();
    anyhow::ensure!(!cases.is_empty(), "no case has such a name");
    let stories = stories(&arguments.files)?;
    let work = async |plane: &Arc<ControlPlane>| {
        let mut failed = 0;
        for story in &stories {
            let verdict = real::on_plane(story, &Options::default(), &shipped, plane).await;
            failed += usize::from(!verdict.passed);
            say(&verdict.text());
        }
        for (case, name) in cases {
            match identity::play(case, &shipped, plane).await {
                Ok(seen) => say(&format!("ok   {name} — {seen}\n")),
                Err(error) => {
                    failed += 1;
                    say(&format!("FAIL {name} — {error:#}\n"));
                }
            }
        }
        Ok(failed)
    };
    let failed = on_plane(arguments.kubevirt, arguments.dir.clone(), work)?;
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn stories(files: &[PathBuf]) -> anyhow::Result<Vec<Scenario>> {
    let stories: Result<_, _> = files.iter().map(|file| Scenario::load(file)).collect();
    Ok(stories?)
}

/// Does something on a control plane of its own, which ends with it, also on Ctrl-C.
fn on_plane<T>(
    version: Version,
    dir: Option<PathBuf>,
    work: impl AsyncFnOnce(&Arc<ControlPlane>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    runtime()?.block_on(async {
        tokio::select! {
            done = Box::pin(with_plane(version, dir, work)) => done,
            () = interrupted() => anyhow::bail!("interrupted"),
        }
    })
}
