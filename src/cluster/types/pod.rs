//! Pods: which pod holds which VM, and can its guest be running?

use super::guard::{Part, Thin};
use super::meta::{Condition, Meta, nullable};
use super::quantity::Quantity;
use crate::drain::ways::{DEADLINE_ANNOTATION, POLICY_ANNOTATION};
use crate::drain::world::{Compute, PodKind, PodPhase, PodView, VmName};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The container of a launcher pod that holds the guest.
const COMPUTE: &str = "compute";
/// What Kubernetes fills in when `terminationGracePeriodSeconds` is absent.
pub(super) const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: Spec,
    #[serde(deserialize_with = "nullable")]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    termination_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    name: String,
    #[serde(deserialize_with = "nullable")]
    resources: Resources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    #[serde(deserialize_with = "nullable")]
    requests: BTreeMap<String, Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    message: Option<String>,
    conditions: Part<Vec<Condition>>,
    #[serde(deserialize_with = "nullable")]
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    name: String,
    #[serde(deserialize_with = "nullable")]
    state: State,
}

/// An object that is there; what is in it does not matter here.
#[derive(Clone, Debug, Default, Deserialize)]
struct There {}

/// At most one is set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    running: Option<There>,
    terminated: Option<There>,
}

impl Thin for Pod {
    type View = PodView;
    const RESOURCE: &'static str = "pods";
    const MANY: bool = true;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Result<PodView, String> {
        let pod = self.metadata.reference()?;
        let meta = &self.metadata;
        let phase = phase(self.status.phase.as_deref());
        let owner = meta
            .controller()
            .filter(|owner| owner.kind == "VirtualMachineInstance");
        let vm = owner
            .map(|owner| owner.name.clone())
            .or_else(|| meta.annotations.get("kubevirt.io/domain").cloned())
            .unwrap_or_default();
        let grace = self.spec.termination_grace_period_seconds;
        // Conditions that cannot be read tell nothing.
        let conditions = self
            .status
            .conditions
            .or_default("status.conditions", &mut Vec::new());
        Ok(PodView {
            kind: kind(meta),
            vm: VmName {
                namespace: pod.namespace.clone(),
                name: vm,
            },
            vmi_uid: owner
                .map(|owner| owner.uid.clone())
                .or_else(|| meta.label("kubevirt.io/created-by"))
                .unwrap_or_default(),
            phase,
            compute: compute(phase, &self.status.container_statuses),
            deleting: meta.deletion_timestamp.is_some(),
            not_ready: not_ready(&conditions),
            stopped_by: stopped_by(self.status.message.as_deref(), &conditions),
            migration_job: meta.label("kubevirt.io/migrationJobUID"),
            vmi_node_label: meta.label("kubevirt.io/nodeName"),
            eviction_in_progress: meta
                .annotations
                .contains_key("descheduler.alpha.kubernetes.io/eviction-in-progress"),
            memory: self
                .spec
                .containers
                .iter()
                .find(|container| container.name == COMPUTE)
                .and_then(|container| container.resources.requests.get("memory"))
                .and_then(Quantity::bytes),
            grace: grace.map_or(DEFAULT_GRACE, |seconds| {
                Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
            }),
            policy: meta.annotations.get(POLICY_ANNOTATION).cloned(),
            deadline: meta.annotations.get(DEADLINE_ANNOTATION).cloned(),
            stop_order: meta.annotations.get("vmdrain.io/stop-order").cloned(),
            labels: self.metadata.labels,
            pod,
        })
    }
}

/// What the condition `Ready` says when it is false.
fn not_ready(conditions: &[Condition]) -> Option<String> {
    let ready = conditions.iter().find(|c| c.kind == "Ready")?;
    let text = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    (ready.status != "True").then(|| {
        text(&ready.reason)
            .or_else(|| text(&ready.message))
            .unwrap_or_else(|| "not Ready".into())
    })
}

/// kubelet's graceful node shutdown leaves the pod where it is and says so: in the pod's message when it had to kill
/// it, in the condition in any case (real-host.md 2).
fn stopped_by(message: Option<&str>, conditions: &[Condition]) -> Option<String> {
    const SAYS: &str = "node shutdown";
    let by_kubelet = |condition: &Condition| {
        condition.kind == "DisruptionTarget"
            && condition.reason.as_deref() == Some("TerminationByKubelet")
            && condition
                .message
                .as_deref()
                .is_some_and(|text| text.contains(SAYS))
    };
    let stopped =
        message.is_some_and(|text| text.contains(SAYS)) || conditions.iter().any(by_kubelet);
    stopped.then(|| "kubelet".to_owned())
}

/// What the pod is for.
fn kind(meta: &Meta) -> PodKind {
    let name = meta.name.as_deref().unwrap_or_default();
    let role = meta.labels.get("kubevirt.io").map(String::as_str);
    if role == Some("hotplug-disk") || name.starts_with("hp-volume-") {
        PodKind::Hotplug
    } else if meta
        .annotations
        .contains_key("kubevirt.io/ephemeral-provisioning")
    {
        PodKind::Provisioning
    } else {
        PodKind::Launcher
    }
}

/// `status.phase`; a word that we do not know counts like a kubelet that has not reported.
pub(super) fn phase(text: Option<&str>) -> PodPhase {
    match text {
        None | Some("" | "Pending") => PodPhase::Pending,
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some(_) => PodPhase::Unknown,
    }
}

/// The guest's container. Without a status of its own the phase decides, and where that
/// leaves it open the guest counts as running: nothing may be released on a guess.
fn compute(phase: PodPhase, statuses: &[ContainerStatus]) -> Compute {
    let own = statuses.iter().find(|status| status.name == COMPUTE);
    match (own.map(|status| &status.state), phase) {
        (_, PodPhase::Succeeded | PodPhase::Failed)
        | (
            Some(State {
                terminated: Some(_),
                ..
            }),
            _,
        ) => Compute::Terminated,
        (
            Some(State {
                running: Some(_), ..
            }),
            _,
        )
        | (None, PodPhase::Running | PodPhase::Unknown) => Compute::Running,
        (Some(_), _) | (None, PodPhase::Pending) => Compute::Waiting,
    }
}
