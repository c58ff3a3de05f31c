//! May we? SelfSubjectAccessReviews, asked only where their answer can be trusted.
//!
//! A review knows the authorizers, not NodeRestriction, and takes no field selector for what it is: "list nodes" is
//! refused although a watch of the own Node is allowed, and "patch node" is allowed for every node (control-plane.md
//! 6.a). So reads are found out by reading, and only writes are asked about; and the one list that needs no selector to be
//! allowed, that of all pods.

use super::KubeCluster;
use super::fault;
use crate::agent::ports::Clock;
use crate::doctor::Right;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::{Value, json};

/// What is asked about: verb, group, resource, subresource; what it costs to be without it; the manifest; vital.
struct Wish {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    costs: &'static str,
    manifest: &'static str,
    vital: bool,
}

const WISHES: [Wish; 6] = [
    Wish {
        verb: "create",
        group: "",
        resource: "pods",
        subresource: "eviction",
        costs: "no VM can be moved away",
        manifest: "",
        vital: true,
    },
    Wish {
        verb: "patch",
        group: "",
        resource: "nodes",
        subresource: "",
        costs: "the node cannot be cordoned, and without a cordon nothing is evicted",
        manifest: "",
        vital: true,
    },
    Wish {
        verb: "create",
        group: "",
        resource: "events",
        subresource: "",
        costs: "nobody in the cluster is told of a drain",
        manifest: "",
        vital: false,
    },
    Wish {
        verb: "update",
        group: "subresources.kubevirt.io",
        resource: "virtualmachineinstances",
        subresource: "evacuate",
        costs: "a cancelled drain leaves its marks, and the VMs still move",
        manifest: "rbac/cancel.yaml",
        vital: false,
    },
    Wish {
        verb: "delete",
        group: "kubevirt.io",
        resource: "virtualmachineinstancemigrations",
        subresource: "",
        costs: "`cancel --abort-migrations` lets running migrations end",
        manifest: "rbac/abort.yaml",
        vital: false,
    },
    Wish {
        verb: "list",
        group: "",
        resource: "pods",
        subresource: "",
        costs: "of all nodes, so why a migration finds no node is only guessed at",
        manifest: "rbac/targets.yaml",
        vital: false,
    },
];

impl<C: Clock> KubeCluster<C> {
    /// Every right that is worth asking about.
    pub async fn rights(&self) -> Vec<Right> {
        futures_util::future::join_all(WISHES.iter().map(|wish| self.right(wish))).await
    }

    async fn right(&self, wish: &Wish) -> Right {
        let resource = match wish.subresource {
            "" => wish.resource.to_owned(),
            sub => format!("{}/{sub}", wish.resource),
        };
        Right {
            what: format!("{} {resource}", wish.verb),
            costs: wish.costs.into(),
            manifest: wish.manifest.into(),
            vital: wish.vital,
            allowed: self.may(wish).await,
        }
    }

    async fn may(&self, wish: &Wish) -> Result<bool, String> {
        let own_node = wish.resource == "nodes";
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": wish.verb,
                "group": wish.group,
                "resource": wish.resource,
                "subresource": wish.subresource,
                "name": if own_node { self.node_name.as_str() } else { "" },
            }},
        });
        let what = "ask for a SelfSubjectAccessReview";
        let request = Request::new("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .create(&PostParams::default(), body.to_string().into_bytes());
        let sent = tokio::time::timeout(self.timing.request, self.send(what, request)).await;
        let answer = sent
            .map_err(|_| fault::timed_out(what, self.timing.request.as_secs_f64()).text)?
            .map_err(|fault| fault.text)?;
        if !answer.is_success() {
            return Err(fault::from_reply(what, &answer.reply()).text);
        }
        let review: Value = serde_json::from_slice(&answer.body)
            .map_err(|why| format!("the answer cannot be read: {why}"))?;
        let allowed = review.pointer("/status/allowed").and_then(Value::as_bool);
        allowed.ok_or_else(|| "the answer says nothing".into())
    }
}
