//! Nodes and pods as the scheduler sees them: what a pod demands, what a node offers.

use super::guard::{Part, Thin};
use super::meta::{Condition, Meta, nullable};
use super::quantity::Quantity;
use crate::drain::plan::{Needs, NodeRoom, Toleration};
use crate::drain::world::Requirement;
use serde::Deserialize;
use std::collections::BTreeMap;

/// `cpu` in thousandths, everything else in units or bytes; what cannot be read is left out.
fn amounts(quantities: &BTreeMap<String, Quantity>) -> BTreeMap<String, u64> {
    let amount = |(name, quantity): (&String, &Quantity)| {
        let amount = if name == "cpu" {
            quantity.thousandths()
        } else {
            quantity.bytes()
        };
        Some((name.clone(), amount?))
    };
    quantities.iter().filter_map(amount).collect()
}

/// A Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RoomyNode {
    metadata: Meta,
    spec: Part<NodeSpec>,
    status: Part<NodeStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    unschedulable: Option<bool>,
    #[serde(deserialize_with = "nullable")]
    taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: String,
    value: Option<String>,
    effect: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    #[serde(deserialize_with = "nullable")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    allocatable: BTreeMap<String, Quantity>,
}

impl Thin for RoomyNode {
    type View = NodeRoom;
    const RESOURCE: &'static str = "nodes";
    const MANY: bool = false;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Result<NodeRoom, String> {
        let at = self.metadata.reference()?;
        let mut troubles = Vec::new();
        let spec = self.spec.or_default("spec", &mut troubles);
        let status = self.status.or_default("status", &mut troubles);
        if let Some(why) = troubles.into_iter().next() {
            return Err(why);
        }
        let ready = status.conditions.iter().find(|c| c.kind == "Ready");
        let taints = spec.taints.into_iter();
        Ok(NodeRoom {
            name: at.name,
            ready: ready.is_some_and(|condition| condition.status == "True"),
            unschedulable: spec.unschedulable.unwrap_or(false),
            labels: self.metadata.labels,
            allocatable: amounts(&status.allocatable),
            taints: taints
                .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
                .map(|taint| (taint.key, taint.value.unwrap_or_default(), taint.effect))
                .collect(),
        })
    }
}

/// A launcher pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Demand {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: PodSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    #[serde(deserialize_with = "nullable")]
    node_selector: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    affinity: Affinity,
    #[serde(deserialize_with = "nullable")]
    tolerations: Vec<TolerationSpec>,
    #[serde(deserialize_with = "nullable")]
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Affinity {
    #[serde(deserialize_with = "nullable")]
    node_affinity: NodeAffinity,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeAffinity {
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "nullable"
    )]
    required: Required,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Required {
    #[serde(deserialize_with = "nullable")]
    node_selector_terms: Vec<TermSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TermSpec {
    #[serde(deserialize_with = "nullable")]
    match_expressions: Vec<RequirementSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RequirementSpec {
    key: String,
    operator: String,
    #[serde(deserialize_with = "nullable")]
    values: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TolerationSpec {
    key: Option<String>,
    operator: Option<String>,
    value: Option<String>,
    effect: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    #[serde(deserialize_with = "nullable")]
    resources: Resources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    #[serde(deserialize_with = "nullable")]
    requests: BTreeMap<String, Quantity>,
}

impl Thin for Demand {
    /// The pod's UID with it.
    type View = (String, Needs);
    const RESOURCE: &'static str = "pods";
    const MANY: bool = false;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Result<Self::View, String> {
        let at = self.metadata.reference()?;
        let mut requests: BTreeMap<String, u64> = BTreeMap::new();
        for container in &self.spec.containers {
            for (what, amount) in amounts(&container.resources.requests) {
                let sum = requests.entry(what).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
        let terms = self
            .spec
            .affinity
            .node_affinity
            .required
            .node_selector_terms;
        let requirement = |spec: RequirementSpec| Requirement {
            key: spec.key,
            operator: spec.operator,
            values: spec.values,
        };
        let toleration = |spec: TolerationSpec| Toleration {
            key: spec.key.unwrap_or_default(),
            exists: spec.operator.as_deref() == Some("Exists"),
            value: spec.value.unwrap_or_default(),
            effect: spec.effect.unwrap_or_default(),
        };
        let needs = Needs {
            selector: self.spec.node_selector,
            affinity: terms
                .into_iter()
                .map(|term| {
                    term.match_expressions
                        .into_iter()
                        .map(requirement)
                        .collect()
                })
                .collect(),
            tolerations: self.spec.tolerations.into_iter().map(toleration).collect(),
            requests,
        };
        Ok((at.uid, needs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::types::Guarded;
    use serde_json::json;

    #[test]
    fn a_node_and_a_pod_as_servers_write_them() {
        let node = json!({
            "metadata": {"name": "n2", "uid": "u", "labels": {"zone": "a"}},
            "spec": {"unschedulable": true, "taints": [
                {"key": "gpu", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"cpu": "3920m", "memory": "8Gi", "devices.kubevirt.io/kvm": "1k", "odd": "x"}},
        });
        let room = Guarded::of::<RoomyNode>(&node).view.unwrap();
        assert!(room.ready && room.unschedulable);
        assert_eq!(room.allocatable["cpu"], 3920);
        assert_eq!(room.allocatable["memory"], 8 << 30);
        assert_eq!(room.allocatable["devices.kubevirt.io/kvm"], 1000);
        assert_eq!(room.allocatable.get("odd"), None);
        assert_eq!(
            room.taints,
            [("gpu".into(), String::new(), "NoSchedule".into())]
        );
        let pod = json!({
            "metadata": {"name": "p", "namespace": "v", "uid": "u"},
            "spec": {
                "nodeSelector": {"cpumanager": "true"},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
                "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
                "containers": [
                    {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
                    {"resources": {"requests": {"cpu": "50m"}}}, {}],
            },
        });
        let (uid, needs) = Guarded::of::<Demand>(&pod).view.unwrap();
        assert_eq!((uid.as_str(), needs.requests["cpu"]), ("u", 1050));
        assert_eq!(needs.affinity[0][0].values, ["a"]);
        assert!(needs.tolerations[0].exists && needs.tolerations[0].key.is_empty());
        let bad = json!({"metadata": {"name": "n", "uid": "u"}, "status": {"allocatable": 5}});
        assert!(Guarded::of::<RoomyNode>(&bad).view.is_err());
    }
}
