//! Which resources does the simulated cluster know, and what are they called?

/// One resource: the plural names it in paths and in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// The one version that is served.
    pub version: &'static str,
    /// Plural name; unique over all groups here.
    pub plural: &'static str,
    /// `kind` of an object.
    pub kind: &'static str,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether `/status` is a subresource of its own.
    pub status: bool,
    /// Whether `metadata.generation` counts the changes of `spec`.
    pub generation: bool,
    /// Short names for `kubectl`, separated by commas.
    pub short: &'static str,
}

impl Kind {
    /// Singular name, what people type.
    pub fn singular(&self) -> String {
        self.kind.to_ascii_lowercase()
    }

    /// `v1`, or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether the kind belongs to KubeVirt (its writes pass virt-api's webhooks).
    pub fn is_kubevirt(&self) -> bool {
        self.group == "kubevirt.io" || self.group.ends_with(".kubevirt.io")
    }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const CRD: &str = "apiextensions.k8s.io";
const KUBEVIRT: &str = "kubevirt.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";

/// Every resource that is served.
pub const KINDS: &[Kind] = &[
    cluster("", "nodes", "Node", "no"),
    namespaced("", "pods", "Pod", "po").counted(),
    cluster("", "namespaces", "Namespace", "ns"),
    namespaced("", "events", "Event", "ev").plain(),
    namespaced("", "services", "Service", "svc"),
    namespaced("", "endpoints", "Endpoints", "ep").plain(),
    namespaced("", "configmaps", "ConfigMap", "cm").plain(),
    namespaced("", "secrets", "Secret", "").plain(),
    namespaced("", "serviceaccounts", "ServiceAccount", "sa").plain(),
    cluster("", "persistentvolumes", "PersistentVolume", "pv"),
    namespaced("", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc"),
    namespaced("", "replicationcontrollers", "ReplicationController", "rc").counted(),
    namespaced("apps", "deployments", "Deployment", "deploy").counted(),
    namespaced("apps", "replicasets", "ReplicaSet", "rs").counted(),
    namespaced("apps", "statefulsets", "StatefulSet", "sts").counted(),
    namespaced("apps", "daemonsets", "DaemonSet", "ds").counted(),
    namespaced("batch", "jobs", "Job", "").counted(),
    namespaced("batch", "cronjobs", "CronJob", "cj").counted(),
    namespaced(
        "policy",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        "pdb",
    )
    .counted(),
    namespaced("coordination.k8s.io", "leases", "Lease", "").plain(),
    cluster(STORAGE, "volumeattachments", "VolumeAttachment", ""),
    cluster(STORAGE, "storageclasses", "StorageClass", "sc").plain(),
    cluster(STORAGE, "csinodes", "CSINode", "").plain(),
    cluster(
        "scheduling.k8s.io",
        "priorityclasses",
        "PriorityClass",
        "pc",
    )
    .plain(),
    cluster(RBAC, "clusterroles", "ClusterRole", "").plain(),
    cluster(RBAC, "clusterrolebindings", "ClusterRoleBinding", "").plain(),
    namespaced(RBAC, "roles", "Role", "").plain(),
    namespaced(RBAC, "rolebindings", "RoleBinding", "").plain(),
    cluster(
        CRD,
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "crd,crds",
    )
    .counted(),
    cluster(
        ADMISSION,
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        "",
    )
    .plain(),
    cluster(
        ADMISSION,
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        "",
    )
    .plain(),
    // VMIs have no status subresource (control-plane.md 6.g); VMIMs and VMs have.
    namespaced(
        KUBEVIRT,
        "virtualmachineinstances",
        "VirtualMachineInstance",
        "vmi,vmis",
    )
    .counted()
    .plain(),
    namespaced(
        KUBEVIRT,
        VMIMS,
        "VirtualMachineInstanceMigration",
        "vmim,vmims",
    )
    .counted(),
    namespaced(KUBEVIRT, "virtualmachines", "VirtualMachine", "vm,vms").counted(),
    namespaced(
        KUBEVIRT,
        VMIRS,
        "VirtualMachineInstanceReplicaSet",
        "vmirs,vmirss",
    )
    .counted(),
    namespaced(KUBEVIRT, "kubevirts", "KubeVirt", "kv,kvs").counted(),
    namespaced(
        "pool.kubevirt.io",
        "virtualmachinepools",
        "VirtualMachinePool",
        "vmpool,vmpools",
    )
    .counted()
    .version("v1beta1"),
];

const VMIMS: &str = "virtualmachineinstancemigrations";
const VMIRS: &str = "virtualmachineinstancereplicasets";

/// The resource with this plural name in any group.
pub fn by_plural(plural: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.plural == plural)
}

/// The resource at `group/version/plural`.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
}

/// API group of a plural; empty for the core group and for names that nobody knows.
pub fn group_of(plural: &str) -> &'static str {
    by_plural(plural).map_or("", |kind| kind.group)
}

const fn namespaced(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    short: &'static str,
) -> Kind {
    Kind {
        group,
        version: "v1",
        plural,
        kind,
        namespaced: true,
        status: true,
        generation: false,
        short,
    }
}

const fn cluster(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    short: &'static str,
) -> Kind {
    Kind {
        namespaced: false,
        ..namespaced(group, plural, kind, short)
    }
}

impl Kind {
    /// With `metadata.generation`.
    const fn counted(mut self) -> Self {
        self.generation = true;
        self
    }

    /// Without a status subresource.
    const fn plain(mut self) -> Self {
        self.status = false;
        self
    }

    const fn version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }
}
