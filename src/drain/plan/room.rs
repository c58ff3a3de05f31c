//! Does any other node seem to fit? A hint, no promise: only what the API shows, not what is free there.

use crate::drain::world::Requirement;
use std::collections::{BTreeMap, BTreeSet};

/// What a launcher pod demands of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// `spec.nodeSelector`.
    pub selector: BTreeMap<String, String>,
    /// Required node affinity: one of these terms, each all of its requirements.
    pub affinity: Vec<Term>,
    /// What it tolerates.
    pub tolerations: Vec<Toleration>,
    /// Requests of all its containers: `cpu` in thousandths, everything else in units or bytes.
    pub requests: BTreeMap<String, u64>,
}

/// Requirements of which all have to hold.
pub type Term = Vec<Requirement>;

/// One entry of `spec.tolerations`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toleration {
    /// The taint's key; empty: all.
    pub key: String,
    /// `Exists` or `Equal`.
    pub exists: bool,
    /// The taint's value.
    pub value: String,
    /// The taint's effect; empty: all.
    pub effect: String,
}

/// A node, as far as it may take a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRoom {
    /// `metadata.name`.
    pub name: String,
    /// Condition `Ready`.
    pub ready: bool,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// `status.allocatable`, in the units of [`Needs::requests`].
    pub allocatable: BTreeMap<String, u64>,
    /// Taints that keep pods away, as (key, value, effect).
    pub taints: Vec<(String, String, String)>,
}

/// Why no other node seems to fit; `None`: one does.
pub fn hint(needs: &Needs, nodes: &[NodeRoom], own: &str) -> Option<String> {
    let others: Vec<&NodeRoom> = nodes.iter().filter(|node| node.name != own).collect();
    if others.is_empty() {
        return Some("there is no other node".into());
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for node in &others {
        match against(needs, node) {
            None => return None,
            Some(why) => *reasons.entry(why).or_default() += 1,
        }
    }
    let reasons: Vec<String> = reasons
        .into_iter()
        .map(|(why, count)| format!("{count} of {} {why}", others.len()))
        .collect();
    Some(format!(
        "no other node seems to fit: {}",
        reasons.join("; ")
    ))
}

/// What speaks against a node, the most lasting reason first.
fn against(needs: &Needs, node: &NodeRoom) -> Option<String> {
    let lacks = needs
        .selector
        .iter()
        .find(|(key, value)| node.labels.get(*key) != Some(value));
    if let Some((key, value)) = lacks {
        return Some(missing_label(key, value));
    }
    let terms: BTreeSet<bool> = needs
        .affinity
        .iter()
        .map(|term| term.iter().all(|r| fits(r, &node.labels)))
        .collect();
    if !terms.is_empty() && !terms.contains(&true) {
        return Some("do not match its node affinity".into());
    }
    let short = needs
        .requests
        .iter()
        .find(|(what, amount)| node.allocatable.get(*what).copied().unwrap_or(0) < **amount);
    if let Some((what, _)) = short {
        return Some(too_small(what));
    }
    if !node.ready {
        return Some("are not Ready".into());
    }
    if node.unschedulable {
        return Some("are cordoned".into());
    }
    let taint = node
        .taints
        .iter()
        .find(|taint| !tolerated(taint, &needs.tolerations));
    taint.map(|(key, _, _)| format!("have the taint {key}"))
}

/// A label of KubeVirt's says what it stands for.
fn missing_label(key: &str, value: &str) -> String {
    // The second one since KubeVirt 1.8.
    if matches!(key, "cpumanager" | "kubevirt.io/cpumanager") {
        return format!("offer no dedicated CPUs (label {key}=true)");
    }
    if key == "kubevirt.io/schedulable" {
        return "have no virt-handler that is ready".into();
    }
    for (prefix, what) in [
        ("cpu-model.node.kubevirt.io/", "CPU model"),
        ("cpu-model-migration.node.kubevirt.io/", "CPU model"),
        ("host-model-cpu.node.kubevirt.io/", "CPU model"),
        ("cpu-feature.node.kubevirt.io/", "CPU feature"),
        ("cpu-vendor.node.kubevirt.io/", "CPU vendor"),
        ("machine-type.node.kubevirt.io/", "machine type"),
    ] {
        if let Some(name) = key.strip_prefix(prefix) {
            return format!("do not offer the {what} {name}");
        }
    }
    format!("do not have the label {key}={value}")
}

fn too_small(what: &str) -> String {
    match what {
        "cpu" => "have too few CPUs".into(),
        "memory" => "have too little memory".into(),
        what if what.starts_with("hugepages-") => format!("have too few {what}"),
        what => format!("have no {what} for it"),
    }
}

/// One requirement of a node affinity.
fn fits(requirement: &Requirement, labels: &BTreeMap<String, String>) -> bool {
    let has = labels.get(&requirement.key);
    let number = |text: &String| text.parse::<i64>().ok();
    let compare = |less: bool| {
        let (Some(is), Some(bound)) = (
            has.and_then(number),
            requirement.values.first().and_then(number),
        ) else {
            return false;
        };
        if less { is < bound } else { is > bound }
    };
    match requirement.operator.as_str() {
        "In" => has.is_some_and(|value| requirement.values.contains(value)),
        "NotIn" => has.is_none_or(|value| !requirement.values.contains(value)),
        "Exists" => has.is_some(),
        "DoesNotExist" => has.is_none(),
        "Gt" => compare(false),
        "Lt" => compare(true),
        // An operator that we do not know is no reason to warn.
        _ => true,
    }
}

fn tolerated((key, value, effect): &(String, String, String), tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|t| {
        (t.key.is_empty() && t.exists || t.key == *key)
            && (t.exists || t.value == *value)
            && (t.effect.is_empty() || t.effect == *effect)
    })
}
