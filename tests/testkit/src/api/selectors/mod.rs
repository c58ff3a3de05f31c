//! Which objects does a request mean? Label selectors, field selectors, and both together.

mod fields;
mod labels;

use serde_json::Value;

pub use fields::FieldSelector;
pub use labels::LabelSelector;

use super::call::Call;
use super::failure::Failure;

/// The selection of one list, watch or deletecollection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    namespace: String,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// Reads the selection of a request; 400 for one that cannot be understood or is not supported.
    pub fn of(call: &Call) -> Result<Self, Failure> {
        Ok(Self {
            namespace: if call.resource == "namespaces" {
                String::new()
            } else {
                call.namespace.clone()
            },
            labels: LabelSelector::parse(call.param("labelSelector"))?,
            fields: FieldSelector::parse(&call.resource, call.param("fieldSelector"))?,
        })
    }

    /// Whether an object is meant.
    pub fn matches(&self, object: &Value) -> bool {
        let in_namespace =
            self.namespace.is_empty() || object["metadata"]["namespace"] == self.namespace;
        in_namespace
            && self.labels.matches(&object["metadata"]["labels"])
            && self.fields.matches(object)
    }

    /// Whether there is no selector at all, only (maybe) a namespace.
    pub fn is_everything(&self) -> bool {
        self.labels == LabelSelector::default() && self.fields == FieldSelector::default()
    }
}
