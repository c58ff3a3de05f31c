//! NodeRestriction: which writes of a kubelet are refused although it was authorized?

use serde_json::Value;

use crate::api::call::Call;
use crate::api::failure::Failure;
use crate::api::identity::Identity;
use crate::api::store::Store;

/// Labels under the reserved domains that a kubelet may set on its own Node.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// Checks a write whose result is known: `old` is the stored object, `new` what would be stored (`None` for a delete).
pub fn check(
    identity: &Identity,
    call: &Call,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Result<(), Failure> {
    let Some(node) = identity.node() else {
        return Ok(());
    };
    let object = old.or(new);
    let name = object.map_or(call.name.as_str(), |object| shown_name(call, object));
    let refuse = |why: &str| Err(Failure::forbidden(&call.group, &call.resource, name, why));
    let own_pod = object.is_some_and(|pod| pod["spec"]["nodeName"] == node);
    match (call.resource.as_str(), call.subresource.as_str()) {
        ("nodes", "" | "status") => {
            if name != node {
                return refuse(&format!(
                    "node {node:?} is not allowed to modify node {name:?}"
                ));
            }
            own_node(node, old, new).or_else(|why| refuse(&why))
        }
        ("pods", "") if call.verb == "delete" && !own_pod => refuse(&format!(
            "node {node:?} can only delete pods with spec.nodeName set to itself"
        )),
        ("pods", "") if call.verb == "create" => mirror_pod(node, new).or_else(|why| refuse(&why)),
        ("leases", "") if call.verb == "create" && name != node => {
            refuse("can only access node lease with the same name as the requesting node")
        }
        ("pods", "status") if !own_pod => refuse(&format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        )),
        _ => Ok(()),
    }
}

/// The name of the object as a refusal shows it: for a generated name its beginning.
pub fn shown_name<'a>(call: &'a Call, object: &'a Value) -> &'a str {
    let text = |field: &str| {
        object["metadata"][field]
            .as_str()
            .filter(|text| !text.is_empty())
    };
    let named = Some(call.name.as_str()).filter(|name| !name.is_empty());
    named
        .or_else(|| text("name"))
        .or_else(|| text("generateName"))
        .unwrap_or_default()
}

/// Checks an eviction, before any webhook hears of it.
pub fn check_eviction(identity: &Identity, call: &Call, store: &Store) -> Result<(), Failure> {
    let Some(node) = identity.node() else {
        return Ok(());
    };
    let Some(pod) = store.get_shared("pods", &call.namespace, &call.name) else {
        return Err(missing_pod(&call.name));
    };
    if pod["spec"]["nodeName"] == node {
        return Ok(());
    }
    let why = format!("node {node} can only evict pods with spec.nodeName set to itself");
    Err(Failure::forbidden("", "pods", &call.name, &why))
}

/// What NodeRestriction's own look-up says of a pod that is gone: singular, unlike the registry.
fn missing_pod(name: &str) -> Failure {
    Failure::new(404, "NotFound", format!("pod {name:?} not found")).with_object("", "pod", name)
}

fn own_node(node: &str, old: Option<&Value>, new: Option<&Value>) -> Result<(), String> {
    let (Some(old), Some(new)) = (old, new) else {
        return Ok(());
    };
    if taints(old) != taints(new) {
        return Err(format!("node {node:?} is not allowed to modify taints"));
    }
    let forbidden: Vec<String> = changed_labels(old, new)
        .into_iter()
        .filter(|label| is_reserved(label))
        .collect();
    if forbidden.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "is not allowed to modify labels: {}",
            forbidden.join(", ")
        ))
    }
}

fn taints(node: &Value) -> &[Value] {
    node["spec"]["taints"].as_array().map_or(&[], Vec::as_slice)
}

fn changed_labels(old: &Value, new: &Value) -> Vec<String> {
    let (before, after) = (&old["metadata"]["labels"], &new["metadata"]["labels"]);
    let names = |labels: &Value| {
        labels
            .as_object()
            .map(|labels| labels.keys().cloned().collect::<Vec<_>>())
            .unwrap_or_default()
    };
    let mut changed: Vec<String> = names(before)
        .into_iter()
        .chain(names(after))
        .filter(|name| before[name] != after[name])
        .collect();
    changed.sort();
    changed.dedup();
    changed
}

fn is_reserved(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let within = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
    let kubelets = KUBELET_LABELS.contains(&label)
        || within("kubelet.kubernetes.io")
        || within("node.kubernetes.io");
    within("node-restriction.kubernetes.io")
        || ((within("kubernetes.io") || within("k8s.io")) && !kubelets)
}

fn mirror_pod(node: &str, new: Option<&Value>) -> Result<(), String> {
    let Some(pod) = new else { return Ok(()) };
    if pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null() {
        return Err(format!(
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
        ));
    }
    if pod["spec"]["nodeName"] != node {
        return Err(format!(
            "node {node:?} can only create pods with spec.nodeName set to itself"
        ));
    }
    Ok(())
}
