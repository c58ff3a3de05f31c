//! Pods of this node that concern a VM.

use super::{ObjectRef, VmName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// `status.phase` of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodPhase {
    /// Accepted, not all containers started.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended with 0.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
    /// The kubelet has not reported.
    Unknown,
}

/// The container that holds the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compute {
    /// Not started yet (or no status yet): it will run.
    #[default]
    Waiting,
    /// The guest can be running.
    Running,
    /// Ended: no guest here any more, even if a sidecar keeps the pod.
    Terminated,
}

/// What a pod labelled `kubevirt.io=virt-launcher` or found on this node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodKind {
    /// A virt-launcher pod that holds a VM.
    #[default]
    Launcher,
    /// `hp-volume-*`: follows its launcher, never evicted by us.
    Hotplug,
    /// WaitForFirstConsumer helper (annotation `kubevirt.io/ephemeral-provisioning`): short-lived, ignored.
    Provisioning,
}

/// A pod of this node that concerns a VM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodView {
    /// Which pod.
    pub pod: ObjectRef,
    /// What it is.
    pub kind: PodKind,
    /// Its VM: controller owner reference of kind VirtualMachineInstance, else annotation `kubevirt.io/domain`.
    pub vm: VmName,
    /// UID of the VMI (owner reference, else label `kubevirt.io/created-by`); empty when unknown.
    pub vmi_uid: String,
    /// `status.phase`.
    pub phase: PodPhase,
    /// The container `compute`.
    pub compute: Compute,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Why the condition `Ready` is not true; `None` when it is, or says nothing.
    pub not_ready: Option<String>,
    /// Who ended it without deleting it, where the pod tells: `kubelet`, at its graceful node shutdown.
    pub stopped_by: Option<String>,
    /// Label `kubevirt.io/migrationJobUID`: it was made as a migration target (and keeps the label afterwards).
    pub migration_job: Option<String>,
    /// Label `kubevirt.io/nodeName`: the node of the VMI as KubeVirt last wrote it on the pod. On a fresh
    /// target pod that is still the *source* node (kubevirt-semantics 3.3).
    pub vmi_node_label: Option<String>,
    /// Annotation `descheduler.alpha.kubernetes.io/eviction-in-progress` is present, whatever its value.
    pub eviction_in_progress: bool,
    /// Memory request of `compute` in bytes.
    pub memory: Option<u64>,
    /// `spec.terminationGracePeriodSeconds` (the guest's own plus 30 s).
    pub grace: Duration,
    /// Annotation `vmdrain.io/policy` as it stands, unread.
    pub policy: Option<String>,
    /// Annotation `vmdrain.io/deadline` as it stands, unread.
    pub deadline: Option<String>,
    /// Annotation `vmdrain.io/stop-order` as it stands, unread.
    pub stop_order: Option<String>,
    /// Labels, for selectors of the configuration.
    pub labels: BTreeMap<String, String>,
}

impl PodView {
    /// The pod is over: `Succeeded` or `Failed`.
    pub fn is_final(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// No guest runs or will run here: the pod is final or its `compute` container has ended.
    pub fn is_empty_of_guest(&self) -> bool {
        self.is_final() || self.compute == Compute::Terminated
    }
}
