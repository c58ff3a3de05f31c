//! What is to become of each VM: who owns it, which policy applies, its fate, and what a policy makes of a verdict.

use super::Machine;
use super::guests::Wanted;
use super::index::Index;
use crate::drain::action::Level;
use crate::drain::again::Owed;
use crate::drain::fate::{Course, Facts, Fate, course, course_of_answer, fate};
use crate::drain::judge::{Case, Consentless, Frame};
use crate::drain::policy::OnDeadline;
use crate::drain::status::VmPhase;
use crate::drain::stop::StopWhy;
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::verdict::{Blocked, Lane, Verdict, Wait};
use crate::drain::ways::{Candidate, Choice, Way};
use crate::drain::world::{Owner, Picture, PodView, Sight, Strategy, VmName, VmView, VmiView};
use std::collections::{BTreeMap, BTreeSet};

/// Kind of the owner that most VMIs have.
const VIRTUAL_MACHINE: &str = "VirtualMachine";

impl Machine {
    /// Learns from the newest picture who owns each VM and what its policy is.
    pub(super) fn learn(&mut self, picture: &Picture, index: &Index<'_>, now: Mono) {
        let mut told = Vec::new();
        let patience = self.policy.timing.request;
        let readable = !matches!(picture.vms, Sight::Forbidden { .. } | Sight::Missing);
        for track in self.tracks.values_mut().filter(|t| t.ended.is_none()) {
            let vm = index.vm_of(&track.vm);
            if let Some(vmi) = index.vmi_of(track) {
                track.lot.owner = owner_of(vmi, vm);
                let unread = vmi.owner_kind == VIRTUAL_MACHINE && vm.is_none();
                track.lot.owner_unread = unread && readable;
            }
            let pod = index.pod_of(track);
            let runs = pod.is_some_and(|p| !p.deleting && !p.is_empty_of_guest());
            if runs && track.stop.is_none() && track.granted.is_none() {
                // A record owes a start to it, but nobody has stopped it.
                let is_it = |owed: &Owed| owed.note.vmi_uid == track.vmi_uid && !owed.in_flight;
                if self.owed.get(&track.vm).is_some_and(is_it) {
                    self.owed.remove(&track.vm);
                }
            }
            if pod.is_none() && vm.is_none() {
                continue;
            }
            let choice = chosen(&self.policy.ways, &track.vm, pod, vm);
            let unread = track.lot.owner_unread && now.since(track.first_seen) < patience;
            if !choice.troubles.is_empty() && !unread {
                let text = format!("{}: {}", track.vm, choice.troubles.join("; "));
                told.push((track.vmi(), text));
            }
            track.lot.choice = choice;
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
        if self.policy_unread(track, frame.now) || (decided && track.lot.fate.is_some()) {
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
        // Once told to stop, it is not left alone any more and does not move.
        let way = match track.lot.choice.way {
            Way::Migrate | Way::Leave if track.stop.is_some() => Way::Shutdown,
            way @ (Way::Migrate | Way::Leave | Way::Shutdown | Way::Restart) => way,
        };
        let found = fate(&Facts {
            course,
            reason: case.vmi.map_or("", |vmi| vmi.not_migratable.as_str()),
            owner: &track.lot.owner,
            way,
            consent: frame.consent,
            handler: frame.handler,
            gives_up: self.may_stop(),
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
            way @ (Way::Shutdown | Way::Restart | Way::Leave) => {
                format!(" (policy {}: {})", way.word(), choice.source)
            }
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
        let ends = matches!(
            verdict,
            Verdict::Gone
                | Verdict::Ignore(_)
                | Verdict::Stop
                | Verdict::Wait(Wait::ShuttingDown | Wait::Stopping { .. } | Wait::LeftOver)
        );
        if !ends && self.given_up_alone(case.track, frame.now) {
            return Verdict::Wait(Wait::GivenUp);
        }
        let open = match &verdict {
            Verdict::Evict(_) | Verdict::Ask | Verdict::Blocked(_) => true,
            Verdict::Wait(wait) => matches!(wait, Wait::Starting | Wait::Scheduled),
            Verdict::Ignore(_) | Verdict::Gone | Verdict::Stop => false,
        };
        if !open {
            return verdict;
        }
        if self.policy_unread(case.track, frame.now) {
            return Verdict::Wait(Wait::OwnerUnread);
        }
        match (lot.choice.way, &verdict) {
            // Its turn has come, and nobody is there to do it.
            (Way::Leave, Verdict::Blocked(Blocked::NoHandler(_))) if case.stop.is_some() => verdict,
            (Way::Leave, _) => Verdict::Wait(Wait::LeftAlone {
                stops_last: self.stops_last(),
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

    /// Its VirtualMachine may say something else, and is worth waiting for.
    pub(super) fn policy_unread(&self, track: &Track, now: Mono) -> bool {
        track.lot.owner_unread && now.since(track.first_seen) < self.policy.timing.request
    }

    /// Its policy leaves it here, and the host does not go down in a way that allows to stop it first.
    pub(super) fn stays_alone(&self, track: &Track) -> bool {
        track.lot.choice.way == Way::Leave && !self.stops_last()
    }

    /// What is left alone gets its clean shutdown in the end, at the latest when a scheduled shutdown has come.
    fn stops_last(&self) -> bool {
        let may = matches!(self.consent(), Ok(()) | Err(Consentless::Scheduled));
        self.host_goes() && may
    }

    /// When the wait for this VM alone is over.
    pub(super) fn own_deadline(&self, track: &Track) -> Option<Mono> {
        let started = self.drain.as_ref()?.started;
        Some(started + track.lot.choice.deadline?)
    }

    /// Its own deadline has passed, and nobody stops its guest for that: the drain goes on without it.
    fn given_up_alone(&self, track: &Track, now: Mono) -> bool {
        let goes_on = matches!(self.ending(), OnDeadline::Proceed | OnDeadline::Abort);
        goes_on && self.own_deadline(track).is_some_and(|at| now >= at)
    }

    /// Guests that are stopped because of a policy: their own, or because their own deadline has passed.
    pub(super) fn policy_ends(&self, index: &Index<'_>, wanted: &mut Wanted, now: Mono) {
        for (key, track) in self.tracks.iter().filter(|(_, t)| t.ended.is_none()) {
            let here = index
                .pod_of(track)
                .is_some_and(|pod| !pod.is_empty_of_guest());
            if !here || self.policy_unread(track, now) {
                continue;
            }
            let vmi = index.vmi_of(track);
            if !self.is_active(vmi, index) {
                continue;
            }
            if let Some(at) = self.own_deadline(track).filter(|_| self.may_stop()) {
                if now >= at {
                    let why = StopWhy::Policy("its own deadline has passed".into());
                    wanted.stops.entry(key.clone()).or_insert(why);
                    continue;
                }
                wanted.wakes.push((at, "the deadline of one VM"));
            }
            if let Some(why) = self.policy_stop(index, track, vmi) {
                wanted.stops.entry(key.clone()).or_insert(why);
            }
        }
    }

    fn policy_stop(
        &self,
        index: &Index<'_>,
        track: &Track,
        vmi: Option<&VmiView>,
    ) -> Option<StopWhy> {
        let choice = &track.lot.choice;
        match choice.way {
            Way::Migrate => None,
            Way::Leave => self.only_left_alone().then(|| {
                StopWhy::Policy("its policy has left it alone, and the host goes down now".into())
            }),
            Way::Shutdown | Way::Restart => {
                let moves = vmi.is_some_and(|v| v.mark.is_some()) || index.is_moving(&track.vm);
                let course = match vmi {
                    Some(vmi) => course(
                        vmi.strategy.or(self.default_strategy()),
                        vmi.live_migratable,
                    ),
                    None => track
                        .class
                        .as_ref()
                        .map_or(Course::Unknown, course_of_answer),
                };
                // Where the eviction would do it, it does: disruption budgets are heard then.
                let by_us = matches!(course, Course::Migrates | Course::Refused | Course::Marks);
                (by_us && !moves).then(|| {
                    let word = choice.way.word();
                    StopWhy::Policy(format!("its policy is {word} ({})", choice.source))
                })
            }
        }
    }

    fn default_strategy(&self) -> Option<Strategy> {
        self.picture.kubevirt.seen().map(|k| k.strategy)
    }

    /// The host goes down, and nobody else is here any more.
    fn only_left_alone(&self) -> bool {
        let here = |t: &&Track| t.ended.is_none() && t.lot.choice.way != Way::Leave;
        self.host_goes() && !self.tracks.values().any(|t| here(&t))
    }

    /// VMs that stay here by their policy, and without which the node counts as empty.
    pub(super) fn left_alone(&self) -> BTreeSet<VmName> {
        let tracks = self.tracks.values().filter(|t| t.lot.left_alone);
        tracks.map(|t| t.vm.clone()).collect()
    }

    /// The drain is over: they are what is left. Answers how many, and how many of them were given up.
    pub(super) fn end_left_alone(&mut self, now: Mono) -> (usize, usize) {
        let (mut count, mut given_up) = (0, 0);
        for track in self.tracks.values_mut() {
            if track.lot.left_alone && track.ended.is_none() {
                track.end(VmPhase::Left, now);
                track.shown = VmPhase::Left;
                track.shown_since = now;
                count += 1;
                given_up += usize::from(track.lot.choice.way != Way::Leave);
            }
        }
        (count, given_up)
    }
}

/// The policy of one VM: its own word first, then that of its template, which its pod carries.
pub(in crate::drain) fn chosen(
    ways: &crate::drain::ways::Ways,
    name: &VmName,
    pod: Option<&PodView>,
    vm: Option<&VmView>,
) -> Choice {
    let none = BTreeMap::new();
    ways.choose(&Candidate {
        namespace: &name.namespace,
        name: &name.name,
        labels: pod.map_or(&none, |p| &p.labels),
        policy: [
            vm.and_then(|v| v.policy.as_deref()),
            pod.and_then(|p| p.policy.as_deref()),
        ],
        deadline: [
            vm.and_then(|v| v.deadline.as_deref()),
            pod.and_then(|p| p.deadline.as_deref()),
        ],
    })
}

/// Who owns a VMI. A pool owns VMs, which own VMIs.
pub(in crate::drain) fn owner_of(vmi: &VmiView, vm: Option<&VmView>) -> Owner {
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
        Verdict::Wait(Wait::GivenUp | Wait::LeftAlone { stops_last: false })
    )
}
