//! Which pods come back after they are gone? Stand-ins for ReplicaSet, StatefulSet, DaemonSet and Job, told by one annotation.

use serde_json::{Value, json};

use super::engine::{Controller, Key, Queue, Unavailable};
use crate::api::{Change, ChangeKind, Store};
use crate::kubevirt::fields::{
    annotation, deleting, ended, is_launcher, name, namespace, owned_by, text, uid,
};
use crate::kubevirt::names::{kind, knob};

/// The workload controllers.
#[derive(Debug)]
pub struct Workloads;

impl Controller for Workloads {
    fn name(&self) -> &'static str {
        "workloads"
    }

    fn changed(&mut self, store: &Store, change: &Change, _queue: &mut Queue) {
        if change.resource != kind::PODS {
            return;
        }
        if change.kind == ChangeKind::Deleted || ended(&change.object) {
            drop_attachments(store, &change.object);
        }
        if change.kind == ChangeKind::Deleted
            && let Some(again) = successor(&change.object)
        {
            // A name that is taken again in the meantime is somebody else's pod.
            let _ = store.create(kind::PODS, again);
        }
    }

    fn reconcile(
        &mut self,
        _store: &Store,
        _key: &Key,
        _queue: &mut Queue,
    ) -> Result<(), Unavailable> {
        Ok(())
    }
}

/// Attachment pods follow their launcher pod.
fn drop_attachments(store: &Store, pod: &Value) {
    if !is_launcher(pod) {
        return;
    }
    for other in store
        .list_shared(kind::PODS)
        .iter()
        .filter(|other| owned_by(other, uid(pod)) && !deleting(other))
    {
        store.delete(kind::PODS, namespace(other), name(other));
    }
}

/// The pod that follows one that is gone.
fn successor(pod: &Value) -> Option<Value> {
    let how = annotation(pod, knob::RECREATED).unwrap_or("never");
    let mut again = json!({
        "metadata": {
            "namespace": pod["metadata"]["namespace"], "labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"],
            "ownerReferences": pod["metadata"]["ownerReferences"],
        },
        "spec": pod["spec"],
        "status": {"phase": "Pending"},
    });
    let node = text(pod, "spec.nodeName").to_owned();
    crate::kubevirt::fields::remove(&mut again["spec"], "nodeName");
    match how.split_once(':') {
        Some(("same_name", "pending")) => {
            again["metadata"]["name"] = json!(name(pod));
            again["spec"]["nodeSelector"] = json!({"sim.vmdrain.io/nowhere": "true"});
        }
        Some(("same_name", place)) => {
            again["metadata"]["name"] = json!(name(pod));
            if place != "any" {
                again["spec"]["nodeName"] = json!(place);
            }
        }
        _ if how == "elsewhere" => again["metadata"]["generateName"] = json!(stem(name(pod))),
        _ if how == "here" => {
            again["metadata"]["generateName"] = json!(stem(name(pod)));
            again["spec"]["nodeName"] = json!(node);
        }
        _ => return None,
    }
    Some(again)
}

/// `web-7xk2p` → `web-`.
fn stem(name: &str) -> String {
    match name.rsplit_once('-') {
        Some((stem, _)) => format!("{stem}-"),
        None => format!("{name}-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(recreated: &str) -> Value {
        json!({"metadata": {"name": "web-0", "namespace": "d", "annotations": {knob::RECREATED: recreated}}, "spec": {"nodeName": "n1"}})
    }

    #[test]
    fn where_a_pod_comes_back() {
        assert_eq!(successor(&gone("never")), None);
        let elsewhere = successor(&gone("elsewhere")).unwrap();
        assert_eq!(
            (
                text(&elsewhere, "metadata.generateName"),
                text(&elsewhere, "spec.nodeName")
            ),
            ("web-", "")
        );
        let same = successor(&gone("same_name:n2")).unwrap();
        assert_eq!((name(&same), text(&same, "spec.nodeName")), ("web-0", "n2"));
        let pending = successor(&gone("same_name:pending")).unwrap();
        assert_eq!(
            (name(&pending), text(&pending, "spec.nodeName")),
            ("web-0", "")
        );
        assert_eq!(
            text(&successor(&gone("here")).unwrap(), "spec.nodeName"),
            "n1"
        );
    }
}
