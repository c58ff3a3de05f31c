//! What does a delete do: remove, wait for finalizers, or give a pod its grace period?
//!
//! As in the real registry: a pod that is bound, alive and has a grace period only gets `deletionTimestamp`, the kubelet removes it
//! with a second delete of grace 0. That second delete is a MODIFIED (grace 0) and then a DELETED.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::state::State;
use super::{Store, timestamp};

/// Grace period of a pod that does not name one, seconds.
const DEFAULT_GRACE: i64 = 30;

impl Store {
    /// Deletes an object with its own grace period; returns the object after it, `None` when there is none.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.delete_with_grace(resource, namespace, name, None)
    }

    /// Deletes an object; `grace` (seconds) replaces a pod's own grace period.
    ///
    /// Finalizers are honoured: the object stays, with a `deletionTimestamp`, until the last is taken off. A second delete of a
    /// terminating pod can only shorten its time.
    pub fn delete_with_grace(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        grace: Option<i64>,
    ) -> Option<Value> {
        let now = self.clock().now();
        let mut state = self.lock();
        let before = state.get(resource, namespace, name)?;
        let after = match resource {
            "pods" => delete_pod(&mut state, &before, grace, now),
            "namespaces" => delete_namespace(&mut state, &before, now),
            _ => delete_plain(&mut state, resource, &before, now),
        };
        self.publish(&state);
        Some((*after).clone())
    }

    /// Removes an object whatever its finalizers and grace period say (one DELETED event).
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let mut state = self.lock();
        let before = state.get(resource, namespace, name)?;
        let after = state.remove(resource, &before, (*before).clone());
        self.publish(&state);
        Some((*after).clone())
    }
}

fn delete_plain(
    state: &mut State,
    resource: &str,
    before: &Arc<Value>,
    now: Timestamp,
) -> Arc<Value> {
    if !has_finalizers(before) {
        return state.remove(resource, before, (**before).clone());
    }
    if !before["metadata"]["deletionTimestamp"].is_null() {
        return before.clone();
    }
    let mut object = (**before).clone();
    mark(&mut object, now, 0);
    state.write(resource, before, object)
}

fn delete_namespace(state: &mut State, before: &Arc<Value>, now: Timestamp) -> Arc<Value> {
    let mut object = (**before).clone();
    if object["metadata"]["deletionTimestamp"].is_null() {
        object["metadata"]["deletionTimestamp"] = json!(timestamp(now));
    }
    object["status"]["phase"] = json!("Terminating");
    state.write("namespaces", before, object)
}

fn delete_pod(
    state: &mut State,
    before: &Arc<Value>,
    grace: Option<i64>,
    now: Timestamp,
) -> Arc<Value> {
    let wanted = effective_grace(before, grace);
    let mut object = (**before).clone();
    if before["metadata"]["deletionTimestamp"].is_null() {
        mark(&mut object, now, wanted);
    } else {
        let current = before["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(0);
        // Without an explicit shorter period a second delete changes nothing.
        if grace.is_none() || wanted >= current && wanted > 0 {
            return before.clone();
        }
        shorten(&mut object, current, wanted);
    }
    if wanted > 0 || has_finalizers(before) {
        return state.write("pods", before, object);
    }
    // Shown with grace 0 first, then removed: two events.
    let shown = state.show(before, object);
    state.remove("pods", &shown, (*shown).clone())
}

/// Only a bound pod that has not ended has something to wind down.
fn effective_grace(pod: &Value, grace: Option<i64>) -> i64 {
    let bound = pod["spec"]["nodeName"]
        .as_str()
        .is_some_and(|node| !node.is_empty());
    let ended = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    if !bound || ended {
        return 0;
    }
    // A negative period means one second, as in the real server.
    let wanted = grace
        .or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(DEFAULT_GRACE);
    if wanted < 0 { 1 } else { wanted }
}

fn mark(object: &mut Value, now: Timestamp, grace: i64) {
    let at = now
        .checked_add(SignedDuration::from_secs(grace))
        .unwrap_or(now);
    object["metadata"]["deletionTimestamp"] = json!(timestamp(at));
    object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
}

fn shorten(object: &mut Value, current: i64, wanted: i64) {
    let was = object["metadata"]["deletionTimestamp"]
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok());
    if let Some(at) = was.and_then(|at| {
        at.checked_add(SignedDuration::from_secs(wanted - current))
            .ok()
    }) {
        object["metadata"]["deletionTimestamp"] = json!(timestamp(at));
    }
    object["metadata"]["deletionGracePeriodSeconds"] = json!(wanted);
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|list| !list.is_empty())
}
