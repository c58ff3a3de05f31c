//! Who owns the ordinary pods of a story on a real control plane? Real ReplicaSets, StatefulSets and DaemonSets, which are made
//! after the pods and adopt them: so the pods have the names that the story gives them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::setup::pod_object;
use crate::api::Store;
use crate::world::PodSpec;

/// Kinds of owners that there are.
pub(super) const MADE: [&str; 3] = ["ReplicaSet", "StatefulSet", "DaemonSet"];

/// The label by which an owner finds its pods.
const OF: &str = "sim.vmdrain.io/owner";

/// `Kind`, name of the owner.
fn owner(pod: &PodSpec) -> Option<(&str, &str)> {
    pod.owner.split_once('/')
}

/// A pod as it is made, before anybody owns it: an owner that is made up would be found out by the garbage collector.
pub(in super::super) fn orphan(store: &Store, pod: &PodSpec) -> Value {
    let mut object = pod_object(store, pod);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
    }
    if let Some((kind, name)) = owner(pod) {
        object["metadata"]["labels"][OF] = json!(format!("{kind}.{name}"));
    }
    object
}

/// The owners of all pods. Every pod of one is like the first.
pub(super) fn owners(store: &Store, pods: &[PodSpec]) -> Vec<Value> {
    let mut all: BTreeMap<(&str, &str, &str), Vec<&PodSpec>> = BTreeMap::new();
    for pod in pods {
        if let Some((kind, name)) = owner(pod) {
            let key = (kind, pod.namespace.as_str(), name);
            all.entry(key).or_default().push(pod);
        }
    }
    all.into_iter()
        .filter_map(|((kind, space, name), pods)| {
            let mut template = orphan(store, pods.first()?);
            let labels = template["metadata"]["labels"].take();
            let annotations = template["metadata"]["annotations"].take();
            let mut spec = template["spec"].take();
            spec.as_object_mut()?.remove("nodeName");
            let mut object = json!({
                "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": space},
                "spec": {
                    "selector": {"matchLabels": {OF: format!("{kind}.{name}")}},
                    "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
                },
            });
            if kind != "DaemonSet" {
                object["spec"]["replicas"] = json!(pods.len());
            }
            if kind != "ReplicaSet" {
                // Pods that it has adopted are of no revision of its own, and are not to be replaced for that.
                object["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
            }
            if kind == "StatefulSet" {
                object["spec"]["serviceName"] = json!(name);
                object["spec"]["podManagementPolicy"] = json!("Parallel");
            }
            Some(object)
        })
        .collect()
}
