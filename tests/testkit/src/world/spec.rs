//! What is in a simulated world at its beginning? The tables `[[node]]`, `[[vm]]`, `[[pod]]`, `[[pdb]]` and `[[volume_attachment]]`
//! of the scenario format, with its defaults.

use std::collections::BTreeMap;
use std::time::Duration;

/// Labels or annotations.
pub type Pairs = BTreeMap<String, String>;

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// Name, also its host name.
    pub name: String,
    /// Whether the kubelet runs and the node is Ready at the beginning.
    pub ready: bool,
    /// Cordoned from the beginning, by somebody else.
    pub unschedulable: bool,
    /// More labels.
    pub labels: Pairs,
    /// Memory for pods, a Kubernetes quantity.
    pub memory: String,
    /// CPUs for pods.
    pub cpus: u32,
    /// Whether it is a control-plane node.
    pub control_plane: bool,
    /// `status.nodeInfo.machineID`; made from the name when empty.
    pub machine_id: String,
    /// `status.nodeInfo.systemUUID`; made from the name when empty.
    pub system_uuid: String,
    /// `status.nodeInfo.bootID`; made from the name when empty.
    pub boot_id: String,
}

impl NodeSpec {
    /// A ready node with room for everything.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ready: true,
            unschedulable: false,
            labels: Pairs::new(),
            memory: "256Gi".to_owned(),
            cpus: 64,
            control_plane: false,
            machine_id: String::new(),
            system_uuid: String::new(),
            boot_id: String::new(),
        }
    }
}

/// Who owns a VMI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmOwner {
    /// A VM with this run strategy; `running`: with the old `spec.running: true`.
    Vm(String),
    /// A VMIReplicaSet.
    ReplicaSet,
    /// A VM (Always) of a pool.
    Pool,
    /// An object of this kind, which KubeVirt does not know.
    Other(String),
    /// Nobody.
    None,
}

/// One VM.
#[derive(Clone, Debug, PartialEq)]
pub struct VmSpec {
    /// Name.
    pub name: String,
    /// Namespace; made when it does not exist.
    pub namespace: String,
    /// Where it runs at the beginning.
    pub node: String,
    /// More than one: `name-0` … (replicas of a replica set).
    pub count: usize,
    /// Who owns it.
    pub owner: VmOwner,
    /// `LiveMigrate`, `LiveMigrateIfPossible`, `None`, `External`; `None` here means unset (the cluster's counts).
    pub eviction_strategy: Option<String>,
    /// Reason of LiveMigratable=False; `None` means migratable.
    pub not_migratable: Option<String>,
    /// Guest memory, a Kubernetes quantity.
    pub memory: String,
    /// `domain.cpu.cores` with `dedicatedCpuPlacement`; 0: no CPUs of its own.
    pub dedicated_cpus: u32,
    /// How long its migration copies.
    pub migration_time: Duration,
    /// Target (or new) pod from bound to running.
    pub start_up: Duration,
    /// Outcomes of attempt 1, 2, …; the last repeats (see [`crate::actors::knobs::Outcome`]).
    pub migration: Vec<String>,
    /// What the guest takes after ACPI; `None` ignores it.
    pub guest_shutdown: Option<Duration>,
    /// `terminationGracePeriodSeconds`.
    pub grace_period: Duration,
    /// Source pod from the flip to its end; `None` stays.
    pub source_pod_lingers: Option<Duration>,
    /// Attachment pods.
    pub hotplug_disks: usize,
    /// Labels of VMI and launcher pod.
    pub labels: Pairs,
    /// Annotations of the VM and of its template.
    pub annotations: Pairs,
    /// Annotations of the VM alone.
    pub vm_annotations: Pairs,
    /// `priorityClassName`.
    pub priority: String,
    /// Marked from the beginning, by somebody else.
    pub marked: bool,
}

impl VmSpec {
    /// A VM as the scenario format defaults it: runs always, live-migrates.
    pub fn new(name: &str, node: &str) -> Self {
        Self {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            node: node.to_owned(),
            count: 1,
            owner: VmOwner::Vm("Always".to_owned()),
            eviction_strategy: Some("LiveMigrate".to_owned()),
            not_migratable: None,
            memory: "8Gi".to_owned(),
            dedicated_cpus: 0,
            migration_time: Duration::from_secs(8),
            start_up: Duration::from_secs(5),
            migration: vec!["ok".to_owned()],
            guest_shutdown: Some(Duration::from_secs(10)),
            grace_period: Duration::from_secs(30),
            source_pod_lingers: Some(Duration::from_secs(3)),
            hotplug_disks: 0,
            labels: Pairs::new(),
            annotations: Pairs::new(),
            vm_annotations: Pairs::new(),
            priority: String::new(),
            marked: false,
        }
    }
}

/// A pod that is not a launcher.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSpec {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Where it runs.
    pub node: String,
    /// `Kind/name`, `mirror` or `none`.
    pub owner: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it has an emptyDir volume.
    pub empty_dir: bool,
    /// `terminationGracePeriodSeconds`.
    pub grace_period: Duration,
    /// What it takes to stop; `None` ignores SIGTERM.
    pub stops_in: Option<Duration>,
    /// Ended from the beginning, well or badly; `None`: it runs.
    pub finished: Option<bool>,
    /// `spec.priority`; 0: not set.
    pub priority: i64,
    /// `never`, `elsewhere`, `here`, `same_name:<node>`, `same_name:any`, `same_name:pending`; `None` as its owner does.
    pub recreated: Option<String>,
    /// Labels.
    pub labels: Pairs,
    /// Annotations.
    pub annotations: Pairs,
}

impl PodSpec {
    /// A pod without an owner that stops at once.
    pub fn new(name: &str, node: &str) -> Self {
        Self {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            node: node.to_owned(),
            owner: "none".to_owned(),
            ready: true,
            empty_dir: false,
            grace_period: Duration::from_secs(30),
            stops_in: Some(Duration::from_millis(500)),
            finished: None,
            priority: 0,
            recreated: None,
            labels: Pairs::new(),
            annotations: Pairs::new(),
        }
    }
}

/// A disruption budget.
#[derive(Clone, Debug, PartialEq)]
pub struct PdbSpec {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// A number or a percentage.
    pub min_available: Option<String>,
    /// A number or a percentage.
    pub max_unavailable: Option<String>,
    /// Labels that it selects.
    pub selector: Pairs,
    /// `IfHealthyBudget` (default) or `AlwaysAllow`.
    pub unhealthy_pod_eviction_policy: Option<String>,
    /// Made before the pods that it selects, so that it was observed once (control-plane.md 6.c).
    pub before_pods: bool,
}

impl PdbSpec {
    /// A budget without numbers.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            min_available: None,
            max_unavailable: None,
            selector: Pairs::new(),
            unhealthy_pod_eviction_policy: None,
            before_pods: false,
        }
    }
}

/// A volume that is attached to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentSpec {
    /// The node.
    pub node: String,
    /// After the node's last ordinary pod is gone; `None` never.
    pub detaches: Option<Duration>,
}

/// Everything that is there at the beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// Nodes.
    pub nodes: Vec<NodeSpec>,
    /// VMs.
    pub vms: Vec<VmSpec>,
    /// Other pods.
    pub pods: Vec<PodSpec>,
    /// Disruption budgets.
    pub pdbs: Vec<PdbSpec>,
    /// Volume attachments.
    pub attachments: Vec<AttachmentSpec>,
}

impl Inventory {
    /// These nodes and nothing else.
    pub fn with_nodes(names: &[&str]) -> Self {
        Self {
            nodes: names.iter().map(|name| NodeSpec::new(name)).collect(),
            ..Self::default()
        }
    }
}
