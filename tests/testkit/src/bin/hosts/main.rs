//! `hosts`: the real-host tests. Boots Debian hosts with systemd-nspawn, installs the package, and lets them go down in every way.
//!
//! `tests/systemd/run` calls it; it needs root. Everything that it starts ends with it, also on Ctrl-C; what a killed run leaves, the
//! next one removes.
//!
//! | file | answers |
//! |---|---|
//! | `suite.rs` | which cases run where, and how |
//! | `cases/` | the cases |
//! | `plan.rs`, `scene.rs` | what a case begins with: a host, its cluster |
//! | `host.rs`, `disk.rs` | how a host boots, is asked, goes down; what is on its disk |
//! | `cluster.rs` | the simulated cluster of a host, and what was seen of it |
//! | `sampler.rs` | what is seen of a host from outside, every few milliseconds |
//! | `install.rs` | what an installed agent adds to a root tree |
//! | `scratch.rs`, `cgroups.rs`, `patience.rs` | where everything lies, how it ends, how long it may take |
//! | `nspawn.rs` | the command line that boots a host |
//! | `report.rs` | lines and the table |
//! | `whole/` | hosts with a real kubelet in a real control plane (`--whole`) |

mod cases;
mod cgroups;
mod cluster;
mod disk;
mod host;
mod install;
mod nspawn;
mod patience;
mod plan;
mod report;
mod sampler;
mod scene;
mod scratch;
mod suite;
mod whole;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use clap::Parser;
use testkit::clock::SimClock;
use testkit::plane::Version;
use testkit::scenario::run::many;

use scratch::Scratch;
use suite::{Debian, Packages, Root, Run};
use whole::plane::Plane;

/// Real hosts for vmdrain-agent: boots Debian in systemd-nspawn and takes it down in every way. Needs root.
#[derive(Debug, Parser)]
struct Arguments {
    /// A root tree, e.g. 13=/path, with what lies above it before it and a colon; can be repeated.
    #[arg(long = "root", value_name = "NAME=PATH", value_parser = root)]
    roots: Vec<(Debian, Vec<PathBuf>)>,
    /// The package under test.
    #[arg(long)]
    package: Option<PathBuf>,
    /// The same package with a lower version number.
    #[arg(long)]
    older: Option<PathBuf>,
    /// The same package with a higher version number.
    #[arg(long)]
    newer: Option<PathBuf>,
    /// The package for hosts with rpm.
    #[arg(long)]
    rpm: Option<PathBuf>,
    /// What `make install` has laid out.
    #[arg(long)]
    tree: Option<PathBuf>,
    /// Only cases whose number is this or whose name contains it; can be repeated.
    #[arg(long)]
    only: Vec<String>,
    /// How many hosts at a time.
    #[arg(short, long, default_value_t = 2)]
    jobs: usize,
    /// How often each case is played.
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Cases that do not hold are played once more, alone, and said loudly.
    #[arg(long)]
    again: bool,
    /// Also the cases that take very long (scenario 30: 45 minutes).
    #[arg(long)]
    long: bool,
    /// Where the whole journals are kept.
    #[arg(long)]
    logs: Option<PathBuf>,
    /// The cases of whole hosts instead: with a kubelet, in a control plane that is started for them.
    #[arg(long)]
    whole: bool,
    /// The KubeVirt of that control plane.
    #[arg(long, value_name = "VERSION", default_value = "1.7")]
    kubevirt: Version,
    /// The static program that runs in containers (tests/whole-host/guest.c).
    #[arg(long)]
    guest: Option<PathBuf>,
    /// Prints the cases and ends.
    #[arg(long)]
    list: bool,
}

fn root(text: &str) -> Result<(Debian, Vec<PathBuf>), String> {
    let (name, paths) = text.split_once('=').ok_or("NAME=PATH is meant")?;
    let debian = suite::ALL.iter().find(|debian| debian.name() == name);
    let debian = debian.ok_or_else(|| format!("no such host: {name}"))?;
    Ok((*debian, paths.split(':').map(PathBuf::from).collect()))
}

fn main() -> ExitCode {
    match suite_of(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            complain(&format!("hosts: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// The cases that the arguments name.
fn meant(arguments: &Arguments) -> Vec<suite::Case> {
    let mut chosen = if arguments.whole {
        cases::whole()
    } else {
        cases::all()
    };
    chosen.retain(|case| arguments.long || !cases::is_long(case));
    if !arguments.only.is_empty() {
        let meant =
            |word: &String, case: &suite::Case| case.number == word || case.name.contains(word);
        chosen.retain(|case| arguments.only.iter().any(|word| meant(word, case)));
    }
    chosen
}

fn suite_of(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut chosen = meant(arguments);
    if arguments.list {
        for case in &chosen {
            let on: Vec<_> = case.on.iter().map(|debian| debian.name()).collect();
            say(&format!(
                "{:>4}  {:36} {}\n",
                case.number,
                case.name,
                on.join(" ")
            ));
        }
        return Ok(true);
    }
    for (name, option, given) in [
        (cases::RPM, "--rpm", arguments.rpm.is_some()),
        (cases::BY_HAND, "--tree", arguments.tree.is_some()),
    ] {
        let before = chosen.len();
        chosen.retain(|case| given || case.name != name);
        if chosen.len() < before {
            complain(&format!("left out, because {option} is missing: {name}"));
        }
    }
    ensure!(nix::unistd::geteuid().is_root(), "booting hosts needs root");
    ensure!(!chosen.is_empty(), "no case is meant");
    std::thread::spawn(await_interrupt);
    for old in Scratch::clear_old() {
        complain(&format!("removed what a killed run had left: {old}"));
    }
    let clock = SimClock::new(1.0);
    let scratch = Arc::new(Scratch::make()?);
    let package = arguments.package.clone().context("--package is missing")?;
    let packages = Packages {
        this: package,
        older: arguments.older.clone().unwrap_or_default(),
        newer: arguments.newer.clone().unwrap_or_default(),
        rpm: arguments.rpm.clone(),
        tree: arguments.tree.clone(),
    };
    let run = Run {
        packages,
        logs: arguments.logs.clone(),
        plane: control_plane(arguments, &scratch)?,
        scratch,
    };
    let roots = installed(arguments, &run)?;
    let mut tasks = Vec::new();
    for _ in 0..arguments.repeat {
        for case in &chosen {
            let here = roots.iter().filter(|root| case.on.contains(&root.debian));
            tasks.extend(here.map(|root| (*case, root.clone())));
        }
    }
    ensure!(!tasks.is_empty(), "no case runs on these hosts");
    let wanted = tasks.len();
    let tell = |outcome: &suite::Outcome| say(&format!("{}\n", report::line(outcome)));
    let mut outcomes = suite::run(&run, tasks.clone(), arguments.jobs, &tell);
    if arguments.again {
        for later in suite::again(&run, &tasks, &mut outcomes, &tell) {
            complain(&format!("!!! held only when it was played again: {later}"));
        }
    }
    say(&format!("\n{}\n", report::table(&outcomes)));
    say(&format!("\n{}\n\n", report::statistics(&outcomes)));
    let failed = outcomes
        .iter()
        .filter(|outcome| outcome.result.is_err())
        .count();
    say(&format!(
        "real hosts: {} of {wanted} cases in {} s, {failed} failed\n",
        outcomes.len(),
        clock.elapsed().as_secs()
    ));
    Ok(failed == 0 && outcomes.len() == wanted)
}

/// The roots, each with what an installation adds.
fn installed(arguments: &Arguments, run: &Run) -> anyhow::Result<Vec<Root>> {
    let mut roots = Vec::new();
    for (debian, layers) in &arguments.roots {
        let tree = layers.last().context("a host without a tree")?;
        let mut root = Root {
            debian: *debian,
            layers: layers.clone(),
            systemd: install::systemd_of(tree)?,
            installed: None,
        };
        root.installed = Some(install::install(run, &root)?);
        roots.push(root);
    }
    Ok(roots)
}

/// The control plane of whole hosts, with everything in it that they share.
fn control_plane(arguments: &Arguments, scratch: &Scratch) -> anyhow::Result<Option<Arc<Plane>>> {
    if !arguments.whole {
        return Ok(None);
    }
    let guest = arguments.guest.as_ref().context("--guest is missing")?;
    let image = whole::image::archive(guest)?;
    let dir = scratch.dir.join("control-plane");
    let clock = SimClock::new(1.0);
    let tell = |step: &str| {
        let at = clock.elapsed().as_secs_f64();
        say(&format!("control plane {at:5.1} s  {step}\n"));
    };
    Plane::start(arguments.kubevirt, &dir, image, tell).map(Some)
}

fn await_interrupt() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    if let Ok(runtime) = runtime {
        runtime.block_on(many::interrupted());
        complain("interrupted: ending the hosts");
        patience::interrupt();
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that went away (`| head`) is no failure of ours.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
