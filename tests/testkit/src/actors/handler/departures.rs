//! What became of a guest whose VMI is no longer listed for this node?

use std::time::Duration;

use kube::api::{Api, DynamicObject, ListParams};
use serde_json::Value;

use super::super::feed::{Objects, resource};
use super::super::knobs::seconds_or_never;
use super::super::machine::{Guest, Launcher};
use super::Handler;
use crate::kubevirt::fields::{text, uid};
use crate::kubevirt::names::{kind, knob};

impl Handler {
    /// Guests that run here and whose VMI is no longer listed for this node: did they move, or is the VMI gone?
    pub(super) async fn follow_departures(&mut self, here: &Objects) {
        let running: Vec<Launcher> = self.shared.with(|machine| {
            machine
                .launchers
                .values()
                .filter(|one| one.holds_guest())
                .cloned()
                .collect()
        });
        for launcher in running {
            let listed = here
                .get(&(launcher.namespace.clone(), launcher.vmi.clone()))
                .is_some_and(|vmi| uid(vmi) == launcher.vmi_uid);
            if listed {
                continue;
            }
            let Some(found) = self.find(&launcher).await else {
                continue;
            };
            let found = found.filter(|vmi| uid(vmi) == launcher.vmi_uid);
            let (now, node) = (self.timers.now(), self.node.clone());
            self.shared.with(|machine| {
                let Some(own) = machine.of_pod(&launcher.namespace, &launcher.pod) else {
                    return;
                };
                match &found {
                    Some(vmi) if text(vmi, "status.nodeName") != node => leave(own, vmi, now),
                    Some(_) => {}
                    // A domain without a VMI is shut down.
                    None => own.guest = Guest::Gone { clean: true },
                }
            });
        }
    }

    /// virt-handler may list VMIs, not get one; `None` when the question was not answered.
    pub(super) async fn find(&self, launcher: &Launcher) -> Option<Option<Value>> {
        let api: Api<DynamicObject> = Api::namespaced_with(
            self.client.clone(),
            &launcher.namespace,
            &resource(kind::VMIS),
        );
        let list = api
            .list(&ListParams::default().fields(&format!("metadata.name={}", launcher.vmi)))
            .await
            .ok()?;
        Some(
            list.items
                .into_iter()
                .next()
                .and_then(|object| serde_json::to_value(object).ok()),
        )
    }
}

/// The guest has moved: the source pod ends after its knob's time, or is kept by a sidecar.
pub(super) fn leave(launcher: &mut Launcher, vmi: &Value, now: Duration) {
    launcher.guest = Guest::Gone { clean: true };
    match seconds_or_never(vmi, knob::SOURCE_LINGERS, Duration::from_secs(1)) {
        Some(lingers) => launcher.ends = Some((now + lingers, 0)),
        None => launcher.lingers = true,
    }
}
