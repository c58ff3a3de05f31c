//! Does a label selector of an object select these labels?

use serde_json::Value;

/// `matchLabels` and `matchExpressions`. A selector that is null selects nothing, an empty one everything.
pub fn selects(selector: &Value, labels: &Value) -> bool {
    if !selector.is_object() {
        return false;
    }
    let by_labels = selector["matchLabels"].as_object().is_none_or(|wanted| {
        wanted
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    });
    let by_expressions = selector["matchExpressions"]
        .as_array()
        .is_none_or(|all| all.iter().all(|one| holds(one, labels)));
    by_labels && by_expressions
}

fn holds(expression: &Value, labels: &Value) -> bool {
    let key = expression["key"].as_str().unwrap_or_default();
    let value = labels.get(key);
    let listed = || {
        value.is_some_and(|value| {
            expression["values"]
                .as_array()
                .is_some_and(|all| all.contains(value))
        })
    };
    match expression["operator"].as_str() {
        Some("In") => listed(),
        Some("NotIn") => !listed(),
        Some("Exists") => value.is_some(),
        Some("DoesNotExist") => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_and_expressions() {
        let labels = json!({"app": "db", "tier": "1"});
        assert!(selects(&json!({}), &labels));
        assert!(!selects(&Value::Null, &labels));
        assert!(selects(&json!({"matchLabels": {"app": "db"}}), &labels));
        assert!(!selects(&json!({"matchLabels": {"app": "web"}}), &labels));
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
        assert!(selects(&expression("In", json!(["1", "2"])), &labels));
        assert!(!selects(&expression("NotIn", json!(["1"])), &labels));
        assert!(selects(&expression("Exists", json!([])), &labels));
        assert!(!selects(&expression("DoesNotExist", json!([])), &labels));
    }
}
