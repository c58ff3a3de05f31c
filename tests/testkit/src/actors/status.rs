//! What does a kubelet write about a pod?

use serde_json::{Value, json};

use crate::kubevirt::fields::{annotation, condition, is_true, text, uid};
use crate::kubevirt::names::knob;

/// How a pod ended, or that it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Containers {
    /// All containers run.
    Running,
    /// All containers ended with this code.
    Ended(i32),
    /// The containers ended with this code because the node goes down.
    Terminated(i32),
}

/// The status fields that the kubelet owns, as a strategic merge patch.
pub fn status(pod: &Value, containers: Containers, now: &str, host_ip: &str) -> Value {
    let alive = containers == Containers::Running;
    let ready = alive && annotation(pod, knob::READY) != Some("false");
    let gates = pod["spec"]["readinessGates"]
        .as_array()
        .is_none_or(|gates| {
            gates
                .iter()
                .all(|gate| is_true(pod, text(gate, "conditionType")))
        });
    let why = |good: bool| match (good, alive, ready) {
        (true, ..) => None,
        (false, false, _) => Some("PodCompleted"),
        (false, true, true) => Some("ReadinessGatesNotReady"),
        (false, true, false) => Some("ContainersNotReady"),
    };
    let start = match text(pod, "status.startTime") {
        "" => now,
        start => start,
    };
    let phase = match containers {
        Containers::Running => "Running",
        Containers::Ended(0) | Containers::Terminated(0) => "Succeeded",
        Containers::Ended(_) | Containers::Terminated(_) => "Failed",
    };
    let mut status = json!({
        "phase": phase, "startTime": start, "hostIP": host_ip, "podIP": address(pod), "podIPs": [{"ip": address(pod)}],
        "conditions": [
            one(pod, "Initialized", true, None, now),
            one(pod, "ContainersReady", ready, why(ready), now),
            one(pod, "Ready", ready && gates, why(ready && gates), now),
        ],
        "containerStatuses": list(pod, "containers", containers, ready, start, now),
    });
    if pod["spec"]["initContainers"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
    {
        status["initContainerStatuses"] =
            list(pod, "initContainers", containers, alive, start, now);
    }
    if matches!(containers, Containers::Terminated(_)) {
        status["phase"] = json!("Failed");
        status["reason"] = json!("Terminated");
        status["message"] = json!("Pod was terminated in response to imminent node shutdown.");
    }
    status
}

/// Whether the pod already says all that.
pub fn says(pod: &Value, status: &Value) -> bool {
    let Some(fields) = status.as_object() else {
        return true;
    };
    fields.iter().all(|(field, wanted)| match field.as_str() {
        "conditions" => wanted.as_array().into_iter().flatten().all(|one| {
            condition(pod, text(one, "type")).is_some_and(|found| {
                found["status"] == one["status"] && text(found, "reason") == text(one, "reason")
            })
        }),
        "containerStatuses" | "initContainerStatuses" => {
            same_containers(&pod["status"][field], wanted)
        }
        _ => pod["status"][field] == *wanted,
    })
}

/// Container statuses without their dates.
fn same_containers(found: &Value, wanted: &Value) -> bool {
    let essence = |list: &Value| -> Vec<(String, String, Value)> {
        let one = |status: &Value| {
            let kind = status["state"]
                .as_object()
                .and_then(|state| state.keys().next().cloned())
                .unwrap_or_default();
            (
                text(status, "name").to_owned(),
                kind,
                status["ready"].clone(),
            )
        };
        list.as_array().into_iter().flatten().map(one).collect()
    };
    essence(found) == essence(wanted)
}

fn one(pod: &Value, type_: &str, good: bool, reason: Option<&str>, now: &str) -> Value {
    let status = if good { "True" } else { "False" };
    let since = condition(pod, type_)
        .filter(|old| old["status"] == status)
        .map_or(json!(now), |old| old["lastTransitionTime"].clone());
    let mut condition = json!({"type": type_, "status": status, "lastProbeTime": null, "lastTransitionTime": since});
    match reason {
        Some(reason) => condition["reason"] = json!(reason),
        // A strategic merge keeps an old reason unless it is taken away.
        None if self::condition(pod, type_).is_some_and(|old| !text(old, "reason").is_empty()) => {
            condition["reason"] = Value::Null;
        }
        None => {}
    }
    condition
}

fn list(
    pod: &Value,
    field: &str,
    containers: Containers,
    ready: bool,
    start: &str,
    now: &str,
) -> Value {
    let state = |code: i32| {
        let reason = if code == 0 { "Completed" } else { "Error" };
        json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": start, "finishedAt": now}})
    };
    let one = |container: &Value| {
        let sidecar = field == "containers" || text(container, "restartPolicy") == "Always";
        let (state, alive) = match containers {
            Containers::Running if sidecar => (json!({"running": {"startedAt": start}}), true),
            Containers::Running => (state(0), false),
            Containers::Ended(code) | Containers::Terminated(code) => {
                (state(if sidecar { code } else { 0 }), false)
            }
        };
        json!({
            "name": container["name"], "image": container["image"], "imageID": "sha256:0", "containerID": format!("played://{}", uid(pod)),
            "ready": if sidecar { ready && alive } else { true }, "started": alive, "restartCount": 0, "state": state,
        })
    };
    Value::Array(
        pod["spec"][field]
            .as_array()
            .into_iter()
            .flatten()
            .map(one)
            .collect(),
    )
}

/// An address that stays the same for a pod.
fn address(pod: &Value) -> String {
    let number = crate::kubernetes::engine::seed_of(0, uid(pod));
    let [a, b, c, ..] = number.to_be_bytes();
    format!("10.{}.{b}.{c}", 64 + a % 64)
}
