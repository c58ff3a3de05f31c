//! The processes of a control plane: started by one thread that lives as long as it, ended with it in every case.
//!
//! The kernel kills each of them when that thread ends (`PR_SET_PDEATHSIG`, set by setpriv), so nothing survives a test that is
//! killed. Nothing in them is worth an orderly end: etcd writes into a folder that nobody reads again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context as _;

/// All of them are written in Go. Its garbage collector takes a good part of what starting them costs; memory is cheaper than time here.
const COLLECTOR: [(&str, &str); 2] = [("GOGC", "300"), ("GOMEMLIMIT", "700MiB")];

/// What a process is started with.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

/// A process to start, and whom to tell.
struct Birth {
    name: String,
    line: Line,
    told: Sender<std::io::Result<()>>,
}

type Children = Arc<Mutex<BTreeMap<String, Child>>>;

/// All processes of one control plane. Dropping it kills them and waits for their end.
pub(super) struct Nursery {
    logs: PathBuf,
    children: Children,
    births: Option<Sender<Birth>>,
    thread: Option<JoinHandle<()>>,
}

impl Nursery {
    /// No processes yet; their logs will be in `dir/log`.
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        let logs = dir.join("log");
        fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let children = Children::default();
        let (births, wanted) = channel();
        let (shared, folder) = (children.clone(), logs.clone());
        let thread = std::thread::Builder::new()
            .name("control-plane".into())
            .spawn(move || tend(&wanted, &shared, &folder))
            .context("cannot start a thread")?;
        Ok(Self {
            logs,
            children,
            births: Some(births),
            thread: Some(thread),
        })
    }

    /// Starts a process; one of that name must not run.
    pub(super) fn start(&self, name: &str, line: Line) -> anyhow::Result<()> {
        let (told, hear) = channel();
        let birth = Birth {
            name: name.to_owned(),
            line,
            told,
        };
        let births = self
            .births
            .as_ref()
            .context("the control plane has ended")?;
        births
            .send(birth)
            .map_err(|_| anyhow::anyhow!("the control plane has ended"))?;
        hear.recv()
            .context("the control plane has ended")?
            .with_context(|| {
                format!("cannot start {name} (it is started with setpriv of util-linux)")
            })
    }

    /// Kills a process and waits for its end.
    pub(super) fn end(&self, name: &str) -> anyhow::Result<()> {
        let mut child = lock(&self.children)
            .remove(name)
            .with_context(|| format!("{name} does not run"))?;
        kill(&mut child);
        Ok(())
    }

    /// How a process ended, when it ended by itself.
    pub(super) fn ended(&self, name: &str) -> Option<String> {
        let mut children = lock(&self.children);
        let status = children.get_mut(name)?.try_wait().ok()??;
        Some(match status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => format!("exit code {}", status.code().unwrap_or_default()),
        })
    }

    /// Process ids by name.
    pub(super) fn processes(&self) -> Vec<(String, u32)> {
        let children = lock(&self.children);
        children
            .iter()
            .map(|(name, child)| (name.clone(), child.id()))
            .collect()
    }

    /// Where a process writes.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        // The thread ends with its channel; what it started ends with it.
        drop(self.births.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread: starts what is asked for, and kills everything at the end.
fn tend(wanted: &Receiver<Birth>, children: &Children, logs: &Path) {
    while let Ok(birth) = wanted.recv() {
        let started = if runs(children, &birth.name) {
            Err(std::io::Error::other("it runs already"))
        } else {
            begin(&birth, logs).map(|child| {
                lock(children).insert(birth.name.clone(), child);
            })
        };
        // Whoever asked may have given up.
        let _ = birth.told.send(started);
    }
    let mut children = lock(children);
    for child in children.values_mut() {
        // One that has ended already cannot be killed.
        let _ = child.kill();
    }
    for child in children.values_mut() {
        kill(child);
    }
    children.clear();
}

fn runs(children: &Children, name: &str) -> bool {
    lock(children)
        .get_mut(name)
        .is_some_and(|child| child.try_wait().is_ok_and(|ended| ended.is_none()))
}

fn begin(birth: &Birth, logs: &Path) -> std::io::Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(logs.join(format!("{}.log", birth.name)))?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(&birth.line.program)
        .args(&birth.line.arguments)
        // A server must not find another cluster, or a proxy, through its environment.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", logs)
        // virt-api leaves a folder for certificates in it.
        .env("TMPDIR", logs)
        .envs(COLLECTOR)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
}

fn kill(child: &mut Child) {
    // Fails only for a process that has ended.
    let _ = child.kill();
    let _ = child.wait();
}

fn lock(children: &Children) -> MutexGuard<'_, BTreeMap<String, Child>> {
    children.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a log, on one line.
pub(super) fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(600)..]).into_owned();
    text.lines().collect::<Vec<_>>().join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Line {
        Line {
            program: "sleep".into(),
            arguments: vec!["1000".into()],
        }
    }

    #[test]
    fn what_runs_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let nursery = Nursery::open(dir.path()).unwrap();
        nursery.start("one", sleeper()).unwrap();
        nursery.start("two", sleeper()).unwrap();
        assert!(nursery.start("two", sleeper()).is_err());
        let ids = nursery.processes();
        assert_eq!(ids.len(), 2);
        nursery.end("one").unwrap();
        assert!(!Path::new(&format!("/proc/{}", ids[0].1)).exists());
        assert!(nursery.end("one").is_err());
        drop(nursery);
        assert!(!Path::new(&format!("/proc/{}", ids[1].1)).exists());
    }

    #[test]
    fn what_cannot_start_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let nursery = Nursery::open(dir.path()).unwrap();
        let line = Line {
            program: "/nowhere".into(),
            arguments: Vec::new(),
        };
        nursery.start("odd", line).unwrap();
        let mut how = None;
        while how.is_none() {
            how = nursery.ended("odd");
        }
        assert_eq!(how.as_deref(), Some("exit code 127"));
        assert!(last_words(&nursery.log("odd")).contains("/nowhere"));
    }
}
