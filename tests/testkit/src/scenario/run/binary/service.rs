//! The agent as a service: started, killed, stopped and restarted as systemd would, its journal caught from stderr.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::super::scene::{Journal, Line};
use super::notify::Notify;
use crate::clock::SimClock;

/// The agent gets so much real time to end in order.
const PATIENCE: Duration = Duration::from_secs(10);

/// Hands a stored descriptor to the agent as number 3, which only the process itself can say is meant for it.
const WITH_STORED: &str = r#"exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=vmdrain-hold; exec "$0" "$@""#;

/// The service.
#[derive(Debug)]
pub(super) struct Service {
    binary: PathBuf,
    arguments: Vec<String>,
    notify: Notify,
    journal: Journal,
    clock: SimClock,
    child: Option<Child>,
    /// What the unit passes as `%b`.
    pub(super) boot_id: String,
}

impl Service {
    /// A service that does not run yet; its socket is in `folder`.
    pub(super) fn new(
        binary: &Path,
        arguments: Vec<String>,
        folder: &Path,
        journal: Journal,
        clock: SimClock,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            binary: binary.to_owned(),
            arguments,
            notify: Notify::listen(folder)
                .context("cannot listen for the agent's notifications")?,
            journal,
            clock,
            child: None,
            boot_id: String::new(),
        })
    }

    /// Starts it unless it runs.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let mut command;
        if let Some(fd) = self.notify.stored() {
            command = Command::new("sh");
            command
                .args(["-c", WITH_STORED])
                .arg(&self.binary)
                .stdin(Stdio::from(fd));
        } else {
            command = Command::new(&self.binary);
            command.stdin(Stdio::null());
        }
        command
            .args(&self.arguments)
            .env("NOTIFY_SOCKET", self.notify.path())
            .env("VMDRAIN_BOOT_ID", &self.boot_id)
            .env_remove("JOURNAL_STREAM")
            .env("NO_COLOR", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        if let Some(stderr) = child.stderr.take() {
            let (journal, clock) = (self.journal.clone(), self.clock.clone());
            tokio::spawn(async move {
                let mut lines = BufReader::new(stderr).lines();
                while let Ok(Some(text)) = lines.next_line().await {
                    journal.write(line(&text, clock.elapsed()));
                }
            });
        }
        self.child = Some(child);
        Ok(())
    }

    /// Whether the process is there.
    pub(super) fn is_running(&mut self) -> bool {
        let ended = match &mut self.child {
            Some(child) => child.try_wait().is_ok_and(|status| status.is_some()),
            None => true,
        };
        if ended {
            self.child = None;
        }
        !ended
    }

    /// How it ended when it ended by itself.
    pub(super) fn ended_by_itself(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(format!("the agent ended by itself: {status}"))
    }

    /// SIGKILL; the store keeps what it has.
    pub(super) async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        if let Some(mut child) = self.child.take() {
            ended(&mut child, PATIENCE).await;
        }
    }

    /// SIGTERM, then SIGKILL. `keep`: a restart keeps the store, a stop empties it.
    pub(super) async fn stop(&mut self, keep: bool) {
        self.signal(Signal::SIGTERM);
        if let Some(mut child) = self.child.take()
            && !ended(&mut child, PATIENCE).await
        {
            // Dropping it reaps it.
            let _ = child.start_kill();
        }
        if !keep {
            self.notify.forget();
        }
    }

    /// Sends a signal to the process.
    pub(super) fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(Child::id);
        if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) {
            // Fails only when it has ended already.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// Waits for the end of a process by asking for it: several stories at a time have several runtimes, and only one of them hears of
/// the children of all. False when it did not end in time.
pub(super) async fn ended(child: &mut Child, limit: Duration) -> bool {
    const PAUSE: Duration = Duration::from_millis(5);
    let asked = async {
        while child.try_wait().is_ok_and(|status| status.is_none()) {
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(limit, asked).await.is_ok()
}

/// `2026-…Z  INFO message key="value"` as the agent prints it.
fn line(text: &str, at: Duration) -> Line {
    let mut words = text.trim_start().splitn(2, ' ');
    let stamped = words.next().is_some_and(|word| word.ends_with('Z'));
    let rest = if stamped {
        words.next().unwrap_or_default()
    } else {
        text
    };
    let rest = rest.trim_start();
    let (level, message) = rest.split_once(' ').unwrap_or((rest, ""));
    let level = level.to_ascii_lowercase();
    if !matches!(
        level.as_str(),
        "error" | "warn" | "info" | "debug" | "trace"
    ) {
        // A panic, or anything else that is not a line of the log.
        let panic = text.contains("panicked");
        return Line {
            at,
            level: if panic { "error" } else { "info" }.into(),
            text: text.to_owned(),
            fields: BTreeMap::new(),
        };
    }
    let fields = message
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()));
    Line {
        at,
        level,
        fields: fields.collect(),
        text: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_log() {
        let line = line(
            "2026-11-30T08:00:00.000001Z  WARN node n1 is cordoned vmdrain_phase=\"evacuating\"",
            Duration::ZERO,
        );
        assert_eq!(line.level, "warn");
        assert!(line.text.starts_with("node n1 is cordoned"));
        assert_eq!(line.fields["vmdrain_phase"], "evacuating");
        let panic = super::line("thread 'main' panicked at src/main.rs:1:", Duration::ZERO);
        assert_eq!(panic.level, "error");
    }
}
