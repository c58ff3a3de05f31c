//! What are KubeVirt's labels, annotations and finalizers called, and which knobs of our own travel on objects?

/// Plural resource names, as the store knows them.
pub mod kind {
    /// Core pods.
    pub const PODS: &str = "pods";
    /// Core nodes.
    pub const NODES: &str = "nodes";
    /// Pod disruption budgets.
    pub const PDBS: &str = "poddisruptionbudgets";
    /// Virtual machine instances.
    pub const VMIS: &str = "virtualmachineinstances";
    /// Live migrations.
    pub const VMIMS: &str = "virtualmachineinstancemigrations";
    /// Virtual machines.
    pub const VMS: &str = "virtualmachines";
    /// Replica sets of VMIs.
    pub const REPLICA_SETS: &str = "virtualmachineinstancereplicasets";
    /// Pools of VMs.
    pub const POOLS: &str = "virtualmachinepools";
    /// The KubeVirt configuration object.
    pub const KUBEVIRTS: &str = "kubevirts";
    /// Node leases.
    pub const LEASES: &str = "leases";
    /// Volume attachments.
    pub const ATTACHMENTS: &str = "volumeattachments";
}

/// Label that names the role of a KubeVirt pod.
pub const ROLE: &str = "kubevirt.io";
/// Value of [`ROLE`] on a launcher pod.
pub const LAUNCHER: &str = "virt-launcher";
/// Label with the node of a VMI; on pods it is copied and may lie.
pub const NODE_NAME: &str = "kubevirt.io/nodeName";
/// Node label: the kubelet gives pods CPUs of their own. Since KubeVirt 1.8 it is the second one.
pub const CPU_MANAGERS: [&str; 2] = ["cpumanager", "kubevirt.io/cpumanager"];
/// Label on a VMI while a migration to that node is not cleaned up.
pub const MIGRATION_TARGET: &str = "kubevirt.io/migrationTargetNodeName";
/// Pod label with the uid of the VMI.
pub const CREATED_BY: &str = "kubevirt.io/created-by";
/// Pod label with the uid of the VMIM that made a target pod.
pub const MIGRATION_JOB_UID: &str = "kubevirt.io/migrationJobUID";
/// Pod annotation with the name of the VMIM that made a target pod.
pub const MIGRATION_JOB_NAME: &str = "kubevirt.io/migrationJobName";
/// Pod annotation with the name of the VMI.
pub const DOMAIN: &str = "kubevirt.io/domain";
/// VMIM label with the name of the VMI.
pub const VMI_NAME: &str = "kubevirt.io/vmi-name";
/// VMIM annotation: made by an evacuation of this node.
pub const EVACUATION: &str = "kubevirt.io/evacuationMigration";
/// VMIM finalizer.
pub const MIGRATION_FINALIZER: &str = "kubevirt.io/migrationJobFinalize";
/// VMI finalizer of virt-controller.
pub const VMI_FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// VMI annotation: who asked for the eviction (`descheduler`).
pub const EVICTION_SOURCE: &str = "kubevirt.io/eviction-source";
/// Pod annotation while its VM is being evacuated.
pub const EVICTION_IN_PROGRESS: &str = "descheduler.alpha.kubernetes.io/eviction-in-progress";
/// Pod annotation: evict this pod, never delete it.
pub const EVICT_ONLY: &str = "descheduler.alpha.kubernetes.io/request-evict-only";
/// Pod annotation of a target pod that has become the active one.
pub const TARGET_READY: &str = "kubevirt.io/migration-target-ready-timestamp";
/// Node label: virt-handler is able to run VMs here.
pub const SCHEDULABLE: &str = "kubevirt.io/schedulable";
/// Node annotation: the last sign of life of virt-handler.
pub const HEARTBEAT: &str = "kubevirt.io/heartbeat";
/// Pod readiness gate and condition.
pub const UNPAUSED: &str = "kubevirt.io/virtual-machine-unpaused";
/// PDB label during a migration (KubeVirt ≤ 1.5).
pub const PDB_MIGRATION: &str = "kubevirt.io/migrationName";
/// Extended resource that tells that virt-handler's device plugins are registered.
pub const KVM: &str = "devices.kubevirt.io/kvm";
/// Taint of a cordoned node.
pub const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Knobs of the played actors: annotations on a VM's template (copied to VMI and pods) or on any other pod.
///
/// They live on the objects so that the same actors work against any API server.
pub mod knob {
    /// Prefix of all of them.
    pub const PREFIX: &str = "sim.vmdrain.io/";
    /// Seconds from the bound launcher pod to its running guest.
    pub const START_UP: &str = "sim.vmdrain.io/start-up-seconds";
    /// Seconds that a live migration copies.
    pub const MIGRATION_SECONDS: &str = "sim.vmdrain.io/migration-seconds";
    /// Outcome of attempt 1, 2, …, separated by `|`; the last one repeats. `ok`, `fail:<reason>`, `stuck`, `unschedulable:<message>`,
    /// `pending`.
    pub const MIGRATION: &str = "sim.vmdrain.io/migration";
    /// `False` reason of the condition LiveMigratable; absent means migratable.
    pub const NOT_MIGRATABLE: &str = "sim.vmdrain.io/not-migratable";
    /// Seconds that the guest takes to shut down; `never` ignores ACPI.
    pub const GUEST_SHUTDOWN: &str = "sim.vmdrain.io/guest-shutdown-seconds";
    /// Seconds from the flip to the end of the source pod; `never` keeps it running.
    pub const SOURCE_LINGERS: &str = "sim.vmdrain.io/source-pod-lingers-seconds";
    /// Which attempt this migration is: `<VMIM uid>/<number>`; on the VMI at hand-off and on the target pod (there the number alone).
    pub const ATTEMPT: &str = "sim.vmdrain.io/attempt";
    /// `false`: the pod never becomes ready.
    pub const READY: &str = "sim.vmdrain.io/ready";
    /// Seconds that an ordinary pod takes to stop.
    pub const TERMINATES: &str = "sim.vmdrain.io/terminates-seconds";
    /// What happens after an ordinary pod is gone: `never`, `elsewhere`, `same_name:<node>`, `same_name:pending`.
    pub const RECREATED: &str = "sim.vmdrain.io/recreated";
    /// Seconds from a node's last pod to the end of a volume attachment; `never`.
    pub const DETACHES: &str = "sim.vmdrain.io/detaches-seconds";
}
