//! `clustersim`: the simulated cluster for people. Plays scenarios.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use testkit::scenario::Scenario;
use testkit::scenario::run::{Options, Verdict, on_model};

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
    let mut verdicts = Vec::new();
    for story in &stories {
        let verdict = on_model(story, &options);
        if matches!(arguments.output, Format::Text) {
            say(&verdict.text());
        }
        verdicts.push(verdict);
    }
    summary(&verdicts, arguments.output)
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
