//! The sentences about pods that are no VM's.

use super::{Group, Stance};
use crate::drain::answer::Answer;
use crate::drain::world::{ObjectRef, OtherPod, PdbView};

/// Who the pod is, for people: `ReplicaSet web`, `virt-api of KubeVirt`, `no controller`.
pub fn owner(pod: &OtherPod) -> String {
    match (&pod.owner, pod.component.as_str()) {
        (Some((kind, name)), "") => format!("{kind} {name}"),
        (None, "") => "no controller".into(),
        (_, component) => format!("{component} of KubeVirt"),
    }
}

/// What a plan says about a pod.
pub fn sentence(pod: &OtherPod, stance: &Stance, group: Group) -> String {
    match stance {
        Stance::Stays(_) => "stays".into(),
        Stance::Blocked(why) => format!("stays: {why}"),
        Stance::Goes if pod.deleting => "is being deleted already".into(),
        Stance::Goes if group.kubevirt => {
            format!("is evicted last ({})", owner(pod))
        }
        Stance::Goes if pod.owner.is_none() => {
            "is evicted after the VMs and is gone for good: no controller makes it again".into()
        }
        Stance::Goes if pod.empty_dir => format!(
            "is evicted after the VMs, its emptyDir data is lost; {} makes a new one",
            owner(pod)
        ),
        Stance::Goes => format!("is evicted after the VMs; {} makes a new one", owner(pod)),
    }
}

/// Why the eviction of a pod was refused, and what is waited for.
pub fn refusal(answer: &Answer, pod: &ObjectRef, pdbs: &[PdbView]) -> String {
    match answer {
        Answer::Budget { name, says } => budget(name, says, pod, pdbs),
        Answer::SeveralBudgets => {
            let all = over(pod, pdbs)
                .map(|pdb| pdb.pdb.to_string())
                .collect::<Vec<_>>();
            let which = match all.len() {
                0 => String::new(),
                _ => format!(" ({})", all.join(", ")),
            };
            format!(
                "more than one disruption budget selects it{which}, and Kubernetes evicts no such pod: remove one of them"
            )
        }
        Answer::NamespaceTerminating => {
            "its namespace is being deleted, and the pod with it: evictions are refused there".into()
        }
        Answer::Denied(why) => format!("the eviction is not permitted: {why}"),
        Answer::Throttled => "the API server is overloaded, it is asked again later".into(),
        Answer::WebhookDown => {
            "KubeVirt's eviction webhook does not answer (virt-api), and without it nothing is evicted: it is asked again"
                .into()
        }
        Answer::KubeVirtFailed(why) | Answer::Unexpected(why) => {
            format!("the eviction failed, it is tried again: {why}")
        }
        Answer::Unauthorized => "the credentials are no longer accepted".into(),
        Answer::Granted
        | Answer::Marked
        | Answer::InProgress
        | Answer::NotTheActivePod
        | Answer::NotMigratable
        | Answer::HotplugPod
        | Answer::VmiGone
        | Answer::Gone => "waits to be gone".into(),
    }
}

fn over<'a>(pod: &'a ObjectRef, pdbs: &'a [PdbView]) -> impl Iterator<Item = &'a PdbView> {
    pdbs.iter().filter(|pdb| pdb.selects.contains(&pod.uid))
}

fn budget(name: &str, says: &str, pod: &ObjectRef, pdbs: &[PdbView]) -> String {
    let seen = over(pod, pdbs).find(|pdb| name.is_empty() || pdb.pdb.name == name);
    let budget = match (name, seen) {
        (_, Some(pdb)) => format!("disruption budget {}", pdb.pdb),
        ("", None) => "a disruption budget".into(),
        (name, None) => format!("disruption budget {}/{name}", pod.namespace),
    };
    match seen {
        Some(pdb) if pdb.sync_failed.is_some() => format!(
            "{budget} never lets a pod go, Kubernetes cannot count its pods ({}): {says}",
            pdb.sync_failed.as_deref().unwrap_or_default()
        ),
        Some(pdb) if pdb.processed && pdb.expected > 0 && pdb.desired_healthy >= pdb.expected => {
            format!(
                "{budget} needs every one of its {} pod(s), so it never lets one go: lower it or add a replica ({says})",
                pdb.expected
            )
        }
        Some(_) | None => format!("{budget} does not allow it now, it is asked again: {says}"),
    }
}
