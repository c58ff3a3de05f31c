//! How does a VMIM go from Pending to its end, one step per look (kubevirt-semantics 4, 11.3–11.5)?

mod finish;
mod pending;
mod progress;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{migrations_of, target_pod};
use crate::api::{Change, Store};
use crate::kubernetes::engine::{Controller, Key, Queue, Unavailable};
use crate::kubevirt::fields::{
    annotation, deleting, ended, has, label, name, namespace, owner, phase, set_condition,
    set_phase, text, uid,
};
use crate::kubevirt::names::{self, kind};
use crate::kubevirt::virt_api::VirtApi;

/// Work on one VMIM.
const VMIM: &str = "vmim";

pub(super) struct Migrations {
    api: VirtApi,
    /// Phases last seen, to notice the moment at which one becomes final (uid → ended).
    ended: BTreeMap<String, bool>,
    /// Target pods made so far per VMI (uid); the played actors look up their outcome by this number.
    tries: BTreeMap<String, usize>,
}

impl Migrations {
    pub(super) fn new(api: VirtApi) -> Self {
        Self {
            api,
            ended: BTreeMap::new(),
            tries: BTreeMap::new(),
        }
    }

    fn step(
        &mut self,
        store: &Store,
        vmim: &Arc<Value>,
        queue: &mut Queue,
    ) -> Result<(), Unavailable> {
        let vmi = store.get_shared(kind::VMIS, namespace(vmim), text(vmim, "spec.vmiName"));
        if ended(vmim) {
            self.finish(store, vmim, vmi.as_deref());
            return Ok(());
        }
        if deleting(vmim) && self.abort(store, vmim, vmi.as_deref())? {
            return Ok(());
        }
        if let Some(reason) = self.failure(store, vmim, vmi.as_deref())? {
            Self::fail(store, vmim, &reason);
            return Ok(());
        }
        let Some(vmi) = vmi else { return Ok(()) };
        match phase(vmim) {
            "" => {
                Self::begin(store, vmim, &vmi);
                Ok(())
            }
            "Pending" => self.pending(store, vmim, &vmi, queue),
            "Scheduling" => {
                self.scheduling(store, vmim, queue);
                Ok(())
            }
            "Scheduled" => self.scheduled(store, vmim, &vmi),
            _ => {
                Self::follow(store, vmim, &vmi);
                Ok(())
            }
        }
    }

    /// Steps 4 and 5: two annotations, then Pending.
    fn begin(store: &Store, vmim: &Value, vmi: &Value) {
        const OBSERVED: [&str; 2] = [
            "kubevirt.io/latest-observed-api-version",
            "kubevirt.io/storage-observed-api-version",
        ];
        if annotation(vmim, OBSERVED[0]).is_none() {
            Self::update(store, vmim, |vmim| {
                for key in OBSERVED {
                    vmim["metadata"]["annotations"][key] = json!("v1");
                }
            });
            return;
        }
        let pods = super::pods_of(store, namespace(vmi), uid(vmi));
        let source = super::active_pod(vmi, &pods)
            .map(|pod| name(pod).to_owned())
            .unwrap_or_default();
        let now = store.stamp();
        Self::update(store, vmim, |vmim| {
            set_phase(vmim, "Pending", &now);
            vmim["status"]["migrationState"] = json!({"sourcePod": source});
        });
    }

    fn update(store: &Store, vmim: &Value, change: impl FnOnce(&mut Value)) {
        store.update(kind::VMIMS, namespace(vmim), name(vmim), change);
    }

    fn set_phase(store: &Store, vmim: &Value, phase: &str) {
        let now = store.stamp();
        Self::update(store, vmim, |vmim| set_phase(vmim, phase, &now));
    }

    fn update_vmi(
        &self,
        store: &Store,
        vmi: &Value,
        change: impl FnOnce(&mut Value),
    ) -> Result<(), Unavailable> {
        self.api.check()?;
        store.update(kind::VMIS, namespace(vmi), name(vmi), change);
        Ok(())
    }

    /// A deleted VMIM: before the hand-off it ends at once, while it runs the source is asked to stop. Whether there is nothing more
    /// to do now.
    fn abort(&self, store: &Store, vmim: &Value, vmi: Option<&Value>) -> Result<bool, Unavailable> {
        match (phase(vmim), vmi) {
            ("Running", Some(vmi)) => {
                if vmi["status"]["migrationState"]["abortRequested"] != true
                    && !has(vmi, "status.migrationState.endTimestamp")
                {
                    self.update_vmi(store, vmi, |vmi| {
                        vmi["status"]["migrationState"]["abortRequested"] = json!(true);
                    })?;
                    let now = store.stamp();
                    Self::update(store, vmim, |vmim| {
                        set_condition(vmim, "migrationAbortRequested", "True", "", "", &now);
                    });
                }
                Ok(false)
            }
            ("PreparingTarget" | "TargetReady", Some(_)) => Ok(false),
            _ => {
                let (now, why) = (store.stamp(), "Migration failed due to being canceled");
                Self::update(store, vmim, |vmim| {
                    set_condition(vmim, "migrationAbortRequested", "True", "", "", &now);
                    set_phase(vmim, "Failed", &now);
                });
                store.record_event(vmim, "Warning", "FailedMigration", why);
                if let Some(pod) = target_pod(store, vmim) {
                    store.delete(kind::PODS, namespace(&pod), name(&pod));
                    let text = format!(
                        "migration canceled and pod {}/{} is deleted",
                        namespace(&pod),
                        name(&pod)
                    );
                    store.record_event(vmim, "Normal", "SuccessfulDelete", &text);
                }
                Ok(true)
            }
        }
    }

    fn fail(store: &Store, vmim: &Value, reason: &str) {
        Self::set_phase(store, vmim, "Failed");
        store.record_event(vmim, "Warning", "FailedMigration", reason);
    }

    /// With the priority queue a final VMIM wakes the waiting ones, those with the highest priority first.
    fn wake(&self, store: &Store, queue: &mut Queue) {
        let mut waiting = store.list_shared(kind::VMIMS);
        waiting.retain(|vmim| phase(vmim) == "Pending");
        queue.shuffle(&mut waiting);
        waiting.sort_by_key(|vmim| std::cmp::Reverse(pending::priority(vmim)));
        let timings = &self.api.settings().timings;
        let mut delay = queue.between(timings.wake.0, timings.wake.1);
        for vmim in waiting {
            queue.instead(Key::of(VMIM, &vmim), delay);
            delay += timings.react.0 / 2;
        }
    }

    fn notice_end(&mut self, store: &Store, vmim: &Value, queue: &mut Queue) {
        let now = ended(vmim);
        let before = self.ended.insert(uid(vmim).to_owned(), now);
        if now && before == Some(false) && self.api.settings().has_priority_queue() {
            self.wake(store, queue);
        }
    }
}

impl Controller for Migrations {
    fn name(&self) -> &'static str {
        "migration"
    }

    fn changed(&mut self, store: &Store, change: &Change, queue: &mut Queue) {
        let object = &change.object;
        match change.resource.as_str() {
            kind::VMIMS => {
                queue.soon(Key::of(VMIM, object));
                self.notice_end(store, object, queue);
            }
            kind::VMIS => {
                for vmim in migrations_of(store, namespace(object), name(object)) {
                    let failed = !self.api.settings().since(1, 7) && phase(&vmim) == "Failed";
                    if !ended(&vmim) || has(&vmim, "metadata.finalizers") || failed {
                        queue.soon(Key::of(VMIM, &vmim));
                    }
                }
            }
            kind::PODS => {
                if let Some((_, vmi, _)) =
                    owner(object).filter(|(kind, ..)| *kind == "VirtualMachineInstance")
                {
                    for vmim in migrations_of(store, namespace(object), vmi)
                        .iter()
                        .filter(|vmim| !ended(vmim))
                    {
                        queue.soon(Key::of(VMIM, vmim));
                    }
                }
            }
            kind::PDBS => {
                let vmim = label(object, names::PDB_MIGRATION);
                if !vmim.is_empty() {
                    queue.soon(Key::new(VMIM, namespace(object), vmim));
                }
            }
            _ => {}
        }
    }

    fn reconcile(
        &mut self,
        store: &Store,
        key: &Key,
        queue: &mut Queue,
    ) -> Result<(), Unavailable> {
        match store.get_shared(kind::VMIMS, &key.namespace, &key.name) {
            Some(vmim) => self.step(store, &vmim, queue),
            None => Ok(()),
        }
    }
}
