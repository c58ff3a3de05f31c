//! One layer by itself: which keys does it set, and is each value possible?
//!
//! The crate `config` reports an unknown key or a bad duration without the file it stands in. So every
//! value of every layer is tried alone here, where the layer is known.

use super::error::Problem;
use super::keys;
use super::settings::Settings;
use super::sources::Layer;
use ::config::{ConfigError as CrateError, Environment, File, FileFormat, Source, ValueKind};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// One layer, read and checked.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    /// The file, variable or option.
    pub(super) origin: String,
    /// Its values by dotted keys.
    pub(super) values: BTreeMap<String, Value>,
}

/// Reads a layer and tries each of its values.
pub(super) fn read(layer: &Layer) -> Result<Raw, Vec<Problem>> {
    let (origin, values) = match layer {
        Layer::File { name, text } => (name.clone(), parse(name, text).map_err(|p| vec![p])?),
        Layer::Variable { name, value } => {
            let origin = format!("environment variable {name}");
            let values = variable(name, value)
                .map_err(|why| vec![problem(&origin, "", &why.to_string())])?;
            (origin, values)
        }
        Layer::Assignment { key, value } => {
            let values = BTreeMap::from([(key.clone(), from_text(key, value))]);
            ("--set".to_owned(), values)
        }
    };
    let problems: Vec<Problem> = values
        .iter()
        .filter_map(|(key, value)| {
            let what = check(key, value).err()?;
            Some(problem(&origin, key, &what))
        })
        .collect();
    if problems.is_empty() {
        Ok(Raw { origin, values })
    } else {
        Err(problems)
    }
}

fn problem(origin: &str, key: &str, what: &str) -> Problem {
    Problem {
        origin: origin.to_owned(),
        key: key.to_owned(),
        what: what.to_owned(),
    }
}

fn parse(name: &str, text: &str) -> Result<BTreeMap<String, Value>, Problem> {
    let table = File::from_str(text, FileFormat::Toml)
        .collect()
        .map_err(|why| {
            let what = if let CrateError::FileParse { cause, .. } = &why {
                cause.to_string()
            } else {
                why.to_string()
            };
            problem(name, "", &format!("is not TOML: {}", what.trim_end()))
        })?;
    Ok(keys::leaves(&json_table(table)))
}

/// One variable, named by the rules of the crate: `__` separates, capitals are lowered.
fn variable(name: &str, value: &str) -> Result<BTreeMap<String, Value>, CrateError> {
    let only = [(name.to_owned(), value.to_owned())].into_iter().collect();
    let found = Environment::with_prefix("VMDRAIN")
        .prefix_separator("_")
        .separator("__")
        .source(Some(only))
        .collect()?;
    Ok(found
        .into_keys()
        .map(|key| {
            let value = from_text(&key, value);
            (key, value)
        })
        .collect())
}

/// A text from the environment or the command line in the type that the key wants.
fn from_text(key: &str, text: &str) -> Value {
    let plain = || Value::from(text);
    match keys::defaults().get(key) {
        Some(Value::Bool(_)) => text.parse().map_or_else(|_| plain(), Value::Bool),
        Some(Value::Number(_)) => text.parse::<i64>().map_or_else(|_| plain(), Value::from),
        _ => plain(),
    }
}

fn json_table(table: ::config::Map<String, ::config::Value>) -> Map<String, Value> {
    table
        .into_iter()
        .map(|(key, value)| (key, json(value)))
        .collect()
}

fn json(value: ::config::Value) -> Value {
    match value.kind {
        ValueKind::Nil => Value::Null,
        ValueKind::Boolean(it) => it.into(),
        ValueKind::I64(it) => it.into(),
        ValueKind::U64(it) => it.into(),
        // Beyond what JSON numbers hold; no key takes such a number, and the text says which it was.
        ValueKind::I128(it) => it.to_string().into(),
        ValueKind::U128(it) => it.to_string().into(),
        ValueKind::Float(it) => it.into(),
        ValueKind::String(it) => it.into(),
        ValueKind::Table(it) => Value::Object(json_table(it)),
        ValueKind::Array(it) => it.into_iter().map(json).collect(),
    }
}

/// Tries a value alone: settings that have nothing but this one.
fn check(key: &str, value: &Value) -> Result<(), String> {
    keys::check_name(key, value)?;
    keys::check_value(key, value)?;
    if value.is_object() {
        return Ok(());
    }
    let alone = nest(key, value.clone());
    match serde_json::from_value::<Settings>(alone) {
        Ok(_) => Ok(()),
        Err(why) => Err(why.to_string()),
    }
}

/// `a.b` and a value as `{"a": {"b": value}}`.
pub(super) fn nest(key: &str, value: Value) -> Value {
    key.rsplit('.').fold(value, |inner, name| {
        Value::Object(Map::from_iter([(name.to_owned(), inner)]))
    })
}
