//! All kinds together: the board that the watches write on, and the picture that is read from it.

use super::slot::{Change, Slot};
use crate::cluster::types::Thin;
use crate::cluster::types::kubevirt::{KubeVirt, KubeVirtSeen};
use crate::cluster::types::machine::Machine;
use crate::cluster::types::migration::Migration;
use crate::cluster::types::node::{Node, NodeSeen};
use crate::cluster::types::other::Other;
use crate::cluster::types::pdb::{Budget, Pdb};
use crate::cluster::types::pod::Pod;
use crate::cluster::types::vmi::Vmi;
use crate::drain::time::Mono;
use crate::drain::world::{
    KubeVirtView, Malformed, MigrationView, NodeView, OtherPod, PdbView, Picture, PodView, Sight,
    VmName, VmView, VmiView,
};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// What is known of every kind.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    pub(super) node: Slot<NodeSeen>,
    pub(super) pods: Slot<PodView>,
    pub(super) others: Slot<OtherPod>,
    pub(super) here: Slot<VmiView>,
    pub(super) coming: Slot<VmiView>,
    pub(super) machines: Slot<VmView>,
    pub(super) migrations: Slot<MigrationView>,
    pub(super) budgets: Slot<Budget>,
    pub(super) kubevirts: Slot<KubeVirtSeen>,
}

/// The shared board. Writers wake the publisher.
#[derive(Debug)]
pub(crate) struct Board {
    state: Mutex<(Slots, Change)>,
    changed: Notify,
    vmis: Notify,
}

impl Board {
    pub(super) fn new() -> Self {
        let slots = Slots {
            node: Slot::new(Node::RESOURCE),
            pods: Slot::new(Pod::RESOURCE),
            others: Slot::new(Other::RESOURCE),
            here: Slot::new(Vmi::RESOURCE),
            coming: Slot::new(Vmi::RESOURCE),
            machines: Slot::new(Machine::RESOURCE),
            migrations: Slot::new(Migration::RESOURCE),
            budgets: Slot::new(Pdb::RESOURCE),
            kubevirts: Slot::new(KubeVirt::RESOURCE),
        };
        Self {
            state: Mutex::new((slots, Change::Nothing)),
            changed: Notify::new(),
            vmis: Notify::new(),
        }
    }

    /// Writes something down.
    pub(super) fn edit(&self, write: impl FnOnce(&mut Slots) -> Change) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let change = write(&mut state.0);
        state.1 = state.1.max(change);
        if change != Change::Nothing {
            self.changed.notify_one();
        }
        if change == Change::Different {
            self.vmis.notify_one();
        }
    }

    /// Waits until something is different; for one waiter.
    pub(super) async fn vmis_changed(&self) {
        self.vmis.notified().await;
    }

    /// VMs whose VMIs are here, and that were not read yet.
    pub(super) fn machines_wanted(&self) -> Vec<VmName> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = &state.0;
        let of_vm = |vmi: &&VmiView| vmi.owner_kind == "VirtualMachine" && !vmi.is_final();
        let vms = slots.here.views().filter(of_vm).map(VmiView::vm);
        vms.filter(|vm| !slots.machines.knows(&vm.namespace, &vm.name))
            .collect()
    }

    /// Waits until something was written.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The picture of now, unless it would be the last one again. One that is only fresher is
    /// worth it when `fresher_counts`.
    /// `booted_at`: when the host's boot clock began, on the wall clock.
    pub(super) fn picture(
        &self,
        node: &str,
        now: Mono,
        booted_at: i64,
        fresher_counts: bool,
    ) -> Option<Picture> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let worth = match state.1 {
            Change::Nothing => false,
            Change::Fresher => fresher_counts,
            Change::Different => true,
        };
        worth.then(|| {
            state.1 = Change::Nothing;
            draw(&state.0, node, now, booted_at)
        })
    }
}

/// Draws the picture.
fn draw(slots: &Slots, node: &str, now: Mono, booted_at: i64) -> Picture {
    let pods: Vec<PodView> = slots.pods.views().cloned().collect();
    let others: Vec<OtherPod> = slots.others.views().cloned().collect();
    let mut malformed = all_malformed(slots);
    Picture {
        node: node_sight(slots, node, now, booted_at, &mut malformed),
        pdbs: slots
            .budgets
            .sight(|slot| budgets_over(slot, &pods, &others)),
        others: slots.others.sight(|_| others),
        pods: slots.pods.sight(|_| pods),
        vmis: vmis(&slots.here, &slots.coming),
        vms: slots.machines.sight(|slot| slot.views().cloned().collect()),
        migrations: slots
            .migrations
            .sight(|slot| slot.views().cloned().collect()),
        kubevirt: kubevirt(&slots.kubevirts, now),
        malformed,
    }
}

fn node_sight(
    slots: &Slots,
    name: &str,
    now: Mono,
    booted_at: i64,
    malformed: &mut Vec<Malformed>,
) -> Sight<NodeView> {
    let seen = slots.node.views().find(|seen| seen.name() == name);
    let troubles = seen
        .map(|seen| seen.troubles.as_slice())
        .unwrap_or_default();
    malformed.extend(troubles.iter().map(|why| Malformed {
        resource: Node::RESOURCE.to_owned(),
        object: name.to_owned(),
        why: why.clone(),
    }));
    match slots.node.sight(|_| seen) {
        Sight::Seen { value: None, fresh } => match slots.node.malformed().next() {
            Some(bad) => Sight::Broken {
                why: format!("node {name} cannot be read: {}", bad.why),
                since: fresh.min(now),
            },
            None => Sight::Missing,
        },
        Sight::Seen {
            value: Some(seen),
            fresh,
        } => Sight::Seen {
            value: seen.on_boot_clock(booted_at),
            fresh,
        },
        Sight::Pending => Sight::Pending,
        Sight::Forbidden { why } => Sight::Forbidden { why },
        Sight::Missing => Sight::Missing,
        Sight::Broken { why, since } => Sight::Broken { why, since },
    }
}

fn budgets_over(slot: &Slot<Budget>, pods: &[PodView], others: &[OtherPod]) -> Vec<PdbView> {
    slot.views()
        .filter_map(|budget| budget.over(pods, others))
        .collect()
}

/// VMIs come from two watches, and one that has just arrived is in both: the newer state counts.
/// The picture is as old as the older of the two.
fn vmis(here: &Slot<VmiView>, coming: &Slot<VmiView>) -> Sight<Vec<VmiView>> {
    let here_sight = here.sight(|_| ());
    let coming_sight = coming.sight(|_| ());
    match (&here_sight, &coming_sight) {
        (Sight::Seen { fresh, .. }, Sight::Seen { fresh: other, .. }) => Sight::Seen {
            value: newest(here, coming),
            fresh: *fresh.min(other),
        },
        (Sight::Seen { .. }, _) => coming_sight.without_value(),
        _ => here_sight.without_value(),
    }
}

fn newest(here: &Slot<VmiView>, coming: &Slot<VmiView>) -> Vec<VmiView> {
    let mut all: BTreeMap<&(String, String), (&str, &VmiView)> = BTreeMap::new();
    for (key, version, view) in coming.entries().chain(here.entries()) {
        let older = all
            .get(key)
            .is_some_and(|(known, _)| is_older(version, known));
        if !older {
            all.insert(key, (version, view));
        }
    }
    all.into_values().map(|(_, view)| view.clone()).collect()
}

/// Versions of one kind are numbers that grow, on every server that KubeVirt supports.
fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}

/// Of several objects the deployed one counts; without any, KubeVirt is not installed.
fn kubevirt(slot: &Slot<KubeVirtSeen>, now: Mono) -> Sight<KubeVirtView> {
    let seen = slot
        .views()
        .find(|seen| seen.deployed)
        .or_else(|| slot.views().next());
    match (slot.sight(|_| ()), seen) {
        (Sight::Seen { fresh, .. }, Some(seen)) => Sight::Seen {
            value: seen.view.clone(),
            fresh,
        },
        (Sight::Seen { fresh, .. }, None) => match slot.malformed().next() {
            Some(bad) => Sight::Broken {
                why: format!("kubevirt {} cannot be read: {}", bad.object, bad.why),
                since: fresh.min(now),
            },
            None => Sight::Missing,
        },
        (other, _) => other.without_value(),
    }
}

fn all_malformed(slots: &Slots) -> Vec<Malformed> {
    let mut all: Vec<Malformed> = slots
        .node
        .malformed()
        .chain(slots.pods.malformed())
        .chain(slots.others.malformed())
        .chain(slots.here.malformed())
        .chain(slots.coming.malformed())
        .chain(slots.machines.malformed())
        .chain(slots.migrations.malformed())
        .chain(slots.budgets.malformed())
        .chain(slots.kubevirts.malformed())
        .cloned()
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Everything but the value: only called where nothing was seen.
trait WithoutValue {
    fn without_value<T>(self) -> Sight<T>;
}

impl WithoutValue for Sight<()> {
    fn without_value<T>(self) -> Sight<T> {
        match self {
            // Seen without a value to show: the first list is not complete.
            Self::Pending | Self::Seen { .. } => Sight::Pending,
            Self::Forbidden { why } => Sight::Forbidden { why },
            Self::Missing => Sight::Missing,
            Self::Broken { why, since } => Sight::Broken { why, since },
        }
    }
}
