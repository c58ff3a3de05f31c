//! What must KubeVirt never do, whatever the story (kubevirt-semantics 11.11, I1–I5)?

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::api::{Change, ChangeKind, Store};
use crate::kubevirt::VirtApi;
use crate::kubevirt::controller::{pods_of, running, strategy};
use crate::kubevirt::fields::{
    condition, deleting, ended, has, is_launcher, label, name, namespace, owner, phase, text, uid,
    well_formed,
};
use crate::kubevirt::names::{self, kind};

/// One thing that must never happen and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `I1` … `I5`.
    pub rule: &'static str,
    /// Simulated time at which it was noticed.
    pub at: Duration,
    /// What happened.
    pub what: String,
}

/// Reads every change of the store.
pub struct Recorder {
    virt_api: VirtApi,
    state: Mutex<(u64, Vec<Violation>)>,
}

impl Recorder {
    pub(super) fn new(store: &Store, virt_api: &VirtApi) -> Self {
        Self {
            virt_api: virt_api.clone(),
            state: Mutex::new((store.revision(), Vec::new())),
        }
    }

    /// Follows the store for ever.
    pub(super) async fn run(self: Arc<Self>, store: Store) {
        let mut changed = store.changed();
        while changed.changed().await.is_ok() {
            self.catch_up(&store);
        }
    }

    /// Everything so far.
    pub(super) fn violations(&self, store: &Store) -> Vec<Violation> {
        self.catch_up(store);
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .1
            .clone()
    }

    fn catch_up(&self, store: &Store) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, found) = &mut *state;
        let changes = store.changes_since(*seen).unwrap_or_default();
        *seen = store.revision();
        let at = store.clock().elapsed();
        for change in changes.iter().filter(|change| well_formed(&change.object)) {
            let broken = match change.resource.as_str() {
                kind::VMIMS => self.slots(store),
                kind::VMIS => self.vmi(change),
                kind::PODS => self.pod(store, change),
                _ => Vec::new(),
            };
            found.extend(
                broken
                    .into_iter()
                    .map(|(rule, what)| Violation { rule, at, what }),
            );
        }
    }

    /// I1: never more running migrations than the cluster and a node may have.
    fn slots(&self, store: &Store) -> Vec<(&'static str, String)> {
        let settings = self.virt_api.settings();
        let running = running(store);
        let mut broken = Vec::new();
        if running.len() > settings.per_cluster {
            broken.push((
                "I1",
                format!("{} migrations run in the cluster", running.len()),
            ));
        }
        // A migration whose VM has arrived has left its node; only KubeVirt's own count still holds the slot.
        let mut leaving: BTreeMap<String, usize> = BTreeMap::new();
        for vmim in &running {
            let vmi = store.get_shared(kind::VMIS, namespace(vmim), text(vmim, "spec.vmiName"));
            if let Some(vmi) = vmi.filter(|vmi| !arrived(vmi, uid(vmim))) {
                *leaving
                    .entry(text(&vmi, "status.nodeName").to_owned())
                    .or_default() += 1;
            }
        }
        let over = leaving
            .into_iter()
            .filter(|(_, count)| *count > settings.per_node);
        broken.extend(over.map(|(node, count)| ("I1", format!("{count} migrations leave {node}"))));
        broken
    }

    /// I3 and I4: what flips flips together, and nothing else takes a mark away.
    fn vmi(&self, change: &Change) -> Vec<(&'static str, String)> {
        let (Some(before), ChangeKind::Modified) = (&change.previous, change.kind) else {
            return Vec::new();
        };
        let after = &change.object;
        let mut broken = Vec::new();
        let (from, to) = (
            text(before, "status.nodeName"),
            text(after, "status.nodeName"),
        );
        let flipped = !from.is_empty() && from != to;
        let together = label(after, names::NODE_NAME) == to
            && has(after, "status.migrationState.endTimestamp")
            && text(after, "status.evacuationNodeName").is_empty();
        if flipped && !together {
            broken.push((
                "I3",
                format!("{} flipped from {from} to {to} in pieces", name(after)),
            ));
        }
        let unmarked = !text(before, "status.evacuationNodeName").is_empty()
            && text(after, "status.evacuationNodeName").is_empty();
        if unmarked
            && !flipped
            && !self
                .virt_api
                .was_cancelled(text(after, "metadata.resourceVersion"))
        {
            broken.push(("I4", format!("the mark of {} vanished", name(after))));
        }
        broken
    }

    /// I2 and I5.
    fn pod(&self, store: &Store, change: &Change) -> Vec<(&'static str, String)> {
        let pod = &change.object;
        let Some((_, vmi_name, vmi_uid)) = owner(pod).filter(|_| is_launcher(pod)) else {
            return Vec::new();
        };
        let mut broken = Vec::new();
        let live: Vec<_> = pods_of(store, namespace(pod), vmi_uid)
            .into_iter()
            .filter(|pod| !ended(pod))
            .collect();
        if live.len() > 2 {
            broken.push((
                "I2",
                format!("{} live pods belong to {vmi_name}", live.len()),
            ));
        }
        if let [one, other] = live.as_slice()
            && text(one, "spec.nodeName") == text(other, "spec.nodeName")
            && !text(one, "spec.nodeName").is_empty()
        {
            broken.push((
                "I2",
                format!(
                    "both pods of {vmi_name} are on {}",
                    text(one, "spec.nodeName")
                ),
            ));
        }
        let evicted = deleting(pod)
            && condition(pod, "DisruptionTarget")
                .is_some_and(|found| found["reason"] == "EvictionByEvictionAPI");
        let fresh = change
            .previous
            .as_ref()
            .is_some_and(|before| !deleting(before));
        if evicted && fresh && !ended(pod) && self.must_migrate(store, pod, vmi_name) {
            broken.push(("I5", format!("the eviction of {} was granted", name(pod))));
        }
        broken
    }

    /// A pod whose VM runs in it and has the strategy LiveMigrate.
    fn must_migrate(&self, store: &Store, pod: &Value, vmi: &str) -> bool {
        let Some(vmi) = store.get_shared(kind::VMIS, namespace(pod), vmi) else {
            return false;
        };
        strategy(self.virt_api.settings(), &vmi) == "LiveMigrate"
            && phase(&vmi) == "Running"
            && text(&vmi, "status.nodeName") == text(pod, "spec.nodeName")
    }
}

fn arrived(vmi: &Value, vmim: &str) -> bool {
    text(vmi, "status.migrationState.migrationUid") == vmim
        && has(vmi, "status.migrationState.endTimestamp")
}
