//! What is to become of each VM: who owns it, which policy applies, its fate, and what a policy makes of a verdict.

use super::Machine;
use super::index::Index;
use crate::drain::action::Level;
use crate::drain::fate::{Course, Facts, Fate, course, course_of_answer, fate};
use crate::drain::judge::{Case, Consentless, Frame};
use crate::drain::status::VmPhase;
use crate::drain::time::Mono;
use crate::drain::verdict::{Blocked, Lane, Verdict, Wait};
use crate::drain::ways::{Candidate, Choice, Way};
use crate::drain::world::{Owner, Picture, PodView, Sight, VmName, VmView, VmiView};
use std::collections::{BTreeMap, BTreeSet};

/// Kind of the owner that most VMIs have.
const VIRTUAL_MACHINE: &str = "VirtualMachine";

impl Machine {
    /// Learns from the newest picture who owns each VM and what its policy is.
    pub(super) fn learn(&mut self, picture: &Picture, index: &Index<'_>) {
        let mut told = Vec::new();
        let readable = matches!(picture.vms, Sight::Pending | Sight::Seen { .. });
        for track in self.tracks.values_mut().filter(|t| t.ended.is_none()) {
            let vm = index.vm_of(&track.vm);
            if let Some(vmi) = index.vmi_of(track) {
                track.lot.owner = owner_of(vmi, vm);
                let unread = vmi.owner_kind == VIRTUAL_MACHINE && vm.is_none();
                track.lot.owner_unread = unread && readable;
            }
            let pod = index.pod_of(track);
            if pod.is_none() && vm.is_none() {
                continue;
            }
            let choice = chosen(&self.policy.ways, &track.vm, pod, vm);
            if choice != track.lot.choice {
                if !choice.troubles.is_empty() {
                    let text = format!("{}: {}", track.vm, choice.troubles.join("; "));
                    told.push((track.vmi(), text));
                }
                track.lot.choice = choice;
            }
        }
        for (vm, text) in told {
            self.tell_vm(Level::Warn, "VmPolicyBad", text, vm);
        }
    }

    /// The host goes down after this drain.
    pub(super) fn host_goes(&self) -> bool {
        let goes = |d: &super::Drain| d.shutting_down || d.scheduled || d.then.is_some();
        self.drain.as_ref().is_some_and(goes)
    }

    /// What will become of a VM; what was known stays while nothing better is.
    pub(super) fn foresee(&self, case: &Case<'_>, frame: &Frame<'_>) -> Option<Fate> {
        let track = case.track;
        let decided = track.granted.is_some() || case.pod.is_some_and(|pod| pod.deleting);
        if track.lot.owner_unread || (decided && track.lot.fate.is_some()) {
            return track.lot.fate.clone();
        }
        let by_answer = || {
            let last = track.last.as_ref().map(|(answer, _)| answer);
            let answer = track.class.as_ref().or(last);
            answer.map_or(Course::Unknown, course_of_answer)
        };
        let by_vmi = |vmi: &VmiView| course(vmi.strategy.or(frame.strategy), vmi.live_migratable);
        let course = match case.vmi.map(by_vmi) {
            None | Some(Course::Unknown) => by_answer(),
            Some(course) => course,
        };
        let found = fate(&Facts {
            course,
            reason: case.vmi.map_or("", |vmi| vmi.not_migratable.as_str()),
            owner: &track.lot.owner,
            way: track.lot.choice.way,
            consent: frame.consent,
            host_goes: self.host_goes(),
        });
        match (found, &track.lot.fate) {
            (Fate::Unknown, Some(known)) => Some(known.clone()),
            (found, _) => Some(found),
        }
    }

    /// Remembers a fate, and tells it when it is anything but a migration: before it happens.
    pub(super) fn learn_fate(&mut self, key: &str, fate: Option<Fate>) {
        let Some(track) = self.tracks.get_mut(key) else {
            return;
        };
        if fate == track.lot.fate {
            return;
        }
        track.lot.fate = fate;
        let Some(fate) = &track.lot.fate else { return };
        // Of what is blocked the verdict tells.
        if !fate.is_news() || matches!(fate, Fate::Blocked(_)) {
            return;
        }
        let choice = &track.lot.choice;
        let policy = match choice.way {
            Way::Migrate => String::new(),
            way => format!(" (policy {}: {})", way.word(), choice.source),
        };
        let text = format!("{}: {fate}{policy}", track.vm);
        let level = if fate.needs_somebody() {
            Level::Warn
        } else {
            Level::Info
        };
        let vm = track.vmi();
        self.tell_vm(level, "VmFate", text, vm);
    }

    /// What the VM's policy makes of the verdict.
    pub(super) fn by_policy(
        &self,
        verdict: Verdict,
        case: &Case<'_>,
        frame: &Frame<'_>,
    ) -> Verdict {
        let lot = &case.track.lot;
        let open = match &verdict {
            Verdict::Evict(_) | Verdict::Ask | Verdict::Blocked(_) => true,
            Verdict::Wait(wait) => matches!(wait, Wait::Starting | Wait::Scheduled),
            Verdict::Ignore(_) | Verdict::Gone => false,
        };
        if !open {
            return verdict;
        }
        if lot.owner_unread && frame.now.since(case.track.first_seen) < frame.timing.request {
            return Verdict::Wait(Wait::OwnerUnread);
        }
        match (lot.choice.way, &verdict) {
            (Way::Leave, _) => Verdict::Wait(Wait::LeftAlone {
                stops_last: self.host_goes() && frame.consent.is_ok(),
            }),
            (
                Way::Shutdown | Way::Restart,
                Verdict::Evict(Lane::Migrate | Lane::External)
                | Verdict::Blocked(Blocked::NotMigratable { .. }),
            ) => match frame.consent {
                Err(Consentless::NotAsked) => Verdict::Blocked(Blocked::NeedsConsent),
                Err(Consentless::Never) => Verdict::Blocked(Blocked::ConsentNever),
                Err(Consentless::Scheduled) => Verdict::Wait(Wait::Scheduled),
                Ok(()) => verdict,
            },
            (Way::Migrate | Way::Shutdown | Way::Restart, _) => verdict,
        }
    }

    /// VMs that stay here by their policy, and without which the node counts as empty.
    pub(super) fn left_alone(&self) -> BTreeSet<VmName> {
        let tracks = self.tracks.values().filter(|t| t.lot.left_alone);
        tracks.map(|t| t.vm.clone()).collect()
    }

    /// The drain is over: they are what is left. Answers how many.
    pub(super) fn end_left_alone(&mut self, now: Mono) -> usize {
        let mut count = 0;
        for track in self.tracks.values_mut() {
            if track.lot.left_alone && track.ended.is_none() {
                track.end(VmPhase::Left, now);
                track.shown = VmPhase::Left;
                track.shown_since = now;
                count += 1;
            }
        }
        count
    }
}

/// The policy of one VM: its own word first, then that of its template, which its pod carries.
fn chosen(
    ways: &crate::drain::ways::Ways,
    name: &VmName,
    pod: Option<&PodView>,
    vm: Option<&VmView>,
) -> Choice {
    let none = BTreeMap::new();
    let text = |of_vm: Option<&String>, of_pod: Option<&String>| [of_vm.cloned(), of_pod.cloned()];
    let policy = text(
        vm.and_then(|v| v.policy.as_ref()),
        pod.and_then(|p| p.policy.as_ref()),
    );
    let deadline = text(
        vm.and_then(|v| v.deadline.as_ref()),
        pod.and_then(|p| p.deadline.as_ref()),
    );
    ways.choose(&Candidate {
        namespace: &name.namespace,
        name: &name.name,
        labels: pod.map_or(&none, |p| &p.labels),
        policy: [policy[0].as_deref(), policy[1].as_deref()],
        deadline: [deadline[0].as_deref(), deadline[1].as_deref()],
    })
}

/// Who owns a VMI. A pool owns VMs, which own VMIs.
fn owner_of(vmi: &VmiView, vm: Option<&VmView>) -> Owner {
    match vmi.owner_kind.as_str() {
        "" => Owner::Standalone,
        VIRTUAL_MACHINE => match vm {
            Some(vm) if vm.owner_kind == "VirtualMachinePool" => Owner::Pool(vm.run),
            Some(vm) => Owner::Vm(vm.run),
            None => Owner::Vm(None),
        },
        "VirtualMachineInstanceReplicaSet" => Owner::ReplicaSet,
        other => Owner::Other(other.to_owned()),
    }
}

/// The verdict says that it stays.
pub(super) fn stays(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Wait(Wait::LeftAlone { stops_last: false })
    )
}
