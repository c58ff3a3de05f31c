//! What is there when the story begins: the tables `[kubevirt]`, `[host]`, `[[node]]`, `[[vm]]`, `[[pod]]`, `[[pdb]]`.

use std::collections::BTreeMap;

use serde::Deserialize;
use vmdrain_agent::drain::hooks::Gate;

use super::values::{Eventually, Rate, Size, Span};
use super::words::{Migratable, Outcome, PodOwner, Recreated, Rights, Share, Version, VmOwner};

/// `[kubevirt]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubeVirt {
    /// Which KubeVirt behaves here.
    pub version: Version,
    /// Whether the story names the version, because it is about it.
    #[serde(skip)]
    pub version_named: bool,
    /// Migrations at once in the cluster.
    pub parallel_migrations_per_cluster: u32,
    /// Migrations at once out of one node.
    pub parallel_outbound_migrations_per_node: u32,
    /// The cluster's own eviction strategy.
    pub cluster_eviction_strategy: EvictionStrategy,
    /// The taint that makes KubeVirt evacuate by itself.
    pub drain_taint_key: String,
    /// The gate MigrationPriorityQueue.
    pub priority_queue: bool,
}

impl Default for KubeVirt {
    fn default() -> Self {
        Self {
            version: Version { major: 1, minor: 7 },
            version_named: false,
            parallel_migrations_per_cluster: 5,
            parallel_outbound_migrations_per_node: 2,
            cluster_eviction_strategy: EvictionStrategy::None,
            drain_taint_key: "kubevirt.io/drain".into(),
            priority_queue: false,
        }
    }
}

/// `spec.evictionStrategy`, or none given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum EvictionStrategy {
    /// Migrate or block.
    LiveMigrate,
    /// Migrate, else stop the guest.
    LiveMigrateIfPossible,
    /// Stop the guest.
    None,
    /// Somebody else moves it.
    External,
    /// The field is absent.
    #[serde(rename = "unset")]
    Unset,
}

impl EvictionStrategy {
    /// As in the API; `None` when the field is absent.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::LiveMigrate => Some("LiveMigrate"),
            Self::LiveMigrateIfPossible => Some("LiveMigrateIfPossible"),
            Self::None => Some("None"),
            Self::External => Some("External"),
            Self::Unset => None,
        }
    }
}

/// `[host]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostTable {
    /// The node that this host is.
    pub node: String,
    /// Version of systemd.
    pub systemd: u32,
    /// `InhibitDelayMaxSec`.
    pub inhibit_delay_max: Span,
    /// From down to kubelet ready.
    pub boot_time: Span,
    /// kubelet's own graceful shutdown; 0: off.
    pub kubelet_graceful_shutdown: Span,
    /// What the agent may do.
    pub rights: Rights,
}

impl Default for HostTable {
    fn default() -> Self {
        Self {
            node: "n1".into(),
            systemd: 257,
            inhibit_delay_max: Span::seconds(45 * 60),
            boot_time: Span::seconds(60),
            kubelet_graceful_shutdown: Span::default(),
            rights: Rights::Full,
        }
    }
}

/// `[[node]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Condition `Ready`.
    #[serde(default = "yes")]
    pub ready: bool,
    /// Cordoned by somebody else.
    #[serde(default)]
    pub unschedulable: bool,
    /// Labels besides the usual ones.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Room for target pods.
    #[serde(default = "node_memory")]
    pub memory: Size,
    /// Room for target pods.
    #[serde(default = "node_cpus")]
    pub cpus: u32,
    /// A control-plane node.
    #[serde(default)]
    pub control_plane: bool,
}

impl Node {
    /// A node as everybody expects it.
    pub fn plain(name: &str) -> Self {
        Self {
            name: name.into(),
            ready: true,
            unschedulable: false,
            labels: BTreeMap::new(),
            memory: node_memory(),
            cpus: node_cpus(),
            control_plane: false,
        }
    }
}

/// `[[vm]]`, and the keys of `vm.create`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// Its name; with `count` the stem of the names.
    pub name: String,
    /// Its namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Where it runs; absent: on the host.
    pub node: Option<String>,
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// Who owns it.
    #[serde(default = "vm_owner")]
    pub owner: VmOwner,
    /// What an eviction does to it.
    #[serde(default = "live_migrate")]
    pub eviction_strategy: EvictionStrategy,
    /// Whether it can be migrated.
    #[serde(default = "migratable")]
    pub migratable: Migratable,
    /// Guest memory.
    #[serde(default = "vm_memory")]
    pub memory: Size,
    /// CPUs of its own (`dedicatedCpuPlacement`): only nodes with the label `cpumanager=true` take it. 0: none.
    #[serde(default)]
    pub dedicated_cpus: u32,
    /// Speed of its migration.
    pub rate: Option<Rate>,
    /// Duration of its migration, instead of `rate`.
    pub migration_time: Option<Span>,
    /// Target pod from created to running.
    #[serde(default = "vm_start_up")]
    pub start_up: Span,
    /// How its attempts to migrate end; the last one repeats.
    #[serde(default = "moves")]
    pub migration: Vec<Outcome>,
    /// How long the guest takes after ACPI.
    #[serde(default = "guest_shutdown")]
    pub guest_shutdown: Eventually,
    /// `terminationGracePeriodSeconds`.
    #[serde(default = "grace")]
    pub grace_period: Span,
    /// How long the source pod stays after the flip.
    #[serde(default = "lingers")]
    pub source_pod_lingers: Eventually,
    /// Hotplugged disks, each with its `hp-volume-*` pod.
    #[serde(default)]
    pub hotplug_disks: u32,
    /// Labels on the VMI and its launcher pod.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Annotations on the VM and its template, so on the VMI and its pod.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Annotations on the VM object alone, as `kubectl annotate vm` writes them.
    #[serde(default)]
    pub vm_annotations: BTreeMap<String, String>,
    /// Priority class of the migration, empty for none.
    #[serde(default)]
    pub priority: String,
}

impl Vm {
    /// The names of all that the table stands for: `db`, or `db-0` … for a `count` other than 1.
    pub fn names(&self) -> Vec<String> {
        if self.count == 1 {
            return vec![self.name.clone()];
        }
        (0..self.count)
            .map(|number| format!("{}-{number}", self.name))
            .collect()
    }
}

/// `[[pod]]`, and the keys of `pod.create`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Where it runs; absent: on the host.
    pub node: Option<String>,
    /// Who owns it.
    #[serde(default = "no_owner")]
    pub owner: PodOwner,
    /// Condition `Ready`.
    #[serde(default = "yes")]
    pub ready: bool,
    /// It has an emptyDir volume.
    #[serde(default)]
    pub empty_dir: bool,
    /// `terminationGracePeriodSeconds`.
    #[serde(default = "pod_grace")]
    pub grace_period: Span,
    /// What it takes to stop.
    #[serde(default = "pod_stops")]
    pub stops_in: Eventually,
    /// It has ended before the story: `true` well, `false` badly; absent: it runs.
    pub finished: Option<bool>,
    /// `spec.priority`.
    #[serde(default)]
    pub priority: i64,
    /// What comes after it; absent: what its owner would do.
    pub recreated: Option<Recreated>,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// `[[pdb]]`, and the keys of `pdb.create`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pdb {
    /// Its name.
    pub name: String,
    /// Its namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// `minAvailable`.
    pub min_available: Option<Share>,
    /// `maxUnavailable`.
    pub max_unavailable: Option<Share>,
    /// Labels of the pods that it protects; none: all.
    #[serde(default)]
    pub selector: BTreeMap<String, String>,
    /// `unhealthyPodEvictionPolicy`.
    #[serde(default = "if_healthy")]
    pub unhealthy_pod_eviction_policy: UnhealthyPolicy,
}

/// `unhealthyPodEvictionPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum UnhealthyPolicy {
    /// Only when the budget is healthy.
    IfHealthyBudget,
    /// Always.
    AlwaysAllow,
}

/// `[[hook]]`: a program of the administrator's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// Where it lies: `pre-drain`, `post-drain` or `pre-release`.
    pub gate: Gate,
    /// Its name in that directory.
    pub name: String,
    /// How long it takes.
    #[serde(default)]
    pub takes: Span,
    /// What it ends with.
    #[serde(default)]
    pub exit: u8,
}

/// `[[volume_attachment]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeAttachment {
    /// Where it is attached.
    pub node: String,
    /// How long after its last pod it detaches.
    #[serde(default = "detaches")]
    pub detaches: Eventually,
}

fn yes() -> bool {
    true
}
fn pod_stops() -> Eventually {
    Eventually::After(std::time::Duration::from_millis(500))
}
fn one() -> u32 {
    1
}
fn default_namespace() -> String {
    "default".into()
}
fn node_memory() -> Size {
    Size(256 << 30)
}
fn node_cpus() -> u32 {
    64
}
fn vm_memory() -> Size {
    Size(8 << 30)
}
fn vm_owner() -> VmOwner {
    VmOwner::Vm("Always".into())
}
fn no_owner() -> PodOwner {
    PodOwner::Nobody
}
fn live_migrate() -> EvictionStrategy {
    EvictionStrategy::LiveMigrate
}
fn migratable() -> Migratable {
    Migratable::Yes
}
fn moves() -> Vec<Outcome> {
    vec![Outcome::Ok]
}
fn vm_start_up() -> Span {
    Span::seconds(5)
}
fn grace() -> Span {
    Span::seconds(30)
}
fn pod_grace() -> Span {
    Span::seconds(30)
}
fn guest_shutdown() -> Eventually {
    Eventually::After(Span::seconds(10).0)
}
fn lingers() -> Eventually {
    Eventually::After(Span::seconds(3).0)
}
fn detaches() -> Eventually {
    Eventually::After(Span::seconds(40).0)
}
fn if_healthy() -> UnhealthyPolicy {
    UnhealthyPolicy::IfHealthyBudget
}
