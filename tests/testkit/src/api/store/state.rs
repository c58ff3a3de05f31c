//! How is the store kept: current objects, revision counter and history.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rand::Rng as _;
use rand::rngs::SmallRng;
use serde_json::{Map, Value, json};

use super::{Change, ChangeKind, Expired, counts_generation};
use crate::api::failure::Failure;
use crate::api::kinds;

/// How many changes are remembered before the oldest are forgotten.
const HISTORY: usize = 20_000;
/// The first revision of a world; real clusters are never at 0, and 0 means "any" in a request.
const FIRST_REVISION: u64 = 1000;
/// The characters of a generated name (no vowels, so no words).
const SUFFIX_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

type Objects = BTreeMap<(String, String), Arc<Value>>;

#[derive(Debug)]
pub(super) struct State {
    objects: BTreeMap<String, Objects>,
    history: VecDeque<Change>,
    /// The history is complete after this revision.
    oldest: u64,
    revision: u64,
    random: SmallRng,
}

impl State {
    pub(super) fn new(random: SmallRng) -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            oldest: FIRST_REVISION,
            revision: FIRST_REVISION,
            random,
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.objects
            .get(resource)?
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    pub(super) fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        self.objects
            .get(resource)
            .map(|objects| objects.values().cloned().collect())
            .unwrap_or_default()
    }

    pub(super) fn list_at(
        &self,
        resource: &str,
        revision: u64,
    ) -> Result<Vec<Arc<Value>>, Expired> {
        self.check_age(revision)?;
        let mut objects = self.objects.get(resource).cloned().unwrap_or_default();
        let newer = self
            .history
            .iter()
            .rev()
            .take_while(|change| change.revision > revision);
        for change in newer.filter(|change| change.resource == resource) {
            match &change.previous {
                Some(previous) => objects.insert(key_of(previous), previous.clone()),
                None => objects.remove(&key_of(&change.object)),
            };
        }
        Ok(objects.into_values().collect())
    }

    pub(super) fn changes_since(&self, revision: u64) -> Result<Vec<Change>, Expired> {
        self.check_age(revision)?;
        let from = self
            .history
            .partition_point(|change| change.revision <= revision);
        Ok(self.history.iter().skip(from).cloned().collect())
    }

    pub(super) fn changes_of(&self, resource: &str, revision: u64) -> Result<Vec<Change>, Expired> {
        self.check_age(revision)?;
        let from = self
            .history
            .partition_point(|change| change.revision <= revision);
        Ok(self
            .history
            .range(from..)
            .filter(|change| change.resource == resource)
            .cloned()
            .collect())
    }

    pub(super) fn is_namespace_used(&self, namespace: &str) -> bool {
        let inside = |objects: &Objects| {
            let from = (namespace.to_owned(), String::new());
            objects
                .range(from..)
                .next()
                .is_some_and(|((found, _), _)| found == namespace)
        };
        !namespace.is_empty() && self.objects.values().any(inside)
    }

    pub(super) fn compact(&mut self) {
        self.history.clear();
        self.oldest = self.revision;
    }

    fn check_age(&self, revision: u64) -> Result<(), Expired> {
        if revision < self.oldest {
            Err(Expired {
                asked: revision,
                oldest: self.oldest,
            })
        } else {
            Ok(())
        }
    }

    /// Fills in everything that the server fills in at a create.
    pub(super) fn prepare_create(
        &mut self,
        resource: &str,
        object: &mut Value,
        now: &str,
    ) -> Result<(), Failure> {
        let kind = kinds::by_plural(resource);
        let group = kinds::group_of(resource);
        if !object.is_object() {
            return Err(Failure::bad_request(
                "the object provided is not a JSON object",
            ));
        }
        if let Some(kind) = kind {
            set_default(object, "apiVersion", json!(kind.api_version()));
            set_default(object, "kind", json!(kind.kind));
        }
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let (namespace, mut name) = key_of(object);
        if name.is_empty() {
            let prefix = object["metadata"]["generateName"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            if prefix.is_empty() {
                let shown = kind.map_or(resource, |kind| kind.kind);
                let why = "Required value: name or generateName is required";
                return Err(Failure::invalid_field(
                    group,
                    shown,
                    "",
                    "metadata.name",
                    why,
                ));
            }
            name = self.free_name(resource, &namespace, &prefix);
            object["metadata"]["name"] = json!(name);
        }
        if self.get(resource, &namespace, &name).is_some() {
            return Err(Failure::already_exists(group, resource, &name));
        }
        let uid = self.new_uid();
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(uid);
        metadata["creationTimestamp"] = json!(now);
        if let Some(fields) = metadata.as_object_mut() {
            for field in [
                "resourceVersion",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "generation",
            ] {
                fields.remove(field);
            }
        }
        if counts_generation(resource) {
            metadata["generation"] = json!(1);
        }
        if resource == "namespaces" {
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            object["status"]["phase"] = json!("Active");
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
        }
        Ok(())
    }

    fn free_name(&mut self, resource: &str, namespace: &str, prefix: &str) -> String {
        loop {
            let name = format!("{prefix}{}", self.suffix());
            if self.get(resource, namespace, &name).is_none() {
                return name;
            }
        }
    }

    fn suffix(&mut self) -> String {
        (0..5)
            .map(|_| {
                char::from(SUFFIX_CHARACTERS[self.random.random_range(0..SUFFIX_CHARACTERS.len())])
            })
            .collect()
    }

    fn new_uid(&mut self) -> String {
        let bits: u128 = self.random.random();
        // Version 4, variant 10, as every uid of Kubernetes.
        let bits = (bits & !(0xf << 76) & !(0b11 << 62)) | (4 << 76) | (0b10 << 62);
        let hex = format!("{bits:032x}");
        format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }

    /// Stores a prepared new object.
    pub(super) fn insert(&mut self, resource: &str, object: Value) -> Arc<Value> {
        self.record(ChangeKind::Added, resource, object, None)
    }

    /// Stores `object` in the place of `before`; removes it when its deletion is complete. No change, no event.
    pub(super) fn write(
        &mut self,
        resource: &str,
        before: &Arc<Value>,
        object: Value,
    ) -> Arc<Value> {
        let mut object = object;
        keep_identity(before, &mut object);
        if object == **before {
            return before.clone();
        }
        if counts_generation(resource) && object.get("spec") != before.get("spec") {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
            object["metadata"]["generation"] = json!(generation + 1);
        }
        if is_gone(resource, &object) {
            return self.remove(resource, before, object);
        }
        self.record(ChangeKind::Modified, resource, object, Some(before.clone()))
    }

    /// Stores an object as it is; `None` when nothing is new. Another uid is another object: the old one is removed first.
    pub(super) fn mirror(&mut self, resource: &str, object: Value) -> Option<Arc<Value>> {
        let (namespace, name) = key_of(&object);
        let Some(before) = self.get(resource, &namespace, &name) else {
            return Some(self.record(ChangeKind::Added, resource, object, None));
        };
        if before["metadata"]["uid"] != object["metadata"]["uid"] {
            self.remove(resource, &before, (*before).clone());
            return Some(self.record(ChangeKind::Added, resource, object, None));
        }
        let mut object = object;
        object["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        (object != *before)
            .then(|| self.record(ChangeKind::Modified, resource, object, Some(before)))
    }

    /// Stores `object` in the place of `before` even when its deletion is complete.
    pub(super) fn show(&mut self, before: &Arc<Value>, object: Value) -> Arc<Value> {
        self.record(ChangeKind::Modified, "pods", object, Some(before.clone()))
    }

    /// Removes `before`; `object` is what the DELETED event shows.
    pub(super) fn remove(
        &mut self,
        resource: &str,
        before: &Arc<Value>,
        object: Value,
    ) -> Arc<Value> {
        self.record(ChangeKind::Deleted, resource, object, Some(before.clone()))
    }

    fn record(
        &mut self,
        kind: ChangeKind,
        resource: &str,
        object: Value,
        previous: Option<Arc<Value>>,
    ) -> Arc<Value> {
        let mut object = object;
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let object = Arc::new(object);
        let key = key_of(&object);
        let objects = self.objects.entry(resource.to_owned()).or_default();
        if kind == ChangeKind::Deleted {
            objects.remove(&key);
        } else {
            objects.insert(key, object.clone());
        }
        self.history.push_back(Change {
            revision: self.revision,
            kind,
            resource: resource.to_owned(),
            object: object.clone(),
            previous,
        });
        if self.history.len() > HISTORY
            && let Some(forgotten) = self.history.pop_front()
        {
            self.oldest = forgotten.revision;
        }
        object
    }
}

/// Whether nothing keeps an object whose deletion has begun.
fn is_gone(resource: &str, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let no_finalizers = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let namespace_done = resource != "namespaces" || no_finalizers(&object["spec"]["finalizers"]);
    !metadata["deletionTimestamp"].is_null()
        && grace == 0
        && no_finalizers(&metadata["finalizers"])
        && namespace_done
}

/// Undoes changes of what belongs to the store.
fn keep_identity(before: &Value, object: &mut Value) {
    if !object.is_object() {
        *object = before.clone();
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "generation",
    ] {
        keep(before, object, field);
    }
    if !before["metadata"]["deletionTimestamp"].is_null()
        && object["metadata"]["deletionTimestamp"].is_null()
    {
        keep(before, object, "deletionTimestamp");
        keep(before, object, "deletionGracePeriodSeconds");
    }
}

fn keep(before: &Value, object: &mut Value, field: &str) {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    match before["metadata"].get(field) {
        Some(value) => metadata.insert(field.to_owned(), value.clone()),
        None => metadata.remove(field),
    };
}

fn set_default(object: &mut Value, field: &str, value: Value) {
    let empty = object
        .get(field)
        .and_then(Value::as_str)
        .is_none_or(str::is_empty);
    if empty {
        object
            .as_object_mut()
            .unwrap_or(&mut Map::new())
            .insert(field.to_owned(), value);
    }
}

/// Namespace and name of an object; empty strings for what is missing.
pub(super) fn key_of(object: &Value) -> (String, String) {
    let text = |field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("namespace"), text("name"))
}
