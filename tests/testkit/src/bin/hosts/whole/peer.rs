//! Who is there besides the host: a played node that takes its VMs, and the played virt-handler of the host itself.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use testkit::actors::machine::Shared;
use testkit::api::store::timestamp;

use super::objects;
use super::pki::LONG;
use super::plane::Plane;

/// The node to which VMs move.
pub(crate) const PEER: &str = "vmdrain-peer";
/// How long the tokens of the played parts are valid.
const TOKEN: u64 = 6 * 3600;
/// A test node is made so that the API server knows it within this time.
const SOON: Duration = Duration::from_secs(20);

impl Plane {
    /// What all cases share: the peer, room for many migrations, and the right of kubelets to renew their certificates.
    pub(crate) fn prepare(self: &Arc<Self>) -> anyhow::Result<()> {
        let kubevirt = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";
        let room = json!({"spec": {"configuration": {"migrations": {
            "parallelMigrationsPerCluster": 20, "parallelOutboundMigrationsPerNode": 5,
        }}}});
        self.merge(kubevirt, &room)?
            .context("there is no KubeVirt in this cluster")?;
        for what in ["nodeclient", "selfnodeclient"] {
            let role = format!("system:certificates.k8s.io:certificatesigningrequests:{what}");
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": format!("vmdrain-tests:{what}")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
            });
            self.make(
                "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
                &binding,
            )?;
        }
        self.make_node(PEER)?;
        let now = timestamp(self.around.clock.now());
        self.merge(
            &format!("/api/v1/nodes/{PEER}/status"),
            &objects::played_status(&now),
        )?;
        self.around.fabric.change(PEER, |host| {
            host.on = true;
            host.handler = true;
            "peer".clone_into(&mut host.boot_id);
        });
        let pem = self.authority.kubelet(PEER, LONG)?;
        let kubelet = self.client_with(PEER, &pem)?;
        let handler = self.handler_client(PEER)?;
        let around = self.around.clone();
        let tasks = self.block(async { testkit::actors::spawn(PEER, kubelet, handler, &around) });
        self.owns(tasks);
        Ok(())
    }

    /// Makes an object that may be there from an earlier run.
    fn make(&self, path: &str, object: &serde_json::Value) -> anyhow::Result<()> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if self.get(&format!("{path}/{name}"))?.is_none() {
            self.create(path, object)?;
        }
        Ok(())
    }

    /// Makes a node as KubeVirt knows it.
    pub(crate) fn make_node(&self, name: &str) -> anyhow::Result<()> {
        self.make("/api/v1/nodes", &objects::node(name))
    }

    /// Starts the played virt-handler of a node whose kubelet is a real one. `shared` is what is on its host.
    pub(crate) fn start_handler(&self, node: &str, shared: &Shared) -> anyhow::Result<()> {
        let client = self.handler_client(node)?;
        let around = self.around.clone();
        let task = self.block(async {
            testkit::actors::spawn_handler(node, client, shared.clone(), &around)
        });
        self.owns([task]);
        Ok(())
    }

    /// As virt-handler of this node: the token names it, which KubeVirt's own policy looks at.
    fn handler_client(&self, node: &str) -> anyhow::Result<kube::Client> {
        let uid = self
            .get(&format!("/api/v1/nodes/{node}"))?
            .context("no such node")?;
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": TOKEN, "boundObjectRef": {
                "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid["metadata"]["uid"],
            }},
        });
        let path = "/api/v1/namespaces/kubevirt/serviceaccounts/kubevirt-handler/token";
        let answer = self.create(path, &request)?;
        self.client_of(&json!({"token": answer["status"]["token"]}))
    }

    /// Makes a namespace in which pods can be made.
    pub(crate) fn make_namespace(
        &self,
        name: &str,
        patience: &crate::patience::Patience,
    ) -> anyhow::Result<()> {
        self.make(
            "/api/v1/namespaces",
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        )?;
        let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        patience.wait("the namespace's service account", SOON, || {
            self.get(&account)
        })?;
        Ok(())
    }
}
