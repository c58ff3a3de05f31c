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
    /// Compares the agent with the real kubectl on simulated clusters. Exit code 0: everything was measured (also what missed its
    /// target), 1: something could not be.
    Bench(BenchArguments),
}

#[derive(Debug, clap::Args)]
struct BenchArguments {
    /// The agent's binary.
    #[arg(long)]
    agent: PathBuf,
    /// The kubectl to compare with.
    #[arg(long, default_value = "kubectl")]
    kubectl: PathBuf,
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<testkit::bench::Part>,
    /// At most two minutes, with coarser figures.
    #[arg(long)]
    quick: bool,
    /// How the figures are printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Seed of everything that is random in the simulated clusters.
    #[arg(long, default_value_t = 1)]
    seed: u64,
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
        Command::Bench(arguments) => bench(&arguments),
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

fn bench(arguments: &BenchArguments) -> ExitCode {
    let options = testkit::bench::Options {
        agent: arguments.agent.clone(),
        kubectl: arguments.kubectl.clone(),
        quick: arguments.quick,
        seed: arguments.seed,
        only: arguments.only.clone(),
    };
    let clock = testkit::clock::SimClock::new(1.0);
    let tell = |what: &str| complain(&format!("{:4} s  {what}", clock.elapsed().as_secs()));
    let report = match testkit::bench::run(&options, &tell) {
        Ok(report) => report,
        Err(error) => {
            complain(&format!("bench: {error:#}"));
            return ExitCode::FAILURE;
        }
    };
    match arguments.output {
        Format::Text => say(&report.text()),
        Format::Json => match serde_json::to_string_pretty(&report) {
            Ok(json) => say(&format!("{json}\n")),
            Err(error) => complain(&error.to_string()),
        },
    }
    ExitCode::SUCCESS
}

fn say(text: &str) {
    // A reader that went away (`| head`) is no failure of ours.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
