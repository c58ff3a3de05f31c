//! How does virt-handler tell that it is there: schedulable label and heartbeat?

use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use rand::Rng as _;
use serde_json::json;

use super::super::fabric::Host;
use super::super::feed::resource;
use super::Handler;
use crate::api::store::timestamp;
use crate::kubevirt::names::{self, kind};

impl Handler {
    /// A settled world begins with everything in place; any later start begins from nothing.
    pub(super) async fn start(&mut self, first: bool, host: &Host) {
        let now = self.timers.now();
        if first {
            self.shared.with(|machine| machine.plugins = true);
            let pause = self.pause();
            self.beat_at = now + pause;
            return;
        }
        self.label("false", false).await;
        self.timers.forget(&format!("plugins/{}", host.boots));
        self.beat_at = Duration::MAX;
    }

    pub(super) async fn beat(&mut self, host: &Host) {
        let now = self.timers.now();
        if self.beat_at == Duration::MAX {
            let key = format!("plugins/{}", host.boots);
            if !self.timers.due(&key, self.pace.boot.1) {
                return;
            }
            self.shared.with(|machine| machine.plugins = true);
            self.beat_at = now;
        }
        if self.timers.reached(self.beat_at) {
            let done = self.label("true", true).await;
            self.beat_at = now + if done { self.pause() } else { self.pace.retry };
            self.timers.reached(self.beat_at);
        }
    }

    pub(super) fn pause(&mut self) -> Duration {
        let (least, most) = self.pace.heartbeat;
        self.random.random_range(least..=most)
    }

    pub(super) async fn label(&self, schedulable: &str, beat: bool) -> bool {
        let mut metadata = json!({"labels": {names::SCHEDULABLE: schedulable}});
        if beat {
            metadata["annotations"] = json!({names::HEARTBEAT: timestamp(self.clock.now())});
        }
        let nodes: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(kind::NODES));
        nodes
            .patch(
                &self.node,
                &PatchParams::default(),
                &Patch::Merge(json!({"metadata": metadata})),
            )
            .await
            .is_ok()
    }
}
