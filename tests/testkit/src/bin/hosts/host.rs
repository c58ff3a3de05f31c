//! A real host: a Debian system booted by systemd-nspawn from an overlay, in a cgroup of its own.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::cgroups::Cgroups;
use crate::nspawn::{self, Wiring};
use crate::patience::{Answer, Patience, Running};
use crate::sampler::{Sampler, Seen};
use crate::scratch::{PROPAGATE, tool};

/// nspawn ends with this code when the system inside wants to be started again.
const REBOOT: i32 = 133;
/// A command inside takes at most this long.
pub(crate) const COMMAND: Duration = Duration::from_secs(30);
/// From the start of nspawn to PID 1.
const BOOT: Duration = Duration::from_secs(20);
/// Numbers the hosts of this run.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// What a host is made of.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// Read-only layers, the uppermost first.
    pub(crate) layers: Vec<PathBuf>,
    /// What it has beyond others when containers run on it.
    pub(crate) wiring: Option<Wiring>,
}

/// A host, running or not. Dropping it ends and removes it.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) patience: Patience,
    dir: PathBuf,
    pub(crate) root: PathBuf,
    name: String,
    machine: String,
    wiring: Option<Wiring>,
    cgroups: Cgroups,
    nspawn: Option<Child>,
    leader: i32,
    sampler: Option<Sampler>,
    mounted: bool,
}

/// How a host went down.
#[derive(Clone, Debug)]
pub(crate) struct Down {
    /// All units had been stopped.
    pub(crate) units_done: Duration,
    /// It was gone.
    pub(crate) at: Duration,
    /// It wants to come up again.
    pub(crate) reboot: bool,
    /// What was seen of this boot.
    pub(crate) seen: Seen,
}

impl Host {
    /// Lays out its disk. `name` is its own in this run.
    pub(crate) fn new(
        scratch: &crate::scratch::Scratch,
        name: &str,
        disk: &Disk,
        patience: &Patience,
    ) -> anyhow::Result<Self> {
        let dir = scratch.dir.join(name);
        let root = dir.join("root");
        for part in ["upper", "work", "root"] {
            fs::create_dir_all(dir.join(part))?;
        }
        let layers: Vec<_> = disk
            .layers
            .iter()
            .map(|layer| layer.display().to_string())
            .collect();
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            layers.join(":"),
            dir.join("upper").display(),
            dir.join("work").display()
        );
        tool(
            Command::new("mount")
                .args(["-t", "overlay", "-o", &options, "vmdrain-host"])
                .arg(&root),
        )?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let machine = format!("{}-{number}", scratch.name);
        let cgroups = Cgroups::make(&machine);
        let made = Self {
            patience: patience.clone(),
            dir,
            root,
            name: name.to_owned(),
            machine,
            wiring: disk.wiring.clone(),
            cgroups: cgroups?,
            nspawn: None,
            leader: 0,
            sampler: None,
            mounted: true,
        };
        // As long as a machine id, and the same at every boot of this host.
        let id = uuid(&format!("{}{name}", scratch.name));
        made.write("/etc/machine-id", &format!("{id}\n"))?;
        made.write("/etc/hostname", "n1\n")?;
        made.write("/etc/hosts", "127.0.0.1 localhost n1\n")?;
        Ok(made)
    }

    /// `/etc/machine-id`.
    pub(crate) fn machine_id(&self) -> anyhow::Result<String> {
        Ok(self.read("/etc/machine-id")?.trim().to_owned())
    }

    /// Ends it and keeps what was written to its disk, as a layer for other hosts.
    pub(crate) fn into_layer(mut self, place: &Path) -> anyhow::Result<()> {
        self.kill()?;
        tool(Command::new("umount").arg("--recursive").arg(&self.root))?;
        self.mounted = false;
        let upper = self.dir.join("upper");
        // Only what belongs to the installation: no journal of that boot.
        let _ = fs::remove_dir_all(upper.join("var/log/journal"));
        fs::rename(&upper, place).with_context(|| format!("cannot keep {}", place.display()))
    }

    /// A path of the running system as it is seen from outside, in its own mounts (`/run` and `/proc` too).
    pub(crate) fn live(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.leader))
    }

    /// Boots; returns when PID 1 runs and tells the boot id.
    pub(crate) fn boot(&mut self) -> anyhow::Result<String> {
        anyhow::ensure!(self.nspawn.is_none(), "the host {} is up", self.name);
        let console = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join("console"))?;
        let mut command = nspawn::command(
            &self.root,
            &self.machine,
            self.cgroups.doors(),
            self.wiring.as_ref(),
        );
        command
            .stdout(console.try_clone()?)
            .stderr(console)
            .process_group(0);
        let nspawn = command.spawn().context("cannot start systemd-nspawn")?;
        let outer = nspawn.id();
        self.nspawn = Some(nspawn);
        let what = format!("PID 1 of the host {}", self.name);
        let patience = self.patience.clone();
        let leader = patience.wait(&what, BOOT, || {
            if let Some(status) = self.ended()? {
                bail!("systemd-nspawn ended ({status}): {}", self.console());
            }
            Ok(leader_of(outer))
        })?;
        self.leader = leader;
        self.sampler = Some(Sampler::start(leader, self.patience.clock.clone()));
        let id = fs::read_to_string(self.live("/proc/sys/kernel/random/boot_id"))
            .context("cannot read the host's boot id")?;
        Ok(id.trim().to_owned())
    }

    fn ended(&mut self) -> anyhow::Result<Option<std::process::ExitStatus>> {
        match &mut self.nspawn {
            Some(nspawn) => Ok(nspawn.try_wait()?),
            None => Ok(None),
        }
    }

    /// Its cgroup in every hierarchy of the machine.
    pub(crate) fn cgroup_dirs(&self) -> &[PathBuf] {
        self.cgroups.dirs()
    }

    /// What it wrote on its console.
    pub(crate) fn console(&self) -> String {
        fs::read_to_string(self.dir.join("console")).unwrap_or_default()
    }

    /// Whether it has not gone down.
    pub(crate) fn is_up(&mut self) -> bool {
        self.nspawn.is_some() && self.ended().is_ok_and(|status| status.is_none())
    }

    /// Whether its PID 1 has ended, as far as can be told without waiting.
    pub(crate) fn is_gone(&self) -> bool {
        !Path::new(&format!("/proc/{}", self.leader)).exists()
    }

    /// A command inside.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args([
                "-t",
                &self.leader.to_string(),
                "-m",
                "-u",
                "-i",
                "-n",
                "-p",
                "-C",
            ])
            .args([
                "env",
                "-i",
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME=/root",
            ])
            .args(words)
            // Ctrl-C ends the suite, which then ends the hosts in order.
            .process_group(0);
        command
    }

    /// Runs a command inside to its end.
    pub(crate) fn run(&self, words: &[&str]) -> anyhow::Result<Answer> {
        self.patience.run(&mut self.command(words), COMMAND)
    }

    /// Runs a command inside that is asked again when it does not answer soon: a system in change leaves its callers hanging.
    pub(crate) fn peek(&self, words: &[&str]) -> String {
        const SOON: Duration = Duration::from_secs(3);
        let answer = self.patience.run(&mut self.command(words), SOON);
        answer.map_or_else(|_| String::new(), |answer| answer.text().to_owned())
    }

    /// Runs a command inside that has to succeed; answers what it printed.
    pub(crate) fn ask(&self, words: &[&str]) -> anyhow::Result<String> {
        Ok(self.run(words)?.good()?.text().to_owned())
    }

    /// Starts a command inside.
    pub(crate) fn begin(&self, words: &[&str]) -> anyhow::Result<Running> {
        self.patience.begin(&mut self.command(words))
    }

    /// A signal to PID 1, as if somebody inside had sent it.
    pub(crate) fn signal_pid1(&self, signal: &str) -> anyhow::Result<Answer> {
        self.run(&["sh", "-c", &format!("kill -{signal} 1")])?
            .good()
    }

    /// What was seen of this boot.
    pub(crate) fn seen(&self) -> Seen {
        self.sampler.as_ref().map(Sampler::seen).unwrap_or_default()
    }

    /// Waits until it is down.
    pub(crate) fn wait_down(&mut self, limit: Duration) -> anyhow::Result<Down> {
        let patience = self.patience.clone();
        let waited = patience.wait("the host goes down", limit, || self.ended());
        let status = waited?;
        let at = patience.now();
        self.nspawn = None;
        let seen = self.seen();
        self.sampler = None;
        let code = status.code().unwrap_or(-1);
        anyhow::ensure!(
            code == 0 || code == REBOOT,
            "systemd-nspawn failed ({status}): {}",
            self.console()
        );
        // What is left belongs to the boot that is over.
        self.cgroups_end()?;
        Ok(Down {
            units_done: seen.units_done.unwrap_or(at),
            at,
            reboot: code == REBOOT,
            seen,
        })
    }

    fn cgroups_end(&self) -> anyhow::Result<()> {
        let alive = self.cgroups.members();
        anyhow::ensure!(alive.is_empty(), "processes outlived the host: {alive:?}");
        Ok(())
    }

    /// Pulls the plug.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.sampler = None;
        if let Some(mut nspawn) = self.nspawn.take() {
            // Its cgroup holds it and everything inside.
            for pid in self.cgroups.members() {
                let pid = nix::unistd::Pid::from_raw(pid);
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            }
            nspawn.wait()?;
        }
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            crate::complain(&format!(
                "the host {} cannot be ended: {error:#}",
                self.name
            ));
        }
        if let Err(error) = self.cgroups.clear() {
            crate::complain(&format!(
                "the host {} leaves something behind: {error:#}",
                self.name
            ));
        }
        // nspawn tries this itself and does not dare where `/run` is no tmpfs.
        let _ = fs::remove_dir(Path::new(PROPAGATE).join(&self.machine));
        let unmounted = if self.mounted {
            tool(Command::new("umount").arg("--recursive").arg(&self.root))
        } else {
            Ok(())
        };
        match unmounted {
            // Memory, not disk: a failed removal is freed with the run's folder.
            Ok(()) => drop(fs::remove_dir_all(&self.dir)),
            Err(error) => {
                crate::complain(&format!("the host {} stays mounted: {error:#}", self.name));
            }
        }
    }
}

/// PID 1 of the system that an nspawn has started, once it is systemd.
fn leader_of(nspawn: u32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{nspawn}/task/{nspawn}/children")).ok()?;
    children
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .find(|child| is_pid1(Path::new(&format!("/proc/{child}"))))
}

fn is_pid1(process: &Path) -> bool {
    let first = |file: &str| fs::read_to_string(process.join(file)).unwrap_or_default();
    let is_first = first("status")
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .is_some_and(|ids| ids.split_whitespace().nth(1) == Some("1"));
    is_first && first("comm").trim() == "systemd"
}

/// 32 hexadecimal digits made of a text.
fn uuid(text: &str) -> String {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let half = |salt: u8| {
        let mut hash = DefaultHasher::new();
        (salt, text).hash(&mut hash);
        hash.finish()
    };
    format!("{:016x}{:016x}", half(1), half(2))
}
