//! The cases and how they are run: each on a fresh host, at most two hosts at a time.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use testkit::clock::SimClock;

use crate::host::{Disk, Host};
use crate::nspawn::Wiring;
use crate::patience::{Patience, interrupted};
use crate::scratch::Scratch;
use crate::whole::plane::Plane;

/// A Debian that is booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Debian {
    /// 12, systemd 252.
    Twelve,
    /// 13, systemd 257.
    Thirteen,
    /// Unstable, systemd 262 or later.
    Sid,
}

/// All of them.
pub(crate) const ALL: &[Debian] = &[Debian::Twelve, Debian::Thirteen, Debian::Sid];
/// Those that can cancel a delayed shutdown, and more.
pub(crate) const NEWER: &[Debian] = &[Debian::Thirteen, Debian::Sid];
/// The oldest and the one in the middle.
pub(crate) const OLDER: &[Debian] = &[Debian::Twelve, Debian::Thirteen];

impl Debian {
    /// As `tests/systemd/roots` calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Twelve => "12",
            Self::Thirteen => "13",
            Self::Sid => "sid",
        }
    }
}

/// One test.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// Number of the scenario, or a word.
    pub(crate) number: &'static str,
    /// What it shows.
    pub(crate) name: &'static str,
    /// On which hosts.
    pub(crate) on: &'static [Debian],
    /// Its limit in seconds.
    pub(crate) limit: u64,
    /// Runs it; answers what was measured.
    pub(crate) run: fn(&Context) -> anyhow::Result<String>,
}

/// A root tree.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    /// Which.
    pub(crate) debian: Debian,
    /// Its tree, below what is added to it.
    pub(crate) layers: Vec<PathBuf>,
    /// The systemd in it.
    pub(crate) systemd: u32,
    /// What an installed agent adds to it.
    pub(crate) installed: Option<PathBuf>,
}

/// The packages under test.
#[derive(Clone, Debug)]
pub(crate) struct Packages {
    /// This version.
    pub(crate) this: PathBuf,
    /// The same with a lower version number, and with a higher one.
    pub(crate) older: PathBuf,
    /// See `older`.
    pub(crate) newer: PathBuf,
    /// The same for hosts with rpm.
    pub(crate) rpm: Option<PathBuf>,
    /// What `make install` has laid out.
    pub(crate) tree: Option<PathBuf>,
}

/// What is compared over many runs of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// From the command to the cordon.
    pub(crate) prepare: Duration,
    /// From the last VM to the lock's end.
    pub(crate) release: Duration,
    /// From the last VM to the end of all units.
    pub(crate) stopped: Duration,
}

/// What all cases of a run share.
pub(crate) struct Run {
    /// Where everything lies.
    pub(crate) scratch: Arc<Scratch>,
    /// What is tested.
    pub(crate) packages: Packages,
    /// Where the journals are kept.
    pub(crate) logs: Option<PathBuf>,
    /// The control plane that whole hosts join.
    pub(crate) plane: Option<Arc<Plane>>,
}

/// How many lines of the journal a failure shows, and which.
const SHOWN: usize = 40;
const MATTER: &[&str] = &[
    "vmdrain",
    "systemd-logind",
    "inhibit",
    "dbus-daemon",
    "dpkg",
];

/// What a case runs with.
pub(crate) struct Context {
    /// The root tree.
    pub(crate) root: Root,
    /// The packages.
    pub(crate) packages: Packages,
    /// The case's clock.
    pub(crate) patience: Patience,
    /// What the case has measured for the statistics.
    pub(crate) figures: Arc<Mutex<Vec<Figures>>>,
    scratch: Arc<Scratch>,
    name: String,
    /// The name with a number: the same case may be played twice at a time.
    place: String,
    /// Where the journals are kept.
    pub(crate) logs: Option<PathBuf>,
    /// The control plane that whole hosts join.
    pub(crate) plane: Option<Arc<Plane>>,
}

impl Context {
    pub(crate) fn new(run: &Run, root: &Root, name: &str, limit: u64) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self {
            root: root.clone(),
            packages: run.packages.clone(),
            patience: Patience::new(Duration::from_secs(limit)),
            figures: Arc::default(),
            scratch: run.scratch.clone(),
            name: name.to_owned(),
            place: format!("{}-{name}", COUNT.fetch_add(1, Ordering::Relaxed)),
            logs: run.logs.clone(),
            plane: run.plane.clone(),
        }
    }

    /// Begins the names of everything that this run makes on this machine.
    pub(crate) fn run_name(&self) -> &str {
        &self.scratch.name
    }

    /// The host's systemd.
    pub(crate) fn systemd(&self) -> u32 {
        self.root.systemd
    }

    /// A host on which the package is installed.
    pub(crate) fn host(&self) -> anyhow::Result<Host> {
        let installed = self.root.installed.clone();
        let layers = installed.into_iter().chain(self.root.layers.clone());
        self.host_with(layers.collect(), None)
    }

    /// A host without it.
    pub(crate) fn bare_host(&self) -> anyhow::Result<Host> {
        self.host_with(self.root.layers.clone(), None)
    }

    /// A host with the files of `make install`.
    pub(crate) fn host_by_hand(&self) -> anyhow::Result<Host> {
        let tree = self.packages.tree.clone();
        let tree = tree.context("what `make install` makes was not given (--tree)")?;
        let layers = std::iter::once(tree).chain(self.root.layers.clone());
        self.host_with(layers.collect(), None)
    }

    /// A host with the package, on which containers run.
    pub(crate) fn wired_host(&self, wiring: Wiring) -> anyhow::Result<Host> {
        let installed = self.root.installed.clone();
        let layers = installed.into_iter().chain(self.root.layers.clone());
        self.host_with(layers.collect(), Some(wiring))
    }

    fn host_with(&self, layers: Vec<PathBuf>, wiring: Option<Wiring>) -> anyhow::Result<Host> {
        let disk = Disk { layers, wiring };
        Host::new(&self.scratch, &self.place, &disk, &self.patience)
    }

    /// Keeps the whole journal in a file, where that is wanted; answers the file.
    pub(crate) fn keep(&self, journal: &str) -> Option<PathBuf> {
        let logs = self.logs.as_ref()?;
        let file = logs.join(format!("{}.journal", self.name));
        let kept = fs::create_dir_all(logs).and_then(|()| fs::write(&file, journal));
        kept.ok().map(|()| file)
    }

    /// The end of a case: its journal is kept where that is wanted, and a failure shows what matters of it.
    pub(crate) fn conclude(
        &self,
        played: anyhow::Result<String>,
        host: &Host,
    ) -> anyhow::Result<String> {
        let measured = played.map_err(|error| self.explain(error, host))?;
        if self.logs.is_some() {
            self.keep(&host.journal(&[])?);
        }
        Ok(measured)
    }

    /// A failure with the end of what the units that matter have said.
    pub(crate) fn explain(&self, error: anyhow::Error, host: &Host) -> anyhow::Error {
        let all = host
            .journal(&[])
            .unwrap_or_else(|why| format!("no journal: {why:#}\n{}", host.console()));
        let kept = self.keep(&format!("{error:#}\n\n{all}"));
        let kept = kept.map(|file| format!(" (all of it: {})", file.display()));
        let ours = |line: &&str| MATTER.iter().any(|word| line.contains(word));
        let lines: Vec<_> = all.lines().filter(ours).collect();
        let from = lines.len().saturating_sub(SHOWN);
        error.context(format!(
            "the host had said{}:\n{}\nwhat did not hold",
            kept.unwrap_or_default(),
            lines[from..].join("\n")
        ))
    }

    /// A folder of this case.
    pub(crate) fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let dir = self.scratch.dir.join(format!("{}-{name}", self.place));
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(dir)
    }
}

/// How a case ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The case's number and name.
    pub(crate) number: &'static str,
    /// See `number`.
    pub(crate) name: &'static str,
    /// On which host.
    pub(crate) debian: Debian,
    /// With which systemd.
    pub(crate) systemd: u32,
    /// How long it took.
    pub(crate) took: Duration,
    /// What was measured, or what did not hold.
    pub(crate) result: Result<String, String>,
    /// For the statistics.
    pub(crate) figures: Vec<Figures>,
}

/// A case and where it is played.
pub(crate) type Task = (Case, Root);

/// Runs cases, `jobs` at a time.
pub(crate) fn run(
    run: &Run,
    tasks: Vec<Task>,
    jobs: usize,
    tell: &(dyn Fn(&Outcome) + Sync),
) -> Vec<Outcome> {
    let queue = Mutex::new(VecDeque::from(tasks));
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = queue
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .pop_front();
                    let Some((case, root)) = next.filter(|_| !interrupted()) else {
                        return;
                    };
                    let outcome = one(run, &case, &root);
                    tell(&outcome);
                    outcomes
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(outcome);
                }
            });
        }
    });
    let mut all = outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    all.sort_by_key(|outcome| outcome.debian);
    all
}

/// More failures than this are no accident of a busy machine.
const ACCIDENTS: usize = 6;

/// Plays what did not hold once more, alone: bounds in milliseconds are at the mercy of the machine, and a fault of the
/// product fails twice. Answers what held only then.
pub(crate) fn again(
    run: &Run,
    tasks: &[Task],
    outcomes: &mut [Outcome],
    tell: &(dyn Fn(&Outcome) + Sync),
) -> Vec<String> {
    let failed = outcomes
        .iter_mut()
        .filter(|outcome| outcome.result.is_err());
    let failed: Vec<_> = failed.collect();
    let mut later = Vec::new();
    if failed.len() > ACCIDENTS {
        return later;
    }
    for outcome in failed {
        let same =
            |(case, root): &&Task| case.name == outcome.name && root.debian == outcome.debian;
        let Some((case, root)) = tasks.iter().find(same).filter(|_| !interrupted()) else {
            continue;
        };
        let second = one(run, case, root);
        tell(&second);
        if second.result.is_ok() {
            later.push(format!("{} with systemd {}", case.name, root.systemd));
        }
        *outcome = second;
    }
    later
}

fn one(run: &Run, case: &Case, root: &Root) -> Outcome {
    let name = format!("{}-{}", root.debian.name(), case.name);
    let context = Context::new(run, root, &name, case.limit);
    let clock = SimClock::new(1.0);
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (case.run)(&context)));
    let result = match ran {
        Ok(Ok(measured)) => Ok(measured),
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(_) => Err("the case has panicked".into()),
    };
    Outcome {
        number: case.number,
        name: case.name,
        debian: root.debian,
        systemd: root.systemd,
        took: clock.elapsed(),
        result,
        figures: context
            .figures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone(),
    }
}
