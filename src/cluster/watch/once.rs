//! The same picture from one list of every kind, without watches: for plans, which are asked for while nobody drains.

use super::Scene;
use super::board::Slots;
use super::slot::Slot;
use crate::agent::ports::Clock;
use crate::cluster::collection::{Collection, list};
use crate::cluster::types::Thin;
use crate::cluster::types::kubevirt::KubeVirt;
use crate::cluster::types::migration::Migration;
use crate::cluster::types::node::Node;
use crate::cluster::types::other::Other;
use crate::cluster::types::pdb::Pdb;
use crate::cluster::types::pod::Pod;
use crate::cluster::types::vmi::Vmi;
use crate::drain::action::FaultClass;
use crate::drain::world::Picture;
use std::time::Duration;

impl<C: Clock> Scene<C> {
    /// Lists every kind once, all at the same time. What fails says so in the picture. `others`: also the pods that are no
    /// VM's.
    pub(in crate::cluster) async fn look_once(&self, others: bool) -> Picture {
        let node = self.node.as_str();
        tokio::join!(
            self.fill::<Pod>(Collection::pods(node), |slots| &mut slots.pods),
            async {
                if others {
                    let pods = Collection::others(node);
                    self.fill::<Other>(pods, |slots| &mut slots.others).await;
                }
            },
            self.fill::<Vmi>(Collection::vmis_here(node), |slots| &mut slots.here),
            self.fill::<Vmi>(Collection::vmis_coming(node), |slots| &mut slots.coming),
            self.fill::<Migration>(Collection::migrations(), |slots| &mut slots.migrations),
            self.fill::<Pdb>(Collection::budgets(), |slots| &mut slots.budgets),
            self.fill::<KubeVirt>(Collection::kubevirts(), |slots| &mut slots.kubevirts),
            self.fill::<Node>(Collection::node(node), |slots| &mut slots.node),
        );
        // Whose VMs they are is known from the VMIs.
        self.read_machines_once().await;
        let now = self.clock.now();
        let booted_at = self.clock.booted_at();
        let picture = self.board.picture(node, now, booted_at, true);
        picture.unwrap_or_default()
    }

    async fn fill<T: Thin>(
        &self,
        collection: Collection,
        slot: fn(&mut Slots) -> &mut Slot<T::View>,
    ) {
        let now = self.clock.now();
        let listed = list::<T>(&self.connection, &collection, &self.timing, now).await;
        let now = self.clock.now();
        self.board.edit(|slots| {
            let slot = slot(slots);
            match listed {
                Ok(listing) => slot.replace(&listing, now),
                Err(fault) if fault.class == FaultClass::Denied => {
                    slot.forbidden(collection.forbidden(&fault))
                }
                Err(fault) if fault.class == FaultClass::Gone => slot.missing(),
                Err(fault) => slot.failed(fault.text, now, Duration::ZERO),
            }
        });
    }
}
