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
    /// Singular name, what people type.
    pub singular: &'static str,
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

const NAMESPACED: bool = true;
const CLUSTER: bool = false;

/// Every resource that is served.
pub const KINDS: &[Kind] = &[
    core("nodes", "node", "Node", CLUSTER, true, "no"),
    core("pods", "pod", "Pod", NAMESPACED, true, "po").counted(),
    core("namespaces", "namespace", "Namespace", CLUSTER, true, "ns"),
    core("events", "event", "Event", NAMESPACED, false, "ev"),
    core("services", "service", "Service", NAMESPACED, true, "svc"),
    core(
        "endpoints",
        "endpoints",
        "Endpoints",
        NAMESPACED,
        false,
        "ep",
    ),
    core(
        "configmaps",
        "configmap",
        "ConfigMap",
        NAMESPACED,
        false,
        "cm",
    ),
    core("secrets", "secret", "Secret", NAMESPACED, false, ""),
    core(
        "serviceaccounts",
        "serviceaccount",
        "ServiceAccount",
        NAMESPACED,
        false,
        "sa",
    ),
    core(
        "persistentvolumes",
        "persistentvolume",
        "PersistentVolume",
        CLUSTER,
        true,
        "pv",
    ),
    core(
        "persistentvolumeclaims",
        "persistentvolumeclaim",
        "PersistentVolumeClaim",
        NAMESPACED,
        true,
        "pvc",
    ),
    core(
        "replicationcontrollers",
        "replicationcontroller",
        "ReplicationController",
        NAMESPACED,
        true,
        "rc",
    )
    .counted(),
    group(
        "apps",
        "v1",
        "deployments",
        "deployment",
        "Deployment",
        NAMESPACED,
        "deploy",
    )
    .counted(),
    group(
        "apps",
        "v1",
        "replicasets",
        "replicaset",
        "ReplicaSet",
        NAMESPACED,
        "rs",
    )
    .counted(),
    group(
        "apps",
        "v1",
        "statefulsets",
        "statefulset",
        "StatefulSet",
        NAMESPACED,
        "sts",
    )
    .counted(),
    group(
        "apps",
        "v1",
        "daemonsets",
        "daemonset",
        "DaemonSet",
        NAMESPACED,
        "ds",
    )
    .counted(),
    group("batch", "v1", "jobs", "job", "Job", NAMESPACED, "").counted(),
    group(
        "batch", "v1", "cronjobs", "cronjob", "CronJob", NAMESPACED, "cj",
    )
    .counted(),
    group(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "poddisruptionbudget",
        "PodDisruptionBudget",
        NAMESPACED,
        "pdb",
    )
    .counted(),
    group(
        "coordination.k8s.io",
        "v1",
        "leases",
        "lease",
        "Lease",
        NAMESPACED,
        "",
    )
    .without_status(),
    group(
        "storage.k8s.io",
        "v1",
        "volumeattachments",
        "volumeattachment",
        "VolumeAttachment",
        CLUSTER,
        "",
    ),
    group(
        "storage.k8s.io",
        "v1",
        "storageclasses",
        "storageclass",
        "StorageClass",
        CLUSTER,
        "sc",
    )
    .without_status(),
    group(
        "storage.k8s.io",
        "v1",
        "csinodes",
        "csinode",
        "CSINode",
        CLUSTER,
        "",
    )
    .without_status(),
    group(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "priorityclass",
        "PriorityClass",
        CLUSTER,
        "pc",
    )
    .without_status(),
    group(
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        "clusterrole",
        "ClusterRole",
        CLUSTER,
        "",
    )
    .without_status(),
    group(
        "rbac.authorization.k8s.io",
        "v1",
        "clusterrolebindings",
        "clusterrolebinding",
        "ClusterRoleBinding",
        CLUSTER,
        "",
    )
    .without_status(),
    group(
        "rbac.authorization.k8s.io",
        "v1",
        "roles",
        "role",
        "Role",
        NAMESPACED,
        "",
    )
    .without_status(),
    group(
        "rbac.authorization.k8s.io",
        "v1",
        "rolebindings",
        "rolebinding",
        "RoleBinding",
        NAMESPACED,
        "",
    )
    .without_status(),
    group(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "customresourcedefinition",
        "CustomResourceDefinition",
        CLUSTER,
        "crd,crds",
    )
    .counted(),
    group(
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
        "validatingwebhookconfiguration",
        "ValidatingWebhookConfiguration",
        CLUSTER,
        "",
    )
    .without_status(),
    group(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
        "mutatingwebhookconfiguration",
        "MutatingWebhookConfiguration",
        CLUSTER,
        "",
    )
    .without_status(),
    // VMIs have no status subresource (control-plane.md 6.g); VMIMs and VMs have.
    group(
        "kubevirt.io",
        "v1",
        "virtualmachineinstances",
        "virtualmachineinstance",
        "VirtualMachineInstance",
        NAMESPACED,
        "vmi,vmis",
    )
    .counted()
    .without_status(),
    group(
        "kubevirt.io",
        "v1",
        "virtualmachineinstancemigrations",
        "virtualmachineinstancemigration",
        "VirtualMachineInstanceMigration",
        NAMESPACED,
        "vmim,vmims",
    )
    .counted(),
    group(
        "kubevirt.io",
        "v1",
        "virtualmachines",
        "virtualmachine",
        "VirtualMachine",
        NAMESPACED,
        "vm,vms",
    )
    .counted(),
    group(
        "kubevirt.io",
        "v1",
        "virtualmachineinstancereplicasets",
        "virtualmachineinstancereplicaset",
        "VirtualMachineInstanceReplicaSet",
        NAMESPACED,
        "vmirs,vmirss",
    )
    .counted(),
    group(
        "kubevirt.io",
        "v1",
        "kubevirts",
        "kubevirt",
        "KubeVirt",
        NAMESPACED,
        "kv,kvs",
    )
    .counted(),
    group(
        "pool.kubevirt.io",
        "v1beta1",
        "virtualmachinepools",
        "virtualmachinepool",
        "VirtualMachinePool",
        NAMESPACED,
        "vmpool,vmpools",
    )
    .counted(),
];

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

const fn core(
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
    status: bool,
    short: &'static str,
) -> Kind {
    Kind {
        group: "",
        version: "v1",
        plural,
        singular,
        kind,
        namespaced,
        status,
        generation: false,
        short,
    }
}

const fn group(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
    short: &'static str,
) -> Kind {
    Kind {
        group,
        version,
        plural,
        singular,
        kind,
        namespaced,
        status: true,
        generation: false,
        short,
    }
}

impl Kind {
    const fn counted(mut self) -> Self {
        self.generation = true;
        self
    }

    const fn without_status(mut self) -> Self {
        self.status = false;
        self
    }
}
