//! What happened to the objects: watched on each side, told as the values that each field had one after the other.
//!
//! Which changes share one write is up to a controller's scheduling, so a field is followed for itself; the order between fields is the
//! subject of [`super::orders`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::task::AbortHandle;

use crate::clock::SimClock;

use super::names::Names;
use super::side::{Side, Who, get};

/// What is watched, and which of its fields count (all when there are none).
const WATCHED: [(&str, &str, &[&str]); 4] = [
    (
        "pod",
        "/api/v1/namespaces/{}/pods",
        &[
            "/spec/nodeName",
            "/status/phase",
            "/status/conditions",
            "/metadata/labels",
            "/metadata/annotations",
            "/metadata/deletion",
        ],
    ),
    (
        "vmi",
        "/apis/kubevirt.io/v1/namespaces/{}/virtualmachineinstances",
        &[],
    ),
    (
        "vmim",
        "/apis/kubevirt.io/v1/namespaces/{}/virtualmachineinstancemigrations",
        &[],
    ),
    (
        "pdb",
        "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
        &[],
    ),
];

/// One event of a watch.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it arrived, since the recording began; `None`: it was there before.
    pub at: Option<Duration>,
    /// `pod`, `vmi`, `vmim`, `pdb`.
    pub kind: &'static str,
    /// Whether the object is gone.
    pub gone: bool,
    /// The object.
    pub object: Value,
}

impl Record {
    /// When it was written, in the one count that a cluster has for all objects.
    fn revision(&self) -> u64 {
        let revision = self.object["metadata"]["resourceVersion"].as_str();
        revision.and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

/// A recording that goes on.
pub struct Recorder {
    records: Arc<Mutex<Vec<Record>>>,
    clock: SimClock,
    tasks: Vec<AbortHandle>,
}

impl Recorder {
    /// Starts to watch a namespace; what is there now is known when this returns.
    pub async fn start(side: &Side, namespace: &str) -> anyhow::Result<Self> {
        let mut recorder = Self {
            records: Arc::default(),
            clock: SimClock::new(1.0),
            tasks: Vec::new(),
        };
        for (kind, path, _) in WATCHED {
            let path = path.replace("{}", namespace);
            let list = side.ask(&Who::Admin, &get(&path)).await?.json();
            let revision = list["metadata"]["resourceVersion"]
                .as_str()
                .context("a list without a revision")?
                .to_owned();
            for object in list["items"].as_array().into_iter().flatten() {
                recorder.push(None, kind, false, object.clone());
            }
            let request =
                http::Request::get(format!("{path}?watch=true&resourceVersion={revision}"))
                    .body(kube::client::Body::empty())?;
            let body = side.client(&Who::Admin).send(request).await?.into_body();
            let (records, clock) = (recorder.records.clone(), recorder.clock.clone());
            let task = tokio::spawn(follow(body, kind, records, clock));
            recorder.tasks.push(task.abort_handle());
        }
        Ok(recorder)
    }

    fn push(&self, at: Option<Duration>, kind: &'static str, gone: bool, object: Value) {
        self.records
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Record {
                at,
                kind,
                gone,
                object,
            });
    }

    /// For how long nothing has changed.
    pub fn quiet(&self) -> Duration {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let last = records.iter().filter_map(|record| record.at).max();
        self.clock
            .elapsed()
            .saturating_sub(last.unwrap_or_default())
    }

    /// Everything that was seen so far.
    pub fn records(&self) -> Vec<Record> {
        self.records
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn follow(
    mut body: kube::client::Body,
    kind: &'static str,
    records: Arc<Mutex<Vec<Record>>>,
    clock: SimClock,
) {
    let mut line = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        for byte in data {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            let event: Value = serde_json::from_slice(&line).unwrap_or_default();
            line.clear();
            let gone = event["type"] == "DELETED";
            if gone || event["type"] == "ADDED" || event["type"] == "MODIFIED" {
                records
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(Record {
                        at: Some(clock.elapsed()),
                        kind,
                        gone,
                        object: event["object"].clone(),
                    });
            }
        }
    }
}

/// One change of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// When.
    pub at: Duration,
    /// Which write of the recording it came with.
    pub write: usize,
    /// `vmi a /status/phase`.
    pub field: String,
    /// The new value; null: it is gone.
    pub value: Value,
}

/// All changes of a recording.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// In the order in which they were seen.
    pub all: Vec<Change>,
}

impl Changes {
    /// Compares each record with the one before of the same object. The four watches tell of their objects at their own pace; the
    /// revisions say in which order they were written.
    pub fn of(mut records: Vec<Record>, names: &Names) -> Self {
        records.sort_by_key(|record| (record.at.is_some(), record.revision()));
        let mut before: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
        let mut called = Called::default();
        let mut all = Vec::new();
        for (write, record) in records.into_iter().enumerate() {
            let object = called.name(&record);
            let now = if record.gone {
                BTreeMap::new()
            } else {
                fields_of(&record, names)
            };
            let old = before.insert(object.clone(), now.clone());
            let Some(at) = record.at else { continue };
            let mut change = |field: &str, value: Value| {
                all.push(Change {
                    at,
                    write,
                    field: format!("{object} {field}"),
                    value,
                });
            };
            if record.gone {
                change("exists", Value::Bool(false));
                continue;
            }
            if old.is_none() {
                change("exists", Value::Bool(true));
            }
            let old = old.unwrap_or_default();
            for (field, value) in &now {
                if old.get(field) != Some(value) {
                    change(field, value.clone());
                }
            }
            for field in old.keys().filter(|field| !now.contains_key(*field)) {
                change(field, Value::Null);
            }
        }
        Self { all }
    }

    /// The values that each field had, one after the other.
    pub fn by_field(&self) -> BTreeMap<&str, Vec<&Value>> {
        let mut fields: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for change in &self.all {
            let values = fields.entry(&change.field).or_default();
            if values.last() != Some(&&change.value) {
                values.push(&change.value);
            }
        }
        fields
    }
}

/// Names that both sides give: the pods of a VM and its migrations are numbered.
#[derive(Default)]
struct Called {
    by_uid: BTreeMap<String, String>,
    counts: BTreeMap<String, usize>,
}

impl Called {
    fn name(&mut self, record: &Record) -> String {
        let metadata = &record.object["metadata"];
        let uid = metadata["uid"].as_str().unwrap_or_default().to_owned();
        if let Some(name) = self.by_uid.get(&uid) {
            return name.clone();
        }
        let domain = &metadata["annotations"]["kubevirt.io/domain"];
        let vm = domain
            .as_str()
            .or(record.object["spec"]["vmiName"].as_str());
        let stem = match (record.kind, vm) {
            ("pod" | "vmim", Some(vm)) => format!("{} {vm}", record.kind),
            ("pdb", _) => "pdb".to_owned(),
            _ => format!(
                "{} {}",
                record.kind,
                metadata["name"].as_str().unwrap_or_default()
            ),
        };
        let count = self.counts.entry(stem.clone()).or_default();
        *count += 1;
        let name = if record.kind == "vmi" && *count == 1 {
            stem
        } else {
            format!("{stem} {count}")
        };
        self.by_uid.insert(uid, name.clone());
        name
    }
}

fn fields_of(record: &Record, names: &Names) -> BTreeMap<String, Value> {
    let counted = WATCHED
        .iter()
        .find(|(kind, ..)| *kind == record.kind)
        .map_or(&[][..], |(.., fields)| fields);
    let mut fields = BTreeMap::new();
    flatten(&names.value(&record.object), "", &mut fields);
    fields.retain(|field, _| {
        (counted.is_empty() || counted.iter().any(|prefix| field.starts_with(prefix)))
            && !ignored(field)
    });
    fields
}

/// What says nothing: when something was looked at, and how it is kept.
fn ignored(field: &str) -> bool {
    const IGNORED: [&str; 5] = [
        "/apiVersion",
        "/kind",
        "/metadata/generation",
        "/metadata/creationTimestamp",
        "/status/phaseTransitionTimestamps",
    ];
    IGNORED.iter().any(|prefix| field.starts_with(prefix))
        || [
            "/lastProbeTime",
            "/lastTransitionTime",
            "/observedGeneration",
        ]
        .iter()
        .any(|end| field.ends_with(end))
        || field.contains("sim.vmdrain.io")
}

/// Every leaf with its path; elements of a list by `type` or `name` where they have one.
fn flatten(value: &Value, path: &str, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                flatten(value, &format!("{path}/{key}"), into);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                let key = value["type"].as_str().or(value["name"].as_str());
                let key = key.map_or_else(|| index.to_string(), str::to_owned);
                flatten(value, &format!("{path}/{key}"), into);
            }
        }
        leaf @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            into.insert(path.to_owned(), leaf.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_is_that_of_the_writes_and_not_that_of_the_watches() {
        let seen = |at: u64, kind, revision: &str, phase: &str| Record {
            at: Some(Duration::from_secs(at)),
            kind,
            gone: false,
            object: json!({
                "metadata": {"name": "a", "uid": kind, "resourceVersion": revision},
                "status": {"phase": phase},
            }),
        };
        let records = vec![
            seen(1, "vmi", "9", "Running"),
            seen(2, "vmim", "100", "Pending"),
            seen(3, "vmim", "10", ""),
        ];
        let changes = Changes::of(records, &Names::default());
        let phases: Vec<&Value> = changes
            .all
            .iter()
            .filter(|change| change.field.ends_with("/status/phase"))
            .map(|change| &change.value)
            .collect();
        assert_eq!(phases, ["Running", "", "Pending"]);
    }
}
