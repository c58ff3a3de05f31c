//! A whole cluster in one process: store, API server, KubeVirt and the played nodes.

use std::sync::Arc;

use super::{Clients, Inventory, World, start};
use crate::actors::{Pace, Role};
use crate::api::{Failure, Identity, Rights, Server, Store};
use crate::clock::SimClock;
use crate::kubevirt::{Settings, VirtApi};

/// A server and the world behind it.
pub struct Cluster {
    /// What clients speak to.
    pub server: Arc<Server>,
    /// What happens behind it.
    pub world: World,
}

impl Cluster {
    /// Starts everything in this process, on this clock; needs a tokio runtime.
    ///
    /// The same seed gives the same run. Fails when two objects of the inventory have the same name.
    pub fn start(
        clock: SimClock,
        settings: Settings,
        inventory: &Inventory,
        rights: Rights,
        seed: u64,
    ) -> Result<Self, Failure> {
        let store = Store::new(clock, seed);
        let virt_api = VirtApi::new(store.clone(), settings);
        let server = Server::new(store.clone(), Arc::new(virt_api.clone()), rights);
        let world = start(
            &store,
            &virt_api,
            inventory,
            clients(&server),
            Pace::default(),
            seed,
        )?;
        Ok(Self { server, world })
    }
}

/// In-process clients with the identities of the real parts.
pub fn clients(server: &Arc<Server>) -> Arc<Clients> {
    let server = server.clone();
    Arc::new(move |role| {
        server.client(match role {
            Role::Kubelet(node) => Identity::kubelet(&node),
            Role::VirtHandler => Identity::service_account("kubevirt", "kubevirt-handler"),
        })
    })
}
