//! One malformed object must not blind us: it is set aside with the path of the bad field, the rest is read.
//!
//! What there is much of is read straight from the text into its thin type. That does not tell which field was bad:
//! when something could not be read, it is read once more, field by field.

use super::meta::Meta;
use crate::drain::world::{Malformed, ObjectRef};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// A thin type and the view that the core gets of it.
pub(crate) trait Thin: DeserializeOwned {
    /// What the rest of the adapter works with.
    type View: Clone + PartialEq + Send + Sync + 'static;
    /// Plural resource name.
    const RESOURCE: &'static str;
    /// There are so many, or they change so often, that the quick way of reading is worth its part of the program.
    const MANY: bool;
    /// Its `metadata`.
    fn meta(&self) -> &Meta;
    /// The view; an error names the path of the field that makes it impossible.
    fn view(self) -> Result<Self::View, String>;
}

/// An object of a list or a watch: its view, or why there is none. Reading it never fails.
#[derive(Clone, Debug)]
pub(crate) struct Guarded<V> {
    /// Where it is, as far as that can be read.
    pub(crate) at: ObjectRef,
    /// `metadata.resourceVersion`, empty when unreadable.
    pub(crate) version: String,
    /// `metadata.labels` as far as they can be read, kept for malformed objects only.
    pub(crate) labels: BTreeMap<String, String>,
    /// The view, or the reason with the path of the field.
    pub(crate) view: Result<V, String>,
}

impl<V> Guarded<V> {
    /// Of an object in which every field had its type. `None` when there is no view of it all the same:
    /// [`Self::of`] tells why.
    pub(crate) fn typed<T: Thin<View = V>>(object: T) -> Option<Self> {
        let meta = object.meta();
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Some(Self {
            at: ObjectRef {
                namespace: text(&meta.namespace),
                name: text(&meta.name),
                uid: text(&meta.uid),
            },
            version: text(&meta.resource_version),
            labels: BTreeMap::new(),
            view: Ok(object.view().ok()?),
        })
    }

    /// Reads one object, field by field.
    pub(crate) fn of<T: Thin<View = V>>(value: &Value) -> Self {
        let text = |field: &str| {
            value
                .pointer(&format!("/metadata/{field}"))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let view = read::<T>(value)
            .map_err(|unreadable| unreadable.under(""))
            .and_then(Thin::view);
        let labels = match &view {
            Ok(_) => BTreeMap::new(),
            Err(_) => readable_labels(value),
        };
        Self {
            at: ObjectRef {
                namespace: text("namespace"),
                name: text("name"),
                uid: text("uid"),
            },
            version: text("resourceVersion"),
            labels,
            view,
        }
    }
}

/// The report about a malformed object.
pub(crate) fn malformed(resource: &str, at: &ObjectRef, why: String) -> Malformed {
    Malformed {
        resource: resource.to_owned(),
        object: object_name(at),
        why,
    }
}

/// Which field could not be read, and why.
#[derive(Clone, Debug)]
struct Unreadable {
    /// Empty for the whole value.
    path: String,
    why: String,
}

impl Unreadable {
    /// As a sentence about a value that is itself found at `place` (empty: the whole object).
    fn under(&self, place: &str) -> String {
        match (place, self.path.as_str()) {
            ("", "") => self.why.clone(),
            ("", path) | (path, "") => format!("{path}: {}", self.why),
            (place, path) => format!("{place}.{path}: {}", self.why),
        }
    }
}

/// Deserialises and names the field where that fails.
fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Unreadable> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        Unreadable {
            path: if path == "." { String::new() } else { path },
            why: error.into_inner().to_string(),
        }
    })
}

/// A part of an object that may be unreadable while the rest is fine.
#[derive(Clone, Debug)]
pub(crate) struct Part<T>(Result<T, Unreadable>);

impl<T: Default> Default for Part<T> {
    fn default() -> Self {
        Self(Ok(T::default()))
    }
}

impl<'de, T: DeserializeOwned + Default> Deserialize<'de> for Part<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        Ok(Self(if value.is_null() {
            Ok(T::default())
        } else {
            read(&value)
        }))
    }
}

impl<T: Default> Part<T> {
    /// The part, or its default and a line about what is wrong under `path`.
    pub(crate) fn or_default(self, path: &str, troubles: &mut Vec<String>) -> T {
        self.0.unwrap_or_else(|why| {
            troubles.push(why.under(path));
            T::default()
        })
    }
}

fn readable_labels(value: &Value) -> BTreeMap<String, String> {
    let labels = value.pointer("/metadata/labels").and_then(Value::as_object);
    labels
        .into_iter()
        .flatten()
        .filter_map(|(key, label)| Some((key.clone(), label.as_str()?.to_owned())))
        .collect()
}

/// `namespace/name`, `name`, or `(no name)`.
fn object_name(at: &ObjectRef) -> String {
    match (at.namespace.as_str(), at.name.as_str()) {
        ("", "") => "(no name)".to_owned(),
        ("", name) => name.to_owned(),
        (namespace, "") => format!("{namespace}/(no name)"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}
