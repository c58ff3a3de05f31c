//! The own Node, and whose cordon is on it.

use serde::{Deserialize, Serialize};

/// Our ownership marker, the annotation `vmdrain.io/cordon` on the Node (design section 6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CordonNote {
    /// Id of the drain that set the cordon.
    pub drain: String,
    /// Boot id of the host at that time.
    pub boot: String,
    /// Why, for people.
    pub reason: String,
    /// `--keep-cordoned`: stays cordoned over the reboot.
    #[serde(default)]
    pub keep: bool,
}

/// What the annotation `vmdrain.io/cordon` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CordonMark {
    /// No annotation: a cordon, if there is one, is somebody else's.
    #[default]
    Absent,
    /// A readable note of ours.
    Note(CordonNote),
    /// There, but not readable: never undone, because nobody knows whose it is.
    Damaged(String),
}

/// The own Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`, sent back as precondition of every patch.
    pub resource_version: String,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Our marker.
    pub cordon: CordonMark,
    /// Condition `Ready`.
    pub ready: bool,
    /// What the condition says when it is not true; empty when it is, or says nothing.
    pub not_ready: String,
    /// `status.nodeInfo.machineID`, empty when absent.
    pub machine_id: String,
    /// `status.nodeInfo.systemUUID`, empty when absent.
    pub system_uuid: String,
    /// `status.nodeInfo.bootID`, empty when absent.
    pub boot_id: String,
    /// Taint keys with effect `NoSchedule` or `NoExecute`, as `key:effect`.
    pub taints: Vec<String>,
}
