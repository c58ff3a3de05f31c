//! The cluster: who we are there, what we may, what KubeVirt is set to, budgets, time and room.

use super::{Check, ClusterFacts, Facts, List};
use crate::drain::plan::{HANDLER_HINT, Plan, PlanVm};
use crate::drain::stop::HandlerDoubt;
use crate::drain::world::{CordonMark, NodeView, Sight, Strategy};

const CREDENTIALS: Check = Check(
    "cluster.credentials",
    "security.md#what-the-kubelets-identity-may-do",
);
const NODE: Check = Check("cluster.node", "operating.md#when-it-seems-to-hang");
const IDENTITY: Check = Check("cluster.identity", "operating.md#is-this-node-this-machine");
const CORDON: Check = Check("cluster.cordon", "operating.md#after-the-boot");
const RIGHTS: Check = Check("cluster.rights", "security.md#the-manifests");
const SIGHT: Check = Check("cluster.sight", "security.md#the-manifests");
const KUBEVIRT: Check = Check("kubevirt", "operating.md#kubevirts-settings");
const HANDLER: Check = Check("kubevirt.handler", "operating.md#without-virt-handler");
const TAINT: Check = Check("kubevirt.drain_taint", "operating.md#kubevirts-settings");
const VMS: Check = Check("vms", "operating.md#plan-and-doctor");
const PODS: Check = Check("pods", "operating.md#all-pods");
const BUDGETS: Check = Check("budgets", "pdb.md");
const TIME: Check = Check("time", "operating.md#sizing-the-limit");
const ROOM: Check = Check("room", "operating.md#plan-and-doctor");

/// The taint with which a cordon alone begins to migrate everything (hyperconverged-cluster-operator#823).
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

pub(super) fn judge(facts: &Facts, list: &mut List) {
    let cluster = &facts.cluster;
    if !cluster.unconnected.is_empty() {
        let says = format!("no way to the API server: {}", cluster.unconnected);
        let cure = "set cluster.kubeconfig to a kubeconfig of this host; the kubelet's own is found by itself";
        return if facts.root {
            list.fail(CREDENTIALS, says, cure);
        } else {
            list.unknown(
                CREDENTIALS,
                says,
                "run doctor as root: the kubelet's credentials are readable for root only",
            );
        };
    }
    list.ok(
        CREDENTIALS,
        format!("credentials are there, for node {}", cluster.node_name),
    );
    match &cluster.node {
        None => {}
        Some(Err(why)) => {
            return list.fail(
                NODE,
                format!("the own Node cannot be read: {why}"),
                "check that the API server is reachable from this host, cluster.kubeconfig and cluster.node_name",
            );
        }
        Some(Ok(node)) => own_node(node, facts, list),
    }
    rights(cluster, list);
    kubevirt(cluster, list);
    handler(cluster, list);
    if let Some(plan) = &cluster.plan {
        vms(plan, list);
        pods(plan, list);
        budgets(plan, list);
        time(plan, list);
    }
    room(cluster, list);
}

fn own_node(node: &NodeView, facts: &Facts, list: &mut List) {
    match node.another_machine(&facts.machine_id, &facts.system_uuid) {
        Some((theirs, ours)) => list.fail(
            IDENTITY,
            format!(
                "Node {} is another machine: it reports {theirs}, this host is {ours}; every drain will be refused",
                node.name
            ),
            "correct cluster.node_name or cluster.kubeconfig; on a cloned image, give the host a machine-id of its own (`systemd-machine-id-setup`) and restart the kubelet",
        ),
        None if facts.machine_id.is_empty() && facts.system_uuid.is_empty() => list.unknown(
            IDENTITY,
            "whether the Node is this machine cannot be told: neither machine-id nor product UUID of this host can be read",
            "run doctor as root",
        ),
        None => list.ok(IDENTITY, format!("Node {} is this machine", node.name)),
    }
    if node.ready {
        list.ok(NODE, "the Node is Ready");
    } else {
        list.warn(
            NODE,
            format!("the Node is not Ready ({})", node.not_ready),
            "look at the kubelet: `systemctl status kubelet`",
        );
    }
    match (&node.cordon, node.unschedulable) {
        (CordonMark::Note(note), true) => list.note(
            CORDON,
            format!("cordoned by drain {} ({})", note.drain, note.reason),
        ),
        (CordonMark::Damaged(why), _) => list.warn(
            CORDON,
            format!("our marker on the Node cannot be read, so its cordon is never undone: {why}"),
            format!("kubectl annotate node {} vmdrain.io/cordon-", node.name),
        ),
        (_, true) => list.note(
            CORDON,
            "cordoned by somebody else; a drain leaves that cordon as it is",
        ),
        (_, false) => {}
    }
}

fn rights(cluster: &ClusterFacts, list: &mut List) {
    let (mut good, mut all) = (0, 0);
    for right in &cluster.rights {
        all += 1;
        let give = if right.manifest.is_empty() {
            "the kubelet's own identity has it; another one needs it by RBAC".to_owned()
        } else {
            format!(
                "kubectl apply -f /usr/share/vmdrain-agent/{}",
                right.manifest
            )
        };
        let says = format!("may not {}: {}", right.what, right.costs);
        match &right.allowed {
            Ok(true) => good += 1,
            Ok(false) if right.vital => list.fail(RIGHTS, says, give),
            // Opt-in parts are a choice.
            Ok(false) => list.note(RIGHTS, format!("{says} ({give})")),
            Err(why) => list.unknown(
                RIGHTS,
                format!("whether we may {} is not known: {why}", right.what),
                "see whether the API server answers: `kubectl auth can-i --list` with the same kubeconfig",
            ),
        }
    }
    if good > 0 {
        list.ok(
            RIGHTS,
            format!("{good} of {all} rights that were asked about are there"),
        );
    }
    for blind in cluster.plan.iter().flat_map(|plan| &plan.blind) {
        if blind.starts_with("other nodes") {
            list.note(SIGHT, blind.clone());
        } else {
            list.warn(
                SIGHT,
                blind.clone(),
                "kubectl apply -k /usr/share/vmdrain-agent/rbac (drains work without it, with fewer reasons)",
            );
        }
    }
    for odd in cluster.plan.iter().flat_map(|plan| &plan.malformed) {
        list.warn(
            SIGHT,
            format!(
                "{} {} cannot be read: {}",
                odd.resource, odd.object, odd.why
            ),
            "correct the object; a drain passes it over",
        );
    }
}

fn kubevirt(cluster: &ClusterFacts, list: &mut List) {
    let kubevirt = match &cluster.kubevirt {
        Sight::Seen { value, .. } => value,
        Sight::Missing => {
            return list.fail(
                KUBEVIRT,
                "KubeVirt is not installed in this cluster",
                "is this the right cluster? `vmdrain-agent config show` tells which kubeconfig is used",
            );
        }
        Sight::Pending => return,
        Sight::Forbidden { why } | Sight::Broken { why, .. } => {
            return list.unknown(
                KUBEVIRT,
                format!("the KubeVirt object cannot be read: {why}"),
                "everybody may read it by KubeVirt's own roles (kubevirt.io:default); is that binding there?",
            );
        }
    };
    let version = kubevirt.version.map_or_else(
        || "of an unknown version".to_owned(),
        |(a, b)| format!("{a}.{b}"),
    );
    let strategy = match kubevirt.strategy {
        Strategy::None => "None: VMs without a strategy of their own are shut down",
        Strategy::LiveMigrate => "LiveMigrate",
        Strategy::LiveMigrateIfPossible => "LiveMigrateIfPossible",
        Strategy::External => "External",
    };
    list.ok(
        KUBEVIRT,
        format!(
            "KubeVirt {version}; {} migrations at a time from one node, {} in the cluster; default eviction strategy {strategy}",
            kubevirt.per_node, kubevirt.per_cluster
        ),
    );
    if kubevirt.version.is_some_and(|version| version < (1, 7)) {
        list.note(
            KUBEVIRT,
            "KubeVirt before 1.7 cannot take a mark back: after a cancel, VMs that are marked still move",
        );
    }
    if kubevirt.drain_taint_key == CORDON_TAINT {
        list.warn(
            TAINT,
            format!("nodeDrainTaintKey is {CORDON_TAINT}: a cordon alone makes KubeVirt migrate every VM, all at once"),
            "remove spec.configuration.migrations.nodeDrainTaintKey from the KubeVirt object",
        );
    }
}

/// Nobody else ends a guest in order or moves one.
fn handler(cluster: &ClusterFacts, list: &mut List) {
    let holds_vms = cluster
        .plan
        .as_ref()
        .is_none_or(|plan| !plan.vms.is_empty());
    match cluster.handler {
        None => {}
        Some(Ok(())) => list.ok(HANDLER, "virt-handler of this node reports"),
        Some(Err(HandlerDoubt::NeverReported)) if !holds_vms => list.note(
            HANDLER,
            "virt-handler has never reported on this Node: it takes no VMs",
        ),
        Some(Err(doubt)) => list.fail(
            HANDLER,
            format!(
                "virt-handler is not known to be alive on this node: {doubt}; no guest can be shut down in order and no VM can migrate, so a drain leaves them until it is back"
            ),
            format!(
                "see why: `kubectl get pods -A -l kubevirt.io=virt-handler --field-selector spec.nodeName={}`, then its log; it reports again about a minute after its start",
                cluster.node_name
            ),
        ),
    }
}

fn vms(plan: &Plan, list: &mut List) {
    if !plan.seen {
        return list.unknown(VMS, plan.says.clone(), "see whether the API server answers");
    }
    let names = |fates: &[&str]| -> Vec<String> {
        let fits = |vm: &&PlanVm| fates.contains(&vm.fate.as_str());
        let name = |vm: &PlanVm| format!("{}/{} ({})", vm.namespace, vm.name, vm.says);
        plan.vms.iter().filter(fits).map(name).collect()
    };
    let blocked = names(&["blocked"]);
    let stopped = names(&["shut_down"]);
    if blocked.is_empty() && stopped.is_empty() {
        list.ok(VMS, plan.says.clone());
    }
    if !blocked.is_empty() {
        list.warn(
            VMS,
            format!(
                "{} VM(s) would not leave: {}",
                blocked.len(),
                blocked.join("; ")
            ),
            "make them able to migrate, or give them a policy; `vmdrain-agent plan` tells more",
        );
    }
    if !stopped.is_empty() {
        list.warn(
            VMS,
            format!(
                "{} VM(s) would be shut down and not be started again by KubeVirt: {}",
                stopped.len(),
                stopped.join("; ")
            ),
            "give them an owner that starts them elsewhere (runStrategy Always), or eviction strategy LiveMigrate if they can migrate",
        );
    }
}

/// Only where all pods are drained: then the plan has some.
fn pods(plan: &Plan, list: &mut List) {
    let stay: Vec<String> = plan
        .pods
        .iter()
        .filter(|pod| pod.is_blocked())
        .map(|pod| format!("{}/{} ({})", pod.namespace, pod.name, pod.says))
        .collect();
    if !stay.is_empty() {
        list.warn(
            PODS,
            format!("{} other pod(s) would stay: {}", stay.len(), stay.join("; ")),
            "set drain.allow_empty_dir or drain.allow_unmanaged_pods where what goes with them may be lost, or move them yourself",
        );
    } else if !plan.pods.is_empty() {
        list.ok(
            PODS,
            format!(
                "{} other pod(s) would be evicted after the VMs",
                plan.pods.len()
            ),
        );
    }
}

fn budgets(plan: &Plan, list: &mut List) {
    let faults: Vec<_> = plan
        .budgets
        .iter()
        .filter(|budget| budget.is_fault())
        .collect();
    if faults.is_empty() {
        let text = match plan.budgets.len() {
            0 => "no disruption budget selects a VM of this node".to_owned(),
            n => format!("{n} disruption budget(s) over VMs of this node, none of them broken"),
        };
        return list.ok(BUDGETS, text);
    }
    for budget in faults {
        let stops = match budget.stops.as_slice() {
            [] => "it stops nobody on this node now, but would as soon as a VM cannot migrate"
                .to_owned(),
            stops => format!("it stops {}", stops.join(", ")),
        };
        let says = format!(
            "{}/{} (ALLOWED DISRUPTIONS {}): {}; {stops}",
            budget.namespace, budget.name, budget.allowed, budget.says
        );
        let cure = match &budget.cure {
            Some(cure) => format!(
                "minAvailable: {} instead of {} ({}); `vmdrain-agent plan` prints the manifest",
                cure.min_available, budget.rule, cure.why
            ),
            None if !budget.with.is_empty() => {
                format!("remove one of {}, {}", budget.name, budget.with.join(", "))
            }
            None if budget.class == "no_room" => {
                "lower its minAvailable below the number of its VMs, or add a VM".into()
            }
            None => "heal the pods that are short; nothing else makes it allow an eviction".into(),
        };
        list.warn(BUDGETS, says, cure);
    }
}

fn time(plan: &Plan, list: &mut List) {
    match plan.time.fits.as_str() {
        "yes" => list.ok(TIME, plan.time.says.clone()),
        "tight" => list.warn(
            TIME,
            plan.time.says.clone(),
            "raise logind's limit, or measure one drain and set budget.migration_rate to what it showed",
        ),
        "no" => list.fail(
            TIME,
            plan.time.says.clone(),
            "raise logind's limit, or go down by `vmdrain-agent reboot` and `poweroff`, which drain first and have their own deadline",
        ),
        _ if plan.seen => list.unknown(TIME, plan.time.says.clone(), "see the check `logind`"),
        _ => {}
    }
}

fn room(cluster: &ClusterFacts, list: &mut List) {
    match cluster.others {
        Some((0, all)) => list.warn(
            ROOM,
            format!("none of the {all} other node(s) is Ready and schedulable: no VM can move"),
            "uncordon or repair another node before this one goes down",
        ),
        Some((usable, all)) => list.ok(
            ROOM,
            format!("{usable} of {all} other node(s) are Ready and schedulable"),
        ),
        None => {}
    }
    let hints = cluster.plan.iter().flat_map(|plan| &plan.vms);
    for vm in hints {
        // Of virt-handler its own check tells.
        let of_room = vm
            .hints
            .iter()
            .filter(|hint| !hint.starts_with(HANDLER_HINT));
        let of_room: Vec<&str> = of_room.map(String::as_str).collect();
        if of_room.is_empty() {
            continue;
        }
        list.warn(
            ROOM,
            format!("{}/{}: {}", vm.namespace, vm.name, of_room.join("; ")),
            "a hint from labels and sizes alone; free room is not known. See the VM's nodeSelector, affinity and CPU model",
        );
    }
}
