//! What others do in a real cluster: the same events, through the front door.

use serde_json::{Value, json};

use super::super::cluster::{pdb_spec, pod_spec, share, vm_spec};
use super::super::real::{Real, setup};
use super::super::stage::NotPlayed;
use super::vms::turn_knobs;
use super::{Others, Played};
use crate::kubevirt::names::{kind, knob};
use crate::plane::{Server, Version};
use crate::scenario::event::Do;
use crate::scenario::event::api::VirtPart;
use crate::scenario::event::cluster::{NodeDo, NodeSet, PdbDo, PdbSet, PodDo, PodSet, VmDo, VmSet};
use crate::scenario::values::Span;

const KUBEVIRT: &str = "/apis/kubevirt.io/v1";
const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1";

impl Others<'_> {
    pub(super) async fn in_reality(&self, real: &Real, what: &Do) -> Played {
        let done = match what {
            Do::Api(what) => {
                self.api(what);
                return Ok(());
            }
            Do::Virt(part, down) => self.part(real, *part, down.node.as_deref(), down.until),
            Do::Vm(what) => self.real_vm(real, what).await,
            Do::Node(what) => real_node(real, what).await,
            Do::Pod(what) => self.real_pod(real, what).await,
            Do::Pdb(what) => self.real_pdb(real, what).await,
            Do::Apply(_) => Err(anyhow::anyhow!(
                "a real API server takes no malformed object"
            )),
            Do::Lease(_) => return Err(NotPlayed::NotYet("drain slots (leases)")),
            Do::Host(_) | Do::Agent(_) => Err(anyhow::anyhow!("this belongs to the host")),
        };
        done.map_err(|error| NotPlayed::Cannot(format!("{error:#}")))
    }

    /// A process is killed, and started again when its time has come; that takes it some real seconds.
    fn part(
        &self,
        real: &Real,
        part: VirtPart,
        node: Option<&str>,
        until: Option<Span>,
    ) -> anyhow::Result<()> {
        let server = match part {
            VirtPart::Api => Server::VirtApi,
            VirtPart::Controller => Server::VirtController,
            VirtPart::Handler => {
                let until = self.moment(until);
                self.cluster
                    .world
                    .virt_handler_down(node.unwrap_or(self.host), until);
                return Ok(());
            }
        };
        real.plane.stop(server)?;
        if let Some(until) = self.moment(until) {
            let (plane, clock) = (real.plane.clone(), self.cluster.server.clock().clone());
            tokio::spawn(async move {
                clock.sleep_until(until).await;
                // The end of the story finds out when it does not come back, and starts it.
                drop(plane.resume(server).await);
            });
        }
        Ok(())
    }

    fn object(&self, root: &str, resource: &str, space: Option<&String>, name: &str) -> String {
        let space = self.namespace(resource, space, name);
        format!("{root}/namespaces/{space}/{resource}/{name}")
    }

    async fn real_vm(&self, real: &Real, what: &VmDo) -> anyhow::Result<()> {
        let admin = real.plane.admin();
        let (method, path, body) = match what {
            VmDo::Create(new) => return setup::create(admin, &vm_spec(new)).await,
            VmDo::Delete(it) => {
                let space = self.namespace(kind::VMIS, it.namespace.as_ref(), &it.vm);
                let vm = self.cluster.store().get_shared(kind::VMS, &space, &it.vm);
                let resource = if vm.is_some() { kind::VMS } else { kind::VMIS };
                let path = format!("{KUBEVIRT}/namespaces/{space}/{resource}/{}", it.vm);
                ("DELETE", path, Value::Null)
            }
            VmDo::Set(set) => return self.real_set(real, set).await,
            VmDo::Migrate(it) => {
                let space = self.namespace(kind::VMIS, it.namespace.as_ref(), &it.vm);
                let mut vmim = json!({
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
                    "metadata": {"generateName": "kubevirt-migrate-vm-", "namespace": space},
                    "spec": {"vmiName": it.vm},
                });
                // Before, the only other node is the only choice.
                let chooses = real.plane.version() >= Version::V1_7;
                if let Some(to) = it.to.as_ref().filter(|_| chooses) {
                    vmim["spec"]["addedNodeSelector"] = json!({"kubernetes.io/hostname": to});
                }
                let path = format!("{KUBEVIRT}/namespaces/{space}/{}", kind::VMIMS);
                ("POST", path, vmim)
            }
            VmDo::Start(it) | VmDo::Stop(it) => {
                let verb = if matches!(what, VmDo::Start(_)) {
                    "start"
                } else {
                    "stop"
                };
                let path = self.object(SUBRESOURCES, kind::VMS, it.namespace.as_ref(), &it.vm);
                ("PUT", format!("{path}/{verb}"), json!({}))
            }
        };
        admin.done(method, &path, &body).await?;
        Ok(())
    }

    /// Knobs and labels are anybody's; a mark is virt-api's to set and to take away.
    async fn real_set(&self, real: &Real, set: &VmSet) -> anyhow::Result<()> {
        let path = self.object(KUBEVIRT, kind::VMIS, set.namespace.as_ref(), &set.vm);
        let admin = real.plane.admin();
        if let Some(marked) = set.marked {
            let vmi = admin.done("GET", &path, &Value::Null).await?;
            let node = vmi["status"]["nodeName"].clone();
            if marked {
                let body = json!({"status": {"evacuationNodeName": node}});
                real.controller.done("PATCH", &path, &body).await?;
            } else {
                let path = path.replacen(KUBEVIRT, SUBRESOURCES, 1);
                real.mirror.somebody_cancels(&vmi);
                let body = json!({"evacuationNodeName": node});
                admin
                    .done("PUT", &format!("{path}/evacuate/cancel"), &body)
                    .await?;
            }
        }
        let mut annotations = json!({});
        turn_knobs(set, &mut annotations);
        let labels = set.labels.clone().unwrap_or_default();
        let body = json!({"metadata": {"annotations": annotations, "labels": labels}});
        admin.done("PATCH", &path, &body).await?;
        Ok(())
    }

    async fn real_pod(&self, real: &Real, what: &PodDo) -> anyhow::Result<()> {
        let admin = real.plane.admin();
        match what {
            PodDo::Create(new) => {
                let pod = setup::pod_object(self.cluster.store(), &pod_spec(new, self.host));
                admin.create(&pod).await?;
            }
            PodDo::Delete(it) => {
                let path = self.object("/api/v1", kind::PODS, it.namespace.as_ref(), &it.pod);
                admin.done("DELETE", &path, &Value::Null).await?;
            }
            PodDo::Set(set) => self.set_pod(real, set).await?,
        }
        Ok(())
    }

    async fn set_pod(&self, real: &Real, set: &PodSet) -> anyhow::Result<()> {
        let path = self.object("/api/v1", kind::PODS, set.namespace.as_ref(), &set.pod);
        let mut annotations = set.annotations.clone().unwrap_or_default();
        // Its kubelet is told, and says so in its own time.
        if let Some(ready) = set.ready {
            annotations.insert(knob::READY.into(), ready.to_string());
        }
        let labels = set.labels.clone().unwrap_or_default();
        let body = json!({"metadata": {"labels": labels, "annotations": annotations}});
        real.plane.admin().done("PATCH", &path, &body).await?;
        Ok(())
    }

    async fn real_pdb(&self, real: &Real, what: &PdbDo) -> anyhow::Result<()> {
        let admin = real.plane.admin();
        let path = |space: Option<&String>, name: &str| {
            self.object("/apis/policy/v1", kind::PDBS, space, name)
        };
        match what {
            PdbDo::Create(new) => {
                let mut pdb = crate::world::objects::pdb(&pdb_spec(new));
                setup::named(&mut pdb, "policy/v1", "PodDisruptionBudget");
                admin.create(&pdb).await?;
            }
            PdbDo::Delete(it) => {
                let path = path(it.namespace.as_ref(), &it.pdb);
                admin.done("DELETE", &path, &Value::Null).await?;
            }
            PdbDo::Set(set) => {
                let path = path(set.namespace.as_ref(), &set.pdb);
                admin.done("PATCH", &path, &numbers(set)).await?;
            }
        }
        Ok(())
    }
}

/// One of both numbers; the other one goes.
fn numbers(set: &PdbSet) -> Value {
    let number = |text: String| {
        text.parse::<u64>()
            .map_or_else(|_| json!(text), |number| json!(number))
    };
    let least = set.min_available.as_ref().map(|least| number(share(least)));
    let most = set.max_unavailable.as_ref().map(|most| number(share(most)));
    json!({"spec": {"minAvailable": least, "maxUnavailable": most}})
}

async fn real_node(real: &Real, what: &NodeDo) -> anyhow::Result<()> {
    let admin = real.plane.admin();
    let at = |node: &str| format!("/api/v1/nodes/{node}");
    match what {
        NodeDo::Cordon(it) => {
            let body = json!({"spec": {"unschedulable": true}});
            admin.done("PATCH", &at(&it.node), &body).await?;
        }
        NodeDo::Uncordon(it) => {
            let body = json!({"spec": {"unschedulable": null}});
            admin.done("PATCH", &at(&it.node), &body).await?;
        }
        NodeDo::Delete(it) => {
            admin.done("DELETE", &at(&it.node), &Value::Null).await?;
        }
        NodeDo::Taint(it) => {
            let node = admin.done("GET", &at(&it.node), &Value::Null).await?;
            let mut taints = node["spec"]["taints"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            taints.push(json!({"key": it.key, "value": it.value, "effect": it.effect}));
            let body = json!({"spec": {"taints": taints}});
            admin.done("PATCH", &at(&it.node), &body).await?;
        }
        NodeDo::Set(set) => set_node(real, set, &at(&set.node)).await?,
    }
    Ok(())
}

async fn set_node(real: &Real, set: &NodeSet, path: &str) -> anyhow::Result<()> {
    let admin = real.plane.admin();
    let body = json!({"metadata": {
        "labels": set.labels.clone().unwrap_or_default(), "annotations": set.annotations.clone().unwrap_or_default(),
    }});
    admin.done("PATCH", path, &body).await?;
    let mut info = json!({});
    if let Some(id) = &set.machine_id {
        info["machineID"] = json!(id);
    }
    if let Some(id) = &set.system_uuid {
        info["systemUUID"] = json!(id);
    }
    let mut status = json!({"nodeInfo": info});
    if let Some(ready) = set.ready {
        let value = if ready { "True" } else { "False" };
        status["conditions"] = json!([{"type": "Ready", "status": value, "reason": "Scenario", "message": "set by the story"}]);
    }
    let body = serde_json::to_vec(&json!({"status": status}))?;
    let kind = "application/strategic-merge-patch+json";
    let reply = admin
        .send("PATCH", &format!("{path}/status"), kind, body)
        .await?;
    anyhow::ensure!(reply.is_success(), "{path}: {}", reply.text);
    Ok(())
}
