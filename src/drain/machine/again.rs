//! Starting again what this drain has shut down: on another node at once (policy `restart`), or when the node is given
//! back.
//!
//! What is owed outlives the drain and the boot: it stays in the record until KubeVirt has taken the request, or until
//! its answer is final. A guest that still shuts down when its drain ends is owed its start as well.

use super::Machine;
use super::pending::Pending;
use crate::drain::action::{Action, Fault, Level};
use crate::drain::again::{Owed, StartNote, Started, judge};
use crate::drain::answer::Reply;
use crate::drain::fate::{Again, Fate, again, restarts_by_itself};
use crate::drain::status::VmPhase;
use crate::drain::stop::told_to_stop;
use crate::drain::time::Mono;
use crate::drain::track::{Track, doubled};
use crate::drain::world::VmName;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a start is tried quickly before a person hears of it: with growing pauses about two minutes.
const TRIES: u32 = 12;
/// Longest pause between later tries.
const SLOW: Duration = Duration::from_secs(300);
/// Phase in the record of a drain of which nothing but starts is left.
pub(super) const ENDED: &str = "ended";
/// Requests at the same time.
const AT_ONCE: usize = 10;

impl Machine {
    /// A guest has ended that this drain has shut down: does it have to be started again?
    pub(super) fn owe(&mut self, key: &str) {
        let Some(note) = self.tracks.get(key).and_then(start_note) else {
            return;
        };
        self.owe_of(&note).has_ended();
    }

    /// What is owed to this VM; of another VMI of its name it begins anew.
    fn owe_of(&mut self, note: &StartNote) -> &mut Owed {
        let new = || Owed::new(note.clone());
        let owed = self.owed.entry(note.vm.clone()).or_insert_with(new);
        if owed.note.vmi_uid != note.vmi_uid {
            *owed = new();
        }
        owed
    }

    /// A drain ends while guests still shut down for it: what will be owed to them once they have ended. Nobody looks at
    /// them any more, but KubeVirt refuses to start what still runs.
    pub(super) fn owe_what_ends(&mut self) {
        let ends = self.tracks.values().filter(|t| shuts_down(t));
        for note in ends.filter_map(start_note).collect::<Vec<_>>() {
            self.owe_of(&note);
        }
    }

    /// What a cancel cannot take back: guests that are shutting down because an eviction was granted.
    pub(super) fn evictions_remain(&mut self) {
        let evicted = |t: &&Track| shuts_down(t) && t.stop.is_none();
        let evicted = self.tracks.values().filter(evicted).map(Track::vmi);
        for vmi in evicted.collect::<Vec<_>>() {
            self.remains(told_to_stop(&vmi));
        }
    }

    /// The VM has moved or runs again: nothing is owed to it.
    pub(super) fn owe_nothing(&mut self, vm: &VmName) {
        self.owed.remove(vm);
    }

    /// What the record has to know: what is owed, and what will be once its guest has ended.
    pub(super) fn starts_noted(&self) -> Vec<StartNote> {
        let asked = |t: &&Track| {
            let post = t.in_flight.is_some_and(|(_, dry)| !dry);
            let stops = t.lot.fate.as_ref().is_some_and(Fate::stops_guest);
            let told = t.granted.is_some() || t.stop.is_some() || (post && stops);
            told && is_unended(t)
        };
        let coming = self.tracks.values().filter(asked).filter_map(start_note);
        let owed = self.owed.values().map(|owed| StartNote {
            due: owed.due && !owed.note.at_once,
            ..owed.note.clone()
        });
        // What is owed knows more of a guest than its track does, unless that is of a newer one.
        let mut all: BTreeMap<VmName, StartNote> = BTreeMap::new();
        for note in owed.chain(coming) {
            let known = all.get(&note.vm);
            if known.is_none_or(|known| known.vmi_uid != note.vmi_uid) {
                all.insert(note.vm.clone(), note);
            }
        }
        all.into_values().collect()
    }

    /// From a record.
    pub(super) fn owed_before(&mut self, notes: Vec<StartNote>) {
        for note in notes {
            self.owed.insert(note.vm.clone(), Owed::new(note));
        }
    }

    /// The node is given back: everything that is owed is due.
    pub(super) fn starts_due(&mut self) {
        for owed in self.owed.values_mut() {
            owed.is_due();
        }
    }

    /// A drain begins: what is owed waits for its end.
    pub(super) fn starts_wait(&mut self) {
        for owed in self.owed.values_mut() {
            owed.due = owed.note.at_once;
            owed.note.due = false;
        }
    }

    /// A start is due that was not carried out yet.
    pub(super) fn owes_now(&self) -> bool {
        self.owed.values().any(|owed| owed.due)
    }

    /// Asks for the starts that are due.
    pub(super) fn starts_step(&mut self, now: Mono) {
        let on_the_wire = self.owed.values().filter(|owed| owed.in_flight).count();
        let waiting = |owed: &&Owed| owed.due && !owed.in_flight;
        let later = self.owed.values().filter(waiting);
        let later = later.map(|owed| owed.not_before).filter(|at| *at > now);
        if let Some(at) = later.min() {
            self.wake_at(at, "start again");
        }
        let due = self.owed.values().filter(waiting);
        let due: Vec<VmName> = due
            .filter(|owed| owed.not_before <= now)
            .take(AT_ONCE.saturating_sub(on_the_wire))
            .map(|owed| owed.note.vm.clone())
            .collect();
        for vm in due {
            let id = self.effect(Pending::StartVm { vm: vm.clone() });
            if let Some(owed) = self.owed.get_mut(&vm) {
                owed.in_flight = true;
            }
            self.actions.push_back(Action::StartVm { id, vm });
        }
    }

    /// A start was answered.
    pub(super) fn start_answered(&mut self, vm: &VmName, result: Result<Reply, Fault>, now: Mono) {
        let timing = self.policy.timing;
        let jitter = 0.85 + 0.3 * self.jitter();
        let Some(owed) = self.owed.get_mut(vm) else {
            return;
        };
        owed.in_flight = false;
        owed.tries = owed.tries.saturating_add(1);
        let note = owed.note.clone();
        let answer = judge(result);
        let slow = match &answer {
            Started::Later(_) => owed.tries > TRIES,
            Started::Runs => {
                let patience = owed.patience();
                if now >= *owed.runs_until.get_or_insert(now + patience) {
                    return self.runs_for_good(&note);
                }
                false
            }
            Started::Yes => {
                let text = format!("{vm}: is started again after this drain has shut it down");
                return self.start_over(&note, Level::Info, "VmStarted", text);
            }
            Started::Gone => {
                let text = format!("{vm}: is not started again, it was deleted meanwhile");
                return self.start_over(&note, Level::Info, "VmGone", text);
            }
            Started::Denied => {
                let why =
                    "right update on virtualmachines/start is missing; rbac/start.yaml gives it";
                return self.start_given_up(&note, cannot_start(&note, why, "start it"));
            }
        };
        let pause = if slow {
            doubled(timing.retry_most, SLOW, owed.tries - TRIES)
        } else {
            doubled(timing.retry_first, timing.retry_most, owed.tries)
        };
        owed.not_before = now + pause.mul_f64(jitter);
        if let Started::Later(why) = answer
            && slow
            && !owed.told
        {
            owed.told = true;
            let text = cannot_start(&note, &why, "that is tried again now and then; or start it");
            self.not_started.insert(note.vm.clone(), text.clone());
            self.tell_vm(Level::Warn, "VmNotStarted", text, note.vmi());
        }
    }

    /// KubeVirt says that it runs, and has had time to notice its end.
    fn runs_for_good(&mut self, note: &StartNote) {
        let vm = &note.vm;
        if note.ended {
            let text = format!("{vm}: runs again without our doing");
            return self.start_over(note, Level::Info, "VmRuns", text);
        }
        let text = format!(
            "{vm}: was told to shut down by this drain and still runs after its grace period (or again: its end was not seen). It is not started by us any more; KubeVirt leaves it stopped when it ends (runStrategy {}); start it by hand then: {}",
            note.run.word(),
            note.by_hand()
        );
        self.start_given_up(note, text);
    }

    /// A person has to start it: `status` keeps saying so.
    fn start_given_up(&mut self, note: &StartNote, text: String) {
        self.start_over(note, Level::Warn, "VmNotStarted", text.clone());
        self.not_started.insert(note.vm.clone(), text);
    }

    /// Nothing is owed to it any more.
    fn start_over(&mut self, note: &StartNote, level: Level, reason: &'static str, text: String) {
        self.owed.remove(&note.vm);
        self.not_started.remove(&note.vm);
        self.tell_vm(level, reason, text, note.vmi());
        self.persist_owed();
    }

    /// Keeps the record in step with what is owed.
    fn persist_owed(&mut self) {
        match &self.persisted {
            Some(record) if record.phase == ENDED => self.forget(),
            Some(_) => self.persist(),
            None => {}
        }
    }
}

/// Why a start does not work, and what a person can do.
fn cannot_start(note: &StartNote, why: &str, what: &str) -> String {
    format!(
        "{}: was shut down by this drain, is stopped (runStrategy {}) and could not be started again ({why}); {what} by hand: {}",
        note.vm,
        note.run.word(),
        note.by_hand()
    )
}

/// Its end was not seen by this drain.
fn is_unended(track: &Track) -> bool {
    track.ended.is_none_or(|(phase, _)| phase == VmPhase::Left)
}

/// Its guest is on its way down because of this drain.
fn shuts_down(track: &Track) -> bool {
    let ours = track.evicted() && track.asked_to_end() && track.stopped_by.is_empty();
    ours && is_unended(track) && track.moved_to.is_none()
}

/// What will be owed to a VM once its guest has ended by our doing.
fn start_note(track: &Track) -> Option<StartNote> {
    let lot = &track.lot;
    if restarts_by_itself(&lot.owner) {
        return None;
    }
    let (run, at_once) = match again(&lot.owner, lot.choice.way) {
        Again::AtOnce(run) => (run, true),
        Again::AfterRestore(run) => (run, false),
        Again::Once | Again::Halted | Again::Standalone | Again::Unseen | Again::Other(_) => {
            return None;
        }
    };
    Some(StartNote {
        vm: track.vm.clone(),
        vmi_uid: track.vmi_uid.clone(),
        run,
        at_once,
        grace: track.grace.as_secs(),
        ended: false,
        due: false,
    })
}
