//! What would become of every VM of this node if the host went down now, and is there time for it?
//!
//! Two steps, both pure. [`asks`] says which pods a dry-run eviction is to be asked about (it leaves no mark,
//! kubevirt-semantics 1.4). [`plan`] makes the plan of what was seen and answered; what was not answered is told from
//! the picture alone, and what neither tells is not known.

mod alone;
mod budgets;
mod pods;
mod report;
mod room;
mod time;
mod vms;

pub use report::{PLAN_EXIT, Plan, PlanBudget, PlanCure, PlanPod, PlanTime, PlanVm};
pub use room::{Needs, NodeRoom, Term, Toleration, hint};

use super::action::HoldView;
use super::answer::Answer;
use super::eta::Seen;
use super::judge::{Consentless, is_inbound};
use super::others::Scope;
use super::policy::{Consent, Policy};
use super::stop::{HandlerDoubt, handler_alive};
use super::world::{ObjectRef, Picture, PodKind, PodView, Sight, VmiView};
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything that one look finds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// As a drain would see it.
    pub picture: Picture,
    /// How many VMs of the cluster a budget that cannot be counted selects, by `namespace/name`, where that can be seen.
    pub covered: BTreeMap<String, usize>,
    /// What each launcher pod demands of a node, by UID; empty where other nodes cannot be seen.
    pub needs: BTreeMap<String, Needs>,
    /// All nodes.
    pub nodes: Sight<Vec<NodeRoom>>,
}

/// What a plan depends on besides the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// The knobs.
    pub policy: Policy,
    /// The hold on the host.
    pub hold: HoldView,
    /// A drain is under way and has so much time left.
    pub left: Option<Duration>,
    /// What that drain has seen.
    pub seen: Vec<Seen>,
}

impl Scene {
    /// Without a daemon or a drain.
    pub fn at_rest(policy: Policy, hold: HoldView) -> Self {
        Self {
            policy,
            hold,
            left: None,
            seen: Vec::new(),
        }
    }

    /// Whether guests may be shut down when the host goes down, which is what a plan is about.
    fn consent(&self) -> Result<(), Consentless> {
        match self.policy.consent {
            Consent::Never => Err(Consentless::Never),
            Consent::Always | Consent::OnShutdown => Ok(()),
        }
    }
}

/// How the hint begins that a VM gets which would migrate from a node without virt-handler.
pub const HANDLER_HINT: &str =
    "its migration needs virt-handler, which is not known to be alive here";

/// Whether virt-handler is known to be alive on this node, as of the moment of the look; `None` where the Node cannot be
/// seen.
pub fn handler(survey: &Survey, scene: &Scene) -> Option<Result<(), HandlerDoubt>> {
    let Sight::Seen { value, fresh } = &survey.picture.node else {
        return None;
    };
    let patience = scene.policy.timing.handler_silent;
    Some(handler_alive(Some(value), patience, *fresh))
}

/// What an eviction of each pod would be answered, by UID; what went wrong where there was no answer.
pub type Answers = BTreeMap<String, Result<Answer, String>>;

/// The pods that a dry run is to be asked about: every launcher pod here that holds a VM of ours.
pub fn asks(survey: &Survey, node: &str) -> Vec<ObjectRef> {
    let pods = survey.picture.pods.seen().into_iter().flatten();
    pods.filter(|pod| !is_inbound(pod, node) && concerns(pod, survey, node))
        .map(|pod| pod.pod.clone())
        .collect()
}

/// The pod holds, or will hold, a VM whose fate a drain decides: the one that a VM has left behind does not.
fn concerns(pod: &PodView, survey: &Survey, node: &str) -> bool {
    let moved = vmi_of(pod, survey)
        .is_some_and(|vmi| vmi.node != node && vmi.target_node_label.as_deref() != Some(node));
    pod.kind == PodKind::Launcher && !pod.is_empty_of_guest() && !moved
}

fn vmi_of<'a>(pod: &PodView, survey: &'a Survey) -> Option<&'a VmiView> {
    let vmis = survey.picture.vmis.seen()?;
    vmis.iter().find(|vmi| vmi.vmi.uid == pod.vmi_uid)
}

/// The plan.
pub fn plan(survey: &Survey, answers: &Answers, scene: &Scene) -> Plan {
    let node = scene.policy.node_name.as_str();
    let mut vms = vms::rows(survey, answers, scene);
    let budgets = budgets::rows(survey, &vms);
    let time = time::row(&mut vms, survey, scene);
    let blind = blind(survey, &vms, scene);
    let vms: Vec<PlanVm> = vms.into_iter().map(|row| row.shown).collect();
    let out = Plan {
        version: env!("CARGO_PKG_VERSION").into(),
        node: node.to_owned(),
        says: String::new(),
        seen: survey.picture.pods.seen().is_some(),
        unreachable: alone::says(&vms, time.limit, scene),
        vms,
        pods: pods::rows(survey, scene),
        budgets,
        time,
        blind,
        malformed: survey.picture.malformed.iter().map(Into::into).collect(),
    };
    Plan {
        says: report::says(&out, &survey.picture.pods),
        ..out
    }
}

/// What cannot be seen, and what cures it.
fn blind(survey: &Survey, vms: &[vms::Row<'_>], scene: &Scene) -> Vec<String> {
    let picture = &survey.picture;
    let mut out = Vec::new();
    let mut look = |kind: &str, why: Option<String>, costs: &str| {
        out.extend(why.map(|why| format!("{kind} cannot be seen ({why}): {costs}")));
    };
    look(
        "VMIs",
        unseen(&picture.vmis),
        "reasons and owners are not known, and an External VM looks like one that migrates",
    );
    look(
        "PDBs",
        unseen(&picture.pdbs),
        "budgets are known only from the answers, and no corrected manifest can be shown",
    );
    look(
        "the KubeVirt object",
        unseen(&picture.kubevirt),
        "its default limits are assumed",
    );
    if scene.policy.others.scope == Scope::AllPods {
        look(
            "other pods",
            unseen(&picture.others),
            "which of them would stay is not known",
        );
    }
    let any_moves = vms.iter().any(vms::Row::moves);
    if any_moves {
        look(
            "other nodes",
            unseen(&survey.nodes),
            "whether one of them has room is not known",
        );
    }
    out
}

/// Why a kind cannot be seen.
fn unseen<T>(sight: &Sight<T>) -> Option<String> {
    match sight {
        Sight::Seen { .. } => None,
        Sight::Pending => Some("nobody has looked".into()),
        Sight::Forbidden { why } | Sight::Broken { why, .. } => Some(why.clone()),
        Sight::Missing => Some("the cluster does not have this kind".into()),
    }
}

#[cfg(test)]
mod tests;
