//! In which shape does a client want objects: whole, as a table for people, or only their metadata?

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use crate::api::kinds::Kind;
use crate::api::tables;

/// The representation that an `Accept` header asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Whole,
    Table,
    Metadata,
}

/// `metadata` of a list.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta {
    pub(super) resource_version: String,
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub(super) continue_token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remaining_item_count: Option<usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    kind: String,
    api_version: String,
    metadata: &'a ListMeta,
    items: Vec<&'a Value>,
}

impl Shape {
    /// The first representation in the header that is served here.
    pub(super) fn from_accept(accept: &str) -> Self {
        for range in accept.split(',').map(str::trim) {
            if range.contains("as=Table") && range.contains("v=v1;")
                || range.contains("as=Table") && range.ends_with("v=v1")
            {
                return Self::Table;
            }
            if range.contains("as=PartialObjectMetadata") {
                return Self::Metadata;
            }
            if range.starts_with("application/json") || range.starts_with("*/*") {
                return Self::Whole;
            }
        }
        Self::Whole
    }

    /// One object; `now` is the date that ages are counted to.
    pub(super) fn object(self, kind: &Kind, object: &Value, now: jiff::Timestamp) -> Value {
        match self {
            Self::Whole => object.clone(),
            Self::Table => tables::table(
                kind,
                &[object],
                &json!({"resourceVersion": object["metadata"]["resourceVersion"]}),
                now,
            ),
            Self::Metadata => metadata_only(object),
        }
    }

    /// A list, as JSON text.
    pub(super) fn list(
        self,
        kind: &Kind,
        objects: &[Arc<Value>],
        meta: &ListMeta,
        now: jiff::Timestamp,
    ) -> String {
        let items: Vec<&Value> = objects.iter().map(|object| &**object).collect();
        let text = match self {
            Self::Whole => serde_json::to_string(&List {
                kind: format!("{}List", kind.kind),
                api_version: kind.api_version(),
                metadata: meta,
                items,
            }),
            Self::Table => serde_json::to_string(&tables::table(kind, &items, &json!(meta), now)),
            Self::Metadata => {
                let items: Vec<Value> = items.into_iter().map(metadata_only).collect();
                let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items});
                serde_json::to_string(&list)
            }
        };
        // Values are always serializable.
        text.unwrap_or_default()
    }
}

fn metadata_only(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
