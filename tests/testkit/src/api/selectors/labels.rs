//! The grammar of label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>5`, and the structured form of PDBs and replica sets.

use serde_json::Value;

use crate::api::failure::Failure;

/// A conjunction of requirements on labels; the empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    /// A `null` selector of an object selects nothing.
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Greater,
    Less,
}

impl LabelSelector {
    /// Reads the query form.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let mut requirements = Vec::new();
        for term in split_terms(text) {
            let requirement = parse_term(term.trim()).ok_or_else(|| {
                Failure::bad_request(format!(
                    "unable to parse requirement: found '{term}', expected: a label selector"
                ))
            })?;
            requirements.push(requirement);
        }
        Ok(Self {
            requirements,
            nothing: false,
        })
    }

    /// Reads `matchLabels` and `matchExpressions`; a missing selector selects nothing, an empty one everything.
    pub fn from_object(selector: &Value) -> Self {
        if selector.is_null() {
            return Self {
                requirements: Vec::new(),
                nothing: true,
            };
        }
        let exact = selector["matchLabels"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| Requirement {
                key: key.clone(),
                operator: Operator::In,
                values: vec![value.as_str().unwrap_or_default().to_owned()],
            });
        let expressions = selector["matchExpressions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|expression| Requirement {
                key: expression["key"].as_str().unwrap_or_default().to_owned(),
                operator: match expression["operator"].as_str() {
                    Some("NotIn") => Operator::NotIn,
                    Some("Exists") => Operator::Exists,
                    Some("DoesNotExist") => Operator::DoesNotExist,
                    _ => Operator::In,
                },
                values: expression["values"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|value| value.as_str().map(str::to_owned))
                    .collect(),
            });
        Self {
            requirements: exact.chain(expressions).collect(),
            nothing: false,
        }
    }

    /// Whether labels (the JSON object under `metadata.labels`) match.
    pub fn matches(&self, labels: &Value) -> bool {
        !self.nothing
            && self
                .requirements
                .iter()
                .all(|requirement| requirement.matches(labels[&requirement.key].as_str()))
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|wanted| wanted == value);
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = self.values.first().and_then(|text| number(text));
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Greater => value
                .and_then(number)
                .is_some_and(|value| Some(value) > bound),
            Operator::Less => value
                .and_then(number)
                .is_some_and(|value| bound.is_some_and(|bound| value < bound)),
        }
    }
}

/// Splits at the commas that are not inside parentheses.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() || start > 0 {
        terms.push(&text[start..]);
    }
    terms
}

fn parse_term(term: &str) -> Option<Requirement> {
    let requirement = |key: &str, operator, values: Vec<String>| {
        let key = key.trim();
        let fine =
            !key.is_empty() && !key.contains(|c: char| c.is_whitespace() || "=!<>()".contains(c));
        fine.then(|| Requirement {
            key: key.to_owned(),
            operator,
            values,
        })
    };
    let one = |value: &str| {
        let value = value.trim();
        (!value.contains(|c: char| c.is_whitespace() || "=!<>()".contains(c)))
            .then(|| vec![value.to_owned()])
    };
    if let Some((head, list)) = term.split_once('(') {
        let values = list
            .strip_suffix(')')?
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => requirement(key, Operator::In, values),
            "notin" => requirement(key, Operator::NotIn, values),
            _ => None,
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        return requirement(key, Operator::NotIn, one(value)?);
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return requirement(key, Operator::In, one(value)?);
    }
    for (sign, operator) in [('>', Operator::Greater), ('<', Operator::Less)] {
        if let Some((key, value)) = term.split_once(sign) {
            value.trim().parse::<i64>().ok()?;
            return requirement(key, operator, one(value)?);
        }
    }
    match term.strip_prefix('!') {
        Some(key) => requirement(key, Operator::DoesNotExist, Vec::new()),
        None => requirement(term, Operator::Exists, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_whole_grammar() {
        let labels = json!({"kubevirt.io": "virt-launcher", "tier": "db", "size": "7"});
        for (selector, expected) in [
            ("", true),
            ("tier=db", true),
            ("tier==db", true),
            ("tier = db , kubevirt.io=virt-launcher", true),
            ("tier!=db", false),
            ("missing!=x", true),
            ("tier in (web, db)", true),
            ("tier notin (web,db)", false),
            ("missing notin (a)", true),
            ("tier in (web),tier=db", false),
            ("tier", true),
            ("!tier", false),
            ("!missing", true),
            ("size>5", true),
            ("size<7", false),
            ("missing=", false),
        ] {
            assert_eq!(
                LabelSelector::parse(selector).unwrap().matches(&labels),
                expected,
                "{selector}"
            );
        }
        for wrong in [
            "a=b=c", "a in b", "a of (b)", ",", "=x", "a b", "a>b", "a in (b",
        ] {
            assert_eq!(
                LabelSelector::parse(wrong).unwrap_err().code,
                400,
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_structured_form() {
        let labels = json!({"app": "a"});
        assert!(LabelSelector::from_object(&json!({})).matches(&labels));
        assert!(!LabelSelector::from_object(&Value::Null).matches(&labels));
        assert!(LabelSelector::from_object(&json!({"matchLabels": {"app": "a"}})).matches(&labels));
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]});
        assert!(LabelSelector::from_object(&expression("In", json!(["a", "b"]))).matches(&labels));
        assert!(!LabelSelector::from_object(&expression("NotIn", json!(["a"]))).matches(&labels));
        assert!(LabelSelector::from_object(&expression("Exists", Value::Null)).matches(&labels));
        assert!(
            !LabelSelector::from_object(&expression("DoesNotExist", Value::Null)).matches(&labels)
        );
    }
}
