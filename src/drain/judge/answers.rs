//! The verdict as far as answers alone tell it: what to ask again, when, and what a refusal means meanwhile.

use super::{Case, Consentless, Frame};
use crate::drain::answer::{Answer, Pause};
use crate::drain::budgets::{self, Class};
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::verdict::{Blocked, Ignore, Lane, Verdict, Wait};
use crate::drain::world::PdbView;

/// The verdict from answers alone.
pub(super) fn asked(case: &Case<'_>, frame: &Frame<'_>) -> Verdict {
    let track = case.track;
    let due = frame.now >= track.not_before;
    match &track.class {
        // Asked after an eviction was accepted, these say that its mark is gone: it is sent again.
        Some(Answer::Marked) => lane_or_pause(case, Lane::Migrate, frame),
        // Without consent it is asked again now and then: a VM that was starting may migrate by now.
        Some(Answer::Granted) if frame.consent.is_err() && old_news(track, frame) => Verdict::Ask,
        Some(Answer::Granted) => lane_or_pause(case, Lane::Shutdown, frame),
        None if track.accepted.is_some() => marked_unseen(case, frame),
        Some(Answer::InProgress) => marked_unseen(case, frame),
        None | Some(_) if due => Verdict::Ask,
        Some(answer) => after(case, answer, None, frame),
        None => match &track.last {
            Some((answer, _)) => after(case, answer, None, frame),
            None => Verdict::Ask,
        },
    }
}

/// The last answer is so old that it may have changed.
fn old_news(track: &Track, frame: &Frame<'_>) -> bool {
    let at = track.last.as_ref().map(|(_, at)| *at);
    at.is_none_or(|at| frame.now.since(at) >= frame.timing.refused_most)
}

/// Marked, as far as the answers tell. Asked again only when the pod no longer says so, or after a long silence.
fn marked_unseen(case: &Case<'_>, frame: &Frame<'_>) -> Verdict {
    let track = case.track;
    let annotated = case.pod.is_some_and(|p| p.eviction_in_progress);
    let since = |at: Option<Mono>| at.map_or(frame.timing.slot_patience, |at| frame.now.since(at));
    let heard = since(track.last.as_ref().map(|(_, at)| *at));
    let vanished = track.seen_mark && since(track.accepted) >= frame.timing.ask_again;
    // Before KubeVirt 1.7 a mark of somebody else is not annotated while it waits for its turn.
    let unsure = track.accepted.is_none();
    let doubt = !annotated && (vanished || unsure);
    if frame.now >= track.not_before && (doubt || heard >= frame.timing.slot_patience) {
        return Verdict::Ask;
    }
    if track.accepted.is_some() || track.ours || track.maybe_ours {
        Verdict::Wait(Wait::MigratingUnseen)
    } else {
        Verdict::Wait(Wait::MarkedByOthers)
    }
}

/// The lane, unless the last answer asks for patience or consent is missing.
pub(super) fn lane_or_pause(case: &Case<'_>, lane: Lane, frame: &Frame<'_>) -> Verdict {
    if lane == Lane::Shutdown {
        match frame.consent {
            Ok(()) => {}
            Err(Consentless::NotAsked) => return Verdict::Blocked(Blocked::NeedsConsent),
            Err(Consentless::Scheduled) => return Verdict::Wait(Wait::Scheduled),
            Err(Consentless::Never) => return Verdict::Blocked(Blocked::ConsentNever),
        }
        // An eviction that is granted deletes the pod: the guest ends as by any other stop.
        if let Err(doubt) = frame.handler {
            return Verdict::Blocked(Blocked::NoHandler(doubt));
        }
    }
    if lane == Lane::Migrate && settles(case, frame) {
        return Verdict::Wait(Wait::Settling);
    }
    if frame.now >= case.track.not_before {
        return Verdict::Evict(lane);
    }
    match &case.track.last {
        Some((answer, _)) if answer.pause() != Pause::None => {
            after(case, answer, Some(lane), frame)
        }
        _ => Verdict::Evict(lane),
    }
}

/// It arrived a moment ago. virt-controller makes no VMIM for a VM with two live pods and forgets it until something else
/// happens on the node (evacuation.go, `filterRunningNonMigratingVMIs`). When the old pod has ended no object that we may read
/// tells: `status.activePods` keeps pods that are over, and the pod itself is another node's.
fn settles(case: &Case<'_>, frame: &Frame<'_>) -> bool {
    let arrived = case.track.arrived;
    arrived.is_some_and(|at| frame.now.since(at) < frame.timing.settle)
}

/// What an answer means while nothing is asked again yet.
fn after(case: &Case<'_>, answer: &Answer, lane: Option<Lane>, frame: &Frame<'_>) -> Verdict {
    match answer {
        Answer::Granted => Verdict::Wait(Wait::ShuttingDown),
        Answer::Marked => Verdict::Wait(Wait::Marked),
        Answer::InProgress if case.track.ours || case.track.maybe_ours => {
            Verdict::Wait(Wait::MigratingUnseen)
        }
        Answer::InProgress => Verdict::Wait(Wait::MarkedByOthers),
        Answer::NotTheActivePod => Verdict::Wait(Wait::LeftOver),
        Answer::Gone => Verdict::Wait(Wait::PodGone),
        Answer::NotMigratable => Verdict::Blocked(Blocked::NotMigratable {
            reason: String::new(),
        }),
        Answer::HotplugPod => Verdict::Ignore(Ignore::Hotplug),
        Answer::VmiGone => Verdict::Wait(Wait::VmiGone),
        Answer::NamespaceTerminating => Verdict::Wait(Wait::NamespaceTerminating),
        // The budget that KubeVirt ≤ 1.5 keeps for every VM only ever shows when the VM is marked already, or
        // when the webhook was skipped (1.4).
        Answer::Budget { name, .. }
            if name.starts_with("kubevirt-disruption-budget-") && lane != Some(Lane::Shutdown) =>
        {
            Verdict::Wait(Wait::Retry {
                why: "KubeVirt protects it and has not marked it yet".into(),
            })
        }
        Answer::Budget { name, says } => Verdict::Blocked(Blocked::Budget {
            name: name.clone(),
            says: says.clone(),
            class: class_of(case, name, says, frame),
        }),
        Answer::SeveralBudgets => Verdict::Blocked(Blocked::SeveralBudgets {
            names: budgets_of(case, frame),
        }),
        Answer::Throttled => Verdict::Blocked(Blocked::Throttled),
        Answer::Denied(why) => Verdict::Blocked(Blocked::Denied(why.clone())),
        Answer::WebhookDown => Verdict::Wait(Wait::Retry {
            why: "KubeVirt's admission webhook (virt-api) is unreachable".into(),
        }),
        Answer::KubeVirtFailed(why) | Answer::Unexpected(why) => {
            Verdict::Wait(Wait::Retry { why: why.clone() })
        }
        Answer::Unauthorized => Verdict::Wait(Wait::Retry {
            why: "the API server does not accept our credentials".into(),
        }),
    }
}

/// What is the matter with the budget that refused it: from the budget where it can be read, else from the answer.
fn class_of(case: &Case<'_>, name: &str, says: &str, frame: &Frame<'_>) -> Option<Class> {
    let uid = case.pod.map(|p| p.pod.uid.as_str()).unwrap_or_default();
    let selects = |p: &&PdbView| p.pdb.name == name && p.selects.iter().any(|s| s == uid);
    match frame.pdbs.iter().find(selects) {
        // What was read may be older than the answer.
        Some(pdb) => {
            Some(budgets::diagnose(pdb, frame.pods, frame.vmis)).filter(|c| *c != Class::Allows)
        }
        None => budgets::from_answer(says, case.track.refusals),
    }
}

fn budgets_of(case: &Case<'_>, frame: &Frame<'_>) -> Vec<String> {
    let Some(pod) = case.pod else {
        return Vec::new();
    };
    let mine = budgets::over(frame.pdbs, &pod.pod);
    mine.iter().map(|p| p.pdb.name.clone()).collect()
}
