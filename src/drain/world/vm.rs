//! Who keeps a VM: its VirtualMachine with a run strategy, or another owner of its VMI.

use super::VmName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// `spec.runStrategy` of a VirtualMachine; the old `spec.running` is read as `Always` or `Halted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RunStrategy {
    /// Always running: started again however it ended.
    Always,
    /// Started again only when it has failed.
    RerunOnFailure,
    /// Started and stopped by hand.
    Manual,
    /// Runs once.
    Once,
    /// Stopped.
    Halted,
    /// Waits to receive a migration from another cluster.
    WaitAsReceiver,
    /// A word that we do not know.
    Unknown,
}

impl RunStrategy {
    /// KubeVirt's word; `unknown` for one that we do not know.
    pub fn word(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::RerunOnFailure => "RerunOnFailure",
            Self::Manual => "Manual",
            Self::Once => "Once",
            Self::Halted => "Halted",
            Self::WaitAsReceiver => "WaitAsReceiver",
            Self::Unknown => "unknown",
        }
    }
}

/// Who owns a VMI, and so decides whether its guest is started again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// Cannot be seen with our rights, or not yet.
    #[default]
    Unseen,
    /// A VirtualMachine; its run strategy where VMs can be read.
    Vm(Option<RunStrategy>),
    /// A VirtualMachine that belongs to a VirtualMachinePool.
    Pool(Option<RunStrategy>),
    /// A VirtualMachineInstanceReplicaSet.
    ReplicaSet,
    /// Nobody: a VMI that somebody has created by itself.
    Standalone,
    /// Another kind, by its name.
    Other(String),
}

impl fmt::Display for Owner {
    /// As `status` shows it: `VirtualMachine (Always)`. Empty when the owner cannot be seen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unseen => Ok(()),
            Self::Vm(None) => f.write_str("VirtualMachine"),
            Self::Vm(Some(run)) => write!(f, "VirtualMachine ({})", run.word()),
            Self::Pool(None) => f.write_str("VirtualMachinePool"),
            Self::Pool(Some(run)) => write!(f, "VirtualMachinePool ({})", run.word()),
            Self::ReplicaSet => f.write_str("VirtualMachineInstanceReplicaSet"),
            Self::Standalone => f.write_str("standalone VMI"),
            Self::Other(kind) => f.write_str(kind),
        }
    }
}

/// A VirtualMachine whose VMI is on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmView {
    /// Which.
    pub vm: VmName,
    /// `spec.runStrategy`, else `spec.running`; `None` when it has neither.
    pub run: Option<RunStrategy>,
    /// Kind of its controlling owner (`VirtualMachinePool`), empty when it has none.
    pub owner_kind: String,
    /// Its own annotation `vmdrain.io/policy` as it stands, unread.
    pub policy: Option<String>,
    /// Its own annotation `vmdrain.io/deadline` as it stands, unread.
    pub deadline: Option<String>,
}
