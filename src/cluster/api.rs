//! The single requests: read and cordon the own Node, evict, confirm, call off. Each is sent once.

use super::KubeCluster;
use super::client::Answer;
use super::collection::{Collection, list};
use super::fault;
use super::types::Guarded;
use super::types::Thin;
use super::types::guard::malformed;
use super::types::migration::{Migration, VMI_NAME_LABEL};
use super::types::node::{CORDON_ANNOTATION, Node};
use super::types::other::Other;
use super::types::pod::Pod;
use super::types::target::Target;
use super::types::vmi::Vmi;
use super::types::volume::Attachment;
use crate::agent::ports::Clock;
use crate::drain::action::{Fault, FaultClass};
use crate::drain::answer::Reply;
use crate::drain::request::HANDLED_ANNOTATION;
use crate::drain::world::{
    AttachedVolume, CordonNote, Fresh, Malformed, MigrationView, NodeView, ObjectRef, PodView,
    VmName, VmiView,
};
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use serde_json::{Value, json};

/// Who we are to servers that keep book of who wrote which field.
pub(super) const FIELD_MANAGER: &str = "vmdrain-agent";
const NODES: &str = "/api/v1/nodes";
const VMIS: &str = "virtualmachineinstances";

impl<C: Clock> KubeCluster<C> {
    /// GET of the own Node.
    pub(super) async fn get_node(&self) -> Result<NodeView, Fault> {
        let what = format!("read node {}", self.node_name);
        let request = Request::new(NODES).get(&self.node_name, &GetParams::default());
        self.node(&what, request).await
    }

    /// Cordon and note in one merge patch, so that the two can never disagree.
    pub(super) async fn patch_cordon(
        &self,
        resource_version: &str,
        note: Option<&CordonNote>,
    ) -> Result<NodeView, Fault> {
        let what = format!("cordon node {}", self.node_name);
        let mut patch = json!({"metadata": {}, "spec": {"unschedulable": true}});
        if let Some(note) = note {
            let text = serde_json::to_string(note)
                .map_err(|error| fault::fault(FaultClass::Fatal, &what, &error.to_string()))?;
            patch["metadata"]["annotations"] = json!({CORDON_ANNOTATION: text});
        }
        self.patch_node(&what, resource_version, patch).await
    }

    /// Uncordon and remove the note in one merge patch.
    pub(super) async fn patch_uncordon(&self, resource_version: &str) -> Result<NodeView, Fault> {
        let what = format!("uncordon node {}", self.node_name);
        let patch = json!({
            "metadata": {"annotations": {CORDON_ANNOTATION: null}},
            "spec": {"unschedulable": null},
        });
        self.patch_node(&what, resource_version, patch).await
    }

    /// Remove the note alone: the cordon that is there is somebody else's, or there is none.
    pub(super) async fn patch_unmark(&self, resource_version: &str) -> Result<NodeView, Fault> {
        let what = format!("remove our marker from node {}", self.node_name);
        let patch = json!({"metadata": {"annotations": {CORDON_ANNOTATION: null}}});
        self.patch_node(&what, resource_version, patch).await
    }

    /// Write down which request was taken.
    pub(super) async fn patch_handled(
        &self,
        resource_version: &str,
        value: &str,
    ) -> Result<NodeView, Fault> {
        let what = format!("mark a request on node {} as taken", self.node_name);
        let patch = json!({"metadata": {"annotations": {HANDLED_ANNOTATION: value}}});
        self.patch_node(&what, resource_version, patch).await
    }

    async fn patch_node(
        &self,
        what: &str,
        resource_version: &str,
        mut patch: Value,
    ) -> Result<NodeView, Fault> {
        if resource_version.is_empty() {
            let why = "its resourceVersion is not known, and without it somebody else's change could be overwritten";
            return Err(fault::fault(FaultClass::Conflict, what, why));
        }
        patch["metadata"]["resourceVersion"] = json!(resource_version);
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let request = Request::new(NODES).patch(&self.node_name, &params, &Patch::Merge(&patch));
        self.node(what, request).await
    }

    /// Sends a request that answers with the Node.
    async fn node(
        &self,
        what: &str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<NodeView, Fault> {
        let urgent = self.doors.urgent();
        let answer = self.send(what, request).await?;
        drop(urgent);
        if !answer.is_success() {
            return Err(fault::from_reply(what, &answer.reply()));
        }
        let unreadable = |class, why: String| {
            let why = format!("the server's answer cannot be read: {why}");
            fault::fault(class, what, &why)
        };
        // No JSON comes from something between the server and us, and passes; a strange Node stays one.
        let value: Value = serde_json::from_slice(&answer.body)
            .map_err(|error| unreadable(FaultClass::Transient, error.to_string()))?;
        let read = Guarded::of::<Node>(&value);
        let seen = read
            .view
            .map_err(|why| unreadable(FaultClass::Fatal, why))?;
        for trouble in &seen.troubles {
            tracing::warn!(node = %seen.name(), %trouble, "a part of the node cannot be read");
        }
        Ok(seen.on_boot_clock(self.clock.booted_at()))
    }

    /// POST of an eviction: policy/v1, with the UID as precondition. Whatever the server answers is the answer.
    pub(super) async fn post_eviction(
        &self,
        pod: &ObjectRef,
        dry_run: bool,
    ) -> Result<Reply, Fault> {
        let what = format!("evict pod {pod}");
        let eviction = Eviction {
            metadata: meta::ObjectMeta {
                name: Some(pod.name.clone()),
                namespace: Some(pod.namespace.clone()),
                ..meta::ObjectMeta::default()
            },
            delete_options: Some(meta::DeleteOptions {
                preconditions: Some(meta::Preconditions {
                    uid: Some(pod.uid.clone()),
                    resource_version: None,
                }),
                ..meta::DeleteOptions::default()
            }),
        };
        let body = serde_json::to_vec(&eviction)
            .map_err(|error| fault::fault(FaultClass::Fatal, &what, &error.to_string()))?;
        let params = PostParams {
            dry_run,
            field_manager: None,
        };
        let path = format!("/api/v1/namespaces/{}/pods", pod.namespace);
        let request = Request::new(path).create_subresource("eviction", &pod.name, &params, body);
        let reply = self.send(&what, request).await?.reply();
        if is_budget_refusal(&reply) {
            self.interest.raise(self.clock.now());
        }
        Ok(reply)
    }

    /// PUT evacuate/cancel. Its successful answer has no body, and KubeVirt up to 1.6 answers with a text.
    pub(super) async fn put_cancel(&self, vmi: &ObjectRef) -> Result<Reply, Fault> {
        let what = format!("cancel the evacuation of {vmi}");
        let path = format!(
            "/apis/subresources.kubevirt.io/v1/namespaces/{}/{VMIS}",
            vmi.namespace
        );
        let body = json!({"evacuationNodeName": self.node_name}).to_string();
        let request = Request::new(path).replace_subresource(
            "evacuate/cancel",
            &vmi.name,
            &PostParams::default(),
            body.into_bytes(),
        );
        Ok(self.send(&what, request).await?.reply())
    }

    /// PUT start of a VM. Its successful answer has no body.
    pub(super) async fn put_start(&self, vm: &VmName) -> Result<Reply, Fault> {
        let what = format!("start VM {vm}");
        let path = format!(
            "/apis/subresources.kubevirt.io/v1/namespaces/{}/virtualmachines",
            vm.namespace
        );
        let params = PostParams::default();
        let request =
            Request::new(path).replace_subresource("start", &vm.name, &params, b"{}".to_vec());
        Ok(self.send(&what, request).await?.reply())
    }

    /// DELETE of a VMIM, which aborts it.
    pub(super) async fn delete_vmim(&self, migration: &ObjectRef) -> Result<Reply, Fault> {
        let what = format!("delete migration {migration}");
        let path = format!(
            "/apis/kubevirt.io/v1/namespaces/{}/virtualmachineinstancemigrations",
            migration.namespace
        );
        let request = Request::new(path).delete(&migration.name, &of_uid(&migration.uid));
        Ok(self.send(&what, request).await?.reply())
    }

    /// DELETE of a pod by UID. Without a grace period of ours: the pod's own is the one that its guest was promised.
    pub(super) async fn delete_pod(&self, pod: &ObjectRef) -> Result<Reply, Fault> {
        let what = format!("delete pod {pod}");
        let path = format!("/api/v1/namespaces/{}/pods", pod.namespace);
        let request = Request::new(path).delete(&pod.name, &of_uid(&pod.uid));
        Ok(self.send(&what, request).await?.reply())
    }

    /// Volumes that are attached to this node.
    pub(super) async fn attached(&self) -> Result<Vec<AttachedVolume>, Fault> {
        let collection = Collection::attachments();
        let listed = self.list::<Attachment>(collection.clone()).await;
        let listed = listed.map_err(|fault| named(&collection, fault))?;
        let here = listed
            .into_iter()
            .filter_map(|object| object.view.ok())
            .filter(|(node, _)| *node == self.node_name);
        let mut volumes: Vec<_> = here.map(|(_, volume)| volume).collect();
        volumes.sort();
        Ok(volumes)
    }

    /// What the scheduler says against the target pod of a migration; `None`: nothing, or there is no such pod.
    pub(super) async fn refused_target(
        &self,
        migration: &ObjectRef,
    ) -> Result<Option<String>, Fault> {
        let collection = Collection::target(migration);
        let listed = self.list::<Target>(collection.clone()).await;
        let listed = listed.map_err(|fault| named(&collection, fault))?;
        let mut says = None;
        for object in listed {
            says = says.or(object.view.map_err(|why| {
                let why = format!("pod {} cannot be read: {why}", object.at);
                fault::fault(FaultClass::Fatal, &collection.list_what(), &why)
            })?);
        }
        Ok(says)
    }

    /// Fresh quorum lists, all at once. `others`: also of the pods that are no VM's.
    pub(super) async fn fresh(&self, others: bool) -> Result<Fresh, Fault> {
        let node = self.node_name.as_str();
        let (pods, others, here, coming, migrations) = tokio::join!(
            self.list::<Pod>(Collection::pods(node)),
            async {
                if others {
                    Some(self.list::<Other>(Collection::others(node)).await)
                } else {
                    None
                }
            },
            self.list::<Vmi>(Collection::vmis_here(node)),
            self.list::<Vmi>(Collection::vmis_coming(node)),
            self.list::<Migration>(Collection::migrations()),
        );
        let mut bad = Vec::new();
        let pods = sorted::<Pod>(pods?, &mut bad);
        // One that cannot even be named can be neither evicted nor waited for; it is told by the watch.
        let others = others
            .transpose()?
            .map(|others| sorted::<Other>(others, &mut Vec::new()));
        let mut unread = Vec::new();
        let here = readable(here, &mut unread);
        let vmis = match (here, readable(coming, &mut unread)) {
            (Some(here), Some(coming)) => Some(one_each(
                sorted::<Vmi>(here, &mut bad),
                sorted::<Vmi>(coming, &mut bad),
            )),
            _ => None,
        };
        let migrations = readable(migrations, &mut unread).map(|migrations| {
            let (good, wrong): (Vec<_>, Vec<_>) = migrations
                .into_iter()
                .partition(|object| object.view.is_ok());
            let ours = wrong
                .into_iter()
                .filter(|object| concerns(object, &pods, vmis.as_deref()));
            sorted::<Migration>(good.into_iter().chain(ours).collect(), &mut bad)
        });
        Ok(Fresh {
            pods,
            others,
            vmis,
            migrations,
            malformed: bad,
            unread,
        })
    }

    async fn list<T: Thin>(&self, collection: Collection) -> Result<Vec<Guarded<T::View>>, Fault> {
        let now = self.clock.now();
        let listing = list::<T>(&self.connection, &collection, &self.timing, now).await?;
        Ok(listing.items)
    }

    /// Sends a request that kube has put together, once.
    pub(super) async fn send(
        &self,
        what: &str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Answer, Fault> {
        let request = request
            .map_err(|error| fault::fault(FaultClass::Fatal, what, &fault::plain(&error)))?;
        self.connection.send(what, self.clock.now(), request).await
    }
}

/// Only the very object that was meant.
fn of_uid(uid: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

/// A refusal says which manifest gives the right.
fn named(collection: &Collection, fault: Fault) -> Fault {
    if fault.class != FaultClass::Denied {
        return fault;
    }
    Fault {
        text: collection.forbidden(&fault),
        ..fault
    }
}

/// A list that need not be readable: `None` where a right or the kind is missing. What else is wrong is reported.
fn readable<V>(listed: Result<Vec<V>, Fault>, unread: &mut Vec<String>) -> Option<Vec<V>> {
    match listed {
        Ok(items) => Some(items),
        Err(fault) if matches!(fault.class, FaultClass::Denied | FaultClass::Gone) => None,
        Err(fault) => {
            unread.push(fault.text);
            None
        }
    }
}

/// The readable objects; the others are reported.
fn sorted<T: Thin>(objects: Vec<Guarded<T::View>>, bad: &mut Vec<Malformed>) -> Vec<T::View> {
    objects
        .into_iter()
        .filter_map(|object| match object.view {
            Ok(view) => Some(view),
            Err(why) => {
                bad.push(malformed(T::RESOURCE, &object.at, why));
                None
            }
        })
        .collect()
}

/// A VMI that is just arriving can be in both lists: the one that has it here is right.
fn one_each(mut here: Vec<VmiView>, coming: Vec<VmiView>) -> Vec<VmiView> {
    for vmi in coming {
        if here.iter().all(|known| known.vmi.uid != vmi.vmi.uid) {
            here.push(vmi);
        }
    }
    here
}

/// Whether an unreadable VMIM may be about a VM of this node. Those of other nodes must not keep
/// this one from being empty, and a VM that is here shows up in the lists of pods and VMIs too.
fn concerns(object: &Guarded<MigrationView>, pods: &[PodView], vmis: Option<&[VmiView]>) -> bool {
    let named = object.labels.get(VMI_NAME_LABEL);
    let is_it = |namespace: &str, name: &str| {
        namespace == object.at.namespace && named.is_none_or(|named| named == name)
    };
    let in_pods = pods
        .iter()
        .filter(|pod| !pod.is_empty_of_guest())
        .any(|pod| is_it(&pod.vm.namespace, &pod.vm.name));
    let in_vmis = vmis.unwrap_or_default().iter();
    in_pods
        || in_vmis
            .filter(|vmi| !vmi.is_final())
            .any(|vmi| is_it(&vmi.vmi.namespace, &vmi.vmi.name))
}

/// 429 by a budget, or 500 because two of them select the pod (control-plane.md 6.c).
fn is_budget_refusal(reply: &Reply) -> bool {
    let caused = reply
        .causes
        .iter()
        .any(|(reason, _)| reason == "DisruptionBudget");
    (reply.code == 429 && caused)
        || (reply.code == 500 && reply.message.contains("more than one PodDisruptionBudget"))
}
