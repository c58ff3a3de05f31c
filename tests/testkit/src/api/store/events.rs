//! How do controllers tell people something: core/v1 Events, counted instead of repeated.

use serde_json::{Value, json};

use super::Store;

impl Store {
    /// Records an Event about `involved`; the same text about the same object again only raises its `count`.
    pub fn record_event(&self, involved: &Value, type_: &str, reason: &str, message: &str) {
        self.record_event_from("clustersim", involved, type_, reason, message);
    }

    /// [`record_event`](Self::record_event) with the name of the component that reports it.
    pub fn record_event_from(
        &self,
        component: &str,
        involved: &Value,
        type_: &str,
        reason: &str,
        message: &str,
    ) {
        let text = |field: &str| involved["metadata"][field].as_str().unwrap_or_default();
        let namespace = if text("namespace").is_empty() {
            "default"
        } else {
            text("namespace")
        };
        let now = self.stamp();
        let same = self.list_shared("events").into_iter().find(|event| {
            event["metadata"]["namespace"] == namespace
                && event["involvedObject"]["uid"] == involved["metadata"]["uid"]
                && event["involvedObject"]["name"] == involved["metadata"]["name"]
                && event["type"] == type_
                && event["reason"] == reason
                && event["message"] == message
        });
        if let Some(known) = same {
            let name = known["metadata"]["name"].as_str().unwrap_or_default();
            let counted = self.update("events", namespace, name, |event| {
                event["count"] = json!(event["count"].as_i64().unwrap_or(1) + 1);
                event["lastTimestamp"] = json!(now);
            });
            if counted.is_some() {
                return;
            }
        }
        let event = json!({
            "metadata": {"generateName": format!("{}.", text("name")), "namespace": namespace},
            "involvedObject": {
                "apiVersion": involved["apiVersion"], "kind": involved["kind"], "namespace": text("namespace"), "name": text("name"),
                "uid": text("uid"), "resourceVersion": text("resourceVersion"),
            },
            "type": type_, "reason": reason, "message": message, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now, "eventTime": null,
            "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
        });
        // The name is generated and free, so this cannot be refused.
        let _ = self.create("events", event);
    }
}
