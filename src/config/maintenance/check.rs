//! What is wrong with an entry, and what are the entries of several files together?

use super::{BRIDGE, Maintenance, ROOT, number};
use serde_json::Value;
use std::collections::BTreeSet;
use zbus::names::{InterfaceName, MemberName, WellKnownName};

impl Maintenance {
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |key: &str, what: String| faults.push(format!("{key}: {what}"));
        if self.name.trim().is_empty() || self.name.len() > 64 {
            fault("name", "has to be 1 to 64 characters, for messages".into());
        }
        if self.sender == ROOT {
            if self.interface != BRIDGE {
                fault(
                    "sender",
                    format!(
                        "\"{ROOT}\" is for the interface {BRIDGE} alone, which the bus lets nobody else send; for {} name the bus name of the program",
                        self.interface
                    ),
                );
            }
        } else if let Err(why) = WellKnownName::try_from(self.sender.as_str()) {
            fault(
                "sender",
                format!(
                    "'{}' is neither \"{ROOT}\" nor a name on the bus such as org.freedesktop.UPower ({why})",
                    self.sender
                ),
            );
        }
        let path = self.folder().unwrap_or(&self.path);
        if let Err(why) = zbus::ObjectPath::try_from(path) {
            fault("path", format!("'{}' is no object path ({why})", self.path));
        }
        if let Err(why) = InterfaceName::try_from(self.interface.as_str()) {
            fault(
                "interface",
                format!("'{}' is no interface ({why})", self.interface),
            );
        }
        if let Err(why) = MemberName::try_from(self.member.as_str()) {
            fault(
                "member",
                format!("'{}' is no name of a signal ({why})", self.member),
            );
        }
        for (at, wanted) in &self.args {
            if number(at).is_none() {
                fault(
                    "args",
                    format!(
                        "'{at}' is no number of an argument (from 0), with '.KEY' after it for what is in a dictionary"
                    ),
                );
            }
            let plain =
                |value: &Value| value.is_string() || value.is_boolean() || value.is_number();
            let list = wanted
                .as_array()
                .is_some_and(|all| !all.is_empty() && all.iter().all(plain));
            if !plain(wanted) && !list {
                fault(
                    "args",
                    format!("'{at}' has to be a text, a number, true or false, or a list of such"),
                );
            }
        }
        if self.deadline.is_some_and(|span| span.is_zero()) {
            fault("deadline", "is zero, which would be no time at all".into());
        }
        let timed = self.deadline.is_some() || self.on_deadline.is_some();
        if !self.action.drains() && timed {
            let word = self.action.word();
            let what = format!("and on_deadline are for a drain; \"{word}\" has none");
            fault("deadline", what);
        }
        if !self.action.drains() && self.scope.is_some() {
            let word = self.action.word();
            fault("scope", format!("is for a drain; \"{word}\" has none"));
        }
        faults
    }
}

/// What is wrong with the entries of one layer.
pub(in crate::config) fn check(value: &Value) -> Result<(), String> {
    let Some(entries) = value.as_array() else {
        return Err("has to be a list of tables: [[maintenance]]".into());
    };
    let mut names = BTreeSet::new();
    let mut faults = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let name = entry.get("name").and_then(Value::as_str).unwrap_or("?");
        let place = format!("entry {} (\"{name}\")", at + 1);
        match serde_json::from_value::<Maintenance>(entry.clone()) {
            Err(why) => faults.push(format!("{place}: {why}")),
            Ok(entry) => {
                faults.extend(entry.faults().into_iter().map(|f| format!("{place}: {f}")));
                if !names.insert(entry.name) {
                    faults.push(format!(
                        "{place}: name: there are two of this name in this file"
                    ));
                }
            }
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("; "))
    }
}

/// The entries of several layers together.
pub(in crate::config) fn merged<'a>(layers: impl Iterator<Item = &'a Value>) -> Value {
    let mut all: Vec<Value> = Vec::new();
    for entry in layers.filter_map(Value::as_array).flatten() {
        match all.iter_mut().find(|e| e.get("name") == entry.get("name")) {
            Some(earlier) => earlier.clone_from(entry),
            None => all.push(entry.clone()),
        }
    }
    Value::Array(all)
}
