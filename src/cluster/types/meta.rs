//! What every object has: `metadata`, thin.

use crate::drain::world::ObjectRef;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// `metadata`, only the fields that are used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Meta {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) creation_timestamp: Option<String>,
    pub(crate) generation: Option<i64>,
    pub(crate) deletion_timestamp: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) owner_references: Vec<Owner>,
}

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Owner {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) controller: Option<bool>,
}

impl Meta {
    /// Where the object is; an object without name or UID cannot be acted upon.
    pub(crate) fn reference(&self) -> Result<ObjectRef, String> {
        let present = |field: &Option<String>, path: &str| match field.as_deref() {
            None | Some("") => Err(format!("{path}: missing")),
            Some(text) => Ok(text.to_owned()),
        };
        Ok(ObjectRef {
            namespace: self.namespace.clone().unwrap_or_default(),
            name: present(&self.name, "metadata.name")?,
            uid: present(&self.uid, "metadata.uid")?,
        })
    }

    /// The owner that controls the object.
    pub(crate) fn controller(&self) -> Option<&Owner> {
        self.owner_references
            .iter()
            .find(|owner| owner.controller == Some(true))
    }

    /// A label that is present and not empty.
    pub(crate) fn label(&self, key: &str) -> Option<String> {
        self.labels
            .get(key)
            .filter(|text| !text.is_empty())
            .cloned()
    }

    /// `creationTimestamp` in seconds since the epoch; 0 when absent or unreadable (it only orders attempts).
    pub(crate) fn created(&self) -> i64 {
        self.creation_timestamp
            .as_deref()
            .and_then(|text| text.parse::<jiff::Timestamp>().ok())
            .map_or(0, jiff::Timestamp::as_second)
    }
}

/// One entry of `status.conditions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    /// Of a Node's conditions: when kubelet has last reported.
    pub(crate) last_heartbeat_time: Option<String>,
    pub(crate) last_transition_time: Option<String>,
}

impl Condition {
    /// `reason: message`, or the one that there is.
    pub(crate) fn says(&self) -> String {
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        match (part(&self.reason), part(&self.message)) {
            (reason, message) if reason.is_empty() => message,
            (reason, message) if message.is_empty() => reason,
            (reason, message) => format!("{reason}: {message}"),
        }
    }
}

/// `null` counts as absent: servers write both.
pub(crate) fn nullable<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}
