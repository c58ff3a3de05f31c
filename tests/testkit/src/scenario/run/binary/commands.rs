//! The commands of an operator as they are typed: the binary's own command line.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

use super::super::model::commands::{ending, trigger as check_trigger};
use super::super::scene::{Results, Saved};
use super::super::stage::NotPlayed;
use super::service::ended;
use crate::scenario::event::agent::{AgentDo, Trigger};
use vmdrain_agent::drain::trigger::Ending;

/// No command of a story lasts longer in real time.
const LONGEST: Duration = Duration::from_secs(300);

/// How the binary is called.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) binary: PathBuf,
    /// Options of every call: bus and configuration.
    pub(super) global: Vec<String>,
    /// By how much everything is faster.
    pub(super) speed: f64,
    pub(super) results: Results,
}

impl Caller {
    /// Types a command; its result is kept when it has a name. Does not wait for it.
    pub(super) fn give(&self, what: &AgentDo) -> Result<(), NotPlayed> {
        let (words, save) = match what {
            AgentDo::Trigger(keys) => (self.trigger(keys)?, keys.save.clone()),
            AgentDo::Cancel(keys) => {
                let mut words = vec!["cancel".to_owned()];
                if keys.abort_migrations {
                    words.push("--abort-migrations".into());
                }
                (words, keys.save.clone())
            }
            AgentDo::Restore(keys) => (vec!["restore".to_owned()], keys.save.clone()),
            // These print their JSON themselves.
            AgentDo::Plan(keys) => {
                self.looks("plan", keys.save.clone());
                return Ok(());
            }
            AgentDo::Doctor(keys) => {
                self.looks("doctor", keys.save.clone());
                return Ok(());
            }
            AgentDo::Extend(keys) => {
                let real = keys.by.0.div_f64(self.speed);
                let by = format!("{}ms", real.as_millis());
                (vec!["extend".to_owned(), by], keys.save.clone())
            }
            AgentDo::Release(keys) => {
                let mut words = vec!["release".to_owned()];
                match ending(keys) {
                    Ending::Policy => {}
                    Ending::ShutdownVms => words.push("--shutdown-vms".into()),
                    Ending::Proceed => words.push("--proceed".into()),
                }
                (words, keys.save.clone())
            }
            AgentDo::Reload(_)
            | AgentDo::Kill(_)
            | AgentDo::Stop(_)
            | AgentDo::Restart(_)
            | AgentDo::Start(_)
            | AgentDo::File(_) => return Err(NotPlayed::Cannot("this is no command".into())),
        };
        let caller = self.clone();
        tokio::spawn(async move {
            let mut saved = caller.run(&words).await;
            let status = caller
                .run(&["status".into(), "-o".into(), "json".into()])
                .await;
            saved.json = serde_json::from_str(&status.output).unwrap_or_default();
            caller.results.keep(save.as_deref(), saved);
        });
        Ok(())
    }

    /// A command that only looks: its output as people get it, and its JSON.
    fn looks(&self, command: &'static str, save: Option<String>) {
        let caller = self.clone();
        tokio::spawn(async move {
            let mut saved = caller.run(&[command.into()]).await;
            let words = [command, "-o", "json"].map(str::to_owned);
            let printed = caller.run(&words).await;
            saved.json = serde_json::from_str(&printed.output).unwrap_or_default();
            caller.results.keep(save.as_deref(), saved);
        });
    }

    fn trigger(&self, keys: &Trigger) -> Result<Vec<String>, NotPlayed> {
        let asked = check_trigger(keys)?;
        let mut words = vec!["trigger".to_owned()];
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        if let Some(then) = asked.then {
            option("--then", then.word().into());
        }
        if !asked.reason.is_empty() {
            option("--reason", asked.reason.clone());
        }
        if let Some(deadline) = asked.deadline {
            let real = deadline.div_f64(self.speed);
            option("--deadline", format!("{}ms", real.as_millis()));
        }
        if asked.shutdown_vms {
            return Err(NotPlayed::NotYet(
                "a trigger for the whole rack by the command line",
            ));
        }
        if let Some(policy) = asked.on_deadline {
            option("--on-deadline", policy.word().into());
        }
        if let Some(scope) = asked.scope {
            option("--scope", scope.word().into());
        }
        for (wanted, name) in [
            (asked.allow_guest_shutdown, "--allow-guest-shutdown"),
            (asked.keep_cordoned, "--keep-cordoned"),
            (keys.no_wait, "--no-wait"),
        ] {
            if wanted {
                words.push(name.into());
            }
        }
        Ok(words)
    }

    async fn run(&self, words: &[String]) -> Saved {
        let mut command = Command::new(&self.binary);
        command
            .args(&self.global)
            .args(words)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let (exit, output) = match command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
        {
            Ok(child) => finish(child).await,
            Err(error) => (-1, error.to_string()),
        };
        Saved {
            exit,
            output,
            json: Value::Null,
        }
    }
}

/// Everything that a command prints, and its exit code.
async fn finish(mut child: Child) -> (i32, String) {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (out, err, done) = tokio::join!(text(stdout), text(stderr), ended(&mut child, LONGEST));
    if !done {
        // Dropping it reaps it.
        let _ = child.start_kill();
        return (-1, "the command did not end".into());
    }
    let code = child
        .try_wait()
        .ok()
        .flatten()
        .and_then(|status| status.code());
    (code.unwrap_or(-1), out + &err)
}

async fn text(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What was read before an error is all there is.
        let _ = pipe.read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
