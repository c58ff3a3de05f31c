//! The programs that are measured: how are they started, what do they cost, how do they end?

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use vmdrain_agent::config::Settings;

use super::arena::{Arena, BOUND, HostSide, NODE};

/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Clock ticks of `/proc/<pid>/stat` in a second: 100 on every Linux (`USER_HZ` is part of its interface).
const TICKS: f64 = 100.0;

/// What a program has used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Cost {
    /// User and system time in seconds, to a hundredth.
    pub(super) cpu: f64,
    /// The most memory that it held at one time, in bytes.
    pub(super) peak: u64,
    /// Memory that it holds now, in bytes.
    pub(super) rss: u64,
}

/// A started program. It is killed when this is dropped.
pub(super) struct Program {
    child: Child,
    pid: u32,
    log: PathBuf,
    /// The newest look at it.
    cost: Cost,
}

impl Program {
    fn start(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let output = File::create(log)?;
        let error: OwnedFd = output.try_clone()?.into();
        let child = command
            .stdin(Stdio::null())
            .stdout(OwnedFd::from(output))
            .stderr(error)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                format!("cannot start {}", command.as_std().get_program().display())
            })?;
        let pid = child.id().context("it ended at once")?;
        Ok(Self {
            child,
            pid,
            log: log.to_owned(),
            cost: Cost::default(),
        })
    }

    /// What it has used up so far.
    pub(super) fn cost(&mut self) -> Cost {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", self.pid));
        if let Some(cpu) = read("stat").ok().and_then(|stat| cpu_of(&stat)) {
            self.cost.cpu = cpu;
        }
        // A program that has just ended has no memory any more; what was seen last counts.
        if let Ok(status) = read("status")
            && let (Some(peak), Some(rss)) = (kib(&status, "VmHWM"), kib(&status, "VmRSS"))
        {
            self.cost.peak = peak;
            self.cost.rss = rss;
        }
        self.cost
    }

    /// How often its threads went to sleep so far, each of which ends with a wake-up.
    pub(super) fn sleeps(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        let counts = tasks.into_iter().flatten().flatten().filter_map(|task| {
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            field(&status, "voluntary_ctxt_switches")?
                .parse::<u64>()
                .ok()
        });
        counts.sum()
    }

    /// Waits for its end; its whole cost. An end with an error is one here too.
    pub(super) async fn finish(mut self, limit: Duration) -> anyhow::Result<Cost> {
        let watched = async {
            loop {
                // Until it is waited for, a program that has ended still shows what it has used up.
                let cost = self.cost();
                if self.has_ended() {
                    return cost;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let Ok(cost) = tokio::time::timeout(limit, watched).await else {
            bail!("it did not end within {limit:?}; it said: {}", self.said());
        };
        let status = self.child.wait().await?;
        self.judge(status)?;
        Ok(cost)
    }

    /// Waits for its end and returns at that moment.
    pub(super) async fn end(&mut self, limit: Duration) -> anyhow::Result<()> {
        let Ok(status) = tokio::time::timeout(limit, self.child.wait()).await else {
            bail!("it did not end within {limit:?}; it said: {}", self.said());
        };
        self.judge(status?)
    }

    /// Asks it to end, in order, and waits for that.
    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid).map_err(|_| anyhow!("a process id too large"))?;
        kill(Pid::from_raw(pid), Signal::SIGTERM)?;
        self.end(BOUND).await
    }

    /// The end of what it printed.
    pub(super) fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    fn judge(&self, status: ExitStatus) -> anyhow::Result<()> {
        if !status.success() {
            bail!("it ended with {status}; it said: {}", self.said());
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        stat.map_or(true, |stat| {
            after_name(&stat).is_none_or(|rest| rest.starts_with('Z'))
        })
    }
}

/// The fields of `/proc/<pid>/stat` after the name, which may contain anything.
fn after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(") ").map(|(_, rest)| rest)
}

/// User and system time in `/proc/<pid>/stat`, in seconds.
fn cpu_of(stat: &str) -> Option<f64> {
    // Fields 14 and 15; the first one here is field 3.
    let mut fields = after_name(stat)?.split(' ').skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some((f64::from(user) + f64::from(system)) / TICKS)
}

fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines.find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
}

/// A size in `/proc/<pid>/status`, in bytes.
fn kib(status: &str, key: &str) -> Option<u64> {
    let number: u64 = field(status, key)?.strip_suffix(" kB")?.parse().ok()?;
    Some(number * 1024)
}

/// How the agent is started.
#[derive(Clone, Debug, Default)]
pub(super) struct AgentOptions {
    /// More of `--set`.
    pub(super) set: Vec<String>,
    /// All its durations are divided by this; 0 and 1: the shipped ones.
    pub(super) speed: f64,
}

/// The agent's daemon, as the service manager would start it: with the packaged defaults.
pub(super) struct Agent {
    /// The process.
    pub(super) program: Program,
    ready: watch::Receiver<bool>,
    reader: JoinHandle<()>,
}

impl Agent {
    pub(super) fn start(
        binary: &Path,
        arena: &Arena,
        host: &HostSide,
        options: &AgentOptions,
    ) -> anyhow::Result<Self> {
        let folder = arena.folder();
        let mut settings = Settings::default();
        settings.cluster.kubeconfig = arena.kubelet()?.display().to_string();
        settings.host.state_dir = folder.join("state");
        if options.speed > 0.0 {
            settings = settings.scaled(options.speed).map_err(|why| anyhow!(why))?;
        }
        let file = folder.join("agent.toml");
        std::fs::write(&file, settings.to_toml().map_err(|why| anyhow!(why))?)?;
        let socket = folder.join("notify");
        let notify = UnixDatagram::bind(&socket)?;
        let mut command = Command::new(binary);
        command.arg("run").arg("--bus").arg(host.address());
        command.arg("--config").arg(&file);
        for set in &options.set {
            command.arg("--set").arg(set);
        }
        command.env("NOTIFY_SOCKET", &socket);
        let program = Program::start(command, &folder.join("agent.log"))?;
        let (sender, ready) = watch::channel(false);
        let reader = tokio::spawn(read_notices(notify, sender));
        Ok(Self {
            program,
            ready,
            reader,
        })
    }

    /// Waits for `READY=1`, which is sent when logind lists the hold.
    pub(super) async fn ready(&mut self) -> anyhow::Result<()> {
        let wait = self.ready.wait_for(|ready| *ready);
        match tokio::time::timeout(BOUND, wait).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(anyhow!(
                "the agent is not ready after {BOUND:?}; it said: {}",
                self.program.said()
            )),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Plays the service manager, which reads everything that it is told: a full socket would stop the agent.
async fn read_notices(notify: UnixDatagram, ready: watch::Sender<bool>) {
    let mut buffer = [0_u8; 4096];
    while let Ok(length) = notify.recv(&mut buffer).await {
        let text = String::from_utf8_lossy(&buffer[..length]);
        if text.lines().any(|line| line == "READY=1") {
            ready.send_replace(true);
        }
    }
}

/// `kubectl` with the administrator's credentials and a discovery cache of its own.
pub(super) fn kubectl(binary: &Path, arena: &Arena, args: &[&str]) -> anyhow::Result<Program> {
    let folder = arena.folder();
    let mut command = Command::new(binary);
    command.arg("--kubeconfig").arg(arena.admin());
    command.arg("--cache-dir").arg(folder.join("cache"));
    command.args(args).env("HOME", folder);
    Program::start(command, &folder.join("kubectl.log"))
}

/// Fills the discovery cache, so that the command that is measured does not pay for it.
pub(super) async fn warm_up(binary: &Path, arena: &Arena) -> anyhow::Result<()> {
    kubectl(binary, arena, &["get", "nodes,pods"])?
        .end(BOUND)
        .await?;
    arena.server.log.clear();
    Ok(())
}

/// `kubectl drain` as KubeVirt's documentation writes it.
pub(super) fn kubectl_drain(binary: &Path, arena: &Arena) -> anyhow::Result<Program> {
    let args = [
        "drain",
        NODE,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        "--pod-selector=kubevirt.io=virt-launcher",
    ];
    kubectl(binary, arena, &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        let stat = "77 (a ) b) S 1 77 77 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 1 0 9 9 9";
        assert!(cpu_of(stat).is_some_and(|cpu| (cpu - 1.75).abs() < 1e-9));
        let status =
            "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\nvoluntary_ctxt_switches:\t17\n";
        assert_eq!(kib(status, "VmHWM"), Some(2 << 20));
        assert_eq!(field(status, "voluntary_ctxt_switches"), Some("17"));
        assert_eq!(kib(status, "VmSwap"), None);
    }
}
