//! Field selectors: `metadata.name` and `metadata.namespace` everywhere, a few more per kind, 400 for everything else.

use serde_json::Value;

use crate::api::failure::Failure;
use crate::api::kinds::{self, Kind};

/// A conjunction of comparisons of fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    path: String,
    value: String,
    equal: bool,
}

/// The fields that real servers index, by resource.
const SUPPORTED: &[(&str, &[&str])] = &[
    (
        "pods",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
        ],
    ),
    ("nodes", &["spec.unschedulable"]),
    ("secrets", &["type"]),
    ("namespaces", &["status.phase"]),
    (
        "events",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
];

impl FieldSelector {
    /// Reads the query form; 400 for a field that this resource is not indexed by.
    pub fn parse(resource: &str, text: &str) -> Result<Self, Failure> {
        let terms = text
            .split(',')
            .map(str::trim)
            .filter(|term| !term.is_empty());
        let terms = terms
            .map(|term| Self::parse_term(resource, term))
            .collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }

    fn parse_term(resource: &str, term: &str) -> Result<Term, Failure> {
        let split = |sign: &str, equal: bool| {
            term.split_once(sign)
                .map(|(path, value)| (path, value, equal))
        };
        let (path, value, equal) = split("!=", false)
            .or_else(|| split("==", true))
            .or_else(|| split("=", true))
            .ok_or_else(|| {
                Failure::bad_request(format!(
                    "invalid selector: '{term}'; can't understand '{term}'"
                ))
            })?;
        let own = SUPPORTED
            .iter()
            .find(|(name, _)| *name == resource)
            .map_or(&[][..], |(_, fields)| fields);
        if !matches!(path, "metadata.name" | "metadata.namespace") && !own.contains(&path) {
            return Err(Failure::bad_request(unsupported(resource, path)));
        }
        Ok(Term {
            path: path.to_owned(),
            value: value.to_owned(),
            equal,
        })
    }

    /// Whether an object matches.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms
            .iter()
            .all(|term| (field(object, &term.path) == term.value) == term.equal)
    }
}

/// Custom resources and the kinds with fields of their own say it shortly, the other built-in kinds say what they know.
fn unsupported(resource: &str, path: &str) -> String {
    let short = SUPPORTED.iter().any(|(name, _)| *name == resource)
        || kinds::by_plural(resource).is_none_or(Kind::is_kubevirt);
    if short {
        format!("field label not supported: {path}")
    } else {
        format!(
            "{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        )
    }
}

fn field(object: &Value, path: &str) -> String {
    if path == "source" {
        return field(object, "source.component");
    }
    let value = path.split('.').fold(object, |value, part| &value[part]);
    match value {
        Value::String(text) => text.clone(),
        Value::Null if path == "spec.unschedulable" => "false".to_owned(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_by_resource() {
        let pod = json!({"metadata": {"name": "a", "namespace": "vms"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        let matches = |selector: &str| {
            FieldSelector::parse("pods", selector)
                .unwrap()
                .matches(&pod)
        };
        assert!(matches(
            "spec.nodeName=n1,status.phase!=Failed,status.phase!=Succeeded"
        ));
        assert!(matches("metadata.name==a,metadata.namespace=vms"));
        assert!(!matches("spec.nodeName=n2"));
        assert!(
            FieldSelector::parse("nodes", "spec.unschedulable=false")
                .unwrap()
                .matches(&json!({}))
        );
        assert!(
            FieldSelector::parse("events", "involvedObject.uid=7")
                .unwrap()
                .matches(&json!({"involvedObject": {"uid": "7"}}))
        );
    }

    #[test]
    fn an_unknown_field_is_named() {
        let refused =
            FieldSelector::parse("virtualmachineinstances", "status.nodeName=n1").unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (400, "field label not supported: status.nodeName")
        );
        assert_eq!(refused.reason.as_deref(), Some("BadRequest"));
    }
}
