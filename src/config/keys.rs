//! Which keys exist, which are planned, and which one was probably meant.

use super::maintenance;
use super::settings::Settings;
use serde_json::Value;
use std::collections::BTreeMap;

/// Keys and sections of the contract that nothing reads yet.
const NOT_YET: [&str; 5] = ["host.wall", "coordination", "report", "metrics", "hooks"];

/// Every key with its default, as it would stand in a file.
pub(super) fn defaults() -> BTreeMap<String, Value> {
    leaves(&Settings::default().tree())
}

/// The values of a tree by their dotted keys; an empty table counts as a value, so that it is seen.
pub(super) fn leaves(tree: &serde_json::Map<String, Value>) -> BTreeMap<String, Value> {
    fn walk(prefix: &str, value: &Value, into: &mut BTreeMap<String, Value>) {
        match value.as_object().filter(|table| !table.is_empty()) {
            Some(table) => {
                for (name, value) in table {
                    walk(&format!("{prefix}.{name}"), value, into);
                }
            }
            None => {
                into.insert(prefix.to_owned(), value.clone());
            }
        }
    }
    let mut found = BTreeMap::new();
    for (name, value) in tree {
        walk(name, value, &mut found);
    }
    found
}

/// What is wrong with a key as such; `Ok` when it may be set to a single value.
pub(super) fn check_name(key: &str, value: &Value) -> Result<(), String> {
    let known = defaults();
    if known.contains_key(key) {
        return if value.is_object() {
            Err("is a value, not a section".into())
        } else {
            Ok(())
        };
    }
    let within = |outer: &str| key == outer || key.starts_with(&format!("{outer}."));
    if let Some(planned) = NOT_YET.iter().find(|planned| within(planned)) {
        return Err(format!(
            "not yet: nothing in this version reads {planned}, so it is refused rather than ignored. Remove it"
        ));
    }
    if key == "timing.request" {
        return Err("is set by cluster.request_timeout".into());
    }
    let section = format!("{key}.");
    let is_section = known.keys().any(|known| known.starts_with(&section));
    if is_section {
        // Of a section only an empty one is seen as such.
        return if value.is_object() {
            Ok(())
        } else {
            Err("is a section, not a value".into())
        };
    }
    if let Some(inner) = known.keys().find(|known| within(known)) {
        return Err(format!("unknown key: {inner} is a value, not a section"));
    }
    Err(match nearest(key, known.keys()) {
        Some(meant) => format!("unknown key; did you mean {meant}?"),
        None => "unknown key; `vmdrain-agent config show` lists all that exist".into(),
    })
}

/// What is wrong with a value that the contract promises for later.
pub(super) fn check_value(key: &str, value: &Value) -> Result<(), String> {
    if key == maintenance::KEY {
        return maintenance::check(value);
    }
    Ok(())
}

/// The known key that was probably meant: one like it in the same section, or the same one elsewhere.
fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let split = |key: &'_ str| -> (String, String) {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        (section.to_owned(), name.to_owned())
    };
    let (section, name) = split(key);
    known
        .map(|known| {
            let (in_section, is_name) = split(known);
            let names = strsim::jaro_winkler(&is_name, &name);
            let sections = strsim::jaro_winkler(&in_section, &section);
            let likeness = if is_name == name {
                1.0 + sections
            } else {
                names * sections
            };
            (known.as_str(), likeness)
        })
        .filter(|(_, likeness)| *likeness > 0.88)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(known, _)| known)
}
