//! The own Node: is it cordoned, by whom, and is it this machine?

use super::guard::{Part, Thin};
use super::meta::{Condition, Meta, nullable};
use crate::drain::world::{CordonMark, NodeView};
use serde::Deserialize;

/// Annotation that says that the cordon is ours (design section 6).
pub(crate) const CORDON_ANNOTATION: &str = "vmdrain.io/cordon";

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

/// The view, and what could not be read of the Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeSeen {
    pub(crate) node: NodeView,
    pub(crate) troubles: Vec<String>,
}

impl Thin for Node {
    type View = NodeSeen;
    const RESOURCE: &'static str = "nodes";

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
        let node = NodeView {
            name: at.name,
            uid: at.uid,
            resource_version: self.metadata.resource_version.unwrap_or_default(),
            unschedulable: self.spec.unschedulable.unwrap_or(false),
            cordon: mark(self.metadata.annotations.get(CORDON_ANNOTATION)),
            ready: conditions
                .iter()
                .any(|condition| condition.kind == "Ready" && condition.status == "True"),
            not_ready: conditions
                .iter()
                .find(|condition| condition.kind == "Ready" && condition.status != "True")
                .map(Condition::says)
                .unwrap_or_default(),
            machine_id: info.machine_id.unwrap_or_default(),
            system_uuid: info.system_uuid.unwrap_or_default(),
            boot_id: info.boot_id.unwrap_or_default(),
            taints: taints
                .iter()
                .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
                .map(|taint| format!("{}:{}", taint.key, taint.effect))
                .collect(),
        };
        Ok(NodeSeen { node, troubles })
    }
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
