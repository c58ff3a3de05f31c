//! When did the node become empty, and when did each migration end? Follows the store from the first moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinHandle;

use super::arena::NODE;
use crate::api::{Change, ChangeKind, Store};
use crate::kubevirt::fields::{ended, label, text, uid};
use crate::kubevirt::names::{LAUNCHER, ROLE, kind};

/// What keeps the node from being empty, and since when nothing does.
#[derive(Debug, Default)]
struct Seen {
    /// Launcher pods whose guest runs or will run, VMIs that are not final, VMIMs that are not final: by kind and UID.
    here: BTreeSet<(&'static str, String)>,
    emptied: Option<Duration>,
    finished: BTreeMap<String, Duration>,
}

/// Follows one store until it is dropped.
pub(super) struct Watcher {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Watcher {
    pub(super) fn start(store: &Store) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut revision = store.revision();
        {
            let mut seen = lock(&seen);
            for kind in [kind::PODS, kind::VMIS, kind::VMIMS] {
                for object in store.list_shared(kind) {
                    seen.take(kind, &object, false);
                }
            }
        }
        let (store, ours) = (store.clone(), seen.clone());
        let task = tokio::spawn(async move {
            let mut news = store.changed();
            while news.changed().await.is_ok() {
                let now = store.clock().elapsed();
                // A history that was cut off would only lose what happened long ago.
                let changes = store.changes_since(revision).unwrap_or_default();
                let mut seen = lock(&ours);
                for change in changes {
                    revision = change.revision;
                    seen.change(&change, now);
                }
            }
        });
        Self { seen, task }
    }

    /// When the last thing that kept the node from being empty went away; `None` while there is one.
    pub(super) fn emptied(&self) -> Option<Duration> {
        lock(&self.seen).emptied
    }

    /// When the VMIMs became final, in the order of time.
    pub(super) fn finished(&self) -> Vec<Duration> {
        let mut all: Vec<Duration> = lock(&self.seen).finished.values().copied().collect();
        all.sort_unstable();
        all
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn change(&mut self, change: &Change, now: Duration) {
        let gone = change.kind == ChangeKind::Deleted;
        let Some(kind) = [kind::PODS, kind::VMIS, kind::VMIMS]
            .into_iter()
            .find(|kind| *kind == change.resource)
        else {
            return;
        };
        let before = self.here.len();
        self.take(kind, &change.object, gone);
        if kind == kind::VMIMS && (gone || ended(&change.object)) {
            let uid = uid(&change.object).to_owned();
            self.finished.entry(uid).or_insert(now);
        }
        if !self.here.is_empty() {
            self.emptied = None;
        } else if before > 0 {
            self.emptied = Some(now);
        }
    }

    fn take(&mut self, kind: &'static str, object: &Value, gone: bool) {
        let key = (kind, uid(object).to_owned());
        let here = match kind {
            kind::PODS => {
                text(object, "spec.nodeName") == NODE
                    && label(object, ROLE) == LAUNCHER
                    && !guest_ended(object)
            }
            kind::VMIS => text(object, "status.nodeName") == NODE,
            // Every migration of these worlds moves a VM away from our node.
            _ => true,
        };
        if here && !gone && !ended(object) {
            self.here.insert(key);
        } else {
            self.here.remove(&key);
        }
    }
}

/// Whether the container with the guest has ended, although another one of its pod may linger.
fn guest_ended(pod: &Value) -> bool {
    let statuses = pod["status"]["containerStatuses"].as_array();
    statuses
        .into_iter()
        .flatten()
        .any(|status| status["name"] == "compute" && status["state"]["terminated"].is_object())
}
