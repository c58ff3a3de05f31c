//! Strategic merge patch: a merge patch in which some lists are merged by a key.
//!
//! The keys are those of the built-in kinds that a drain touches; every other list is replaced. Understands the directives `$patch`
//! (delete, replace), `$deleteFromPrimitiveList/…`, `$retainKeys` and `$setElementOrder/…` (the last two need no action here).

use serde_json::{Map, Value, json};

/// By which field the elements of a list are told apart; an empty key means a set of plain values.
fn merge_key(list: &str) -> Option<&'static str> {
    Some(match list {
        "conditions" | "addresses" => "type",
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets" => "name",
        "containerPort" | "ports" => "containerPort",
        "volumeMounts" => "mountPath",
        "volumeDevices" => "devicePath",
        "hostAliases" => "ip",
        "ownerReferences" => "uid",
        "topologySpreadConstraints" => "topologyKey",
        "finalizers" | "podCIDRs" => "",
        // Taints and tolerations are atomic.
        _ => return None,
    })
}

/// Merges `patch` into `target`.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if patch
        .get("$patch")
        .is_some_and(|directive| directive == "replace")
    {
        *target = without_directives(patch);
        return;
    }
    if !target.is_object() {
        *target = json!({});
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (name, value) in patch {
        merge_field(fields, name, value);
    }
}

fn merge_field(fields: &mut Map<String, Value>, name: &str, value: &Value) {
    if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
        if let (Some(own), Some(gone)) = (
            fields.get_mut(list).and_then(Value::as_array_mut),
            value.as_array(),
        ) {
            own.retain(|element| !gone.contains(element));
        }
        return;
    }
    if name.starts_with('$') {
        return;
    }
    match value {
        Value::Null => {
            fields.remove(name);
        }
        Value::Object(object)
            if object
                .get("$patch")
                .is_some_and(|directive| directive == "delete") =>
        {
            fields.remove(name);
        }
        Value::Object(_) => merge(fields.entry(name).or_insert_with(|| json!({})), value),
        Value::Array(elements) => match merge_key(name) {
            Some(key) => merge_list(
                fields.entry(name).or_insert_with(|| json!([])),
                key,
                elements,
            ),
            None => {
                fields.insert(name.to_owned(), value.clone());
            }
        },
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            fields.insert(name.to_owned(), value.clone());
        }
    }
}

fn merge_list(target: &mut Value, key: &str, elements: &[Value]) {
    if !target.is_array() {
        *target = json!([]);
    }
    let Some(own) = target.as_array_mut() else {
        return;
    };
    if elements
        .iter()
        .any(|element| element["$patch"] == "replace")
    {
        own.clear();
    }
    for element in elements {
        let directive = element.get("$patch").and_then(Value::as_str);
        let same = |candidate: &Value| {
            if key.is_empty() {
                candidate == element
            } else {
                candidate[key] == element[key]
            }
        };
        match (own.iter().position(same), directive) {
            (_, Some("replace")) | (None, Some("delete")) => {}
            (Some(at), Some("delete")) => {
                own.remove(at);
            }
            (Some(at), _) => merge(&mut own[at], element),
            (None, _) => own.push(element.clone()),
        }
    }
}

fn without_directives(patch: &Map<String, Value>) -> Value {
    patch
        .iter()
        .filter(|(name, _)| !name.starts_with('$'))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect::<Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(mut target: Value, patch: &Value) -> Value {
        merge(&mut target, patch);
        target
    }

    #[test]
    fn lists_by_key_and_by_replacement() {
        let node = json!({"spec": {"taints": [{"key": "a"}]}, "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other"}]}});
        let patch = json!({
            "spec": {"unschedulable": true, "taints": [{"key": "b"}]},
            "status": {"$setElementOrder/conditions": [], "conditions": [{"type": "Ready", "status": "False"}, {"type": "New"}]},
        });
        assert_eq!(
            merged(node, &patch),
            json!({
                "spec": {"unschedulable": true, "taints": [{"key": "b"}]},
                "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other"}, {"type": "New"}]},
            })
        );
    }

    #[test]
    fn directives_and_nulls() {
        let object = json!({"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y"]}, "spec": {"containers": [{"name": "c", "image": "i"}], "old": {"a": 1}}});
        let patch = json!({
            "metadata": {"labels": {"a": null}, "$deleteFromPrimitiveList/finalizers": ["x"], "finalizers": ["z"]},
            "spec": {"containers": [{"name": "c", "$patch": "delete"}], "old": {"$patch": "replace", "b": 2}},
        });
        assert_eq!(
            merged(object, &patch),
            json!({"metadata": {"labels": {"b": "2"}, "finalizers": ["y", "z"]}, "spec": {"containers": [], "old": {"b": 2}}})
        );
    }
}
