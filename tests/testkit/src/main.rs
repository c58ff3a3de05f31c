//! `clustersim`: the simulated cluster for people. Plays scenarios, serves a cluster, shows the agent at work.

mod on_plane;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use testkit::plane::{Version, command as plane};
use testkit::scenario::Scenario;
use testkit::scenario::run::estimates::table;
use testkit::scenario::run::many::{self, interrupted, play_all};
use testkit::scenario::run::real::Planes;
use testkit::scenario::run::{Options, Shipped, Verdict};

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
    /// Plays scenario files on the model and prints how good the agent's estimates were at half time of each drain.
    Estimates {
        /// Scenario files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Compares the agent with the real kubectl on simulated clusters. Exit code 0: everything was measured (also what missed its
    /// target), 1: something could not be.
    Bench(BenchArguments),
    /// Serves a simulated cluster over HTTPS on loopback, for kubectl and others, until Ctrl-C.
    Serve(ServeArguments),
    /// Asks the model and real servers the same requests and compares the answers. Exit code 0: no unexplained difference, 1: there is
    /// one, 2: it could not be played.
    Differential(DifferentialArguments),
    /// Empties the same node of the same real control plane twice, with the agent and with `kubectl drain`, and prints side by side
    /// where each VM ended, the requests and the times. Exit code 0: what was wanted held, 1: something did not, 2: it could not be
    /// played.
    Compare(on_plane::CompareArguments),
    /// Lets credentials run out in the middle of a drain on a real control plane, and asks with one node's credentials for another
    /// node's objects. Exit codes as for compare.
    Identity(on_plane::IdentityArguments),
    /// Starts, ends or shows a real control plane on this machine: Kubernetes and KubeVirt as plain processes on loopback, with played
    /// nodes. Needs Go for the first time; no root.
    #[command(subcommand)]
    ControlPlane(ControlPlaneCommand),
    /// Shows the agent at work: a host with eight VMs is powered off. Needs dbus-daemon, no root and no cluster.
    Demo(DemoArguments),
}

#[derive(Debug, Subcommand)]
enum ControlPlaneCommand {
    /// Starts one in the background and returns when it answers.
    Up(UpArguments),
    /// Ends one and removes its folder.
    Down(WhereArguments),
    /// Says what runs. Exit code 1 when something does not.
    Status(WhereArguments),
    /// The process in the background.
    #[command(hide = true)]
    Keep(UpArguments),
}

#[derive(Debug, clap::Args)]
struct WhereArguments {
    /// Which KubeVirt: 1.5, 1.7 or 1.8.
    #[arg(long, default_value = "1.7")]
    kubevirt: Version,
    /// Its folder; by default one for each version, in the folder for temporary files.
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct UpArguments {
    #[command(flatten)]
    place: WhereArguments,
    /// The played nodes.
    #[arg(long, value_delimiter = ',', default_value = "n1,n2,n3")]
    nodes: Vec<String>,
    /// The API server answers on this address of the machine, too.
    #[arg(long)]
    address: Vec<std::net::IpAddr>,
}

#[derive(Debug, clap::Args)]
struct ServeArguments {
    /// A scenario whose cluster is served; its timeline is not played. Without one: n1, n2 and n3 with ten VMs on n1.
    file: Option<PathBuf>,
    /// Where kubeconfigs and certificates are written; by default a folder that is removed at the end.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The port on 127.0.0.1; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// How many simulated seconds pass in a real one.
    #[arg(long, default_value_t = 1.0)]
    speed: f64,
    /// Seed of everything that is random in the simulated cluster.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Gives the host's node the ids of this machine, so that an agent here takes it for its own.
    #[arg(long)]
    this_machine: bool,
    /// Writes all requests to this file at the end, as JSON.
    #[arg(long)]
    requests: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct DifferentialArguments {
    /// Kubeconfig of an administrator of a control plane that runs; without it one is started, and ended afterwards.
    #[arg(long)]
    against_kubeconfig: Option<PathBuf>,
    /// The KubeVirt version that runs there.
    #[arg(long, default_value = "1.7")]
    kubevirt: String,
    /// Makes the nodes n1, n2 and n3 there and plays their kubelets and virt-handlers; without it they must be there already.
    #[arg(long)]
    play: bool,
    /// Only scenes whose name contains this.
    #[arg(long)]
    only: Vec<String>,
    /// How often each story whose order of changes is compared is played; 0: not at all.
    #[arg(long, default_value_t = 3)]
    plays: usize,
    /// A folder with the table's files, instead of those that are built in.
    #[arg(long)]
    table: Option<PathBuf>,
    /// How many scenes are played at a time; by default what the version bears.
    #[arg(short, long)]
    jobs: Option<usize>,
}

#[derive(Debug, clap::Args)]
struct DemoArguments {
    /// The agent's binary; by default the one beside this program.
    #[arg(long)]
    agent: Option<PathBuf>,
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
    /// With what the stories are played.
    #[arg(long, value_enum, default_value_t)]
    against: Front,
    /// The binary to play with; by default the one beside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// How many seconds of a story pass in a real one: 20 for the binary, 4 for the control plane, whose controllers keep real time.
    #[arg(long)]
    speed: Option<f64>,
    /// Which KubeVirt the control plane has: 1.5, 1.7 or 1.8.
    #[arg(long, default_value = "1.7")]
    kubevirt: Version,
    /// Where control planes keep their files (logs, kubeconfigs), which then stay there.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// How many stories are played at a time.
    #[arg(short, long, default_value_t = 1)]
    jobs: usize,
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
    /// The shipped binary with a real API server, real controllers, virt-api and virt-controller; only nodes are played.
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

/// How many seconds of a story pass in a real one: with nothing but simulated parts, and with real controllers.
const FAST: f64 = 20.0;
const REAL_SPEED: f64 = 4.0;

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Scenario(arguments) => scenarios(&arguments),
        Command::Estimates { files } => estimates(&files),
        Command::Bench(arguments) => bench(&arguments),
        Command::Serve(arguments) => ended(serve(arguments)),
        Command::ControlPlane(command) => ended(control_plane(command)),
        Command::Demo(arguments) => ended(demo(&arguments)),
        Command::Compare(arguments) => ended(on_plane::compare(arguments)),
        Command::Identity(arguments) => ended(on_plane::identities(&arguments)),
        Command::Differential(arguments) => ended(differential(arguments)),
    }
}

/// The stories of these files; `None`: one of them is wrong, which has been said.
fn load(files: &[PathBuf]) -> Option<Vec<Scenario>> {
    let mut stories = Vec::new();
    let mut wrong = false;
    for file in files {
        match Scenario::load(file) {
            Ok(story) => stories.push(story),
            Err(problem) => {
                wrong = true;
                complain(&problem.to_string());
            }
        }
    }
    (!wrong).then_some(stories)
}

fn estimates(files: &[PathBuf]) -> ExitCode {
    let Some(stories) = load(files) else {
        return ExitCode::from(2);
    };
    let options = Options {
        ask_every: Some(std::time::Duration::from_secs(1)),
        ..Options::default()
    };
    let verdicts = play_all(&stories, &many::Front::Model, &options, 1, |_| {});
    say(&table(&verdicts));
    ExitCode::SUCCESS
}

fn scenarios(arguments: &ScenarioArguments) -> ExitCode {
    let Some(stories) = load(&arguments.files) else {
        return ExitCode::from(2);
    };
    let options = Options {
        seed: arguments.seed,
        trace: arguments.trace,
        ..Options::default()
    };
    let front = match front(arguments) {
        Ok(front) => front,
        Err(why) => return ended(Err(why)),
    };
    let verdicts = play_all(&stories, &front, &options, arguments.jobs, |verdict| {
        if matches!(arguments.output, Format::Text) {
            say(&verdict.text());
        }
    });
    summary(&verdicts, arguments.output)
}

fn front(arguments: &ScenarioArguments) -> anyhow::Result<many::Front> {
    match arguments.against {
        Front::Model => Ok(many::Front::Model),
        Front::Binary => Ok(many::Front::Binary(Shipped {
            binary: agent(arguments.binary.as_deref())?,
            speed: arguments.speed.unwrap_or(FAST),
        })),
        Front::ControlPlane => Ok(many::Front::ControlPlane(Planes {
            shipped: Shipped {
                binary: agent(arguments.binary.as_deref())?,
                speed: arguments.speed.unwrap_or(REAL_SPEED),
            },
            version: arguments.kubevirt,
            keep: arguments.dir.clone(),
        })),
    }
}

/// The binary beside this program, unless another is named.
fn agent(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let beside = || {
        Some(
            std::env::current_exe()
                .ok()?
                .parent()?
                .join("vmdrain-agent"),
        )
    };
    let binary = named
        .map(Path::to_owned)
        .or_else(beside)
        .unwrap_or_default();
    anyhow::ensure!(
        binary.is_file(),
        "there is no {}: build it (`cargo build --bins`), or name it",
        binary.display()
    );
    Ok(binary)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

fn ended(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        ExitCode::from(2)
    })
}

fn control_plane(command: ControlPlaneCommand) -> anyhow::Result<ExitCode> {
    let dir = |place: WhereArguments| {
        let usual = || plane::usual_dir(place.kubevirt);
        place.dir.clone().unwrap_or_else(usual)
    };
    let up = |arguments: UpArguments| plane::Up {
        version: arguments.place.kubevirt,
        nodes: arguments.nodes,
        addresses: arguments.address,
        dir: dir(arguments.place),
    };
    match command {
        ControlPlaneCommand::Up(arguments) => runtime()?.block_on(plane::up(&up(arguments)))?,
        ControlPlaneCommand::Down(place) => plane::down(&dir(place))?,
        ControlPlaneCommand::Status(place) => {
            if !plane::status(&dir(place))? {
                return Ok(ExitCode::FAILURE);
            }
        }
        ControlPlaneCommand::Keep(arguments) => runtime()?.block_on(plane::keep(&up(arguments)))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(arguments: ServeArguments) -> anyhow::Result<ExitCode> {
    const USUAL: &str = "name = \"served\"\n[[node]]\nname = \"n2\"\n[[node]]\nname = \"n3\"\n[[vm]]\nname = \"vm\"\ncount = 10\n";
    let scenario = match &arguments.file {
        Some(file) => Scenario::load(file)?,
        None => Scenario::parse(Path::new("served"), USUAL)?,
    };
    let temporary = tempfile::Builder::new().prefix("clustersim").tempdir()?;
    let options = testkit::serve::Options {
        dir: arguments.dir.unwrap_or_else(|| temporary.path().to_owned()),
        port: arguments.port,
        speed: arguments.speed,
        seed: arguments.seed,
        this_machine: arguments.this_machine,
        requests: arguments.requests,
    };
    runtime()?.block_on(testkit::serve::serve(&scenario, &options, interrupted()))?;
    Ok(ExitCode::SUCCESS)
}

/// Everything that the demonstration starts ends with it, also on Ctrl-C.
fn demo(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    let agent = agent(arguments.agent.as_deref())?;
    runtime()?.block_on(async {
        tokio::select! {
            shown = testkit::demo::show(&agent) => Ok(if shown? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
            () = interrupted() => Ok(ExitCode::from(130)),
        }
    })
}

fn differential(arguments: DifferentialArguments) -> anyhow::Result<ExitCode> {
    use testkit::differential::{self, report::News};
    let version = differential::version(&arguments.kubevirt)?;
    let options = differential::Options {
        kubeconfig: arguments.against_kubeconfig.unwrap_or_default(),
        kubevirt: version,
        play: arguments.play,
        only: arguments.only,
        plays: arguments.plays,
        table: arguments.table,
        jobs: arguments.jobs,
    };
    let tell = |news: &differential::report::News<'_>| match news {
        News::Judged(verdict) if verdict.passed() => {
            let took = verdict.took.as_secs_f64();
            complain(&format!("ok   {} ({took:.1} s)", verdict.scene));
        }
        News::Judged(verdict) => {
            complain(&format!("FAIL {}", differential::report::wrong(verdict)));
        }
        News::Again(why) => complain(&format!("!!! {why}")),
    };
    let report = runtime()?.block_on(async {
        tokio::select! {
            report = differential::run_anywhere(options, &tell) => report,
            () = interrupted() => anyhow::bail!("interrupted"),
        }
    })?;
    say(&report.text());
    Ok(if report.passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn summary(verdicts: &[Verdict], format: Format) -> ExitCode {
    let failed = verdicts.iter().filter(|verdict| !verdict.passed).count();
    match format {
        Format::Text if verdicts.len() > 1 => {
            let skipped = verdicts.iter().filter(|one| one.skipped.is_some()).count();
            let rest = if skipped > 0 {
                format!(", {skipped} not for this front")
            } else {
                String::new()
            };
            say(&format!(
                "{} stories, {failed} failed{rest}\n",
                verdicts.len()
            ));
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
    if report.failed.is_empty() {
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
