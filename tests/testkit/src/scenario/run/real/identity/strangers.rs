//! What one node's credentials cannot do to another node, and what nobody opens: asked with nothing added to the cluster, and again with
//! every part of `packaging/rbac`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::super::super::Options;
use super::super::{Cluster, clean, cluster};
use super::{NAMESPACE, NODE, apply, withdraw};
use crate::clock::SimClock;
use crate::kubevirt::fields::{name, namespace, text};
use crate::kubevirt::names::kind;
use crate::plane::{Caller, ControlPlane, Who};
use crate::scenario::Scenario;

/// One VM here, one on the other node whose evacuation lasts longer than this.
const STORY: &str = r#"
name = "two nodes"
[host]
rights = "base"
[[node]]
name = "n2"
[[node]]
name = "n3"
[[vm]]
name = "own"
[[vm]]
name = "other"
node = "n2"
migration_time = "10m"
"#;

/// Every part.
const PARTS: [&str; 6] = [
    "service-account",
    "own-node-policy",
    "reads",
    "cancel",
    "abort",
    "nodes",
];

/// A policy takes effect within so much real time.
const EFFECT: Duration = Duration::from_secs(30);

/// Paths of the other node's objects.
struct Other {
    node: String,
    pod: String,
    vmi: String,
    vmim: String,
}

/// Requests that were refused as they had to be.
#[derive(Default)]
struct Refusals {
    count: usize,
}

pub(super) async fn play(plane: &Arc<ControlPlane>) -> anyhow::Result<String> {
    let story = Scenario::parse(Path::new("strangers"), STORY)?;
    let asked = Box::pin(ask(&story, plane)).await;
    clean::clean(plane, &story).await?;
    withdraw(plane, &PARTS).await?;
    asked
}

async fn ask(story: &Scenario, plane: &Arc<ControlPlane>) -> anyhow::Result<String> {
    let clock = SimClock::from_wall(1.0);
    let cluster = cluster(story, &Options::default(), plane, &clock).await?;
    let other = evacuated(&cluster, plane).await?;
    let kubelet = plane.caller(&Who::Node(NODE.into())).await?;
    let mut refusals = Refusals::default();
    refusals.of_kubelet(&kubelet, &other, 403).await?;

    apply(plane, &PARTS).await?;
    let token = plane
        .token((NAMESPACE, NODE), None, Duration::from_secs(600))
        .await?;
    let account = Caller::new(&plane.token_kubeconfig("vmdrain-account", &token)?).await?;
    in_effect(&account, &other).await?;
    refusals
        .of_kubelet(&kubelet, &other, 422)
        .await
        .context("with every part of packaging/rbac")?;
    refusals
        .of_account(&account, &other)
        .await
        .context("with an identity of its own")?;
    // Proof that this was not refused for some other reason: the same on the own node.
    let own = format!("/api/v1/nodes/{NODE}");
    for caller in [&kubelet, &account] {
        caller.done("PATCH", &own, &cordon()).await?;
    }
    let vmi = plane.admin().done("GET", &other.vmi, &Value::Null).await?;
    ensure!(
        text(&vmi, "status.phase") == "Running",
        "the other node's VM does not run any more: {vmi}"
    );
    Ok(format!(
        "{} requests for the objects of n2 and for secrets were refused; n2 and its VM are as before",
        refusals.count
    ))
}

fn cordon() -> Value {
    json!({"spec": {"unschedulable": true}})
}

/// Has the administrator evacuate the other node's VM, and finds the objects.
async fn evacuated(cluster: &Cluster, plane: &ControlPlane) -> anyhow::Result<Other> {
    let store = cluster.store();
    let on_it = |pod: &&Arc<Value>| text(pod, "spec.nodeName") == "n2";
    let pods = store.list_shared(kind::PODS);
    let pod = pods
        .iter()
        .find(on_it)
        .context("no launcher pod runs on n2")?;
    let (space, pod) = (namespace(pod).to_owned(), name(pod).to_owned());
    let pod_path = format!("/api/v1/namespaces/{space}/pods/{pod}");
    let body = eviction(&pod_path);
    // KubeVirt refuses it and begins to migrate.
    let path = format!("{pod_path}/eviction");
    let reply = plane.admin().ask("POST", &path, &body).await?;
    ensure!(reply.status == 429, "POST {path}: {}", reply.text);
    let root = format!("/apis/kubevirt.io/v1/namespaces/{space}");
    let mut changed = store.changed();
    let begun = async {
        loop {
            changed.borrow_and_update();
            if let Some(vmim) = store.list_shared(kind::VMIMS).first() {
                return name(vmim).to_owned();
            }
            // The store lives as long as the cluster.
            let _ = changed.changed().await;
        }
    };
    let vmim = tokio::time::timeout(EFFECT, begun)
        .await
        .context("no migration begins")?;
    Ok(Other {
        node: "/api/v1/nodes/n2".into(),
        pod: pod_path,
        vmi: format!("{root}/virtualmachineinstances/other"),
        vmim: format!("{root}/virtualmachineinstancemigrations/{vmim}"),
    })
}

fn eviction(pod: &str) -> Value {
    let mut parts = pod.rsplit('/');
    let (name, space) = (parts.next(), parts.nth(1));
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": space},
    })
}

/// Waits until the policy refuses; a dry run passes admission like anything else.
async fn in_effect(account: &Caller, other: &Other) -> anyhow::Result<()> {
    let path = format!("{}?dryRun=All", other.node);
    let refused = async {
        while account.ask("PATCH", &path, &cordon()).await?.status != 422 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok::<(), anyhow::Error>(())
    };
    tokio::time::timeout(EFFECT, refused)
        .await
        .context("own-node-policy.yaml takes no effect")?
}

impl Refusals {
    /// `by_policy`: with what the deletion of another node's migration is refused: by RBAC alone, or by the policy.
    async fn of_kubelet(
        &mut self,
        kubelet: &Caller,
        other: &Other,
        by_policy: u16,
    ) -> anyhow::Result<()> {
        let evict = format!("{}/eviction", other.pod);
        let body = eviction(&other.pod);
        self.want(kubelet, 403, "POST", &evict, &body).await?;
        self.want(kubelet, 403, "PATCH", &other.node, &cordon())
            .await?;
        self.want(kubelet, 403, "DELETE", &other.pod, &Value::Null)
            .await?;
        self.want(kubelet, by_policy, "DELETE", &other.vmim, &Value::Null)
            .await?;
        self.shut_to_all(kubelet, other).await
    }

    /// An eviction is not among these: nothing confines a service account's (docs/security.md).
    async fn of_account(&mut self, account: &Caller, other: &Other) -> anyhow::Result<()> {
        self.want(account, 422, "PATCH", &other.node, &cordon())
            .await?;
        for path in [&other.pod, &other.vmim] {
            self.want(account, 422, "DELETE", path, &Value::Null)
                .await?;
        }
        self.shut_to_all(account, other).await
    }

    /// What no part opens, on no node.
    async fn shut_to_all(&mut self, caller: &Caller, other: &Other) -> anyhow::Result<()> {
        let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
        for path in [
            "/api/v1/secrets",
            &secrets,
            "/api/v1/namespaces/default/secrets/any",
        ] {
            self.want(caller, 403, "GET", path, &Value::Null).await?;
        }
        let change = json!({"metadata": {"annotations": {"x": "y"}}});
        self.want(caller, 403, "PATCH", &other.vmi, &change).await?;
        self.want(caller, 403, "DELETE", &other.vmi, &Value::Null)
            .await
    }

    async fn want(
        &mut self,
        caller: &Caller,
        status: u16,
        method: &str,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<()> {
        let reply = caller.ask(method, path, body).await?;
        ensure!(
            reply.status == status,
            "{method} {path}: {} instead of {status}: {}",
            reply.status,
            reply.text
        );
        self.count += 1;
        Ok(())
    }
}
