//! Which pods beside the VMs go in a drain of all pods, in which order, and why does one stay?
//!
//! What `kubectl drain --ignore-daemonsets --delete-emptydir-data --force` does, with the last two as consent of the
//! configuration. A controller counts by its owner reference alone: the kubelet's identity may read no ReplicaSet, so
//! a pod whose controller was deleted looks managed here. Finished pods stay: they hold nothing up.

mod says;
mod track;

pub use says::{owner, refusal, sentence};
pub use track::OtherTrack;

use super::ways::{Glob, Selector};
use super::world::OtherPod;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Virtual machines and nothing else.
    #[default]
    Vms,
    /// After the VMs every other pod that can go ([operating.md](operating.md#all-pods)).
    AllPods,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Vms, Self::AllPods];

    /// The word in files, on the bus and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Vms => "vms",
            Self::AllPods => "all-pods",
        }
    }
}

/// `[[drain.order]]`: when pods that match everything that is given have their turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Turn {
    /// Namespace; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Glob>,
    /// Name of the pod; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Glob>,
    /// Labels of the pod.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Glob>,
    /// The smallest go first; 0 is what every pod has that no rule matches.
    pub priority: i64,
}

impl Turn {
    /// What makes the rule useless, as a sentence.
    pub fn trouble(&self) -> Option<String> {
        let all = self.namespace.is_none() && self.name.is_none() && self.labels.is_empty();
        all.then(|| "selects every pod: give it a namespace, a name or labels".into())
    }

    fn fits(&self, pod: &OtherPod) -> bool {
        let of = |glob: &Option<Glob>, text| glob.as_ref().is_none_or(|glob| glob.fits(text));
        let label =
            |(key, glob): (&String, &Glob)| pod.labels.get(key).is_some_and(|v| glob.fits(v));
        of(&self.namespace, &pod.pod.namespace)
            && of(&self.name, &pod.pod.name)
            && self.labels.iter().all(label)
    }
}

/// What the configuration says about pods that are no VM's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// `drain.scope`.
    pub scope: Scope,
    /// `drain.allow_empty_dir`.
    pub empty_dir: bool,
    /// `drain.allow_unmanaged_pods`.
    pub unmanaged: bool,
    /// `drain.order`, the first that matches counts.
    pub order: Vec<Turn>,
    /// `drain.skip`.
    pub skip: Vec<Selector>,
}

/// What a drain does with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stance {
    /// It is none of ours.
    Stays(Stay),
    /// It would go, but for this.
    Blocked(Block),
    /// It is evicted when its turn comes.
    Goes,
}

/// Why a pod stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// A mirror pod.
    Mirror,
    /// A DaemonSet's pod.
    Daemon,
    /// Succeeded or failed.
    Finished,
    /// `drain.skip`.
    Skipped,
}

/// What keeps a pod from being evicted until a person does something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// It has data that would be lost.
    EmptyDir,
    /// Nobody makes it again.
    Unmanaged,
    /// Both.
    Both,
    /// A part of it cannot be read.
    Unreadable(String),
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DATA: &str = "it has emptyDir data, which would be lost";
        const NOBODY: &str = "no controller makes it again";
        match self {
            Self::EmptyDir => write!(
                f,
                "{DATA}: drain.allow_empty_dir = true allows that, or delete the pod yourself"
            ),
            Self::Unmanaged => write!(
                f,
                "{NOBODY}: drain.allow_unmanaged_pods = true allows to evict it all the same, or delete the pod yourself"
            ),
            Self::Both => write!(
                f,
                "{NOBODY}, and {DATA}: drain.allow_unmanaged_pods and drain.allow_empty_dir allow that, or delete the pod yourself"
            ),
            Self::Unreadable(why) => write!(
                f,
                "whether it may go is not known, because a part of it cannot be read ({why}): delete the pod yourself"
            ),
        }
    }
}

/// Whether losing the pod or its data would be for good.
pub fn is_final_loss(pod: &OtherPod) -> bool {
    pod.empty_dir || pod.owner.is_none()
}

/// What happens to a pod.
pub fn stance(pod: &OtherPod, rules: &Rules) -> Stance {
    if pod.mirror {
        return Stance::Stays(Stay::Mirror);
    }
    if pod.is_final() {
        return Stance::Stays(Stay::Finished);
    }
    if pod.is_daemon() {
        return Stance::Stays(Stay::Daemon);
    }
    if rules.skip.iter().any(|skip| skip.fits(&pod.labels)) {
        return Stance::Stays(Stay::Skipped);
    }
    // On its way out already, whoever has asked for that: only to be waited for.
    if pod.deleting {
        return Stance::Goes;
    }
    if !pod.unreadable.is_empty() {
        return Stance::Blocked(Block::Unreadable(pod.unreadable.clone()));
    }
    let data = pod.empty_dir && !rules.empty_dir;
    let nobody = pod.owner.is_none() && !rules.unmanaged;
    match (data, nobody) {
        (true, true) => Stance::Blocked(Block::Both),
        (true, false) => Stance::Blocked(Block::EmptyDir),
        (false, true) => Stance::Blocked(Block::Unmanaged),
        (false, false) => Stance::Goes,
    }
}

/// When a pod has its turn: pods of one group go together, the next group when no pod of the one before is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Part of KubeVirt's control plane: after everything else, whatever the rules say.
    pub kubevirt: bool,
    /// `drain.order`.
    pub priority: i64,
}

/// The group of a pod.
pub fn group(pod: &OtherPod, rules: &Rules) -> Group {
    let rule = rules.order.iter().find(|rule| rule.fits(pod));
    Group {
        kubevirt: !pod.component.is_empty(),
        priority: rule.map_or(0, |rule| rule.priority),
    }
}

/// Within a group: the less important first, then by name, so that the order is the same on every run.
pub fn turn(pod: &OtherPod) -> (i64, &str, &str) {
    (pod.priority, &pod.pod.namespace, &pod.pod.name)
}

#[cfg(test)]
mod tests;
