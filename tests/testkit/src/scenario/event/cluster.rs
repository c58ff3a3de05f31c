//! `vm.*`, `node.*`, `pod.*`, `pdb.*`, `object.apply`, `lease.hold`: what others do in the cluster.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::scenario::values::{Eventually, Rate, Size, Span};
use crate::scenario::words::{Migratable, Outcome, Share};
use crate::scenario::world::{EvictionStrategy, Pdb, Pod, Vm};

/// `vm.*`.
#[derive(Clone, Debug)]
pub enum VmDo {
    /// A new one.
    Create(Box<Vm>),
    /// Its VM (or VMI) object is deleted.
    Delete(VmName),
    /// Something about it changes.
    Set(Box<VmSet>),
    /// Somebody else migrates it.
    Migrate(VmMigrate),
    /// It is started.
    Start(VmName),
    /// It is stopped.
    Stop(VmName),
}

/// `node.*`.
#[derive(Clone, Debug)]
pub enum NodeDo {
    /// `kubectl cordon`.
    Cordon(NodeName),
    /// `kubectl uncordon`.
    Uncordon(NodeName),
    /// Its state changes.
    Set(NodeSet),
    /// It is deleted.
    Delete(NodeName),
    /// A taint is added.
    Taint(Taint),
}

/// `pod.*`.
#[derive(Clone, Debug)]
pub enum PodDo {
    /// A new one.
    Create(Box<Pod>),
    /// Its state changes.
    Set(PodSet),
    /// It is deleted.
    Delete(PodName),
}

/// `pdb.*`.
#[derive(Clone, Debug)]
pub enum PdbDo {
    /// A new one.
    Create(Box<Pdb>),
    /// Its rule changes.
    Set(PdbSet),
    /// It is deleted.
    Delete(PdbName),
}

keys! {
    /// Keys of `vm.set`: like `[[vm]]`, only what changes.
    VmSet {
        /// Which VM.
        vm: String,
        /// Its namespace.
        namespace: Option<String>,
        /// New strategy.
        eviction_strategy: Option<EvictionStrategy>,
        /// Whether it can be migrated.
        migratable: Option<Migratable>,
        /// New memory.
        memory: Option<Size>,
        /// New speed.
        rate: Option<Rate>,
        /// New duration of its migration.
        migration_time: Option<Span>,
        /// New outcomes of its attempts.
        migration: Option<Vec<Outcome>>,
        /// How long the guest takes.
        guest_shutdown: Option<Eventually>,
        /// How long the source pod stays.
        source_pod_lingers: Option<Eventually>,
        /// Labels to add.
        labels: Option<BTreeMap<String, String>>,
        /// Somebody else's mark, set or taken away.
        marked: Option<bool>,
        /// A condition of the VMI.
        condition: Option<Condition>,
    }
    /// A condition.
    Condition {
        /// Type.
        #[serde(rename = "type")] kind: String,
        /// `True`, `False` or `Unknown`.
        status: String,
        /// Reason.
        #[serde(default)] reason: String,
        /// Message.
        #[serde(default)] message: String,
    }
    /// A VM.
    VmName {
        /// Which.
        vm: String,
        /// Its namespace.
        namespace: Option<String>,
    }
    /// Keys of `vm.migrate`.
    VmMigrate {
        /// Which.
        vm: String,
        /// Its namespace.
        namespace: Option<String>,
        /// Where to; absent: wherever there is room.
        to: Option<String>,
    }
    /// A node.
    NodeName {
        /// Which.
        node: String,
    }
    /// Keys of `node.set`.
    NodeSet {
        /// Which.
        node: String,
        /// Condition `Ready`.
        ready: Option<bool>,
        /// Labels to add.
        labels: Option<BTreeMap<String, String>>,
        /// Annotations to add.
        annotations: Option<BTreeMap<String, String>>,
        /// `status.nodeInfo.machineID`.
        machine_id: Option<String>,
        /// `status.nodeInfo.systemUUID`.
        system_uuid: Option<String>,
    }
    /// Keys of `node.taint`.
    Taint {
        /// Which.
        node: String,
        /// Key of the taint.
        key: String,
        /// Its value.
        #[serde(default)] value: String,
        /// Its effect.
        #[serde(default = "no_schedule")] effect: String,
    }
    /// Keys of `pod.set`.
    PodSet {
        /// Which pod.
        pod: String,
        /// Its namespace.
        namespace: Option<String>,
        /// Condition `Ready`.
        ready: Option<bool>,
        /// Labels to add.
        labels: Option<BTreeMap<String, String>>,
        /// Annotations to add.
        annotations: Option<BTreeMap<String, String>>,
    }
    /// Keys of `pod.delete`.
    PodName {
        /// Which pod.
        pod: String,
        /// Its namespace.
        namespace: Option<String>,
    }
    /// Keys of `pdb.set`.
    PdbSet {
        /// Which budget.
        pdb: String,
        /// Its namespace.
        namespace: Option<String>,
        /// New rule.
        min_available: Option<Share>,
        /// New rule.
        max_unavailable: Option<Share>,
    }
    /// Keys of `pdb.delete`.
    PdbName {
        /// Which budget.
        pdb: String,
        /// Its namespace.
        namespace: Option<String>,
    }
    /// Keys of `object.apply`.
    Apply {
        /// The object.
        yaml: String,
    }
    /// Keys of `lease.hold`.
    LeaseHold {
        /// Which slot.
        slot: u32,
        /// Who.
        holder: String,
        /// How long.
        duration: Span,
    }
}

fn no_schedule() -> String {
    "NoSchedule".into()
}
