//! What must be true, and when: one `[[expect]]`, as data.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::values::Span;

/// One expectation.
#[derive(Clone, Debug)]
pub struct Expect {
    /// Its line in the file.
    pub line: usize,
    /// When it is looked at.
    pub when: When,
    /// What is compared.
    pub what: What,
    /// All of it in one line, for the verdict.
    pub text: String,
}

/// When an expectation is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this moment.
    At(Duration),
    /// True at some time until then.
    By(Duration),
    /// Not true at any time before.
    NeverBefore(Duration),
    /// True at every step.
    Always,
    /// True when the story is over.
    End,
}

/// What is compared.
#[derive(Clone, Debug)]
pub enum What {
    /// The agent's state.
    State(String),
    /// Whether the agent's lock is held.
    Hold(bool),
    /// Whether the host is up.
    Host(HostState),
    /// A VM.
    Vm(VmExpect),
    /// A pod that is no VM's.
    Pod(PodExpect),
    /// A node.
    Node(NodeExpect),
    /// What the API server saw from the agent.
    Requests(RequestMatch, Bounds),
    /// Kubernetes Events.
    Event(EventMatch, Bounds),
    /// The agent's journal.
    Journal(JournalMatch, Bounds),
    /// What a command ended with.
    Saved(SavedExpect),
    /// `status -o json`: paths with values, and text that it holds.
    Status(BTreeMap<String, toml::Value>, Option<String>),
    /// The last report.
    Report(BTreeMap<String, toml::Value>),
    /// A file on the host.
    Disk(DiskExpect),
}

/// The host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostState {
    /// It runs.
    Up,
    /// It does not.
    Down,
}

/// How a VM has fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The same guest runs on another node.
    Migrated,
    /// The guest was shut down in order and does not run.
    ShutDown,
    /// It was shut down in order and runs again elsewhere.
    Restarted,
    /// The guest is still where it was.
    Left,
    /// The guest was killed.
    Killed,
}

/// Lower and upper bound of a count; without any: at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// At least.
    pub min: u64,
    /// At most.
    pub max: Option<u64>,
}

impl Bounds {
    /// Whether a count lies within.
    pub fn hold(&self, count: u64) -> bool {
        count >= self.min && self.max.is_none_or(|max| count <= max)
    }
}

/// `vm = "…"` and what of it is compared.
#[derive(Clone, Debug)]
pub struct VmExpect {
    /// Which; `*`: all.
    pub vm: String,
    /// Its namespace; absent: wherever the name is found.
    pub namespace: Option<String>,
    /// The node on which the guest runs; empty: on none.
    pub running_on: Option<String>,
    /// Phase in the agent's status (`migrating`), or with a capital that of the VMI (`Running`).
    pub phase: Option<String>,
    /// How it has fared.
    pub outcome: Option<Fate>,
    /// How often KubeVirt tried to migrate it away from the host.
    pub attempts: Option<u64>,
    /// Whether the VMI is marked.
    pub marked: Option<bool>,
    /// Text in its line of `status`.
    pub says: Option<String>,
}

/// `pod = "…"` and what of it is compared.
#[derive(Clone, Debug)]
pub struct PodExpect {
    /// Which.
    pub pod: String,
    /// Its namespace; absent: wherever the name is found.
    pub namespace: Option<String>,
    /// Whether it is on the host, whatever its state: the very pod that was there first.
    pub here: Option<bool>,
    /// Phase in the agent's status (`blocked`).
    pub phase: Option<String>,
    /// Text in its line of `status`.
    pub says: Option<String>,
}

/// `node = "…"` and what of it is compared.
#[derive(Clone, Debug)]
pub struct NodeExpect {
    /// Which.
    pub node: String,
    /// `spec.unschedulable`.
    pub unschedulable: Option<bool>,
    /// Our marker is on it.
    pub ours: Option<bool>,
    /// `key` is there, or `key=value`.
    pub annotation: Option<String>,
    /// `key` or `key:effect` is there.
    pub taint: Option<String>,
}

/// Which requests are counted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestMatch {
    /// Kubernetes verb.
    pub verb: Option<String>,
    /// Plural resource.
    pub resource: Option<String>,
    /// Subresource; empty: none.
    pub subresource: Option<String>,
    /// Name of the object; `x*`: beginning with x.
    pub name: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
}

/// Which Kubernetes Events are counted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventMatch {
    /// `reason`.
    pub reason: Option<String>,
    /// Name of the object.
    pub object: Option<String>,
    /// Text in the message.
    pub contains: Option<String>,
}

/// Which journal lines are counted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JournalMatch {
    /// Text in the message.
    pub contains: Option<String>,
    /// Level in small letters.
    pub level: Option<String>,
    /// A field, `key` or `key=value`.
    pub field: Option<String>,
}

/// `saved = "x"` and what is compared.
#[derive(Clone, Debug)]
pub struct SavedExpect {
    /// The name given by `save`.
    pub name: String,
    /// Exit code.
    pub exit: Option<i32>,
    /// Text of the output.
    pub contains: Option<String>,
    /// Paths with values in its JSON.
    pub json: BTreeMap<String, toml::Value>,
}

/// `disk = "…"` and what is compared.
#[derive(Clone, Debug)]
pub struct DiskExpect {
    /// Path.
    pub path: String,
    /// It is there.
    pub exists: Option<bool>,
    /// Text in it.
    pub contains: Option<String>,
}

/// All keys of `[[expect]]`, before they are sorted into [`What`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) at: Option<Span>,
    pub(super) by: Option<Span>,
    pub(super) never_before: Option<Span>,
    pub(super) always: Option<bool>,
    pub(super) state: Option<String>,
    pub(super) hold: Option<bool>,
    pub(super) host: Option<HostState>,
    pub(super) vm: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) running_on: Option<String>,
    pub(super) pod: Option<String>,
    pub(super) here: Option<bool>,
    pub(super) phase: Option<String>,
    pub(super) outcome: Option<Fate>,
    pub(super) attempts: Option<u64>,
    pub(super) marked: Option<bool>,
    pub(super) says: Option<String>,
    pub(super) node: Option<String>,
    pub(super) unschedulable: Option<bool>,
    pub(super) ours: Option<bool>,
    pub(super) annotation: Option<String>,
    pub(super) taint: Option<String>,
    pub(super) requests: Option<RequestMatch>,
    pub(super) event: Option<EventMatch>,
    pub(super) journal: Option<JournalMatch>,
    pub(super) min: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) saved: Option<String>,
    pub(super) exit: Option<i32>,
    pub(super) contains: Option<String>,
    pub(super) json: Option<BTreeMap<String, toml::Value>>,
    pub(super) status: Option<BTreeMap<String, toml::Value>>,
    pub(super) report: Option<BTreeMap<String, toml::Value>>,
    pub(super) disk: Option<String>,
    pub(super) exists: Option<bool>,
}
