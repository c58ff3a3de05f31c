//! What a case asks of the cluster about its host, and does there as an administrator.

use serde_json::{Value, json};

use super::objects;
use super::stage::{SETTLED, Stage};

impl Stage {
    /// Where the case's objects of a kind are.
    pub(crate) fn path(&self, group: &str, plural: &str) -> String {
        let root = if group == "v1" {
            "/api".to_owned()
        } else {
            "/apis".to_owned()
        };
        format!("{root}/{group}/namespaces/{}/{plural}", self.name)
    }

    /// Where the case's pods are.
    pub(crate) fn pods(&self) -> String {
        self.path("v1", "pods")
    }

    /// Pods of the case on this host in this phase.
    pub(crate) fn pods_in(&self, phase: &str) -> anyhow::Result<Vec<Value>> {
        let mut pods = self.plane.list(&self.pods())?;
        pods.retain(|pod| pod["spec"]["nodeName"] == *self.name && pod["status"]["phase"] == phase);
        Ok(pods)
    }

    /// Running VMs on a node.
    pub(crate) fn vms_on(&self, node: &str) -> anyhow::Result<Vec<String>> {
        let vmis = self.path("kubevirt.io/v1", "virtualmachineinstances");
        let mut all = self.plane.list(&vmis)?;
        all.retain(|vmi| vmi["status"]["nodeName"] == node && vmi["status"]["phase"] == "Running");
        Ok(all
            .iter()
            .filter_map(|vmi| Some(vmi["metadata"]["name"].as_str()?.to_owned()))
            .collect())
    }

    /// Guests of this host that lost their memory.
    pub(crate) fn killed(&self) -> Vec<String> {
        let kills = self.plane.around.ledger.kills();
        let ours = kills.iter().filter(|kill| kill.node == self.name);
        ours.map(|kill| format!("{} ({})", kill.name, kill.reason))
            .collect()
    }

    /// Launchers that got SIGTERM and have not ended.
    pub(crate) fn terminating(&self) -> usize {
        self.shared.with(|machine| {
            let all = machine.launchers.values();
            all.filter(|one| one.terminated.is_some()).count()
        })
    }

    /// A further pod on this host; `seconds` as in the plan.
    pub(crate) fn add_pod(&self, name: &str, seconds: u32) -> anyhow::Result<()> {
        let pod = objects::pod(name, &self.name, &self.name, seconds);
        self.plane.create(&pod)
    }

    /// Waits until a pod runs.
    pub(crate) fn wait_running(&self, pod: &str) -> anyhow::Result<()> {
        self.wait(&format!("the pod {pod} runs"), SETTLED, || {
            let running = self.pods_in("Running")?;
            Ok(running.iter().any(|one| one["metadata"]["name"] == pod))
        })?;
        Ok(())
    }

    /// `kubectl`-like eviction of a pod by an administrator.
    pub(crate) fn evict(&self, pod: &str) -> anyhow::Result<()> {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.name},
        });
        let path = format!("{}/{pod}/eviction", self.pods());
        self.plane.post(&path, &eviction)
    }
}
