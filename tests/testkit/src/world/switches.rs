//! What can be done to a running world: faults, and what other people do?

use std::sync::PoisonError;
use std::time::Duration;

use serde_json::json;

use super::World;
use super::objects;
use super::spec::{NodeSpec, PdbSpec, PodSpec, VmOwner, VmSpec};
use crate::actors::machine::Guest;
use crate::api::{Failure, SubresourceRequest};
use crate::kubevirt::fields::{remove, text};
use crate::kubevirt::names::kind;
use crate::kubevirt::virt_api::{subresources, writes};

impl World {
    /// The virt-handler of a node dies, until this simulated time (or for good). A boot in between does not bring it back.
    pub fn virt_handler_down(&self, node: &str, until: Option<Duration>) {
        let until = until.unwrap_or(Duration::MAX);
        self.fabric.change(node, |host| {
            host.handler = false;
            host.handler_not_before = until;
        });
        self.virt_handler_starts(node, until);
    }

    /// The virt-handler of a node starts again.
    pub fn virt_handler_up(&self, node: &str) {
        self.fabric.change(node, |host| {
            host.handler = host.on;
            host.handler_not_before = Duration::ZERO;
        });
    }

    /// It starts at that time, unless its node is off then or it was taken down for longer meanwhile.
    fn virt_handler_starts(&self, node: &str, at: Duration) {
        if at == Duration::MAX {
            return;
        }
        let (fabric, clock, node) = (
            self.fabric.clone(),
            self.store.clock().clone(),
            node.to_owned(),
        );
        let back = tokio::spawn(async move {
            clock.sleep_until(at).await;
            fabric.change(&node, |host| {
                host.handler |= host.on && host.handler_not_before <= at;
            });
        });
        self.keep(back.abort_handle());
    }

    /// Power off: whatever guest is still there dies with it.
    pub fn node_off(&self, node: &str) {
        self.fabric.change(node, |host| {
            host.on = false;
            host.handler = false;
            host.shutting_down = None;
        });
    }

    /// The node boots: its kubelet runs at once, its virt-handler a little later.
    pub fn node_boot(&self, node: &str, boot_id: &str) {
        self.fabric.change(node, |host| {
            host.on = true;
            boot_id.clone_into(&mut host.boot_id);
        });
        let starts = self.store.clock().elapsed() + self.pace.boot.0;
        let at = starts.max(self.fabric.host(node).handler_not_before);
        self.virt_handler_starts(node, at);
    }

    /// The kubelet reports this boot, without anything having been restarted: for a host whose boot id is known only once it runs.
    pub fn node_reports(&self, node: &str, boot_id: &str) {
        self.fabric
            .change(node, |host| boot_id.clone_into(&mut host.boot_id));
    }

    /// kubelet's graceful node shutdown: every pod gets SIGTERM at once and has this long, virt-handler goes in the same wave.
    pub fn kubelet_shutdown(&self, node: &str, period: Duration) {
        let now = self.store.clock().elapsed();
        self.fabric.change(node, |host| {
            host.shutting_down = Some((now, period));
            host.handler = false;
        });
    }

    /// Somebody on the host presses the guest's power button, past KubeVirt and the API: the guest shuts down in its own
    /// time. False: no such guest runs there.
    pub fn guest_power_button(&self, node: &str, namespace: &str, vm: &str) -> bool {
        let machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        let since = self.store.clock().elapsed();
        machines.get(node).is_some_and(|machine| {
            machine.with(|machine| {
                let mut all = machine.launchers.values_mut();
                let guest = all.find(|one| {
                    one.namespace == namespace && one.vmi == vm && one.guest == Guest::Running
                });
                guest.is_some_and(|launcher| {
                    launcher.guest = Guest::ShuttingDown { since };
                    true
                })
            })
        })
    }

    /// A node joins.
    pub fn node_create(&self, spec: &NodeSpec) -> Result<(), Failure> {
        self.store
            .create(kind::NODES, objects::node(&self.store, spec))?;
        self.add_node(spec);
        Ok(())
    }

    /// Somebody migrates a VM; `to` names the node, else KubeVirt chooses.
    pub fn migrate(&self, namespace: &str, vm: &str, to: Option<&str>) -> Result<String, Failure> {
        let mut vmim = json!({
            "metadata": {"generateName": "kubevirt-migrate-vm-", "namespace": namespace},
            "spec": {"vmiName": vm},
            "status": {},
        });
        if let Some(to) = to {
            vmim["spec"]["addedNodeSelector"] = json!({"kubernetes.io/hostname": to});
        }
        if self.virt_api.settings().since(1, 9) {
            vmim["spec"]["priority"] = json!("user-triggered");
        }
        writes::check_migration(&self.virt_api, &vmim)
            .map_err(|why| Failure::webhook(400, "migration-create-validator.kubevirt.io", &why))?;
        writes::complete_migration(&mut vmim);
        let made = self.store.create(kind::VMIMS, vmim)?;
        Ok(text(&made, "metadata.name").to_owned())
    }

    /// A VM appears: running on its node when the spec names one, else as a new VM that is scheduled like any other.
    pub fn vm_create(&self, spec: &VmSpec) -> Result<(), Failure> {
        if !spec.node.is_empty() {
            return objects::settle_vm(&self.store, &self.virt_api, spec);
        }
        objects::ensure_namespace(&self.store, &spec.namespace)?;
        let strategy = objects::strategy_of(spec).to_owned();
        if spec.owner == VmOwner::None {
            let mut vmi =
                json!({"metadata": {"name": spec.name, "namespace": spec.namespace}, "status": {}});
            let template = objects::template(spec);
            vmi["spec"] = template["spec"].clone();
            vmi["metadata"]["labels"] = template["metadata"]["labels"].clone();
            vmi["metadata"]["annotations"] = template["metadata"]["annotations"].clone();
            writes::vmi_create(&self.virt_api, &mut vmi);
            self.store.create(kind::VMIS, vmi)?;
            return Ok(());
        }
        for index in 0..spec.count {
            let name = if spec.count == 1 {
                spec.name.clone()
            } else {
                format!("{}-{index}", spec.name)
            };
            self.store
                .create(kind::VMS, objects::vm(spec, &name, &strategy))?;
        }
        Ok(())
    }

    /// A VM is deleted with its VMI; without a VM object, the VMI is.
    pub fn vm_delete(&self, namespace: &str, vm: &str) {
        if self.store.delete(kind::VMS, namespace, vm).is_none() {
            self.store.delete(kind::VMIS, namespace, vm);
        }
    }

    /// As `virtctl stop`.
    pub async fn vm_stop(&self, namespace: &str, vm: &str) -> Result<(), Failure> {
        self.virtual_machine(namespace, vm, "stop").await
    }

    /// As `virtctl start`.
    pub async fn vm_start(&self, namespace: &str, vm: &str) -> Result<(), Failure> {
        self.virtual_machine(namespace, vm, "start").await
    }

    async fn virtual_machine(&self, namespace: &str, vm: &str, sub: &str) -> Result<(), Failure> {
        let request = SubresourceRequest {
            method: "PUT".to_owned(),
            version: "v1".to_owned(),
            resource: kind::VMS.to_owned(),
            namespace: namespace.to_owned(),
            name: vm.to_owned(),
            sub: sub.to_owned(),
            body: Vec::new(),
            user: "kubernetes-admin".to_owned(),
        };
        subresources::answer(&self.virt_api, request)
            .await
            .map(|_| ())
    }

    /// Somebody else's mark comes or is cancelled.
    pub fn vm_mark(&self, namespace: &str, vm: &str, marked: bool) {
        let changed = self.store.update(kind::VMIS, namespace, vm, |vmi| {
            if marked {
                vmi["status"]["evacuationNodeName"] = vmi["status"]["nodeName"].clone();
            } else {
                remove(&mut vmi["status"], "evacuationNodeName");
            }
        });
        if let Some(vmi) = changed.filter(|_| !marked) {
            self.virt_api.note_cancel(&vmi);
        }
    }

    /// An ordinary pod appears, running.
    pub fn pod_create(&self, spec: &PodSpec) -> Result<(), Failure> {
        objects::ensure_namespace(&self.store, &spec.namespace)?;
        self.store
            .create(kind::PODS, objects::pod(&self.store, spec))
            .map(|_| ())
    }

    /// A disruption budget appears.
    pub fn pdb_create(&self, spec: &PdbSpec) -> Result<(), Failure> {
        objects::ensure_namespace(&self.store, &spec.namespace)?;
        self.store
            .create(kind::PDBS, objects::pdb(spec))
            .map(|_| ())
    }
}
