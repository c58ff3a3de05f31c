//! Why does a disruption budget not let a VM go, will that ever change, and what cures it?
//!
//! A VMI has no `/scale`, so Kubernetes cannot count the pods behind `maxUnavailable` or a percentage: such a budget
//! over launcher pods allows nothing, for ever (kubevirt#18063, control-plane.md 6.c). Only an absolute `minAvailable`
//! works. A budget is asked only about evictions that KubeVirt's webhook lets through: strategy None, or
//! LiveMigrateIfPossible and not migratable. The `maxUnavailable` of a VirtualMachinePool is another thing and fine.

mod cure;

pub use cure::{Cure, cure};

use super::world::{
    Amount, MigrationState, ObjectRef, PdbView, PodKind, PodPhase, PodView, Rule, Strategy,
    VmiPhase, VmiView,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is the matter with a budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "snake_case")]
pub enum Class {
    /// It lets pods go.
    Allows,
    /// Kubernetes cannot count its pods: it never allows anything as it is.
    NeverSatisfiable {
        /// The server's reason, or what in its rule makes it so.
        why: String,
    },
    /// Every one of its pods is healthy, and it needs every one: no eviction is ever allowed.
    NoRoom,
    /// Some of its pods are on their way to being healthy; then it lets one go.
    WaitsForPeers {
        /// Which pods are short, as far as they can be seen from this node.
        short: Vec<String>,
    },
    /// Something else than evictions has taken pods away, or they are broken: it does not clear by itself.
    UnhealthyPeers {
        /// Which pods are short, as far as they can be seen from this node.
        short: Vec<String>,
    },
    /// Kubernetes has not looked at it yet.
    Young,
}

impl Class {
    /// Somebody has to change something before it lets a pod go.
    pub fn needs_somebody(&self) -> bool {
        match self {
            Self::NeverSatisfiable { .. } | Self::NoRoom | Self::UnhealthyPeers { .. } => true,
            Self::Allows | Self::WaitsForPeers { .. } | Self::Young => false,
        }
    }
}

/// Does a budget play a part in an eviction of this VM? Where the VM will be migrated KubeVirt's webhook answers first.
/// `None`: the VM's strategy cannot be seen.
pub fn matters(strategy: Option<Strategy>, live_migratable: Option<bool>) -> Option<bool> {
    Some(match strategy? {
        Strategy::None => true,
        Strategy::LiveMigrateIfPossible => live_migratable != Some(true),
        Strategy::LiveMigrate | Strategy::External => false,
    })
}

/// Why a rule can never be satisfied over launcher pods, whatever Kubernetes has said about it so far.
fn uncountable(rule: &Rule) -> Option<&'static str> {
    match rule {
        Rule::MaxUnavailable(_) => Some("maxUnavailable does not work for VMs"),
        Rule::MinAvailable(Amount::Share(_)) => Some("a percentage does not work for VMs"),
        Rule::MinAvailable(Amount::Number(_)) | Rule::Unset => None,
    }
}

/// Diagnoses a budget that selects launcher pods. `pods` and `vmis`: those of this node that can be seen.
pub fn diagnose(pdb: &PdbView, pods: &[PodView], vmis: &[VmiView]) -> Class {
    if pdb.disruptions_allowed > 0 {
        return Class::Allows;
    }
    if let Some(why) = &pdb.sync_failed {
        let why = match uncountable(&pdb.rule) {
            Some(rule) if why.is_empty() => rule.to_owned(),
            _ => why.clone(),
        };
        return Class::NeverSatisfiable { why };
    }
    // Also before the disruption controller has failed on it. One that did count them may know a KubeVirt that can be
    // counted.
    if let Some(why) = uncountable(&pdb.rule).filter(|_| pdb.expected == 0) {
        return Class::NeverSatisfiable { why: why.into() };
    }
    if !pdb.processed {
        return Class::Young;
    }
    let missing = pdb.expected.saturating_sub(pdb.current_healthy);
    if missing <= 0 {
        let lacks = pdb.desired_healthy.saturating_sub(pdb.expected);
        return if lacks > 0 {
            let short = vec![format!("{lacks} that do not exist")];
            Class::UnhealthyPeers { short }
        } else {
            Class::NoRoom
        };
    }
    let (short, broken) = short_pods(pdb, missing, pods, vmis);
    // Evictions never take a budget below what it needs: something else has.
    if broken || pdb.current_healthy < pdb.desired_healthy {
        Class::UnhealthyPeers { short }
    } else {
        Class::WaitsForPeers { short }
    }
}

/// The pods that are not healthy, and whether one of them does not come up by itself.
fn short_pods(
    pdb: &PdbView,
    missing: i64,
    pods: &[PodView],
    vmis: &[VmiView],
) -> (Vec<String>, bool) {
    let mut broken = false;
    let mut short = Vec::new();
    let of_it =
        |pod: &&PodView| pod.kind == PodKind::Launcher && pdb.selects.contains(&pod.pod.uid);
    for pod in pods.iter().filter(of_it) {
        let Some(why) = unhealthy(pod) else { continue };
        broken |= !comes_by_itself(pod, vmis);
        short.push(format!("{} here ({why})", pod.pod.name));
    }
    let seen = i64::try_from(short.len()).unwrap_or(i64::MAX);
    let elsewhere = missing.saturating_sub(seen);
    if elsewhere > 0 {
        short.push(format!("{elsewhere} on other nodes"));
    }
    (short, broken)
}

/// Why a pod does not count as healthy.
fn unhealthy(pod: &PodView) -> Option<String> {
    if pod.deleting {
        return Some("being deleted".into());
    }
    match pod.phase {
        PodPhase::Succeeded => Some("has ended".into()),
        PodPhase::Failed => Some("has failed".into()),
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => pod.not_ready.clone(),
    }
}

/// It starts, ends, or is in the middle of a migration, after which a VMI is not Ready for a moment.
fn comes_by_itself(pod: &PodView, vmis: &[VmiView]) -> bool {
    let vmi = vmis.iter().find(|vmi| vmi.vmi.uid == pod.vmi_uid);
    let starting = |vmi: &VmiView| vmi.phase == VmiPhase::Starting;
    let moving = |vmi: &VmiView| {
        vmi.mark.is_some()
            || vmi
                .migration
                .as_ref()
                .is_some_and(MigrationState::is_running)
    };
    pod.deleting
        || pod.phase == PodPhase::Pending
        || pod.phase == PodPhase::Succeeded
        || vmi.is_some_and(|vmi| starting(vmi) || moving(vmi))
}

/// What the answer of a refused eviction alone tells, where the budget itself cannot be read. `refusals`: how often in
/// a row.
pub fn from_answer(says: &str, refusals: u32) -> Option<Class> {
    const YOUNG: &str = "still being processed by the server";
    let never = |why: &str| Some(Class::NeverSatisfiable { why: why.into() });
    // A budget over a pod that runs has one pod at least: who counts none cannot count.
    if says.contains("needs 0 healthy pods and has 0") {
        return never("Kubernetes counts none of its pods");
    }
    if says.contains(YOUNG) {
        // For launcher pods that is what a budget answers that can never work; a fresh one is through in seconds.
        return if refusals > 1 {
            never("Kubernetes does not get ready with it")
        } else {
            Some(Class::Young)
        };
    }
    let (needs, has) = needs_and_has(says)?;
    (has < needs).then_some(Class::UnhealthyPeers { short: Vec::new() })
}

/// `The disruption budget NAME needs 3 healthy pods and has 2 currently`.
fn needs_and_has(says: &str) -> Option<(u64, u64)> {
    let (_, rest) = says.split_once(" needs ")?;
    let (needs, rest) = rest.split_once(" healthy pods and has ")?;
    let (has, _) = rest.split_once(' ')?;
    Some((needs.parse().ok()?, has.parse().ok()?))
}

/// The sentence for a VM that a budget keeps here. `says`: the server's own words with the counts.
pub fn sentence(name: &str, says: &str, class: Option<&Class>) -> String {
    let budget = if name.is_empty() {
        "a disruption budget".to_owned()
    } else {
        format!("disruption budget {name}")
    };
    let why = Short(class);
    match class {
        Some(Class::NeverSatisfiable { why }) => format!(
            "{budget} can never allow it ({why}): maxUnavailable and percentages do not work for VMs; use an integer minAvailable, `vmdrain-agent plan` prints the corrected manifest ({says})"
        ),
        Some(Class::NoRoom) => format!(
            "{budget} needs every one of its pods, so it never lets one go: lower its minAvailable or add a VM ({says})"
        ),
        Some(Class::WaitsForPeers { .. }) => {
            format!("{budget} waits until its other pods are healthy{why} ({says})")
        }
        Some(Class::UnhealthyPeers { .. }) => format!(
            "{budget} has fewer healthy pods than it needs, which does not clear by itself: heal them{why} ({says})"
        ),
        Some(Class::Young) => format!("{budget} was not looked at by Kubernetes yet ({says})"),
        Some(Class::Allows) | None => format!("{budget} does not allow it now: {says}"),
    }
}

/// `: a, b` for the pods that are short, where they are known.
struct Short<'a>(Option<&'a Class>);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Class::WaitsForPeers { short } | Class::UnhealthyPeers { short })
                if !short.is_empty() =>
            {
                write!(f, ": {}", short.join(", "))
            }
            _ => Ok(()),
        }
    }
}

/// The budgets that select this pod and are somebody's own: KubeVirt's count for nobody.
pub fn over<'a>(pdbs: &'a [PdbView], pod: &ObjectRef) -> Vec<&'a PdbView> {
    pdbs.iter()
        .filter(|pdb| !pdb.kubevirts_own && pdb.selects.contains(&pod.uid))
        .collect()
}

#[cfg(test)]
mod tests;
