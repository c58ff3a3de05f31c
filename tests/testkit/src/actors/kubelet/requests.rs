//! What does the kubelet send: pod statuses, the last delete, its lease, its node?

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
};
use serde_json::{Value, json};

use super::super::fabric::Host;
use super::super::feed::resource;
use super::{Deed, Kubelet};
use crate::api::store::timestamp;
use crate::kubevirt::fields::{name, namespace, uid};
use crate::kubevirt::names::kind;

impl Kubelet {
    pub(super) async fn perform(&self, deed: &Deed) -> bool {
        let pods = |pod: &Value| -> Api<DynamicObject> {
            Api::namespaced_with(self.client.clone(), namespace(pod), &resource(kind::PODS))
        };
        let outcome = match deed {
            Deed::Status { pod, status } => {
                let patch = json!({"metadata": {"uid": uid(pod)}, "status": status});
                pods(pod)
                    .patch_status(name(pod), &PatchParams::default(), &Patch::Strategic(patch))
                    .await
                    .map(|_| ())
            }
            Deed::Delete { pod } => {
                let exactly = Preconditions {
                    uid: Some(uid(pod).to_owned()),
                    resource_version: None,
                };
                let parameters = DeleteParams {
                    grace_period_seconds: Some(0),
                    preconditions: Some(exactly),
                    ..DeleteParams::default()
                };
                pods(pod).delete(name(pod), &parameters).await.map(|_| ())
            }
        };
        match outcome {
            Ok(()) => true,
            // Gone, or another pod of that name: nothing more to do.
            Err(kube::Error::Api(answer)) => {
                matches!(answer.code, 404 | 403)
                    || answer.code == 409 && matches!(deed, Deed::Delete { .. })
            }
            Err(_) => false,
        }
    }

    pub(super) async fn renew_lease(&self) -> bool {
        let leases: ApiResource = resource(kind::LEASES);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), "kube-node-lease", &leases);
        let now = self
            .clock
            .now()
            .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
            .to_string();
        let spec =
            json!({"holderIdentity": self.node, "leaseDurationSeconds": 40, "renewTime": now});
        let patch = Patch::Merge(json!({"spec": spec}));
        match api.patch(&self.node, &PatchParams::default(), &patch).await {
            Ok(_) => true,
            Err(kube::Error::Api(answer)) if answer.code == 404 => {
                let mut lease = DynamicObject::new(&self.node, &leases);
                lease.data = json!({"spec": spec});
                api.create(&PostParams::default(), &lease).await.is_ok()
            }
            Err(_) => false,
        }
    }

    /// Ready, boot id and device plugins, when they changed.
    pub(super) async fn post_node(&mut self, host: &Host) {
        let plugins = self.shared.with(|machine| machine.plugins);
        let facts = json!([host.boot_id, plugins, host.shutting_down.is_some()]);
        if facts == self.told {
            return;
        }
        let now = timestamp(self.clock.now());
        let (value, reason, message) = if host.shutting_down.is_some() {
            ("False", "KubeletNotReady", "node is shutting down")
        } else {
            ("True", "KubeletReady", "kubelet is posting ready status")
        };
        let count = if plugins { "1k" } else { "0" };
        let patch = json!({"status": {
            "conditions": [{"type": "Ready", "status": value, "reason": reason, "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now}],
            "nodeInfo": {"bootID": host.boot_id},
            "allocatable": {crate::kubevirt::names::KVM: count}, "capacity": {crate::kubevirt::names::KVM: count},
        }});
        let nodes: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(kind::NODES));
        if nodes
            .patch_status(
                &self.node,
                &PatchParams::default(),
                &Patch::Strategic(patch),
            )
            .await
            .is_ok()
        {
            self.told = facts;
        } else {
            let again = self.timers.now() + self.pace.retry;
            self.timers.reached(again);
        }
    }
}
