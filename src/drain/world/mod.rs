//! What was observed: the newest picture of this node, as plain data.
//!
//! The cluster adapter fills these types from thin API objects; the core only reads them.
//! A picture replaces the one before it: missed, doubled or late watch events cannot hurt.

mod cluster;
mod node;
mod other;
mod pod;
mod vm;
mod vmi;

pub use cluster::{Amount, KubeVirtView, PdbView, Requirement, Rule, SelectorView};
pub use node::{BootNote, CordonMark, CordonNote, NodeView};
pub use other::{AttachedVolume, OtherPod};
pub use pod::{Compute, PodKind, PodPhase, PodView};
pub use vm::{Owner, RunStrategy, VmView};
pub use vmi::{MigrationPhase, MigrationState, MigrationView, Strategy, VmiPhase, VmiView};

use super::time::Mono;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Namespace and name of a VM; its VMI has the same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VmName {
    /// Kubernetes namespace.
    pub namespace: String,
    /// `metadata.name` of the VM and of its VMI.
    pub name: String,
}

impl fmt::Display for VmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One API object: where it is and which incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Kubernetes namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; a new object under an old name has another one.
    pub uid: String,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whether a kind of object can be seen, and if not, why.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(tag = "sight", rename_all = "snake_case")]
pub enum Sight<T> {
    /// Not asked yet, or the first list has not come back.
    #[default]
    Pending,
    /// Seen. `fresh` is the moment of the last sign of life of the list or watch.
    Seen {
        /// What is there now.
        #[serde(skip)]
        value: T,
        /// When the server last confirmed this (list, event or bookmark).
        fresh: Mono,
    },
    /// Nobody may look (403): the sentence names the missing right.
    Forbidden {
        /// What is missing and which part of the RBAC manifest cures it.
        why: String,
    },
    /// The kind does not exist on this cluster (404); of the own Node: there is none of this name.
    Missing,
    /// Requests fail for another reason; the last picture is kept by the adapter while it is useful.
    Broken {
        /// The error as a sentence.
        why: String,
        /// Since when.
        since: Mono,
    },
}

impl<T> Sight<T> {
    /// The value to be changed, where it can be seen.
    pub fn seen_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Seen { value, .. } => Some(value),
            Self::Pending | Self::Forbidden { .. } | Self::Missing | Self::Broken { .. } => None,
        }
    }

    /// It could be seen, and cannot just now.
    pub fn is_troubled(&self) -> bool {
        match self {
            Self::Pending | Self::Broken { .. } => true,
            Self::Seen { .. } | Self::Forbidden { .. } | Self::Missing => false,
        }
    }

    /// The value, where it can be seen.
    pub fn seen(&self) -> Option<&T> {
        match self {
            Self::Seen { value, .. } => Some(value),
            Self::Pending | Self::Forbidden { .. } | Self::Missing | Self::Broken { .. } => None,
        }
    }

    /// True once the question is settled, one way or the other.
    pub fn settled(&self) -> bool {
        !matches!(self, Self::Pending)
    }
}

/// An object that could not be read: skipped, reported, never fatal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Malformed {
    /// Plural resource, e.g. `pods`.
    pub resource: String,
    /// `namespace/name` as far as known.
    pub object: String,
    /// What is wrong, with the field's path.
    pub why: String,
}

/// Everything that was seen of this node, newest first-hand knowledge only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// The own Node.
    pub node: Sight<NodeView>,
    /// Launcher and hotplug pods of this node.
    pub pods: Sight<Vec<PodView>>,
    /// Pods of this node that are no VM's; looked at only where all pods are drained.
    pub others: Sight<Vec<OtherPod>>,
    /// VMIs of this node and those on their way to it.
    pub vmis: Sight<Vec<VmiView>>,
    /// VirtualMachines of the VMIs of this node, as far as they were read yet.
    pub vms: Sight<Vec<VmView>>,
    /// VMIMs of the whole cluster.
    pub migrations: Sight<Vec<MigrationView>>,
    /// Budgets that select launcher pods of this node, or others that are drained.
    pub pdbs: Sight<Vec<PdbView>>,
    /// The KubeVirt object.
    pub kubevirt: Sight<KubeVirtView>,
    /// Objects that could not be read.
    pub malformed: Vec<Malformed>,
}

/// Fresh quorum lists, made for one question: is the node empty (design section 3.4)?
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fresh {
    /// Launcher and hotplug pods of this node.
    pub pods: Vec<PodView>,
    /// Pods that are no VM's; `None`: nobody has asked.
    pub others: Option<Vec<OtherPod>>,
    /// VMIs of and to this node; `None` where they cannot be read: no right, no such kind, or [`Fresh::unread`].
    pub vmis: Option<Vec<VmiView>>,
    /// VMIMs; `None` where they cannot be read.
    pub migrations: Option<Vec<MigrationView>>,
    /// Objects in these lists that could not be read: then the node does not count as empty.
    pub malformed: Vec<Malformed>,
    /// Why kinds other than pods could not be listed although there is a right to it.
    pub unread: Vec<String>,
}
