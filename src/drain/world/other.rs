//! Pods of this node that are no VM's: what `scope = "all-pods"` drains as well.

use super::{ObjectRef, PodPhase};
use std::collections::BTreeMap;
use std::time::Duration;

/// A pod of this node that holds no VM and belongs to none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtherPod {
    /// Which pod.
    pub pod: ObjectRef,
    /// Kind and name of the owner that controls it (`ReplicaSet`, `web`). The controller itself is not looked for:
    /// a node has no right to.
    pub owner: Option<(String, String)>,
    /// The kubelet's own (annotation `kubernetes.io/config.mirror`): the API server cannot take it away.
    pub mirror: bool,
    /// It has a volume of type `emptyDir`, which goes with it.
    pub empty_dir: bool,
    /// Part of KubeVirt's control plane (label `kubevirt.io`, e.g. `virt-api`); empty: it is not.
    pub component: String,
    /// `status.phase`.
    pub phase: PodPhase,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace: Duration,
    /// `spec.priority`, which its priority class gives it.
    pub priority: i64,
    /// Labels, for selectors of the configuration.
    pub labels: BTreeMap<String, String>,
    /// What of it could not be read, so that nobody can say whether it may go; empty: nothing.
    pub unreadable: String,
}

impl OtherPod {
    /// The pod is over: `Succeeded` or `Failed`.
    pub fn is_final(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// A DaemonSet keeps one on every node: evicted, it would come again.
    pub fn is_daemon(&self) -> bool {
        self.owner
            .as_ref()
            .is_some_and(|(kind, _)| kind == "DaemonSet")
    }
}

/// A volume that is attached to this node (a `VolumeAttachment`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttachedVolume {
    /// The persistent volume, or the object's own name where it names none.
    pub volume: String,
    /// Who attaches it.
    pub attacher: String,
}

impl std::fmt::Display for AttachedVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.volume, self.attacher)
    }
}
