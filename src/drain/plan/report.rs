//! The plan as it is shown and handed to programs. The JSON form is a contract: it only grows.

use crate::drain::eta::Span;
use crate::drain::status::MalformedStatus;
use crate::drain::world::{PodView, Sight};
use serde::{Deserialize, Serialize};

/// Exit code of `plan` when some VM would be shut down or left, or another pod blocked (design section 7).
pub const PLAN_EXIT: u8 = 10;

/// What would become of this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plan {
    /// Version of the agent.
    pub version: String,
    /// The node.
    pub node: String,
    /// One sentence.
    pub says: String,
    /// The pods of this node were seen; without them there is no plan.
    pub seen: bool,
    /// Every VM of this node, in the order of their names.
    pub vms: Vec<PlanVm>,
    /// Pods that are no VM's and would be drained as well (scope `all-pods`), in the order of their turns.
    pub pods: Vec<PlanPod>,
    /// Budgets that select their pods.
    pub budgets: Vec<PlanBudget>,
    /// Need against limit.
    pub time: PlanTime,
    /// What this host would do by itself if the API server went away meanwhile, as a sentence; empty without VMs.
    pub unreachable: String,
    /// What cannot be seen, and what cures it.
    pub blind: Vec<String>,
    /// Objects that could not be read.
    pub malformed: Vec<MalformedStatus>,
}

/// One VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanVm {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its launcher pod here.
    pub pod: String,
    /// `migrates`, `restarted_elsewhere`, `shut_down`, `blocked`, `external`, `left`, `unknown`.
    pub fate: String,
    /// The same as a sentence, with the reason.
    pub says: String,
    /// How that is known: `dry_run`, `picture`, `none`.
    pub known_by: String,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Seconds that the guest gets for its shutdown.
    pub grace: f64,
    /// When it would be gone, from the beginning of the drain; absent where nobody can say.
    pub eta: Option<Span>,
    /// Who owns it, e.g. `VirtualMachine (Always)`; empty when that cannot be seen.
    pub owner: String,
    /// Its policy: migrate, shutdown, restart, leave.
    pub policy: String,
    /// Who says so.
    pub policy_from: String,
    /// Budgets that select its pod.
    pub budgets: Vec<String>,
    /// What may stand in the way, as far as the API shows it.
    pub hints: Vec<String>,
}

impl PlanVm {
    /// It keeps running, somewhere: nobody has to be asked.
    pub fn is_safe(&self) -> bool {
        matches!(self.fate.as_str(), "migrates" | "external")
    }
}

/// One pod that is no VM's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Who controls it, as it says itself.
    pub owner: String,
    /// `evicted` or `blocked`.
    pub fate: String,
    /// The same as a sentence, with the reason.
    pub says: String,
    /// Its priority in `drain.order`.
    pub order: i64,
    /// Part of KubeVirt: after all others.
    pub last: bool,
    /// Budgets that select it.
    pub budgets: Vec<String>,
}

impl PlanPod {
    /// A person has to do something before it goes.
    pub fn is_blocked(&self) -> bool {
        self.fate == "blocked"
    }
}

/// One budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanBudget {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `minAvailable: 3`.
    pub rule: String,
    /// `allows`, `never_satisfiable`, `no_room`, `waits_for_peers`, `unhealthy_peers`, `young`.
    pub class: String,
    /// The diagnosis as a sentence.
    pub says: String,
    /// Healthy pods that it needs.
    pub needs: i64,
    /// Healthy pods that it has.
    pub has: i64,
    /// Pods that Kubernetes expects.
    pub expected: i64,
    /// `ALLOWED DISRUPTIONS` of `kubectl get pdb`.
    pub allowed: i64,
    /// Since when, as the server writes it; empty when it does not say.
    pub since: String,
    /// Pods that are short, as far as they can be seen.
    pub short: Vec<String>,
    /// VMs of this node that it keeps from being evicted; it plays no part in a live migration.
    pub stops: Vec<String>,
    /// Other budgets that select one of the same pods: Kubernetes refuses to evict such a pod.
    pub with: Vec<String>,
    /// The budget that was meant, where this one can never work.
    pub cure: Option<PlanCure>,
}

impl PlanBudget {
    /// Somebody has to do something about it.
    pub fn is_fault(&self) -> bool {
        let by_class = matches!(
            self.class.as_str(),
            "never_satisfiable" | "no_room" | "unhealthy_peers"
        );
        self.class == "never_satisfiable"
            || ((by_class || !self.with.is_empty()) && !self.stops.is_empty())
    }
}

/// A corrected budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanCure {
    /// The value chosen.
    pub min_available: i64,
    /// Why this one.
    pub why: String,
    /// YAML for `kubectl apply -f -`.
    pub manifest: String,
}

/// Need against limit, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanTime {
    /// Until the last VM that moves or is shut down is gone.
    pub need: Span,
    /// Kept for guests that have to be shut down at the end.
    pub grace: f64,
    /// What logind, or the deadline of a running drain, leaves; absent when that is not known.
    pub limit: Option<f64>,
    /// Who sets that limit.
    pub limit_by: String,
    /// `yes`, `tight`, `no`, `unknown`.
    pub fits: String,
    /// Migrations at a time.
    pub slots: u32,
    /// VMs about which nobody can say when they go.
    pub unknown: usize,
    /// All of it as a sentence.
    pub says: String,
}

impl Plan {
    /// Exit code of the command: 0, [`PLAN_EXIT`], or 7 when the API server could not be asked.
    pub fn exit(&self) -> u8 {
        if !self.seen {
            7
        } else if self.vms.iter().all(PlanVm::is_safe)
            && !self.pods.iter().any(PlanPod::is_blocked)
            && self.time.fits != "no"
        {
            0
        } else {
            PLAN_EXIT
        }
    }
}

/// The sentence.
pub(super) fn says(plan: &Plan, pods: &Sight<Vec<PodView>>) -> String {
    if let Some(why) = super::unseen(pods) {
        return format!("there is no plan, because the pods of this node cannot be seen: {why}");
    }
    let pods = match (
        plan.pods.len(),
        plan.pods.iter().filter(|p| p.is_blocked()).count(),
    ) {
        (0, _) => String::new(),
        (all, 0) => format!("; {all} other pod(s) are evicted after them"),
        (all, stay) => format!("; {all} other pod(s), {stay} of them stay"),
    };
    if plan.vms.is_empty() {
        return format!("no VM runs on this node{pods}");
    }
    let count = |fates: &[&str]| {
        let fits = |vm: &&PlanVm| fates.contains(&vm.fate.as_str());
        plan.vms.iter().filter(fits).count()
    };
    let mut parts = Vec::new();
    for (fates, words) in [
        (&["migrates"][..], "live-migrate"),
        (&["external"], "are moved by their own controller"),
        (
            &["restarted_elsewhere"],
            "are shut down and started elsewhere",
        ),
        (
            &["shut_down"],
            "are shut down and not started again by KubeVirt",
        ),
        (&["blocked"], "are blocked"),
        (&["left"], "are left by policy"),
        (&["unknown"], "are not known yet"),
    ] {
        let count = count(fates);
        if count > 0 {
            parts.push(format!("{count} {words}"));
        }
    }
    format!("{} VM(s): {}{pods}", plan.vms.len(), parts.join(", "))
}
