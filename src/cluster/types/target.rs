//! The target pod of a migration: what does the scheduler say against every node?

use super::guard::{Part, Thin};
use super::meta::{Condition, Meta, nullable};
use serde::Deserialize;

/// A target pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Target {
    metadata: Meta,
    status: Part<Status>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "nullable")]
    conditions: Vec<Condition>,
}

impl Thin for Target {
    /// The scheduler's words; `None`: it has nothing against it.
    type View = Option<String>;
    const RESOURCE: &'static str = "pods";
    const MANY: bool = false;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Result<Self::View, String> {
        self.metadata.reference()?;
        let mut troubles = Vec::new();
        let status = self.status.or_default("status", &mut troubles);
        if let Some(why) = troubles.into_iter().next() {
            return Err(why);
        }
        let mut conditions = status.conditions.into_iter();
        let refused = conditions.find(|condition| {
            condition.kind == "PodScheduled"
                && condition.status == "False"
                && condition.reason.as_deref() == Some("Unschedulable")
        });
        // Without a message the reason is all that there is.
        Ok(refused.map(|condition| {
            let message = condition.message.filter(|text| !text.trim().is_empty());
            message.unwrap_or_else(|| "Unschedulable".into())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::types::Guarded;
    use serde_json::{Value, json};

    fn read(status: &Value) -> Result<Option<String>, String> {
        let pod =
            json!({"metadata": {"name": "p", "namespace": "v", "uid": "u"}, "status": status});
        Guarded::of::<Target>(&pod).view
    }

    fn scheduled(status: &str, reason: &str, message: &Value) -> Result<Option<String>, String> {
        read(&json!({"conditions": [
            {"type": "Ready", "status": "False", "reason": "Unschedulable", "message": "another one's"},
            {"type": "PodScheduled", "status": status, "reason": reason, "message": message}]}))
    }

    #[test]
    fn only_the_schedulers_refusal_counts() {
        let full = json!("0/2 nodes are available: 2 Insufficient cpu.");
        assert_eq!(
            scheduled("False", "Unschedulable", &full)
                .unwrap()
                .as_deref(),
            Some("0/2 nodes are available: 2 Insufficient cpu.")
        );
        assert_eq!(
            scheduled("False", "Unschedulable", &Value::Null)
                .unwrap()
                .as_deref(),
            Some("Unschedulable")
        );
        assert_eq!(scheduled("True", "", &full), Ok(None));
        assert_eq!(scheduled("False", "SchedulingGated", &full), Ok(None));
        assert_eq!(read(&json!({})), Ok(None));
        assert_eq!(read(&json!({"conditions": null})), Ok(None));
    }

    #[test]
    fn a_malformed_condition_is_named_by_its_place() {
        let why = scheduled("False", "Unschedulable", &json!(5)).unwrap_err();
        assert!(why.starts_with("status.conditions[1].message: "), "{why}");
        let why = read(&json!({"conditions": "none"})).unwrap_err();
        assert!(why.starts_with("status.conditions: "), "{why}");
        let nameless = json!({"metadata": {"name": "p"}});
        let why = Guarded::of::<Target>(&nameless).view.unwrap_err();
        assert!(why.starts_with("metadata.uid"), "{why}");
    }
}
