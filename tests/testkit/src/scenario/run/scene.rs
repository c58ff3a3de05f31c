//! What can be seen of the story at one moment: by expectations, rules and the trace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use vmdrain_agent::drain::status::Status;

use super::cluster::Cluster;
use super::observer::Observer;
use super::stage::Stage;
use crate::actors::premises::Premises;
use crate::api::Store;
use crate::api::log::{Entry, Log};
use crate::scenario::Scenario;

/// What a front tells about the agent and the host.
#[derive(Clone, Debug, Default)]
pub struct Glance {
    /// The agent's newest status; the last one while it does not run.
    pub status: Option<Arc<Status>>,
    /// Whether the agent's process runs.
    pub running: bool,
    /// Whether logind counts the agent's lock.
    pub hold: bool,
    /// Whether the host is up.
    pub up: bool,
}

impl Glance {
    /// Whether the agent says that a drain has ended.
    pub fn has_drained(&self) -> bool {
        let drain = self
            .status
            .as_ref()
            .and_then(|status| status.drain.as_ref());
        drain.is_some_and(|drain| drain.exit.is_some())
    }
}

/// One line of the agent's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Simulated time.
    pub at: Duration,
    /// Level in small letters: `error`, `warn`, `info`, `debug`.
    pub level: String,
    /// The sentence.
    pub text: String,
    /// All other fields.
    pub fields: BTreeMap<String, String>,
}

/// The agent's journal. Cheap to clone; all clones are the same journal.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Journal {
    /// Adds a line.
    pub fn write(&self, line: Line) {
        self.lock().push(line);
    }

    /// Everything so far.
    pub fn lines(&self) -> Vec<Line> {
        self.lock().clone()
    }

    /// Everything from line `from` on.
    pub fn lines_from(&self, from: usize) -> Vec<Line> {
        self.lock()
            .get(from..)
            .map(<[Line]>::to_vec)
            .unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a command ended with.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// Exit code.
    pub exit: i32,
    /// What it printed for people.
    pub output: String,
    /// Its JSON, where it has one.
    pub json: Value,
}

/// Results of commands by the name under which they were saved. Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Results {
    saved: Arc<Mutex<BTreeMap<String, Saved>>>,
}

impl Results {
    /// Keeps a result when somebody gave it a name.
    pub fn keep(&self, name: Option<&str>, saved: Saved) {
        if let Some(name) = name {
            self.lock().insert(name.into(), saved);
        }
    }

    /// A result; `None` while the command still runs.
    pub fn get(&self, name: &str) -> Option<Saved> {
        self.lock().get(name).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Saved>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Simulated time.
    pub now: Duration,
    /// The cluster.
    pub store: &'a Store,
    /// What the API server was asked by anybody.
    pub log: &'a Log,
    /// What the agent asked, without bodies.
    pub asked: &'a [Entry],
    /// The agent and the host.
    pub glance: &'a Glance,
    /// The agent's journal.
    pub journal: &'a Journal,
    /// What commands ended with.
    pub results: &'a Results,
    /// What has been seen of each VM.
    pub observer: &'a Observer,
    /// The node that is the host.
    pub host: &'a str,
    /// What physically is on it, where that is played here.
    pub premises: Option<&'a Premises>,
}

/// How the played parts name themselves in `User-Agent`: the kubelet has the agent's credentials.
pub const PLAYED: &str = "clustersim";

impl Scene<'_> {
    /// Whether a request came from the agent.
    pub fn from_agent(&self, entry: &Entry) -> bool {
        from_agent(self.host, entry)
    }
}

/// Whether a request came from the agent of a node.
pub fn from_agent(node: &str, entry: &Entry) -> bool {
    entry.user.strip_prefix("system:node:") == Some(node) && !entry.agent.starts_with(PLAYED)
}

/// The scene at this moment.
pub(super) fn scene<'a, S: Stage>(
    now: Duration,
    cluster: &'a Cluster,
    stage: &'a S,
    (glance, asked): (&'a Glance, &'a [Entry]),
    observer: &'a Observer,
    scenario: &'a Scenario,
) -> Scene<'a> {
    Scene {
        now,
        store: cluster.store(),
        log: &cluster.server.log,
        asked,
        glance,
        journal: stage.journal(),
        results: stage.results(),
        observer,
        host: &scenario.host.node,
        premises: cluster.premises.as_ref(),
    }
}
