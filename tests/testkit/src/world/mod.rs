//! The whole simulated cluster as one thing: what is in it, how does it start, and what can be done to it?
//!
//! - [`spec`]: what is there at the beginning. [`objects`]: the objects that stand for it.
//! - [`World`]: everything running, with its switches (`switches`).
//! - [`invariants`]: what must never happen, whatever the story.

pub mod cluster;
pub mod invariants;
pub mod objects;
pub mod spec;
mod switches;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::actors::fabric::Fabric;
use crate::actors::ledger::{DirtyKill, Ledger};
use crate::actors::machine::Shared;
use crate::actors::premises::Premises;
use crate::actors::{self, Pace, Role};
use crate::api::{Failure, Store};
use crate::kubernetes::{self, engine};
use crate::kubevirt::{self, VirtApi};
pub use cluster::Cluster;
use invariants::{Recorder, Violation};
pub use spec::{AttachmentSpec, Inventory, NodeSpec, Pairs, PdbSpec, PodSpec, VmOwner, VmSpec};

/// Reaction time of Kubernetes' own controllers.
const KUBERNETES_REACTS: (Duration, Duration) =
    (Duration::from_millis(5), Duration::from_millis(25));

/// Makes the clients of the played parts.
pub type Clients = dyn Fn(Role) -> kube::Client + Send + Sync;

/// A running simulated cluster. Everything stops when it is dropped.
pub struct World {
    store: Store,
    /// virt-api and its switches.
    pub virt_api: VirtApi,
    /// The virt-controller process.
    pub virt_controller: engine::Switch,
    fabric: Fabric,
    ledger: Ledger,
    recorder: Arc<Recorder>,
    clients: Arc<Clients>,
    pace: Pace,
    seed: u64,
    /// What physically is on each node.
    machines: std::sync::Mutex<BTreeMap<String, Shared>>,
    tasks: std::sync::Mutex<Vec<AbortHandle>>,
}

/// Puts an inventory into the store, settled, and starts all controllers and actors.
///
/// Needs a tokio runtime. `virt_api` must be the admission of the server that `clients` speak to. Fails when two objects have the
/// same name.
pub fn start(
    store: &Store,
    virt_api: &VirtApi,
    inventory: &Inventory,
    clients: Arc<Clients>,
    pace: Pace,
    seed: u64,
) -> Result<World, Failure> {
    kubevirt::install(store, virt_api.settings())?;
    settle(store, virt_api, inventory)?;
    let world = World {
        store: store.clone(),
        virt_api: virt_api.clone(),
        virt_controller: engine::Switch::new(store.clock().clone()),
        fabric: Fabric::default(),
        ledger: Ledger::default(),
        recorder: Arc::new(Recorder::new(store, virt_api)),
        clients,
        pace,
        seed,
        machines: std::sync::Mutex::default(),
        tasks: std::sync::Mutex::default(),
    };
    world.spawn_controllers();
    for node in &inventory.nodes {
        world.add_node(node);
    }
    Ok(world)
}

/// The objects of an inventory, as if everything had been running for a while.
fn settle(store: &Store, virt_api: &VirtApi, inventory: &Inventory) -> Result<(), Failure> {
    for node in &inventory.nodes {
        store.create("nodes", objects::node(store, node))?;
    }
    for vm in &inventory.vms {
        objects::settle_vm(store, virt_api, vm)?;
    }
    for pod in &inventory.pods {
        objects::ensure_namespace(store, &pod.namespace)?;
        store.create("pods", objects::pod(store, pod))?;
    }
    for pdb in &inventory.pdbs {
        objects::ensure_namespace(store, &pdb.namespace)?;
        store.create("poddisruptionbudgets", objects::pdb(pdb))?;
    }
    for (index, attachment) in inventory.attachments.iter().enumerate() {
        store.create("volumeattachments", objects::attachment(attachment, index))?;
    }
    Ok(())
}

impl World {
    /// A world whose controllers are real ones elsewhere: `store` holds what is seen of it. Only hosts and the invariants are here.
    pub fn onlooker(
        store: &Store,
        virt_api: &VirtApi,
        (fabric, ledger): (Fabric, Ledger),
        clients: Arc<Clients>,
    ) -> Self {
        let world = Self {
            store: store.clone(),
            virt_api: virt_api.clone(),
            virt_controller: engine::Switch::new(store.clock().clone()),
            fabric,
            ledger,
            recorder: Arc::new(Recorder::new(store, virt_api)),
            clients,
            pace: Pace::default(),
            seed: 1,
            machines: std::sync::Mutex::default(),
            tasks: std::sync::Mutex::default(),
        };
        world.keep(tokio::spawn(world.recorder.clone().run(store.clone())).abort_handle());
        world
    }

    fn spawn_controllers(&self) {
        let timings = &self.virt_api.settings().timings;
        let virt = engine::run(
            self.store.clone(),
            kubevirt::controller::controllers(&self.virt_api),
            self.virt_controller.clone(),
            timings.react,
            self.seed,
        );
        let kubernetes = engine::run(
            self.store.clone(),
            kubernetes::controllers(timings.node_unknown, timings.pod_eviction),
            engine::Switch::new(self.store.clock().clone()),
            KUBERNETES_REACTS,
            self.seed,
        );
        self.keep(tokio::spawn(virt).abort_handle());
        self.keep(tokio::spawn(kubernetes).abort_handle());
        self.keep(tokio::spawn(self.recorder.clone().run(self.store.clone())).abort_handle());
    }

    /// Starts the played parts of a node whose object exists.
    fn add_node(&self, node: &NodeSpec) {
        self.fabric.change(&node.name, |host| {
            host.on = node.ready;
            host.handler = node.ready;
            host.boot_id = objects::boot_id(node);
        });
        let surroundings = actors::Surroundings {
            clock: self.store.clock().clone(),
            fabric: self.fabric.clone(),
            ledger: self.ledger.clone(),
            pace: self.pace.clone(),
            seed: self.seed,
        };
        let kubelet = (self.clients)(Role::Kubelet(node.name.clone()));
        let machine = Shared::default();
        self.machines
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert(node.name.clone(), machine.clone());
        for task in actors::spawn(
            &node.name,
            machine,
            kubelet,
            (self.clients)(Role::VirtHandler),
            &surroundings,
        ) {
            self.keep(task);
        }
    }

    fn keep(&self, task: AbortHandle) {
        self.tasks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(task);
    }

    /// A node's host from inside; `None`: nothing of it is played here.
    pub fn premises(&self, node: &str) -> Option<Premises> {
        let machines = self
            .machines
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        Some(Premises {
            node: node.to_owned(),
            machine: machines.get(node)?.clone(),
            fabric: self.fabric.clone(),
            clock: self.store.clock().clone(),
        })
    }

    /// The objects.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Guests that died without a clean shutdown, oldest first.
    pub fn dirty_kills(&self) -> Vec<DirtyKill> {
        self.ledger.kills()
    }

    /// What KubeVirt itself must never do and did (kubevirt-semantics 11.11, I1–I5).
    pub fn check_invariants(&self) -> Vec<Violation> {
        self.recorder.violations(&self.store)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for task in self
            .tasks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .drain(..)
        {
            task.abort();
        }
    }
}
