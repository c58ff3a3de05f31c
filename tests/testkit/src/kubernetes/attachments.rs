//! When are volumes detached from a node? Some time after its last ordinary pod is gone, or never.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::engine::{Controller, Key, Queue, Unavailable};
use crate::api::{Change, Store};
use crate::kubevirt::fields::{annotation, ended, name, owner, seconds, text};
use crate::kubevirt::names::{kind, knob};

const ATTACHMENT: &str = "attachment";

/// The attach/detach controller.
#[derive(Debug, Default)]
pub struct Attachments {
    /// Since when a node has no pod that may use a volume.
    free_since: BTreeMap<String, Duration>,
}

impl Controller for Attachments {
    fn name(&self) -> &'static str {
        "attachments"
    }

    fn changed(&mut self, store: &Store, change: &Change, queue: &mut Queue) {
        match change.resource.as_str() {
            kind::ATTACHMENTS => queue.soon(Key::of(ATTACHMENT, &change.object)),
            kind::PODS => {
                let node = text(&change.object, "spec.nodeName");
                for attachment in store
                    .list_shared(kind::ATTACHMENTS)
                    .iter()
                    .filter(|one| text(one, "spec.nodeName") == node)
                {
                    queue.soon(Key::of(ATTACHMENT, attachment));
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
        let Some(attachment) = store.get_shared(kind::ATTACHMENTS, "", &key.name) else {
            return Ok(());
        };
        let node = text(&attachment, "spec.nodeName");
        if store
            .list_shared(kind::PODS)
            .iter()
            .any(|pod| text(pod, "spec.nodeName") == node && uses_volumes(pod))
        {
            self.free_since.remove(node);
            return Ok(());
        }
        let now = queue.now();
        let since = *self.free_since.entry(node.to_owned()).or_insert(now);
        // `never`, or anything else that is not a number of seconds.
        let Some(after) = seconds(&attachment, knob::DETACHES) else {
            return Ok(());
        };
        match (since + after).checked_sub(now) {
            Some(left) if !left.is_zero() => queue.after(key.clone(), left),
            _ => {
                store.remove(kind::ATTACHMENTS, "", name(&attachment));
            }
        }
        Ok(())
    }
}

fn uses_volumes(pod: &Value) -> bool {
    let node_bound = owner(pod).is_some_and(|(kind, ..)| matches!(kind, "DaemonSet" | "Node"))
        || annotation(pod, "kubernetes.io/config.mirror").is_some();
    !ended(pod) && !node_bound
}
