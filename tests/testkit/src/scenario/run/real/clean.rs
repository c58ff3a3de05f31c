//! Takes a story's objects out of a real cluster: everything that the next one could stumble over.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::super::cluster::inventory;
use super::setup::{ROLE, namespaces};
use super::{mend, this_machine};
use crate::plane::{Caller, ControlPlane};
use crate::scenario::Scenario;

/// Everything is gone after so much real time, or never.
const GONE: Duration = Duration::from_secs(120);

/// What stories make, in the order in which it is deleted: whoever makes others first.
const KINDS: [&str; 10] = [
    "/apis/kubevirt.io/v1/virtualmachines",
    "/apis/kubevirt.io/v1/virtualmachineinstances",
    "/apis/kubevirt.io/v1/virtualmachineinstancemigrations",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/daemonsets",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/api/v1/pods",
    "/apis/policy/v1/poddisruptionbudgets",
    "/api/v1/nodes",
];

/// Rounds in which objects may go in order before their finalizers are taken away.
const PATIENT: usize = 10;

pub(super) async fn clean(plane: &ControlPlane, scenario: &Scenario) -> anyhow::Result<()> {
    // Writes to VMIs need virt-api.
    mend(plane).await?;
    let admin = plane.admin();
    let rounds = async {
        let mut round = 0;
        while sweep(admin, round >= PATIENT).await? > 0 {
            round += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok::<(), anyhow::Error>(())
    };
    tokio::time::timeout(GONE, rounds)
        .await
        .context("something is still there after two minutes")??;
    let wanted = inventory(scenario, &this_machine(), 1.0);
    let events = namespaces(&wanted)
        .into_iter()
        .map(|space| format!("/api/v1/namespaces/{space}/events"));
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases".to_owned();
    let all = events.chain([
        leases,
        format!("{rbac}/clusterroles/{ROLE}"),
        format!("{rbac}/clusterrolebindings/{ROLE}"),
    ]);
    for path in all {
        let reply = admin.ask("DELETE", &path, &Value::Null).await?;
        let gone = reply.is_success() || reply.status == 404;
        anyhow::ensure!(gone, "DELETE {path}: {} {}", reply.status, reply.text);
    }
    Ok(())
}

/// Asks everything to go; returns how much is still there.
async fn sweep(admin: &Caller, by_force: bool) -> anyhow::Result<usize> {
    let mut left = 0;
    for kind in KINDS {
        let list = admin.done("GET", kind, &Value::Null).await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        // One kind after the other: nodes stay until their pods are gone.
        if kind.ends_with("/nodes") && left > 0 {
            return Ok(left);
        }
        left += items.len();
        join_all(
            items
                .iter()
                .map(|object| remove(admin, kind, object, by_force)),
        )
        .await;
    }
    Ok(left)
}

/// What fails here is tried again in the next round.
async fn remove(admin: &Caller, kind: &str, object: &Value, by_force: bool) {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let path = match (metadata["namespace"].as_str(), kind.rsplit_once('/')) {
        (Some(space), Some((root, plural))) => format!("{root}/namespaces/{space}/{plural}/{name}"),
        _ => format!("{kind}/{name}"),
    };
    let is_pod = kind.ends_with("/pods");
    if is_pod || metadata["deletionTimestamp"].is_null() {
        let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        let _ = admin.ask("DELETE", &path, &now).await;
    }
    if by_force && metadata["finalizers"].is_array() {
        let free = json!({"metadata": {"finalizers": null}});
        let _ = admin.ask("PATCH", &path, &free).await;
    }
}
