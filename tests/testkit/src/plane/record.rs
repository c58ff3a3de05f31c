//! What runs in a folder? One file tells the next command, and every process is known by its id and the moment of its start, so that
//! nobody ends a stranger who got the same id later.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::Version;

/// Name of the file.
const FILE: &str = "control-plane.json";

/// A process that cannot be mistaken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) id: u32,
    /// Ticks from the boot to its start.
    started: u64,
}

impl Process {
    /// A process that runs now.
    pub(super) fn of(id: u32) -> Option<Self> {
        let started = stat(id)?;
        Some(Self { id, started })
    }

    /// Whether it is still this one, and alive.
    pub(super) fn runs(self) -> bool {
        stat(self.id) == Some(self.started)
    }

    /// Sends a signal, unless it has ended.
    pub(super) fn signal(self, signal: Signal) {
        if let (true, Ok(id)) = (self.runs(), i32::try_from(self.id)) {
            // It may end in between; that is what is wanted.
            let _ = kill(Pid::from_raw(id), signal);
        }
    }

    /// Resident memory in MiB.
    pub(super) fn memory(self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.id)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or_default() / 1024
    }
}

/// Start time of a process; `None` when it has ended (a zombie has).
fn stat(id: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The second field is a name in parentheses, which may hold anything.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if state == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Version of KubeVirt.
    pub(super) version: String,
    /// Of the API server.
    pub(super) url: String,
    /// Of the administrator.
    pub(super) kubeconfig: String,
    /// Holds everything together; the others end with it.
    pub(super) keeper: Process,
    /// By name.
    pub(super) servers: BTreeMap<String, Process>,
}

impl Record {
    /// Of a control plane that is not up yet.
    pub(super) fn starting(version: Version, keeper: Process) -> Self {
        Self {
            version: version.to_string(),
            url: String::new(),
            kubeconfig: String::new(),
            keeper,
            servers: BTreeMap::new(),
        }
    }

    /// Nothing can be asked of it yet.
    pub(super) fn is_starting(&self) -> bool {
        self.url.is_empty()
    }

    /// The record of a folder; `None` when nothing was started there.
    pub(super) fn read(dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = dir.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => {
                Ok(Some(serde_json::from_slice(&bytes).with_context(|| {
                    format!("{} is damaged", path.display())
                })?))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    pub(super) fn write(&self, dir: &Path) -> anyhow::Result<()> {
        let (path, fresh) = (dir.join(FILE), dir.join("control-plane.new"));
        fs::write(&fresh, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&fresh, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Ends everything: in order by its keeper, by force what is left after `patience`.
    pub(super) fn end(&self, patience: Duration) {
        const PAUSE: Duration = Duration::from_millis(20);
        self.keeper.signal(Signal::SIGTERM);
        let mut waited = Duration::ZERO;
        while self.all().any(Process::runs) && waited < patience {
            std::thread::sleep(PAUSE);
            waited += PAUSE;
        }
        for process in self.all() {
            process.signal(Signal::SIGKILL);
        }
        while self.all().any(Process::runs) {
            std::thread::sleep(PAUSE);
        }
    }

    fn all(&self) -> impl Iterator<Item = Process> {
        self.servers.values().copied().chain([self.keeper])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_more_than_its_id() {
        let own = Process::of(std::process::id()).unwrap();
        assert!(own.runs());
        let other = Process {
            started: own.started + 1,
            ..own
        };
        assert!(!other.runs());
        other.signal(Signal::SIGKILL);
        assert!(own.memory() > 0);
    }

    #[test]
    fn ends_what_it_names() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), None);
        let record = Record::starting(Version::V1_7, Process::of(child.id()).unwrap());
        assert!(record.is_starting());
        record.write(dir.path()).unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), Some(record.clone()));
        record.end(Duration::from_secs(5));
        assert!(!child.wait().unwrap().success());
    }
}
