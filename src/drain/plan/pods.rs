//! What would become of the pods that are no VM's, in a drain of all pods.

use super::{PlanPod, Scene, Survey};
use crate::drain::budgets;
use crate::drain::others::{Scope, Stance, group, owner, sentence, stance, turn};
use crate::drain::world::{OtherPod, PdbView};

/// Every pod that does not simply stay, in the order of their turns.
pub(super) fn rows(survey: &Survey, scene: &Scene) -> Vec<PlanPod> {
    let rules = &scene.policy.others;
    if rules.scope != Scope::AllPods {
        return Vec::new();
    }
    let mut pods: Vec<&OtherPod> = survey.picture.others.seen().into_iter().flatten().collect();
    pods.sort_by_key(|pod| (group(pod, rules), turn(pod)));
    let pdbs = survey.picture.pdbs.seen().map_or(&[][..], Vec::as_slice);
    pods.into_iter()
        .filter_map(|pod| {
            let stance = stance(pod, rules);
            let group = group(pod, rules);
            let fate = match stance {
                Stance::Stays(_) => return None,
                Stance::Blocked(_) => "blocked",
                Stance::Goes => "evicted",
            };
            let over = budgets::over(pdbs, &pod.pod);
            Some(PlanPod {
                namespace: pod.pod.namespace.clone(),
                name: pod.pod.name.clone(),
                owner: owner(pod),
                fate: fate.into(),
                says: format!("{}{}", sentence(pod, &stance, group), waits(&over)),
                order: group.priority,
                last: group.kubevirt,
                budgets: over.iter().map(|pdb| pdb.pdb.to_string()).collect(),
            })
        })
        .collect()
}

/// Budgets that would refuse it now.
fn waits(over: &[&PdbView]) -> String {
    if over.len() > 1 {
        return "; more than one disruption budget selects it, and Kubernetes evicts no such pod"
            .into();
    }
    let shut = over.iter().find(|pdb| pdb.disruptions_allowed <= 0);
    shut.map_or_else(String::new, |pdb| {
        format!(
            "; disruption budget {} allows none now ({}, {} of {} healthy)",
            pdb.pdb, pdb.rule, pdb.current_healthy, pdb.expected
        )
    })
}
