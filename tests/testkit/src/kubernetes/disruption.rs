//! How many pods may a disruption budget lose (control-plane.md 6.c)?

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::engine::{Controller, Key, Queue, Unavailable};
use super::selector::selects;
use crate::api::{Change, Store};
use crate::kubevirt::fields::{at, deleting, has, is_true, name, namespace, owner, set_condition};
use crate::kubevirt::names::kind;

const PDB: &str = "pdb";
/// An evicted pod that is not deleted after so many seconds counts again.
const DISRUPTED_FOR: i64 = 120;

/// The disruption controller.
#[derive(Debug)]
pub struct Disruption;

/// Expected and desired pods, or why they cannot be counted.
type Counts = Result<(u64, u64), String>;

impl Disruption {
    fn sync(store: &Store, pdb: &Value) {
        let mut pods = store.list_shared(kind::PODS);
        pods.retain(|pod| {
            namespace(pod) == namespace(pdb)
                && selects(&pdb["spec"]["selector"], &pod["metadata"]["labels"])
        });
        if pods.is_empty() {
            store.record_event(pdb, "Normal", "NoPods", "No matching pods found");
        }
        match counts(store, pdb, &pods) {
            Ok(counts) => succeed(store, pdb, &pods, counts),
            Err(why) => fail(store, pdb, &why),
        }
    }
}

/// Only an absolute `minAvailable` is counted from the pods; everything else needs the scale of their controllers.
fn counts(store: &Store, pdb: &Value, pods: &[Arc<Value>]) -> Counts {
    if let Some(least) = pdb["spec"]["minAvailable"].as_u64() {
        return Ok((pods.len() as u64, least));
    }
    let expected = scale(store, pods)?;
    if has(pdb, "spec.maxUnavailable") {
        return Ok((
            expected,
            expected.saturating_sub(share(&pdb["spec"]["maxUnavailable"], expected)),
        ));
    }
    Ok((expected, share(&pdb["spec"]["minAvailable"], expected)))
}

/// A number, or a percentage rounded up.
fn share(value: &Value, of: u64) -> u64 {
    match value
        .as_str()
        .and_then(|text| text.strip_suffix('%'))
        .and_then(|text| text.parse::<u64>().ok())
    {
        Some(percent) => (of * percent).div_ceil(100),
        None => value.as_u64().unwrap_or(0),
    }
}

fn scale(store: &Store, pods: &[Arc<Value>]) -> Result<u64, String> {
    let mut controllers: Vec<(String, u64)> = Vec::new();
    for pod in pods {
        let Some((kind, owner, uid)) = owner(pod) else {
            return Err(format!("found no controller ref for pod {:?}", name(pod)));
        };
        if controllers.iter().any(|(known, _)| known == uid) {
            continue;
        }
        let plural =
            match kind {
                "ReplicaSet" => "replicasets",
                "StatefulSet" => "statefulsets",
                "Deployment" => "deployments",
                "ReplicationController" => "replicationcontrollers",
                "VirtualMachineInstance" => return Err(
                    "virtualmachineinstances.kubevirt.io does not implement the scale subresource"
                        .to_owned(),
                ),
                other => {
                    return Err(format!(
                        "{}s does not implement the scale subresource",
                        other.to_lowercase()
                    ));
                }
            };
        let replicas = store
            .get_shared(plural, namespace(pod), owner)
            .and_then(|found| at(&found, "spec.replicas").and_then(Value::as_u64));
        // A stand-in owner that was not created as an object counts by its pods.
        let counted = replicas.unwrap_or_else(|| {
            pods.iter()
                .filter(|other| crate::kubevirt::fields::owned_by(other, uid))
                .count() as u64
        });
        controllers.push((uid.to_owned(), counted));
    }
    Ok(controllers.iter().map(|(_, count)| count).sum())
}

fn succeed(store: &Store, pdb: &Value, pods: &[Arc<Value>], (expected, desired): (u64, u64)) {
    let now = store.stamp();
    let disrupted = still_disrupted(store, pdb, pods);
    let healthy = pods
        .iter()
        .filter(|pod| !deleting(pod) && is_true(pod, "Ready") && !disrupted.contains_key(name(pod)))
        .count() as u64;
    let allowed = if expected == 0 {
        0
    } else {
        healthy.saturating_sub(desired)
    };
    store.update(kind::PDBS, namespace(pdb), name(pdb), |pdb| {
        let generation = pdb["metadata"]["generation"].clone();
        let status = &mut pdb["status"];
        status["expectedPods"] = json!(expected);
        status["currentHealthy"] = json!(healthy);
        status["desiredHealthy"] = json!(desired);
        status["disruptionsAllowed"] = json!(allowed);
        status["observedGeneration"] = generation;
        if disrupted.is_empty() {
            crate::kubevirt::fields::remove(status, "disruptedPods");
        } else {
            status["disruptedPods"] = Value::Object(disrupted);
        }
        let (value, reason) = if allowed > 0 {
            ("True", "SufficientPods")
        } else {
            ("False", "InsufficientPods")
        };
        set_condition(pdb, "DisruptionAllowed", value, reason, "", &now);
    });
}

/// Pods whose eviction was granted a moment ago and whose deletion has not been seen.
fn still_disrupted(store: &Store, pdb: &Value, pods: &[Arc<Value>]) -> Map<String, Value> {
    let now = store.clock().now();
    let all = pdb["status"]["disruptedPods"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    all.into_iter()
        .filter(|(pod, since)| {
            let fresh = since
                .as_str()
                .and_then(|text| text.parse::<jiff::Timestamp>().ok())
                .is_some_and(|at| now.duration_since(at).as_secs() < DISRUPTED_FOR);
            fresh
                && pods
                    .iter()
                    .any(|found| name(found) == pod && !deleting(found))
        })
        .collect()
}

/// Nothing may be disrupted, and `observedGeneration` stays what it was: absent for a budget that never worked.
fn fail(store: &Store, pdb: &Value, why: &str) {
    let now = store.stamp();
    store.record_event(
        pdb,
        "Warning",
        "CalculateExpectedPodCountFailed",
        &format!("Failed to calculate the number of expected pods: {why}"),
    );
    store.update(kind::PDBS, namespace(pdb), name(pdb), |pdb| {
        let status = &mut pdb["status"];
        for field in ["expectedPods", "currentHealthy", "desiredHealthy"] {
            if status[field].is_null() {
                status[field] = json!(0);
            }
        }
        status["disruptionsAllowed"] = json!(0);
        set_condition(pdb, "DisruptionAllowed", "False", "SyncFailed", why, &now);
        for condition in pdb["status"]["conditions"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            // Conditions of the disruption controller have no probe time.
            condition
                .as_object_mut()
                .map(|fields| fields.remove("lastProbeTime"));
        }
    });
}

impl Controller for Disruption {
    fn name(&self) -> &'static str {
        "disruption"
    }

    fn changed(&mut self, store: &Store, change: &Change, queue: &mut Queue) {
        match change.resource.as_str() {
            kind::PDBS => queue.soon(Key::of(PDB, &change.object)),
            kind::PODS => {
                for pdb in store.list_shared(kind::PDBS) {
                    if namespace(&pdb) == namespace(&change.object)
                        && selects(
                            &pdb["spec"]["selector"],
                            &change.object["metadata"]["labels"],
                        )
                    {
                        queue.soon(Key::of(PDB, &pdb));
                    }
                }
            }
            _ => {}
        }
    }

    fn reconcile(
        &mut self,
        store: &Store,
        key: &Key,
        queue: &mut Queue,
    ) -> Result<(), Unavailable> {
        let Some(pdb) = store
            .get_shared(kind::PDBS, &key.namespace, &key.name)
            .filter(|pdb| !deleting(pdb))
        else {
            return Ok(());
        };
        Self::sync(store, &pdb);
        if pdb["status"]["disruptedPods"]
            .as_object()
            .is_some_and(|all| !all.is_empty())
        {
            queue.after(
                key.clone(),
                std::time::Duration::from_secs(DISRUPTED_FOR.unsigned_abs()),
            );
        }
        Ok(())
    }
}
