//! Scenarios: one file is one story, with a cluster, a host, what happens when, and what must be true.
//!
//! - [`Scenario::load`] reads a file and refuses whatever it does not understand, with file and line.
//! - [`world`], [`event`], [`expect`]: what a file can say.
//!
//! The language is described in `tests/scenarios/README.md`.

mod check;
pub mod event;
pub mod expect;
mod problem;
mod read;
pub mod run;
#[cfg(test)]
mod tests;
pub mod values;
pub mod words;
pub mod world;

use std::path::{Path, PathBuf};

pub use problem::Problem;

use event::Event;
use expect::Expect;
use world::{Hook, HostTable, KubeVirt, Node, Pdb, Pod, Vm, VolumeAttachment};

/// A story, read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file.
    pub file: PathBuf,
    /// Its title.
    pub name: String,
    /// What it is about, empty when not told.
    pub about: String,
    /// Where the story comes from.
    pub issue: Option<String>,
    /// Which always-checked rules it wants to break.
    pub allow: Vec<Rule>,
    /// KubeVirt.
    pub kubevirt: KubeVirt,
    /// The host.
    pub host: HostTable,
    /// The agent's configuration over the packaged defaults.
    pub agent: toml::Table,
    /// The line of `[agent]`.
    pub agent_line: usize,
    /// All nodes; the host's own one is among them.
    pub nodes: Vec<Node>,
    /// All VMs; `node` is always filled.
    pub vms: Vec<Vm>,
    /// Other pods.
    pub pods: Vec<Pod>,
    /// Disruption budgets.
    pub pdbs: Vec<Pdb>,
    /// The administrator's hooks.
    pub hooks: Vec<Hook>,
    /// Attached volumes.
    pub volume_attachments: Vec<VolumeAttachment>,
    /// The timeline, ordered by time.
    pub timeline: Vec<Event>,
    /// What must be true.
    pub expectations: Vec<Expect>,
}

impl Scenario {
    /// Reads and checks a file.
    pub fn load(file: &Path) -> Result<Self, Problem> {
        let text = std::fs::read_to_string(file).map_err(|error| Problem {
            file: file.to_path_buf(),
            line: 0,
            text: format!("cannot be read: {error}"),
        })?;
        Self::parse(file, &text)
    }

    /// Reads and checks a text; `file` is only its name.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Problem> {
        let source = problem::Source { file, text };
        let draft = read::read(source)?;
        check::check(source, draft)
    }
}

/// The rules that hold in every story unless it says `allow = ["…"]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// No guest is killed dirty.
    DirtyKill,
    /// No VM is stopped that its policy did not allow to stop.
    UnwantedStop,
    /// The cordon comes before the first eviction.
    CordonFirst,
    /// Nothing but launcher pods is evicted.
    LaunchersOnly,
    /// `hp-volume-*` and mirror pods never are.
    NeverEvicted,
    /// Every eviction carries the UID.
    UidPrecondition,
    /// No eviction is repeated while the VM is marked or migrating.
    NoRepeat,
    /// Nothing of another node is written.
    OwnNodeOnly,
    /// No mark of ours is left after a cancel.
    MarksCleared,
    /// No foreign cordon is undone, ours is never lost.
    Cordons,
    /// The lock is not dropped before *empty* or the deadline.
    EarlyRelease,
    /// The host is down no later than the limit and 1 s.
    HeldTooLong,
    /// KubeVirt's own invariants.
    KubeVirt,
    /// No panic.
    Panic,
    /// No ERROR in the journal for a normal refusal.
    ErrorLines,
}

impl Rule {
    /// Every rule with its name in `allow`.
    pub const ALL: [(Self, &'static str); 15] = [
        (Self::DirtyKill, "dirty_kill"),
        (Self::UnwantedStop, "unwanted_stop"),
        (Self::CordonFirst, "cordon_first"),
        (Self::LaunchersOnly, "launchers_only"),
        (Self::NeverEvicted, "never_evicted"),
        (Self::UidPrecondition, "uid_precondition"),
        (Self::NoRepeat, "no_repeat"),
        (Self::OwnNodeOnly, "own_node_only"),
        (Self::MarksCleared, "marks_cleared"),
        (Self::Cordons, "cordons"),
        (Self::EarlyRelease, "early_release"),
        (Self::HeldTooLong, "held_too_long"),
        (Self::KubeVirt, "kubevirt"),
        (Self::Panic, "panic"),
        (Self::ErrorLines, "error_lines"),
    ];

    /// Its name in `allow`.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(rule, _)| *rule == self)
            .map_or("", |(_, name)| name)
    }

    fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(rule, _)| *rule)
    }
}
