//! The own Node, and whose cordon is on it.

use crate::drain::boot::{Start, Userspace};
use serde::{Deserialize, Serialize};

/// Our ownership marker, the annotation `vmdrain.io/cordon` on the Node (design section 6).
///
/// Fields that this version does not know are passed over: after a downgrade the cordon is still ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// User space of the host at that time; a marker of an older version has none.
    #[serde(default, skip_serializing_if = "Userspace::is_unknown")]
    pub userspace: Userspace,
    /// virt-handler had reported on this Node: after the boot its return is waited for.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub handler: bool,
    /// A KVM device was offered, or nobody can say: it is waited for.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub kvm: bool,
    /// The node still waited to be given back when this drain took its cordon over: the start of the host before that
    /// wait. A cancel goes back to waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<BootNote>,
}

/// A start of the host, as it is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootNote {
    /// Boot id.
    pub boot: String,
    /// User space.
    #[serde(default, skip_serializing_if = "Userspace::is_unknown")]
    pub userspace: Userspace,
}

impl Default for CordonNote {
    fn default() -> Self {
        Self {
            drain: String::new(),
            boot: String::new(),
            reason: String::new(),
            keep: false,
            userspace: Userspace::default(),
            handler: true,
            kvm: true,
            waiting: None,
        }
    }
}

impl CordonNote {
    /// The start of the host in which the cordon was set.
    pub fn start(&self) -> Start<'_> {
        Start {
            boot: &self.boot,
            userspace: self.userspace,
        }
    }
}

fn yes() -> bool {
    true
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands the field over by reference"
)]
fn is_yes(value: &bool) -> bool {
    *value
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
    /// Annotation `vmdrain.io/request`; empty: there is none.
    pub request: String,
    /// Annotation `vmdrain.io/handled`: the request that was taken last.
    pub handled: String,
    /// Condition `Ready`.
    pub ready: bool,
    /// What the condition says when it is not true; empty when it is, or says nothing.
    pub not_ready: String,
    /// When kubelet has last reported (`lastHeartbeatTime` of that condition), in milliseconds of this host's
    /// `CLOCK_BOOTTIME`: negative before the boot. `None` when it does not say.
    pub reported: Option<i64>,
    /// When virt-handler has last reported (annotation `kubevirt.io/heartbeat`), on the same clock; the least number
    /// when the annotation cannot be read, `None` without one.
    pub heartbeat: Option<i64>,
    /// Label `kubevirt.io/schedulable` is `true`.
    pub schedulable: bool,
    /// `status.allocatable` of `devices.kubevirt.io/kvm`.
    pub kvm: u64,
    /// `status.nodeInfo.machineID`, empty when absent.
    pub machine_id: String,
    /// `status.nodeInfo.systemUUID`, empty when absent.
    pub system_uuid: String,
    /// `status.nodeInfo.bootID`, empty when absent.
    pub boot_id: String,
    /// Taint keys with effect `NoSchedule` or `NoExecute`, as `key:effect`.
    pub taints: Vec<String>,
}

impl NodeView {
    /// Design section 6: is this Node another machine than the one with these ids? Both ids, theirs first.
    pub fn another_machine(&self, machine_id: &str, system_uuid: &str) -> Option<(String, String)> {
        let differs = |theirs: &str, ours: &str| {
            let plain = |id: &str| id.trim().replace('-', "").to_ascii_lowercase();
            !theirs.is_empty() && !ours.is_empty() && plain(theirs) != plain(ours)
        };
        if differs(&self.machine_id, machine_id) {
            Some((self.machine_id.clone(), machine_id.to_owned()))
        } else if differs(&self.system_uuid, system_uuid) {
            Some((
                format!("(system uuid) {}", self.system_uuid),
                format!("(system uuid) {system_uuid}"),
            ))
        } else {
            None
        }
    }
}
