//! Starting again what this drain has shut down: on another node at once (policy `restart`), or when the node is given
//! back.
//!
//! What is owed outlives the drain and the boot: it stays in the record until KubeVirt has taken the request, or until
//! it was told that a person has to do it.

use super::Machine;
use super::pending::Pending;
use crate::drain::action::{Action, Fault, Level};
use crate::drain::again::{Owed, StartNote, Started, judge};
use crate::drain::answer::Reply;
use crate::drain::fate::{Again, Fate, again, restarts_by_itself};
use crate::drain::time::Mono;
use crate::drain::track::{Track, doubled};
use crate::drain::world::VmName;

/// How often a start is tried before a person is asked: with growing pauses about two minutes.
const TRIES: u32 = 12;
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
        self.owed.insert(note.vm.clone(), Owed::new(note));
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
            t.ended.is_none() && (t.granted.is_some() || t.stop.is_some() || (post && stops))
        };
        let coming = self.tracks.values().filter(asked).filter_map(start_note);
        let mut all: Vec<_> = self.owed.values().map(|owed| owed.note.clone()).collect();
        all.extend(coming);
        all.sort();
        all.dedup();
        all
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
            owed.due = true;
        }
    }

    /// A drain begins: what is owed waits for its end.
    pub(super) fn starts_wait(&mut self) {
        for owed in self.owed.values_mut() {
            owed.due = owed.note.at_once;
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
        let jitter = self.jitter();
        let Some(owed) = self.owed.get_mut(vm) else {
            return;
        };
        owed.in_flight = false;
        let note = owed.note.clone();
        let answer = judge(result);
        if matches!(answer, Started::Runs | Started::Later(_)) && owed.tries < TRIES {
            owed.tries += 1;
            let pause = doubled(timing.retry_first, timing.retry_most, owed.tries);
            owed.not_before = now + pause.mul_f64(0.85 + 0.3 * jitter);
            return;
        }
        self.owed.remove(vm);
        let why = match answer {
            Started::Yes => {
                let text = format!("{vm}: is started again after this drain has shut it down");
                self.tell_vm(Level::Info, "VmStarted", text, note.vmi());
                return self.persist_owed();
            }
            Started::Runs => {
                let text = format!("{vm}: runs again without our doing");
                self.tell_vm(Level::Info, "VmRuns", text, note.vmi());
                return self.persist_owed();
            }
            Started::Gone => {
                let text = format!("{vm}: is not started again, it was deleted meanwhile");
                self.tell_vm(Level::Info, "VmGone", text, note.vmi());
                return self.persist_owed();
            }
            Started::Denied => {
                "right update on virtualmachines/start is missing; rbac/start.yaml gives it".into()
            }
            Started::Later(why) => why,
        };
        let text = format!(
            "{vm}: was shut down by this drain, is stopped (runStrategy {}) and could not be started again ({why}); start it by hand: {}",
            note.run.word(),
            note.by_hand()
        );
        self.not_started.push(text.clone());
        self.tell_vm(Level::Warn, "VmNotStarted", text, note.vmi());
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
    })
}
