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
        // The name says what the event is about, so that the same event is found again without a search.
        let key = [text("uid"), text("name"), component, type_, reason, message];
        let name = format!("{}.{:016x}", text("name"), fingerprint(&key));
        let counted = self.update("events", namespace, &name, |event| {
            event["count"] = json!(event["count"].as_i64().unwrap_or(1) + 1);
            event["lastTimestamp"] = json!(now);
        });
        if counted.is_some() {
            return;
        }
        let event = json!({
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": involved["apiVersion"], "kind": involved["kind"], "namespace": text("namespace"), "name": text("name"),
                "uid": text("uid"), "resourceVersion": text("resourceVersion"),
            },
            "type": type_, "reason": reason, "message": message, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now, "eventTime": null,
            "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
        });
        // The name was free a moment ago; if somebody was faster, the event is there.
        let _ = self.create("events", event);
    }
}

/// FNV-1a over texts: the same on every run and every machine.
fn fingerprint(texts: &[&str]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
