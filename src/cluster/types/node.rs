//! The own Node: is it cordoned, by whom, is it this machine, and can it receive VMs?

use super::guard::{Part, Thin};
use super::meta::{Condition, Meta, nullable};
use super::quantity::Quantity;
use crate::drain::request::{HANDLED_ANNOTATION, REQUEST_ANNOTATION};
use crate::drain::world::{CordonMark, NodeView};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Annotation that says that the cordon is ours (design section 6).
pub(crate) const CORDON_ANNOTATION: &str = "vmdrain.io/cordon";
/// When virt-handler has last reported, RFC 3339, every 60 to 132 s (kubevirt-semantics 7).
const HEARTBEAT: &str = "kubevirt.io/heartbeat";
/// `true` once virt-handler's device plugins are there.
const SCHEDULABLE: &str = "kubevirt.io/schedulable";

/// A Node. What is not needed to cordon it may be unreadable without harm.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: Spec,
    #[serde(deserialize_with = "nullable")]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    unschedulable: Option<bool>,
    taints: Part<Vec<Taint>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: String,
    effect: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    conditions: Part<Vec<Condition>>,
    node_info: Part<Info>,
    allocatable: Part<Allocatable>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Allocatable {
    #[serde(rename = "devices.kubevirt.io/kvm")]
    kvm: Option<Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Info {
    #[serde(rename = "machineID")]
    machine_id: Option<String>,
    #[serde(rename = "systemUUID")]
    system_uuid: Option<String>,
    #[serde(rename = "bootID")]
    boot_id: Option<String>,
}

/// An annotation; empty when there is none.
fn said(annotations: &BTreeMap<String, String>, key: &str) -> String {
    annotations.get(key).cloned().unwrap_or_default()
}

/// The view, and what could not be read of the Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeSeen {
    /// Without the moments: those are on another clock as they come.
    node: NodeView,
    pub(crate) troubles: Vec<String>,
    /// When kubelet has last reported, in milliseconds since 1970.
    reported: Option<i64>,
    /// When virt-handler has.
    heartbeat: Option<i64>,
}

impl NodeSeen {
    /// The Node's name.
    pub(crate) fn name(&self) -> &str {
        &self.node.name
    }

    /// The view with all moments on the host's boot clock, which began at `booted_at` (milliseconds since 1970).
    /// Both moments were written by processes of this host, so both are on its own wall clock.
    pub(crate) fn on_boot_clock(&self, booted_at: i64) -> NodeView {
        let moved = |moment: Option<i64>| moment.map(|at| at.saturating_sub(booted_at));
        NodeView {
            reported: moved(self.reported),
            heartbeat: moved(self.heartbeat),
            ..self.node.clone()
        }
    }
}

impl Thin for Node {
    type View = NodeSeen;
    const RESOURCE: &'static str = "nodes";
    const MANY: bool = false;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Result<NodeSeen, String> {
        let at = self.metadata.reference()?;
        let mut troubles = Vec::new();
        let taints = self.spec.taints.or_default("spec.taints", &mut troubles);
        let conditions = self
            .status
            .conditions
            .or_default("status.conditions", &mut troubles);
        let info = self
            .status
            .node_info
            .or_default("status.nodeInfo", &mut troubles);
        let allocatable = self
            .status
            .allocatable
            .or_default("status.allocatable", &mut troubles);
        let ready = conditions
            .iter()
            .find(|condition| condition.kind == "Ready");
        let is_ready = ready.is_some_and(|ready| ready.status == "True");
        let annotations = &self.metadata.annotations;
        let heartbeat = annotations.get(HEARTBEAT).map(|text| {
            millis(text).unwrap_or_else(|| {
                troubles.push(format!(
                    "metadata.annotations[{HEARTBEAT}]: not a time: {text}"
                ));
                // There, but nobody knows of when: older than anything.
                i64::MIN
            })
        });
        let node = NodeView {
            name: at.name,
            uid: at.uid,
            resource_version: self.metadata.resource_version.unwrap_or_default(),
            unschedulable: self.spec.unschedulable.unwrap_or(false),
            cordon: mark(self.metadata.annotations.get(CORDON_ANNOTATION)),
            request: said(annotations, REQUEST_ANNOTATION),
            handled: said(annotations, HANDLED_ANNOTATION),
            ready: is_ready,
            not_ready: ready
                .filter(|_| !is_ready)
                .map(Condition::says)
                .unwrap_or_default(),
            reported: None,
            heartbeat: None,
            schedulable: self
                .metadata
                .labels
                .get(SCHEDULABLE)
                .is_some_and(|it| it == "true"),
            kvm: allocatable.kvm.and_then(|kvm| kvm.bytes()).unwrap_or(0),
            machine_id: info.machine_id.unwrap_or_default(),
            system_uuid: info.system_uuid.unwrap_or_default(),
            boot_id: info.boot_id.unwrap_or_default(),
            taints: taints
                .iter()
                .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
                .map(|taint| format!("{}:{}", taint.key, taint.effect))
                .collect(),
        };
        let reported = ready.and_then(|ready| millis(ready.last_heartbeat_time.as_deref()?));
        Ok(NodeSeen {
            node,
            troubles,
            reported,
            heartbeat,
        })
    }
}

/// A moment as servers write it, in milliseconds since 1970.
fn millis(text: &str) -> Option<i64> {
    let moment: jiff::Timestamp = text.trim().parse().ok()?;
    Some(moment.as_millisecond())
}

/// Reads our marker; a damaged one is never taken for absent.
fn mark(annotation: Option<&String>) -> CordonMark {
    match annotation {
        None => CordonMark::Absent,
        Some(text) => serde_json::from_str(text).map_or_else(
            |error| CordonMark::Damaged(format!("{CORDON_ANNOTATION} cannot be read: {error}")),
            CordonMark::Note,
        ),
    }
}
