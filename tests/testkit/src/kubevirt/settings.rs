//! Which KubeVirt is simulated, how is it configured, and how long does everything take?

use std::time::Duration;

use serde_json::{Value, json};

use super::names::kind;
use crate::api::{Failure, Store};

/// A version, major and minor.
pub type Version = (u8, u8);

/// The configuration of the simulated KubeVirt.
#[derive(Clone, Debug)]
pub struct Settings {
    /// 1.4 … 1.9; decides every behaviour that differs.
    pub version: Version,
    /// `parallelMigrationsPerCluster`.
    pub per_cluster: usize,
    /// `parallelOutboundMigrationsPerNode`.
    pub per_node: usize,
    /// `spec.configuration.evictionStrategy`.
    pub cluster_eviction_strategy: String,
    /// `nodeDrainTaintKey`.
    pub drain_taint_key: String,
    /// The feature gate `MigrationPriorityQueue`; on by itself from 1.9.
    pub priority_queue: bool,
    /// Every time constant.
    pub timings: Timings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: (1, 7),
            per_cluster: 5,
            per_node: 2,
            cluster_eviction_strategy: "None".to_owned(),
            drain_taint_key: "kubevirt.io/drain".to_owned(),
            priority_queue: false,
            timings: Timings::default(),
        }
    }
}

impl Settings {
    /// The defaults of a version.
    pub fn of(major: u8, minor: u8) -> Self {
        Self {
            version: (major, minor),
            ..Self::default()
        }
    }

    /// Whether this version is at least `major.minor`.
    pub fn since(&self, major: u8, minor: u8) -> bool {
        self.version >= (major, minor)
    }

    /// Whether the migration queue has priorities and wakes up when a slot is free (gate, or 1.9).
    pub fn has_priority_queue(&self) -> bool {
        self.since(1, 9) || self.priority_queue && self.since(1, 7)
    }

    /// Whether every VMI has a disruption budget of its own (until 1.5).
    pub fn has_budgets(&self) -> bool {
        !self.since(1, 6)
    }

    /// `v1.7.0`.
    pub fn version_text(&self) -> String {
        format!("v{}.{}.0", self.version.0, self.version.1)
    }
}

/// Every time constant of the simulated controllers. Defaults: what real controllers did, or KubeVirt's source says.
#[derive(Clone, Debug)]
pub struct Timings {
    /// Shortest and longest time from a change to the reaction of a controller.
    pub react: (Duration, Duration),
    /// Rhythm in which a waiting VMIM looks for a slot without the priority queue.
    pub look: Duration,
    /// Rhythm with the priority queue: system-critical, user-triggered, others.
    pub look_by_priority: [Duration; 3],
    /// With the priority queue: how long after a final VMIM the next one looks.
    pub wake: (Duration, Duration),
    /// How long the evacuation controller waits for a free slot before it looks again.
    pub evacuation_look: Duration,
    /// First backoff after a failed evacuation; doubles.
    pub backoff: Duration,
    /// An unschedulable target pod is given up.
    pub unschedulable: Duration,
    /// A target pod that is pending for another reason is given up.
    pub pending: Duration,
    /// A node whose virt-handler said nothing for so long is not schedulable.
    pub unresponsive: Duration,
    /// How often that is checked.
    pub node_check: Duration,
    /// Final VMIMs that are kept per VMI.
    pub kept_migrations: usize,
    /// virt-api's own API client on ≤ 1.5: requests per second and burst (then 200/400).
    pub api_rate: (f64, f64),
    /// Time limit of the webhooks.
    pub webhook_timeout: Duration,
    /// A node without a renewed lease becomes Unknown.
    pub node_unknown: Duration,
    /// Pods of a dead node are evicted by taint (`tolerationSeconds` of the default tolerations).
    pub pod_eviction: Duration,
    /// Transfer time that a migration may take per GiB.
    pub completion_per_gib: Duration,
    /// A migration without progress is aborted.
    pub no_progress: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        let ms = Duration::from_millis;
        let s = Duration::from_secs;
        Self {
            react: (ms(70), ms(170)),
            look: s(5),
            look_by_priority: [s(1), s(3), s(5)],
            wake: (ms(350), ms(800)),
            evacuation_look: s(5),
            backoff: s(20),
            unschedulable: s(300),
            pending: s(900),
            unresponsive: s(300),
            node_check: s(60),
            kept_migrations: 5,
            api_rate: (5.0, 10.0),
            webhook_timeout: s(10),
            node_unknown: s(40),
            pod_eviction: s(300),
            completion_per_gib: s(150),
            no_progress: s(150),
        }
    }
}

/// Puts KubeVirt's own objects into the store: the namespace, the configuration and the CRDs that clients look for.
pub fn install(store: &Store, settings: &Settings) -> Result<(), Failure> {
    let taken_is_fine = |made: Result<Value, Failure>| match made {
        Err(failure) if failure.code != 409 => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    };
    taken_is_fine(store.create("namespaces", json!({"metadata": {"name": "kubevirt"}})))?;
    store.create(kind::KUBEVIRTS, configuration(settings))?;
    for (plural, kind, group) in CRDS {
        let name = format!("{plural}.{group}");
        let crd = json!({
            "metadata": {"name": name},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                "versions": [{"name": if *group == "kubevirt.io" { "v1" } else { "v1beta1" }, "served": true, "storage": true}],
            },
            "status": {"conditions": [{"type": "Established", "status": "True"}]},
        });
        store.create("customresourcedefinitions", crd)?;
    }
    Ok(())
}

const CRDS: &[(&str, &str, &str)] = &[
    (
        "virtualmachineinstances",
        "VirtualMachineInstance",
        "kubevirt.io",
    ),
    (
        "virtualmachineinstancemigrations",
        "VirtualMachineInstanceMigration",
        "kubevirt.io",
    ),
    ("virtualmachines", "VirtualMachine", "kubevirt.io"),
    (
        "virtualmachineinstancereplicasets",
        "VirtualMachineInstanceReplicaSet",
        "kubevirt.io",
    ),
    (
        "virtualmachinepools",
        "VirtualMachinePool",
        "pool.kubevirt.io",
    ),
    ("kubevirts", "KubeVirt", "kubevirt.io"),
];

fn configuration(settings: &Settings) -> Value {
    let gates = if settings.priority_queue {
        json!(["MigrationPriorityQueue"])
    } else {
        json!([])
    };
    let version = settings.version_text();
    json!({
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": {
            "evictionStrategy": settings.cluster_eviction_strategy,
            "developerConfiguration": {"featureGates": gates},
            "migrations": {
                "parallelMigrationsPerCluster": settings.per_cluster,
                "parallelOutboundMigrationsPerNode": settings.per_node,
                "nodeDrainTaintKey": settings.drain_taint_key,
            },
        }},
        "status": {
            "phase": "Deployed", "observedKubeVirtVersion": version, "operatorVersion": version, "targetKubeVirtVersion": version,
            "defaultArchitecture": "amd64",
        },
    })
}
