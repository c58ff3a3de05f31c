//! The words of the table about states: where in an object is a field, does its value fit, what is a VM of the table like?

use std::time::Duration;

use serde_json::Value;

use super::side::{LOOK, Side, Who, get};
use super::table::Vm;
use crate::clock::SimClock;
use crate::world::VmSpec;

/// How long a state may take to come.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What has to become true.
pub struct State<'a> {
    /// Of which object.
    pub path: &'a str,
    /// A field of it; without one the object itself, which has to be gone.
    pub field: Option<&'a str>,
    /// The value; without one any.
    pub is: Option<&'a str>,
    /// The field, or the object, must not be there.
    pub gone: bool,
}

impl<'a> State<'a> {
    /// A field is there, and has this value.
    pub fn of(path: &'a str, field: &'a str, is: Option<&'a str>) -> Self {
        Self {
            path,
            field: Some(field),
            is,
            gone: false,
        }
    }

    /// Waits until it is so, and returns the field.
    pub async fn wait(&self, side: &Side) -> anyhow::Result<String> {
        let clock = SimClock::new(1.0);
        loop {
            let reply = side.ask(&Who::Admin, &get(self.path)).await?;
            let found = self.field.and_then(|field| find(&reply.json(), field));
            let done = match (self.field, self.gone) {
                (None, true) => reply.code == 404,
                (Some(_), true) => reply.code == 200 && found.is_none(),
                _ => reply.code == 200 && fits(found.as_deref(), self.is),
            };
            if done {
                return Ok(found.unwrap_or_default());
            }
            anyhow::ensure!(
                clock.elapsed() < PATIENCE,
                "waited in vain for {} {:?}; now {} {found:?}",
                self.path,
                self.field,
                reply.code
            );
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Whether a value is the one that is wanted; without one any is.
fn fits(found: Option<&str>, is: Option<&str>) -> bool {
    match (found, is) {
        (Some(found), Some(is)) => found == is,
        (found, _) => found.is_some(),
    }
}

/// The value at a JSON pointer as text; a part like `type=Ready` finds an element of a list.
fn find(object: &Value, pointer: &str) -> Option<String> {
    let mut value = object;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/");
        value = match (value, part.split_once('=')) {
            (Value::Array(list), Some((key, is))) => list.iter().find(|item| item[key] == is)?,
            (Value::Array(list), None) => list.get(part.parse::<usize>().ok()?)?,
            _ => value.get(&part)?,
        };
    }
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Some(other.to_string())
        }
    }
}

/// A VM of the table as the simulated world knows it.
pub fn spec(vm: &Vm, namespace: &str) -> VmSpec {
    let outcomes = if vm.migration.is_empty() {
        vec!["ok".to_owned()]
    } else {
        vm.migration.clone()
    };
    VmSpec {
        namespace: namespace.to_owned(),
        eviction_strategy: vm.strategy.clone(),
        not_migratable: vm.not_migratable.clone(),
        memory: "64Mi".to_owned(),
        migration_time: Duration::from_secs_f64(vm.migration_seconds),
        start_up: Duration::from_secs_f64(vm.start_seconds.unwrap_or(0.3)),
        migration: outcomes,
        guest_shutdown: Some(Duration::from_secs_f64(vm.shutdown_seconds.unwrap_or(1.0))),
        source_pod_lingers: (!vm.source_stays).then_some(Duration::from_secs(1)),
        labels: vm.labels.clone(),
        ..VmSpec::new(&vm.name, "")
    }
}
