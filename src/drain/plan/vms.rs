//! One row per VM: what becomes of it, and how that is known.

use super::room::hint;
use super::{Answers, HANDLER_HINT, PlanVm, Scene, Survey, concerns, handler, vmi_of};
use crate::drain::answer::Answer;
use crate::drain::budgets::{Class, diagnose, matters, over};
use crate::drain::fate::{Course, Facts, Fate, course, course_of_answer, fate};
use crate::drain::judge::is_inbound;
use crate::drain::machine::{chosen, owner_of};
use crate::drain::policy::OnDeadline;
use crate::drain::verdict::Blocked;
use crate::drain::ways::Way;
use crate::drain::world::{Owner, PdbView, PodView, Strategy, VmView, VmiPhase, VmiView};
use std::time::Duration;

/// A VM with what its row was made of.
pub(super) struct Row<'a> {
    pub(super) shown: PlanVm,
    pub(super) fate: Fate,
    /// What becomes of it when there is no time for its migration.
    pub(super) late: Fate,
    pub(super) pod: &'a PodView,
    pub(super) vmi: Option<&'a VmiView>,
    /// Budgets over its pod.
    pub(super) pdbs: Vec<&'a PdbView>,
    /// An eviction comes as far as the budgets.
    pub(super) asks_budgets: bool,
}

impl Row<'_> {
    /// It needs room on another node.
    pub(super) fn moves(&self) -> bool {
        matches!(self.fate, Fate::Migrates | Fate::RestartedElsewhere { .. })
    }

    /// The guest's own grace period.
    pub(super) fn grace(&self) -> Duration {
        // The pod's is 30 s longer, so that virt-launcher can do its part (kubevirt-semantics 5).
        let of_pod = || self.pod.grace.saturating_sub(Duration::from_secs(30));
        self.vmi.map_or_else(of_pod, |vmi| vmi.grace)
    }
}

/// The rows, in the order of their names.
pub(super) fn rows<'a>(survey: &'a Survey, answers: &Answers, scene: &Scene) -> Vec<Row<'a>> {
    let node = scene.policy.node_name.as_str();
    let pods = survey.picture.pods.seen().into_iter().flatten();
    let mut rows: Vec<Row<'_>> = pods
        .filter(|pod| concerns(pod, survey, node))
        .map(|pod| row(pod, survey, answers.get(&pod.pod.uid), scene))
        .collect();
    rows.sort_by(|a, b| {
        (&a.shown.namespace, &a.shown.name).cmp(&(&b.shown.namespace, &b.shown.name))
    });
    rows
}

fn row<'a>(
    pod: &'a PodView,
    survey: &'a Survey,
    answer: Option<&Result<Answer, String>>,
    scene: &Scene,
) -> Row<'a> {
    let vmi = vmi_of(pod, survey);
    let pdbs = survey.picture.pdbs.seen().map_or(&[][..], Vec::as_slice);
    let pdbs = over(pdbs, &pod.pod);
    let vm = vm_of(pod, survey);
    let owner = vmi.map_or_else(Owner::default, |vmi| owner_of(vmi, vm));
    let choice = chosen(&scene.policy.ways, &pod.vm, Some(pod), vm);
    let known = known(pod, vmi, (&owner, choice.way), survey, answer, scene);
    let late = fate(&facts(
        Course::Refused,
        vmi,
        (&owner, choice.way),
        survey,
        scene,
    ));
    let mut row = Row {
        fate: known.fate,
        late,
        pod,
        vmi,
        pdbs,
        asks_budgets: known.asks_budgets,
        shown: PlanVm::default(),
    };
    let mut hints = Vec::new();
    if row.moves()
        && let Some(needs) = survey.needs.get(&pod.pod.uid)
        && let Some(nodes) = survey.nodes.seen()
    {
        hints.extend(hint(needs, nodes, &scene.policy.node_name));
    }
    if let (Fate::Migrates | Fate::External, Some(Err(doubt))) = (&row.fate, handler(survey, scene))
    {
        hints.push(format!("{HANDLER_HINT}: {doubt}"));
    }
    row.shown = PlanVm {
        namespace: pod.vm.namespace.clone(),
        name: pod.vm.name.clone(),
        pod: pod.pod.name.clone(),
        fate: row.fate.word().into(),
        says: known.says.unwrap_or_else(|| sentence(&row)),
        known_by: known.by.into(),
        memory: vmi.and_then(|vmi| vmi.memory).or(pod.memory),
        grace: row.grace().as_secs_f64(),
        eta: None,
        owner: owner.to_string(),
        policy: choice.way.word().into(),
        policy_from: choice.source.to_string(),
        budgets: row.pdbs.iter().map(|pdb| pdb.pdb.name.clone()).collect(),
        hints,
    };
    row
}

/// The fate's sentence; of a guest that is shut down because it cannot migrate, with KubeVirt's reason.
fn sentence(row: &Row<'_>) -> String {
    let reason = row.vmi.map_or("", |vmi| vmi.not_migratable.as_str());
    if row.fate.stops_guest() && !reason.is_empty() {
        format!("{}; it cannot be live-migrated: {reason}", row.fate)
    } else {
        row.fate.to_string()
    }
}

/// What is known of a VM's fate.
struct Known {
    fate: Fate,
    /// Instead of the fate's own sentence.
    says: Option<String>,
    by: &'static str,
    asks_budgets: bool,
}

fn known(
    pod: &PodView,
    vmi: Option<&VmiView>,
    (owner, way): (&Owner, Way),
    survey: &Survey,
    answer: Option<&Result<Answer, String>>,
    scene: &Scene,
) -> Known {
    let node = scene.policy.node_name.as_str();
    let unsettled = |says: &str| Known {
        fate: Fate::Unknown,
        says: Some(says.to_owned()),
        by: "picture",
        asks_budgets: false,
    };
    if pod.deleting {
        return unsettled("its guest is being shut down already");
    }
    if is_inbound(pod, node) || vmi.is_some_and(|vmi| vmi.node != node) {
        return unsettled("arrives by a live migration; once it is here it is sent on");
    }
    let strategy = strategy(vmi, survey);
    let seen = course(strategy, vmi.and_then(|vmi| vmi.live_migratable));
    let told = match answer {
        Some(Ok(answer)) => course_of_answer(answer),
        Some(Err(_)) | None => Course::Unknown,
    };
    // The answer is the newer one, but cannot tell who moves an External VM.
    let (course, by) = match (told, seen) {
        (Course::Migrates, Course::Marks) => (Course::Marks, "dry_run"),
        (Course::Unknown, Course::Unknown) => (Course::Unknown, "none"),
        (Course::Unknown, seen) => (seen, "picture"),
        (told, _) => (told, "dry_run"),
    };
    // The refusal of a VM that is still starting is not final (kubevirt-semantics 1.6).
    let starting = vmi.is_some_and(|vmi| vmi.phase == VmiPhase::Starting);
    if starting && matches!(course, Course::Refused | Course::Unknown) {
        return unsettled("is still starting; KubeVirt does not know yet whether it can migrate");
    }
    let fate = fate(&facts(course, vmi, (owner, way), survey, scene));
    // A guest that is stopped by the deletion of its pod asks no budget.
    let stops = course == Course::Stops
        || (course == Course::Unknown
            && matters(strategy, vmi.and_then(|vmi| vmi.live_migratable)) == Some(true));
    let asks_budgets = stops && way != Way::Leave;
    let blocked = asks_budgets.then(|| refused(pod, survey, answer)).flatten();
    let says = match (&fate, answer) {
        (Fate::Unknown, Some(Err(why))) => Some(format!("not known: {why}")),
        (Fate::Unknown, Some(Ok(answer))) => Some(odd(answer)),
        _ => None,
    };
    match blocked {
        Some(blocked) if fate.stops_guest() => Known {
            fate: Fate::Blocked(blocked),
            says: None,
            by,
            asks_budgets,
        },
        _ => Known {
            fate,
            says,
            by,
            asks_budgets,
        },
    }
}

fn facts<'a>(
    course: Course,
    vmi: Option<&'a VmiView>,
    (owner, way): (&'a Owner, Way),
    survey: &Survey,
    scene: &Scene,
) -> Facts<'a> {
    Facts {
        course,
        reason: vmi.map_or("", |vmi| &vmi.not_migratable),
        owner,
        way,
        consent: scene.consent(),
        // Where the Node cannot be seen, nothing speaks against it.
        handler: handler(survey, scene).unwrap_or(Ok(())),
        gives_up: scene.policy.on_deadline == OnDeadline::ShutdownVms,
        host_goes: true,
    }
}

/// The VMI's own eviction strategy, else the cluster's.
fn strategy(vmi: Option<&VmiView>, survey: &Survey) -> Option<Strategy> {
    let of_cluster = || survey.picture.kubevirt.seen().map(|k| k.strategy);
    vmi.and_then(|vmi| vmi.strategy.or_else(of_cluster))
}

/// The VM behind a VMI, where VMs can be read.
fn vm_of<'a>(pod: &PodView, survey: &'a Survey) -> Option<&'a VmView> {
    let vms = survey.picture.vms.seen()?;
    vms.iter().find(|vm| vm.vm == pod.vm)
}

/// The budget that refuses its eviction, by the answer or, without one, by the budgets themselves.
fn refused(
    pod: &PodView,
    survey: &Survey,
    answer: Option<&Result<Answer, String>>,
) -> Option<Blocked> {
    let picture = &survey.picture;
    let pods = picture.pods.seen().map_or(&[][..], Vec::as_slice);
    let vmis = picture.vmis.seen().map_or(&[][..], Vec::as_slice);
    let all = picture.pdbs.seen().map_or(&[][..], Vec::as_slice);
    let mine = over(all, &pod.pod);
    let names = || mine.iter().map(|pdb| pdb.pdb.name.clone()).collect();
    match answer {
        Some(Ok(Answer::Budget { name, says })) => {
            let pdb = mine.iter().find(|pdb| &pdb.pdb.name == name);
            let class = pdb.map(|pdb| diagnose(pdb, pods, vmis));
            // One answer of a kind is what a refusal in a row needs (T17): here it is asked once only.
            let class = class.or_else(|| crate::drain::budgets::from_answer(says, 1));
            Some(Blocked::Budget {
                name: name.clone(),
                says: says.clone(),
                class: class.filter(|class| *class != Class::Allows),
            })
        }
        Some(Ok(Answer::SeveralBudgets)) => Some(Blocked::SeveralBudgets { names: names() }),
        Some(Ok(Answer::Granted)) => None,
        Some(_) | None => match mine.as_slice() {
            [] => None,
            [pdb] => {
                let class = diagnose(pdb, pods, vmis);
                (class != Class::Allows).then(|| Blocked::Budget {
                    name: pdb.pdb.name.clone(),
                    says: super::budgets::counts(pdb),
                    class: Some(class),
                })
            }
            [..] => Some(Blocked::SeveralBudgets { names: names() }),
        },
    }
}

/// Answers that tell nothing about the fate.
fn odd(answer: &Answer) -> String {
    match answer {
        Answer::WebhookDown => {
            "not known: KubeVirt's admission webhook (virt-api) does not answer".into()
        }
        Answer::Throttled => "not known: the API server is overloaded".into(),
        Answer::Unauthorized => "not known: the API server does not accept our credentials".into(),
        Answer::NamespaceTerminating => "its namespace is being deleted, and the VM with it".into(),
        Answer::Gone | Answer::VmiGone => "is gone, or about to be".into(),
        Answer::NotTheActivePod => "is on its way here or away".into(),
        Answer::Denied(why) | Answer::KubeVirtFailed(why) | Answer::Unexpected(why) => {
            format!("not known: {why}")
        }
        Answer::Granted
        | Answer::Marked
        | Answer::InProgress
        | Answer::NotMigratable
        | Answer::HotplugPod
        | Answer::Budget { .. }
        | Answer::SeveralBudgets => "not known yet".into(),
    }
}
