//! How fast, how cheap, how close to the shortest possible drain? The shipped binary and the real `kubectl`, each on a fresh simulated
//! cluster of the same kind, in one run.
//!
//! | file | question |
//! |---|---|
//! | `latency.rs` | signal → cordon, signal → evictions, start → READY |
//! | `release.rs` | last VM gone → the host may go |
//! | `drains.rs`, `ideal.rs` | whole drains against the shortest possible one; requests, CPU time, memory |
//! | `idle.rs`, `growth.rs` | what does nothing cost, what do many VMs cost? |
//! | `arena.rs`, `watcher.rs`, `process.rs` | the cluster, when its node was empty, the programs that are measured |
//! | `figures.rs`, `report.rs`, `numbers.rs` | the targets, the table |
//!
//! What is compared and how is said in the table itself and in `about`; nothing is left out because it missed its target.

mod arena;
mod drains;
mod figures;
mod growth;
mod ideal;
mod idle;
mod latency;
mod numbers;
mod plan;
mod process;
mod release;
pub mod report;
mod watcher;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tokio::signal::unix::{SignalKind, signal};

pub use report::Report;

/// What is measured, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The agent's binary.
    pub agent: PathBuf,
    /// kubectl's.
    pub kubectl: PathBuf,
    /// Fewer runs and shorter drains.
    pub quick: bool,
    /// Of everything random in the simulated clusters.
    pub seed: u64,
    /// What is measured; empty: everything.
    pub only: Vec<Part>,
}

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Signal to cordon and evictions, start to READY.
    Signal,
    /// Last VM gone to lock released.
    Release,
    /// 10, 100 and 1,000 VMs.
    Growth,
    /// Whole drains: time, requests, CPU time, memory.
    Drains,
    /// Nothing happens.
    Idle,
}

/// The programs that are compared.
#[derive(Clone, Debug)]
struct Programs {
    agent: PathBuf,
    kubectl: PathBuf,
    seed: u64,
}

/// Measures everything. `tell` hears what is going on. All processes that were started end with this, also on SIGINT and SIGTERM.
///
/// Makes its own runtime on the calling thread.
pub fn run(options: &Options, tell: &dyn Fn(&str)) -> anyhow::Result<Report> {
    if !options.agent.is_file() {
        bail!("there is no agent at {}", options.agent.display());
    }
    let (kubectl, version) = plain_kubectl(&options.kubectl)?;
    let programs = Programs {
        agent: options.agent.clone(),
        kubectl,
        seed: options.seed,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            report = plan::carry_out(&programs, options, &version, tell) => report,
            _ = terminate.recv() => bail!("terminated"),
            _ = interrupt.recv() => bail!("interrupted"),
        }
    })
}

/// The kubectl to compare with, and its version. Google's dispatcher asks the server for its version and starts another
/// kubectl; the one that it would start is the one that is measured, which is faster.
fn plain_kubectl(kubectl: &Path) -> anyhow::Result<(PathBuf, String)> {
    let version = version_of(kubectl)?;
    if !version.contains("dispatcher") {
        return Ok((kubectl.to_owned(), version));
    }
    let real = find(kubectl).and_then(|path| path.canonicalize().ok());
    let folder = real.as_deref().and_then(Path::parent);
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    let mut beside: Vec<(u32, PathBuf)> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let minor = name.to_str()?.strip_prefix("kubectl.1.")?;
            Some((minor.parse().ok()?, entry.path()))
        })
        .collect();
    beside.sort();
    match beside.pop() {
        Some((_, newest)) => {
            let version = version_of(&newest)?;
            Ok((newest, version))
        }
        None => Ok((kubectl.to_owned(), version)),
    }
}

fn version_of(kubectl: &Path) -> anyhow::Result<String> {
    let output = std::process::Command::new(kubectl)
        .args(["version", "--client"])
        .output()
        .with_context(|| format!("cannot run {}", kubectl.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("Client Version: "));
    version
        .map(str::to_owned)
        .with_context(|| format!("{} does not tell its version", kubectl.display()))
}

/// A command as the shell would find it.
fn find(command: &Path) -> Option<PathBuf> {
    if command.components().count() > 1 {
        return Some(command.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(command))
        .find(|file| file.is_file())
}
