//! `clustersim`: the simulated cluster for people. Plays scenarios.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use testkit::scenario::Scenario;
use testkit::scenario::run::{Options, Shipped, Verdict, on_binary, on_model};

/// A simulated Kubernetes cluster with KubeVirt, for vmdrain-agent.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Plays scenario files and says what did not hold. Exit code 0: everything held, 1: something did not, 2: a file is wrong.
    Scenario(ScenarioArguments),
}

#[derive(Debug, clap::Args)]
struct ScenarioArguments {
    /// Scenario files.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// With what the stories are played.
    #[arg(long, value_enum, default_value_t)]
    against: Front,
    /// The binary to play with; by default the one beside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// How many seconds of a story pass in a real one (front `binary`).
    #[arg(long, default_value_t = 20.0)]
    speed: f64,
    /// Prints the whole timeline of each story.
    #[arg(long)]
    trace: bool,
    /// How the verdicts are printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Seed of everything that is random in the simulated cluster.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Front {
    /// The agent's own code in this process, on a paused clock: the same result on every run.
    #[default]
    Model,
    /// The shipped binary over HTTPS and a private bus with a stand-in logind.
    Binary,
    /// A real control plane.
    ControlPlane,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Scenario(arguments) => scenarios(&arguments),
    }
}

fn scenarios(arguments: &ScenarioArguments) -> ExitCode {
    let mut stories = Vec::new();
    let mut wrong = false;
    for file in &arguments.files {
        match Scenario::load(file) {
            Ok(story) => stories.push(story),
            Err(problem) => {
                wrong = true;
                complain(&problem.to_string());
            }
        }
    }
    if wrong {
        return ExitCode::from(2);
    }
    let options = Options {
        seed: arguments.seed,
        trace: arguments.trace,
    };
    let verdicts = match arguments.against {
        Front::Model => play(&stories, arguments, |story| on_model(story, &options)),
        Front::Binary => match shipped(arguments) {
            Ok(shipped) => play_shipped(&stories, arguments, &options, &shipped),
            Err(why) => {
                complain(&why);
                return ExitCode::from(2);
            }
        },
        Front::ControlPlane => {
            complain("not yet: stories on a real control plane");
            return ExitCode::from(2);
        }
    };
    summary(&verdicts, arguments.output)
}

fn play(
    stories: &[Scenario],
    arguments: &ScenarioArguments,
    mut one: impl FnMut(&Scenario) -> Verdict,
) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for story in stories {
        let verdict = one(story);
        if matches!(arguments.output, Format::Text) {
            say(&verdict.text());
        }
        verdicts.push(verdict);
    }
    verdicts
}

/// The binary beside this program, unless another is named.
fn shipped(arguments: &ScenarioArguments) -> Result<Shipped, String> {
    let beside = || {
        Some(
            std::env::current_exe()
                .ok()?
                .parent()?
                .join("vmdrain-agent"),
        )
    };
    let binary = arguments.binary.clone().or_else(beside).unwrap_or_default();
    if !binary.is_file() {
        return Err(format!(
            "there is no {}: build it (`cargo build`), or name it with --binary",
            binary.display()
        ));
    }
    Ok(Shipped {
        binary,
        speed: arguments.speed,
    })
}

/// Ctrl-C ends the story that runs, with everything that it started, and the ones after it are not played.
fn play_shipped(
    stories: &[Scenario],
    arguments: &ScenarioArguments,
    options: &Options,
    shipped: &Shipped,
) -> Vec<Verdict> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("no runtime: {error}"));
            return Vec::new();
        }
    };
    let mut interrupted = false;
    play(stories, arguments, |story| {
        let unplayed = |why: &str| Verdict::unplayed(story.file.clone(), &story.name, why.into());
        if interrupted {
            return unplayed("interrupted");
        }
        runtime.block_on(async {
            tokio::select! {
                verdict = on_binary(story, options, shipped) => verdict,
                _ = tokio::signal::ctrl_c() => {
                    interrupted = true;
                    unplayed("interrupted")
                }
            }
        })
    })
}

fn summary(verdicts: &[Verdict], format: Format) -> ExitCode {
    let failed = verdicts.iter().filter(|verdict| !verdict.passed).count();
    match format {
        Format::Text if verdicts.len() > 1 => {
            say(&format!("{} stories, {failed} failed\n", verdicts.len()));
        }
        Format::Text => {}
        Format::Json => match serde_json::to_string_pretty(verdicts) {
            Ok(json) => say(&format!("{json}\n")),
            Err(error) => complain(&error.to_string()),
        },
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn say(text: &str) {
    // A reader that went away (`| head`) is no failure of ours.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
