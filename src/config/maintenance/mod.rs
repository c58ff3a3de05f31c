//! `[[maintenance]]`: which signal on the bus asks for what?
//!
//! ```toml
//! [[maintenance]]
//! name = "ups-low"
//! sender = "org.freedesktop.UPower"
//! path = "/org/freedesktop/UPower/devices/DisplayDevice"
//! interface = "org.freedesktop.DBus.Properties"
//! member = "PropertiesChanged"
//! args = { "1.WarningLevel" = [4, 5] }
//! action = "drain-then-poweroff"
//! ```
//!
//! The entries of all files count; one of a later file with the same name takes the earlier one's place.

mod check;

pub(super) use check::{check, merged};

use super::values::auto_span;
use crate::drain::others::Scope;
use crate::drain::policy::OnDeadline;
use crate::drain::trigger::{Then, Trigger};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The key.
pub(super) const KEY: &str = "maintenance";

/// A sender that owns no name: any program of root's.
pub const ROOT: &str = "root";

/// The one interface that root may use without a name: the bus policy of the package lets nobody else send it.
pub const BRIDGE: &str = "io.vmdrain.Maintenance1";

/// Which bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    /// The system bus; a session's belongs to a user, who must not shut down a host.
    #[default]
    System,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// Drain; the host stays up.
    Drain,
    /// Drain, then power off.
    DrainThenPoweroff,
    /// Drain, then reboot.
    DrainThenReboot,
    /// Shut the guests down without trying to move them.
    ShutdownVms,
    /// Give the node back.
    Restore,
    /// Call a drain off that a signal has begun.
    Cancel,
}

impl Act {
    /// The word of the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::DrainThenPoweroff => "drain-then-poweroff",
            Self::DrainThenReboot => "drain-then-reboot",
            Self::ShutdownVms => "shutdown-vms",
            Self::Restore => "restore",
            Self::Cancel => "cancel",
        }
    }

    fn drains(self) -> bool {
        !matches!(self, Self::Restore | Self::Cancel)
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maintenance {
    /// For messages, and to take the place of an entry of an earlier file.
    pub name: String,
    /// Which bus.
    #[serde(default)]
    pub bus: Bus,
    /// The name on the bus whose owner sends it, or `"root"` for the bridge `io.vmdrain.Maintenance1`.
    pub sender: String,
    /// Object path; with `/*` at its end whatever is below it.
    pub path: String,
    /// Interface.
    pub interface: String,
    /// Name of the signal.
    pub member: String,
    /// What its arguments have to be: number of the argument (from 0), in dictionaries with `.KEY` after it; a value, or a
    /// list of which one has to fit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, Value>,
    /// What it asks for.
    pub action: Act,
    /// How long that drain may take; absent or `"auto"`: as every drain.
    #[serde(default, with = "auto_span", skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// What happens then, a word as for `drain.on_deadline`; absent: as at every drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_deadline: Option<OnDeadline>,
    /// What is drained, a word as for `drain.scope`; absent: as at every drain. A drain that is under way keeps its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

/// A signal as it came, whoever sent it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// Object path.
    pub path: String,
    /// Interface.
    pub interface: String,
    /// Name of the signal.
    pub member: String,
    /// Its arguments; variants are unpacked, dictionaries are objects.
    pub args: Vec<Value>,
}

/// Whether a signal is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It is.
    Yes,
    /// It is another one, or says something else.
    No,
    /// It is the one, but its arguments have another form: a sentence.
    Malformed(String),
}

/// What a signal makes of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A drain.
    Drain(Box<Trigger>),
    /// Give the node back.
    Restore,
    /// Call the drain off.
    Cancel,
}

impl Maintenance {
    /// Whether it is this signal, whatever it says.
    pub fn names(&self, heard: &Heard) -> bool {
        let path = match self.folder() {
            Some("/") => true,
            Some(folder) => heard
                .path
                .strip_prefix(folder)
                .is_some_and(|rest| rest.starts_with('/')),
            None => self.path == heard.path,
        };
        path && self.interface == heard.interface && self.member == heard.member
    }

    /// The path below which every object counts.
    pub fn folder(&self) -> Option<&str> {
        match self.path.strip_suffix("/*") {
            Some("") => Some("/"),
            folder => folder,
        }
    }

    /// Compares everything but the sender.
    pub fn fits(&self, heard: &Heard) -> Fit {
        if !self.names(heard) {
            return Fit::No;
        }
        let mut all = true;
        for (at, wanted) in &self.args {
            match fits(at, wanted, &heard.args) {
                Fit::Yes => {}
                Fit::No => all = false,
                malformed @ Fit::Malformed(_) => return malformed,
            }
        }
        if all { Fit::Yes } else { Fit::No }
    }

    /// It asks for nothing but the shutdown of guests.
    pub(super) fn shuts_down(&self) -> bool {
        self.action == Act::ShutdownVms
    }

    /// Why, for people.
    pub fn reason(&self) -> String {
        format!("maintenance signal {} from {}", self.name, self.sender)
    }

    /// What it asks for.
    pub fn order(&self) -> Order {
        let trigger = |then| {
            Order::Drain(Box::new(Trigger {
                then,
                reason: self.reason(),
                deadline: self.deadline,
                on_deadline: self.on_deadline,
                scope: self.scope,
                shutdown_vms: self.action == Act::ShutdownVms,
                signal: self.name.clone(),
                ..Trigger::default()
            }))
        };
        match self.action {
            Act::Drain | Act::ShutdownVms => trigger(None),
            Act::DrainThenPoweroff => trigger(Some(Then::Poweroff)),
            Act::DrainThenReboot => trigger(Some(Then::Reboot)),
            Act::Restore => Order::Restore,
            Act::Cancel => Order::Cancel,
        }
    }
}

/// One argument.
fn fits(at: &str, wanted: &Value, args: &[Value]) -> Fit {
    let Some((index, rest)) = number(at) else {
        return Fit::No;
    };
    let Some(mut found) = args.get(index) else {
        return Fit::Malformed(format!(
            "it has no argument {index}, only {} of them",
            args.len()
        ));
    };
    if !rest.is_empty() {
        let Some(inner) = found.as_object() else {
            return Fit::Malformed(format!("argument {index} is no dictionary"));
        };
        match inner.get(rest) {
            Some(value) => found = value,
            None => return Fit::No,
        }
    }
    let choices: Vec<&Value> = wanted
        .as_array()
        .map_or_else(|| vec![wanted], |all| all.iter().collect());
    if choices.contains(&found) {
        return Fit::Yes;
    }
    let kind = std::mem::discriminant(found);
    if choices
        .iter()
        .any(|choice| std::mem::discriminant(*choice) == kind)
    {
        Fit::No
    } else {
        Fit::Malformed(format!("argument {at} is of another type: {found}"))
    }
}

/// `1.WarningLevel`: number and key.
fn number(at: &str) -> Option<(usize, &str)> {
    let (index, rest) = at.split_once('.').unwrap_or((at, ""));
    let plain = !index.is_empty() && index.len() <= 2 && index.bytes().all(|b| b.is_ascii_digit());
    let index = plain.then(|| index.parse().ok())??;
    (!at.ends_with('.')).then_some((index, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ups() -> Maintenance {
        serde_json::from_value(json!({
            "name": "ups", "sender": "org.freedesktop.UPower", "path": "/org/freedesktop/UPower/devices/DisplayDevice",
            "interface": "org.freedesktop.DBus.Properties", "member": "PropertiesChanged",
            "args": {"0": "org.freedesktop.UPower.Device", "1.WarningLevel": [4, 5]},
            "action": "drain-then-poweroff", "deadline": "180s", "scope": "all-pods",
        }))
        .expect("an entry")
    }

    fn heard(args: &Value) -> Heard {
        let entry = ups();
        Heard {
            path: entry.path,
            interface: entry.interface,
            member: entry.member,
            args: args.as_array().cloned().unwrap_or_default(),
        }
    }

    #[test]
    fn arguments_are_compared_by_place_and_key() {
        let device = "org.freedesktop.UPower.Device";
        let table = [
            (json!([device, {"WarningLevel": 4}, []]), "yes"),
            (
                json!([device, {"WarningLevel": 5, "Percentage": 3.0}, []]),
                "yes",
            ),
            (json!([device, {"WarningLevel": 3}, []]), "no"),
            (json!([device, {"Percentage": 3.0}, []]), "no"),
            (json!(["another", {"WarningLevel": 4}, []]), "no"),
            (json!([device, {"WarningLevel": "4"}, []]), "another type"),
            (json!([device, "WarningLevel"]), "no dictionary"),
            (json!([device]), "no argument 1"),
            (json!([]), "no argument 0"),
            (json!([7, {"WarningLevel": 4}, []]), "another type"),
        ];
        for (args, expected) in table {
            let said = match ups().fits(&heard(&args)) {
                Fit::Yes => "yes".to_owned(),
                Fit::No => "no".to_owned(),
                Fit::Malformed(why) => why,
            };
            assert!(said.contains(expected), "{args}: {said}");
        }
        let mut other = heard(&json!([device, {"WarningLevel": 4}]));
        other.path.push('x');
        assert_eq!(ups().fits(&other), Fit::No);
        for (path, expected) in [
            ("/*", Fit::Yes),
            ("/org/freedesktop/UPower/*", Fit::Yes),
            ("/org/freedesktop/UPow/*", Fit::No),
            ("/org/freedesktop/UPower/devices/DisplayDevice/*", Fit::No),
        ] {
            let entry = Maintenance {
                path: path.into(),
                ..ups()
            };
            let heard = heard(&json!([device, {"WarningLevel": 4}]));
            assert_eq!(entry.fits(&heard), expected, "{path}");
        }
    }

    #[test]
    fn an_entry_becomes_a_command() {
        let Order::Drain(trigger) = ups().order() else {
            panic!("no drain");
        };
        assert_eq!(trigger.then, Some(Then::Poweroff));
        assert_eq!(trigger.deadline, Some(Duration::from_secs(180)));
        assert_eq!(trigger.scope, Some(Scope::AllPods));
        assert_eq!(trigger.signal, "ups");
        assert_eq!(
            trigger.reason,
            "maintenance signal ups from org.freedesktop.UPower"
        );
        let cancel = Maintenance {
            action: Act::Cancel,
            ..ups()
        };
        assert_eq!(cancel.order(), Order::Cancel);
    }
}
