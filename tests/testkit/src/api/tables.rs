//! How does `kubectl get` show a kind? The columns that the server computes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::Kind;

/// One column: its name, whether it is shown only with `-o wide`, and how its cell is found.
struct Column {
    name: &'static str,
    wide: bool,
    cell: fn(&Value, Timestamp) -> Value,
}

/// A Table of objects; each row carries the metadata of its object.
pub fn table(kind: &Kind, objects: &[&Value], metadata: &Value, now: Timestamp) -> Value {
    let columns = columns(kind);
    let definitions: Vec<Value> = columns
        .iter()
        .map(|column| {
            let format = if column.name == "Name" { "name" } else { "" };
            let type_ = match (kind.is_kubevirt(), column.name) {
                (true, "Age") => "date",
                (_, "Allowed Disruptions") => "integer",
                _ => "string",
            };
            json!({"name": column.name, "type": type_, "format": format, "description": "", "priority": i32::from(column.wide)})
        })
        .collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells: Vec<Value> = columns.iter().map(|column| (column.cell)(object, now)).collect();
            let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]});
            json!({"cells": cells, "object": partial})
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions, "rows": rows})
}

macro_rules! columns {
    ($($name:literal $(($wide:ident))? => $cell:expr),* $(,)?) => {
        vec![$(Column { name: $name, wide: columns!(@wide $($wide)?), cell: $cell }),*]
    };
    (@wide) => { false };
    (@wide wide) => { true };
}

fn columns(kind: &Kind) -> Vec<Column> {
    match kind.plural {
        "pods" => columns![
            "Name" => name, "Ready" => ready_containers, "Status" => pod_status, "Restarts" => |_, _| json!("0"), "Age" => age,
            "IP"(wide) => |object, _| or_none(object, "/status/podIP"), "Node"(wide) => |object, _| or_none(object, "/spec/nodeName"),
            "Nominated Node"(wide) => |object, _| or_none(object, "/status/nominatedNodeName"), "Readiness Gates"(wide) => gates,
        ],
        "nodes" => columns![
            "Name" => name, "Status" => node_status, "Roles" => roles, "Age" => age,
            "Version" => |object, _| text(object, "/status/nodeInfo/kubeletVersion"),
        ],
        "namespaces" => {
            columns!["Name" => name, "Status" => |object, _| text(object, "/status/phase"), "Age" => age]
        }
        "events" => columns![
            "Last Seen" => |object, now| json!(ago(&object["lastTimestamp"], now)), "Type" => |object, _| text(object, "/type"),
            "Reason" => |object, _| text(object, "/reason"), "Object" => involved, "Message" => |object, _| text(object, "/message"),
            "Name"(wide) => name,
        ],
        "poddisruptionbudgets" => columns![
            "Name" => name, "Min Available" => |object, _| plain(object, "/spec/minAvailable", "N/A"),
            "Max Unavailable" => |object, _| plain(object, "/spec/maxUnavailable", "N/A"),
            "Allowed Disruptions" => |object, _| object["status"]["disruptionsAllowed"].clone(), "Age" => age,
        ],
        "leases" => {
            columns!["Name" => name, "Holder" => |object, _| text(object, "/spec/holderIdentity"), "Age" => age]
        }
        "replicasets"
        | "statefulsets"
        | "virtualmachineinstancereplicasets"
        | "virtualmachinepools" => columns![
            "Name" => name, "Desired" => |object, _| plain(object, "/spec/replicas", "1"),
            "Ready" => |object, _| plain(object, "/status/readyReplicas", "0"), "Age" => age,
        ],
        "virtualmachineinstances" => columns![
            "Name" => name, "Age" => age, "Phase" => |object, _| text(object, "/status/phase"),
            "IP" => |object, _| object.pointer("/status/interfaces/0/ipAddress").cloned().unwrap_or_default(),
            "NodeName" => |object, _| object.pointer("/status/nodeName").cloned().unwrap_or_default(),
            "Ready" => |object, _| known(object, "Ready"), "Live-Migratable"(wide) => |object, _| known(object, "LiveMigratable"),
            "Paused"(wide) => |object, _| known(object, "Paused"),
        ],
        "virtualmachineinstancemigrations" => columns![
            "Name" => name, "Phase" => |object, _| text(object, "/status/phase"), "VMI" => |object, _| text(object, "/spec/vmiName"),
        ],
        "virtualmachines" => columns![
            "Name" => name, "Age" => age, "Status" => |object, _| text(object, "/status/printableStatus"),
            "Ready" => |object, _| condition(object, "Ready"),
        ],
        "kubevirts" => {
            columns!["Name" => name, "Age" => age, "Phase" => |object, _| text(object, "/status/phase")]
        }
        _ => columns!["Name" => name, "Age" => age],
    }
}

fn name(object: &Value, _: Timestamp) -> Value {
    object["metadata"]["name"].clone()
}

fn age(object: &Value, now: Timestamp) -> Value {
    json!(ago(&object["metadata"]["creationTimestamp"], now))
}

/// `12s`, `4m10s`, `3h`, `2d`: short, as kubectl shows ages.
fn ago(stamp: &Value, now: Timestamp) -> String {
    let Some(then) = stamp
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok())
    else {
        return "<unknown>".to_owned();
    };
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 > 0 => format!("{}m{}s", seconds / 60, seconds % 60),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn text(object: &Value, path: &str) -> Value {
    json!(
        object
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    )
}

fn plain(object: &Value, path: &str, missing: &str) -> Value {
    match object.pointer(path) {
        None | Some(Value::Null) => json!(missing),
        Some(Value::String(text)) => json!(text),
        Some(other) => json!(other.to_string()),
    }
}

fn condition(object: &Value, type_: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == type_);
    found.map_or(json!(""), |condition| condition["status"].clone())
}

/// The status of a condition, null when there is none: how additional columns of custom resources show it.
fn known(object: &Value, type_: &str) -> Value {
    let status = condition(object, type_);
    if status == "" { Value::Null } else { status }
}

fn or_none(object: &Value, path: &str) -> Value {
    plain(object, path, "<none>")
}

/// Open readiness gates out of all.
fn gates(pod: &Value, _: Timestamp) -> Value {
    let gates = pod["spec"]["readinessGates"].as_array();
    let open = |gate: &&Value| {
        condition(pod, gate["conditionType"].as_str().unwrap_or_default()) == "True"
    };
    match gates {
        Some(gates) if !gates.is_empty() => json!(format!(
            "{}/{}",
            gates.iter().filter(open).count(),
            gates.len()
        )),
        _ => json!("<none>"),
    }
}

fn ready_containers(pod: &Value, _: Timestamp) -> Value {
    let all = |list: &'static str| pod["spec"][list].as_array().into_iter().flatten();
    let sidecars = all("initContainers").filter(|container| container["restartPolicy"] == "Always");
    let total = all("containers").count() + sidecars.count();
    let statuses = ["containerStatuses", "initContainerStatuses"]
        .into_iter()
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    let ready = statuses
        .filter(|status| status["ready"] == json!(true))
        .count();
    json!(format!("{ready}/{total}"))
}

fn pod_status(pod: &Value, _: Timestamp) -> Value {
    let phase = pod["status"]["phase"].as_str().unwrap_or("Unknown");
    let status = match phase {
        "Succeeded" => "Completed",
        "Failed" => "Error",
        _ if !pod["metadata"]["deletionTimestamp"].is_null() => "Terminating",
        other => other,
    };
    json!(status)
}

fn node_status(node: &Value, _: Timestamp) -> Value {
    let ready = if condition(node, "Ready") == "True" {
        "Ready"
    } else {
        "NotReady"
    };
    let cordoned = if node["spec"]["unschedulable"] == json!(true) {
        ",SchedulingDisabled"
    } else {
        ""
    };
    json!(format!("{ready}{cordoned}"))
}

fn roles(node: &Value, _: Timestamp) -> Value {
    let labels = node["metadata"]["labels"].as_object();
    let roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(label, _)| label.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    json!(if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    })
}

fn involved(event: &Value, _: Timestamp) -> Value {
    let object = &event["involvedObject"];
    let kind = object["kind"]
        .as_str()
        .unwrap_or_default()
        .to_ascii_lowercase();
    json!(format!(
        "{kind}/{}",
        object["name"].as_str().unwrap_or_default()
    ))
}
