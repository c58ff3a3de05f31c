//! A host on which nobody but `kubectl drain` does anything: what a story does to its host or asks of its agent is typed as kubectl.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::super::super::scene::{Glance, Journal, Results};
use super::super::super::stage::{NotPlayed, Stage};
use crate::api::front::{Options as HttpsOptions, Serving, serve_https};
use crate::api::server::Server;
use crate::host::Moment;
use crate::scenario::Scenario;
use crate::scenario::event::Do;
use crate::scenario::event::agent::AgentDo;
use crate::scenario::event::host::HostDo;

/// The first command, which fills the discovery cache, has ended after so much real time.
const WARM: Duration = Duration::from_secs(60);

/// How the drain went.
#[derive(Clone, Debug, Default)]
pub(super) struct Drain {
    /// On the story's clock.
    pub(super) started: Option<Duration>,
    /// On the story's clock.
    pub(super) ended: Option<Duration>,
    /// How it ended.
    pub(super) exit: String,
    /// Its last complaint.
    pub(super) said: String,
    /// How many requests there were before it.
    pub(super) requests_before: usize,
}

impl Drain {
    /// As it stands now.
    pub(super) fn of(shared: &Mutex<Self>) -> Self {
        shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The stage.
pub(super) struct KubectlStage {
    program: PathBuf,
    folder: TempDir,
    serving: Serving,
    server: Arc<Server>,
    node: String,
    /// After so much real time kubectl gives up.
    patience: Duration,
    /// VMs alone, or everything.
    all_pods: bool,
    child: Option<Child>,
    drain: Arc<Mutex<Drain>>,
    journal: Journal,
    results: Results,
}

impl KubectlStage {
    /// A host in this story's world, whose server is asked over HTTPS and passes on.
    pub(super) async fn new(
        program: &Path,
        story: &Scenario,
        server: &Arc<Server>,
        speed: f64,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("vmdrain-kubectl")
            .tempdir()?;
        let options = HttpsOptions::in_dir(folder.path().join("api"));
        Ok(Self {
            program: program.to_owned(),
            serving: serve_https(server.clone(), options).await?,
            folder,
            server: server.clone(),
            node: story.host.node.clone(),
            patience: patience(story).div_f64(speed),
            all_pods: super::takes_all_pods(story),
            child: None,
            drain: Arc::default(),
            journal: Journal::default(),
            results: Results::default(),
        })
    }

    /// How the drain goes.
    pub(super) fn drain(&self) -> Arc<Mutex<Drain>> {
        self.drain.clone()
    }

    fn note(&self, change: impl FnOnce(&mut Drain)) {
        change(&mut self.drain.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<Child> {
        let log = std::fs::File::create(self.log())?;
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(&self.serving.paths.admin)
            .arg("--cache-dir")
            .arg(self.folder.path().join("cache"))
            .args(arguments)
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(log))
            .kill_on_drop(true);
        command
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("kubectl.log")
    }

    /// Its last complaint in one line.
    fn said(&self) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let mut lines = text.lines().rev();
        let last =
            lines.find(|line| line.starts_with("error") || line.contains("There are pending"));
        last.unwrap_or_default().chars().take(200).collect()
    }

    /// A drain as KubeVirt's documentation writes it.
    fn start(&mut self) -> anyhow::Result<()> {
        anyhow::ensure!(self.child.is_none(), "two drains in one story");
        let timeout = format!("--timeout={}s", self.patience.as_secs().max(1));
        let node = self.node.clone();
        let mut arguments = vec![
            "drain",
            &node,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--force",
            &timeout,
        ];
        if !self.all_pods {
            arguments.push("--pod-selector=kubevirt.io=virt-launcher");
        }
        let (requests_before, now) = (self.server.log.len(), self.server.clock().elapsed());
        self.child = Some(self.kubectl(&arguments)?);
        self.note(|drain| {
            drain.started = Some(now);
            drain.requests_before = requests_before;
        });
        Ok(())
    }

    fn over(&mut self, status: std::io::Result<ExitStatus>) {
        self.child = None;
        let (now, said) = (self.server.clock().elapsed(), self.said());
        self.note(|drain| {
            drain.ended = Some(now);
            drain.exit = match status {
                Ok(status) => match status.code() {
                    Some(code) => format!("exit {code}"),
                    None => status.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if drain.exit != "exit 0" {
                drain.said = said;
            }
        });
    }
}

/// How long somebody waits for a drain: as long as the story's host would.
fn patience(story: &Scenario) -> Duration {
    let mut events = story.timeline.iter();
    let named = events.find_map(|event| {
        if let Do::Agent(AgentDo::Trigger(trigger)) = &event.what {
            return Some(trigger.deadline?.0);
        }
        None
    });
    named.unwrap_or(story.host.inhibit_delay_max.0)
}

impl Stage for KubectlStage {
    /// Fills the cache of discovery, so that the drain does not pay for it.
    async fn begin(&mut self) -> Result<(), String> {
        let mut first = self
            .kubectl(&["get", "nodes,pods"])
            .map_err(|error| format!("{error:#}"))?;
        match tokio::time::timeout(WARM, first.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("kubectl get ended with {status}: {}", self.said())),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("kubectl get does not end".into()),
        }
    }

    async fn host(&mut self, what: &HostDo) -> Result<(), NotPlayed> {
        if !matches!(what, HostDo::Down(..)) {
            return Err(NotPlayed::Cannot(
                "kubectl knows nothing of the host".into(),
            ));
        }
        self.start()
            .map_err(|error| NotPlayed::Cannot(format!("{error:#}")))
    }

    async fn agent(&mut self, what: &AgentDo) -> Result<(), NotPlayed> {
        if !matches!(what, AgentDo::Trigger(_)) {
            return Err(NotPlayed::Cannot("kubectl is no agent".into()));
        }
        self.start()
            .map_err(|error| NotPlayed::Cannot(format!("{error:#}")))
    }

    async fn down(&mut self) {}

    async fn up(&mut self) {}

    async fn changed(&mut self) {
        let Some(child) = &mut self.child else {
            return std::future::pending().await;
        };
        let status = child.wait().await;
        self.over(status);
    }

    fn refresh(&mut self) {}

    fn glance(&self) -> Glance {
        Glance {
            up: true,
            ..Glance::default()
        }
    }

    async fn look(&mut self) -> Glance {
        self.glance()
    }

    fn boot_id(&self) -> String {
        String::new()
    }

    fn lateness(&self) -> Duration {
        Duration::ZERO
    }

    fn history(&self) -> Vec<Moment> {
        Vec::new()
    }

    fn is_busy(&self) -> bool {
        self.child.is_some()
    }

    fn panics(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn results(&self) -> &Results {
        &self.results
    }

    async fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended in between.
            let _ = child.kill().await;
        }
    }
}
