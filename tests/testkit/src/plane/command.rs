//! `clustersim control-plane up|down|status`: a real control plane for people, and for tests that are no Rust.
//!
//! `up` starts a keeper in the background, which holds all processes and plays the nodes; `down` ends it.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use super::children::last_words;
use super::record::{Process, Record};
use super::{ControlPlane, Nodes, Options, Version, Who};
use crate::clock::SimClock;
use crate::scenario::run::many::interrupted;
use crate::world::NodeSpec;

/// A control plane that is not up after this (a first build excepted) never will be.
const LONGEST: Duration = Duration::from_secs(180);
/// The keeper gets so long to end everything in order.
const PATIENCE: Duration = Duration::from_secs(15);

/// What `up` starts.
#[derive(Clone, Debug)]
pub struct Up {
    /// Which KubeVirt.
    pub version: Version,
    /// The folder.
    pub dir: PathBuf,
    /// More addresses of the API server.
    pub addresses: Vec<std::net::IpAddr>,
    /// Played nodes.
    pub nodes: Vec<String>,
}

/// Where a version is kept when nobody says otherwise.
pub fn usual_dir(version: Version) -> PathBuf {
    std::env::temp_dir().join(format!("vmdrain-control-plane-{version}"))
}

/// Starts a keeper and waits until everything answers. Ctrl-C and SIGTERM meanwhile end the keeper, too.
pub async fn up(up: &Up) -> anyhow::Result<()> {
    anyhow::ensure!(
        up.nodes.iter().all(|name| !name.is_empty()),
        "a node needs a name: --nodes {}",
        up.nodes.join(",")
    );
    if let Some(record) = Record::read(&up.dir)? {
        anyhow::ensure!(
            !record.keeper.runs(),
            "KubeVirt {} {} already in {}; `clustersim control-plane down --dir {}` ends it",
            record.version,
            if record.is_starting() {
                "is starting"
            } else {
                "is up"
            },
            up.dir.display(),
            up.dir.display()
        );
        clear(&up.dir)?;
    }
    // What is not ours must not be lost: `down` removes the folder.
    let mut there = std::fs::read_dir(&up.dir).into_iter().flatten();
    anyhow::ensure!(
        there.next().is_none(),
        "{} is not empty and has no control plane in it; name a new folder, or an empty one",
        up.dir.display()
    );
    super::Binaries::build(up.version)?;
    std::fs::create_dir_all(&up.dir)
        .with_context(|| format!("cannot make {}", up.dir.display()))?;
    let log = up.dir.join("keeper.log");
    let out =
        std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["control-plane", "keep", "--kubevirt", up.version.full()])
        .arg("--dir")
        .arg(&up.dir)
        .args(["--nodes", &up.nodes.join(",")])
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .process_group(0);
    for address in &up.addresses {
        command.args(["--address", &address.to_string()]);
    }
    let mut keeper = command.spawn().context("cannot start the keeper")?;
    if let Some(process) = Process::of(keeper.id()) {
        // From now on `status`, `down` and a second `up` know of it.
        Record::starting(up.version, process).write(&up.dir)?;
    }
    let told = tokio::select! {
        told = wait(&mut keeper, &up.dir, &log) => told,
        () = interrupted() => Err(anyhow::anyhow!("interrupted; nothing is left running")),
    };
    if told.is_err() {
        // Everything that it started ends with it.
        let _ = keeper.kill();
        let _ = keeper.wait();
    }
    told
}

/// Follows the keeper's log until it says that everything is there.
async fn wait(keeper: &mut std::process::Child, dir: &Path, log: &Path) -> anyhow::Result<()> {
    const PAUSE: Duration = Duration::from_millis(50);
    let (mut told, mut waited) = (0, Duration::ZERO);
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        if let Some(fresh) = text.get(told..) {
            say(fresh);
            told = text.len();
        }
        if let Some(record) = Record::read(dir)?.filter(|record| !record.is_starting()) {
            say(&format!("KUBECONFIG  {}\n", record.kubeconfig));
            return Ok(());
        }
        if let Some(status) = keeper.try_wait()? {
            anyhow::bail!("the keeper ended ({status}): {}", last_words(log));
        }
        anyhow::ensure!(
            waited < LONGEST,
            "not up after {} s; see {}",
            LONGEST.as_secs(),
            log.display()
        );
        tokio::time::sleep(PAUSE).await;
        waited += PAUSE;
    }
}

/// The keeper itself: everything runs until somebody ends it.
pub async fn keep(up: &Up) -> anyhow::Result<()> {
    let clock = SimClock::from_wall(1.0);
    let step = |what: &str| {
        say(&format!(
            "{:5.1} s  {what}\n",
            clock.elapsed().as_secs_f64()
        ));
    };
    let options = Options {
        addresses: up.addresses.clone(),
        ..Options::new(up.version, &up.dir)
    };
    let begun = ControlPlane::start(options, step);
    let plane = tokio::select! {
        plane = begun => plane?,
        () = interrupted() => return Ok(()),
    };
    let nodes = Nodes::new(clock.clone(), 1);
    for name in &up.nodes {
        nodes.add(&plane, &NodeSpec::new(name)).await?;
    }
    step(&format!(
        "ready: {} with {} played nodes",
        plane.url(),
        up.nodes.len()
    ));
    tokio::select! {
        () = interrupted() => Ok(()),
        () = plane.keep_alive() => Ok(()),
        failed = keep_record(&plane, up) => failed,
    }
}

/// Writes down what runs, and again when a server was started anew. Ends only when that fails.
async fn keep_record(plane: &ControlPlane, up: &Up) -> anyhow::Result<()> {
    let kubeconfig = plane.kubeconfig(&Who::Admin)?.display().to_string();
    let keeper = Process::of(std::process::id()).context("/proc is not there")?;
    let mut known = None;
    loop {
        let servers = plane.processes().into_iter();
        let record = Record {
            version: up.version.to_string(),
            url: plane.url(),
            kubeconfig: kubeconfig.clone(),
            keeper,
            servers: servers
                .filter_map(|(name, id)| Some((name, Process::of(id)?)))
                .collect(),
        };
        // What has ended for good stays in the record: `status` shall name it.
        let fewer = |old: &Record| record.servers.len() < old.servers.len();
        if known.as_ref() != Some(&record) && !known.as_ref().is_some_and(fewer) {
            record.write(&up.dir)?;
            known = Some(record);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Ends everything that runs in a folder, and removes it.
pub fn down(dir: &Path) -> anyhow::Result<()> {
    let Some(record) = Record::read(dir)? else {
        say(&format!("nothing is up in {}\n", dir.display()));
        return Ok(());
    };
    record.end(PATIENCE);
    clear(dir)
}

/// Only a folder with a record is ours.
fn clear(dir: &Path) -> anyhow::Result<()> {
    std::fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))
}

/// Says what runs; true when everything does.
pub fn status(dir: &Path) -> anyhow::Result<bool> {
    let Some(record) = Record::read(dir)? else {
        say(&format!("nothing is up in {}\n", dir.display()));
        return Ok(false);
    };
    if record.is_starting() {
        let (version, dir) = (&record.version, dir.display());
        let what = if record.keeper.runs() {
            "is starting"
        } else {
            "has not come up"
        };
        say(&format!(
            "KubeVirt {version} {what} in {dir}; `clustersim control-plane down --dir {dir}` ends it and removes the folder\n"
        ));
        return Ok(false);
    }
    say(&format!(
        "KubeVirt {} at {}\nKUBECONFIG  {}\n",
        record.version, record.url, record.kubeconfig
    ));
    let (mut all, mut memory) = (true, 0);
    let keeper = ("keeper and played nodes".to_owned(), record.keeper);
    for (name, process) in record.servers.into_iter().chain([keeper]) {
        let runs = process.runs();
        all &= runs;
        memory += process.memory();
        let state = if runs { "runs" } else { "has ended" };
        say(&format!(
            "{name:24} {:>7} {:>5} MiB  {state}\n",
            process.id,
            process.memory()
        ));
    }
    say(&format!("{:24} {:>7} {memory:>5} MiB\n", "", ""));
    Ok(all)
}

fn say(text: &str) {
    let mut out = std::io::stdout();
    // A reader that went away is no failure of ours.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
