//! The Node authorizer: what a kubelet may ask for at all.

use serde_json::Value;

use crate::api::call::Call;
use crate::api::store::Store;

/// What the authorizer says; no opinion means that RBAC decides, and its refusal shows this reason.
pub(super) enum Opinion {
    Allow,
    None(String),
}

/// Judges a request of the kubelet of `node`.
pub(super) fn authorize(node: &str, call: &Call, store: &Store) -> Opinion {
    let verb = call.verb.as_str();
    match (call.group.as_str(), call.rbac_resource().as_str()) {
        ("", "nodes") => nodes(node, call),
        ("", "nodes/status" | "pods/status") => allow_if(matches!(verb, "update" | "patch")),
        ("", "pods") => pods(node, call, store),
        ("", "pods/eviction") => allow_if(verb == "create"),
        ("", "services") => allow_if(matches!(verb, "get" | "list" | "watch")),
        ("", "events") => allow_if(matches!(verb, "create" | "update" | "patch")),
        ("coordination.k8s.io", "leases") => leases(node, call),
        ("storage.k8s.io", "volumeattachments") => volume_attachments(node, call, store),
        ("storage.k8s.io", "csinodes") if call.name == node && !reads_many(verb) => Opinion::Allow,
        ("storage.k8s.io", "csinodes") => Opinion::None(
            "can only access CSINode with the same name as the requesting node".to_owned(),
        ),
        ("", "secrets" | "configmaps") if reads_many(verb) && call.name.is_empty() => {
            Opinion::None("No Object name found".to_owned())
        }
        ("", "secrets" | "configmaps" | "persistentvolumeclaims" | "persistentvolumes") => {
            unrelated(node)
        }
        _ => Opinion::None(String::new()),
    }
}

/// Whether a verb reads more than one object.
fn reads_many(verb: &str) -> bool {
    matches!(verb, "list" | "watch")
}

fn allow_if(allowed: bool) -> Opinion {
    if allowed {
        Opinion::Allow
    } else {
        Opinion::None(String::new())
    }
}

fn nodes(node: &str, call: &Call) -> Opinion {
    match call.verb.as_str() {
        "get" | "list" | "watch" if call.name == node => Opinion::Allow,
        "get" | "list" | "watch" if call.name.is_empty() => Opinion::None(format!(
            "node '{node}' cannot read all nodes, only its own Node object"
        )),
        "get" | "list" | "watch" => Opinion::None(format!(
            "node '{node}' cannot read '{}', only its own Node object",
            call.name
        )),
        // Which Node is written is NodeRestriction's question.
        verb => allow_if(matches!(verb, "create" | "update" | "patch")),
    }
}

fn pods(node: &str, call: &Call, store: &Store) -> Opinion {
    match call.verb.as_str() {
        "list" | "watch" if selects_node(call, node) => Opinion::Allow,
        "list" | "watch" => {
            Opinion::None("can only list/watch pods with spec.nodeName field selector".to_owned())
        }
        "get" => match store.get_shared("pods", &call.namespace, &call.name) {
            Some(pod) if pod["spec"]["nodeName"] == node => Opinion::Allow,
            // A pod that does not exist is refused with the same words: never 404.
            _ => unrelated(node),
        },
        verb => allow_if(matches!(verb, "create" | "delete")),
    }
}

fn selects_node(call: &Call, node: &str) -> bool {
    let wanted = call
        .param("fieldSelector")
        .split(',')
        .filter_map(|term| term.trim().strip_prefix("spec.nodeName="));
    wanted
        .map(|value| value.trim_start_matches('='))
        .any(|value| value == node)
}

fn leases(node: &str, call: &Call) -> Opinion {
    let reason = match call.verb.as_str() {
        "get" | "create" | "update" | "patch" | "delete" => {
            if call.namespace != "kube-node-lease" {
                "can only access leases in the \"kube-node-lease\" system namespace"
            } else if call.verb != "create" && call.name != node {
                "can only access node lease with the same name as the requesting node"
            } else {
                return Opinion::Allow;
            }
        }
        _ => "can only get, create, update, patch, or delete a node lease",
    };
    Opinion::None(reason.to_owned())
}

fn volume_attachments(node: &str, call: &Call, store: &Store) -> Opinion {
    let own = |attachment: &Value| attachment["spec"]["nodeName"] == node;
    match call.verb.as_str() {
        "get"
            if store
                .get_shared("volumeattachments", "", &call.name)
                .is_some_and(|attachment| own(&attachment)) =>
        {
            Opinion::Allow
        }
        "get" => unrelated(node),
        _ => Opinion::None("can only get individual resources of this type".to_owned()),
    }
}

fn unrelated(node: &str) -> Opinion {
    Opinion::None(format!(
        "no relationship found between node '{node}' and this object"
    ))
}
