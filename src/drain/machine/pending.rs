//! Effects on their way: what each was for, where its result goes, and what happens when none comes.

use super::Machine;
use crate::drain::action::{EffectId, Fault, FaultClass, Level, LogindAnswer, Outcome, Token};
use crate::drain::hooks::Gate;
use crate::drain::time::Mono;
use crate::drain::world::VmName;
use std::time::Duration;

/// What a pending effect was for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pending {
    ReadNode(Why),
    Cordon,
    Uncordon(Why),
    Unmark,
    Evict {
        key: String,
        dry: bool,
    },
    EvictOther {
        key: String,
    },
    Confirm {
        since: Mono,
    },
    Volumes,
    /// The target pod of the VMIM with this UID.
    Target {
        migration: String,
    },
    CancelEvacuation {
        key: String,
    },
    DeleteMigration,
    StartVm {
        vm: VmName,
    },
    StopGuest {
        key: String,
    },
    AbortMigration {
        key: String,
    },
    /// A look at the host's own containers.
    LookHere {
        since: Mono,
    },
    /// A guest is told on this host itself.
    TellGuest {
        key: String,
    },
    Release,
    TakeHold,
    AskLogind,
    /// A request on the Node is marked as taken.
    Acknowledge {
        value: String,
    },
    /// `lost`: when no result can come any more.
    Hooks {
        gate: Gate,
        lost: Mono,
    },
}

/// Why the Node is read or uncordoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// To cordon it.
    Drain,
    /// A cancelled or given-up drain gives it back.
    Undo,
    /// An operator wants it back.
    Restore(Token),
    /// The host has come up: is it to be given back?
    Boot,
    /// Does the API server live?
    Contact,
}

/// One effect on its way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sent {
    what: Pending,
    since: Mono,
}

/// The shell gives every effect a time limit. One whose result has not come after so many limits is lost
/// (its task has panicked): it counts as failed, so that no drain hangs on it.
const LOST_AFTER: u32 = 6;

impl Machine {
    pub(super) fn effect(&mut self, what: Pending) -> EffectId {
        self.next_effect += 1;
        let id = EffectId(self.next_effect);
        let since = self.now;
        self.pending.insert(id, Sent { what, since });
        id
    }

    pub(super) fn waits_for(&self, wanted: impl Fn(&Pending) -> bool) -> bool {
        self.pending.values().any(|sent| wanted(&sent.what))
    }

    /// How many requests about pods are on the wire.
    pub(super) fn posts_in_flight(&self) -> usize {
        self.count_pending(|p| matches!(p, Pending::Evict { .. } | Pending::EvictOther { .. }))
    }

    pub(super) fn count_pending(&self, wanted: impl Fn(&Pending) -> bool) -> usize {
        let all = self.pending.values();
        all.filter(|sent| wanted(&sent.what)).count()
    }

    /// Results of the others will be ignored.
    pub(super) fn keep_pending(&mut self, keep: impl Fn(&Pending) -> bool) {
        self.pending.retain(|_, sent| keep(&sent.what));
    }

    /// Commands that wait for a result that nobody will look at.
    pub(super) fn tokens_waiting(&self) -> Vec<Token> {
        let token = |sent: &Sent| match sent.what {
            Pending::ReadNode(Why::Restore(token)) | Pending::Uncordon(Why::Restore(token)) => {
                Some(token)
            }
            Pending::ReadNode(Why::Drain | Why::Undo | Why::Boot | Why::Contact)
            | Pending::Uncordon(Why::Drain | Why::Undo | Why::Boot | Why::Contact)
            | Pending::Unmark
            | Pending::Cordon
            | Pending::Evict { .. }
            | Pending::EvictOther { .. }
            | Pending::Confirm { .. }
            | Pending::Volumes
            | Pending::Target { .. }
            | Pending::CancelEvacuation { .. }
            | Pending::DeleteMigration
            | Pending::StartVm { .. }
            | Pending::StopGuest { .. }
            | Pending::AbortMigration { .. }
            | Pending::LookHere { .. }
            | Pending::TellGuest { .. }
            | Pending::Release
            | Pending::TakeHold
            | Pending::AskLogind
            | Pending::Acknowledge { .. }
            | Pending::Hooks { .. } => None,
        };
        self.pending.values().filter_map(token).collect()
    }

    pub(super) fn done(&mut self, id: EffectId, outcome: Outcome, now: Mono) {
        // A result of an effect that nobody waits for any more is late: ignored.
        if let Some(sent) = self.pending.remove(&id) {
            self.ended(sent.what, outcome, now);
        }
    }

    fn ended(&mut self, what: Pending, outcome: Outcome, now: Mono) {
        self.heard_by(&what, &outcome, now);
        match (what, outcome) {
            (Pending::ReadNode(why), Outcome::Node(result)) => self.node_read(why, result, now),
            (Pending::Cordon, Outcome::Node(result)) => self.cordoned(result, now),
            (Pending::Uncordon(why), Outcome::Node(result)) => self.uncordoned(why, result, now),
            (Pending::Unmark, Outcome::Node(result)) => self.given_back(result, now),
            (Pending::Evict { key, dry }, Outcome::Reply(result)) => {
                self.answered(&key, dry, result, now);
            }
            (Pending::EvictOther { key }, Outcome::Reply(result)) => {
                self.other_answered(&key, result, now);
            }
            (Pending::Volumes, Outcome::Volumes(result)) => self.volumes_read(result, now),
            (Pending::Target { migration }, Outcome::Target(result)) => {
                self.target_read(&migration, result);
            }
            (Pending::Confirm { since }, Outcome::Fresh(result)) => {
                self.confirmed(since, result, now);
            }
            (Pending::CancelEvacuation { key }, Outcome::Reply(result)) => {
                self.mark_cancelled(&key, result, now);
            }
            (Pending::DeleteMigration, Outcome::Reply(result)) => self.migration_deleted(result),
            (Pending::StartVm { vm }, Outcome::Reply(result)) => {
                self.start_answered(&vm, result, now);
            }
            (Pending::AbortMigration { key }, Outcome::Reply(result)) => {
                self.abort_answered(&key, result);
            }
            (Pending::StopGuest { key }, Outcome::Reply(result)) => {
                self.stop_answered(&key, result, now);
            }
            (Pending::LookHere { since }, Outcome::Local(result)) => {
                self.looked_here(since, result);
            }
            (Pending::TellGuest { key }, Outcome::Told(result)) => {
                self.guest_told(&key, result, now);
            }
            (Pending::Release, Outcome::Hold(result)) => self.released(result, now),
            (Pending::TakeHold, Outcome::Hold(result)) => self.hold_taken(result),
            (Pending::AskLogind, Outcome::Logind(answer)) => self.logind_answered(answer),
            (Pending::Acknowledge { value }, Outcome::Node(result)) => {
                self.acknowledged(&value, result, now);
            }
            (Pending::Hooks { gate, .. }, Outcome::Hooks(result)) => {
                self.hooks_ended(gate, result);
            }
            (what, outcome) => self.tell(
                Level::Error,
                "InternalError",
                format!("an effect ended with a result of another kind ({what:?}: {outcome:?}); it is ignored"),
            ),
        }
    }

    /// What an effect that broke down without a result counts as; `None` when nobody waits for it.
    pub fn failed_outcome(&self, id: EffectId, why: &str) -> Option<Outcome> {
        let sent = self.pending.get(&id)?;
        Some(failed(&sent.what, why))
    }

    fn lost_after(&self) -> Duration {
        self.policy.timing.request * LOST_AFTER
    }

    /// Effects without a result are taken for failed.
    pub(super) fn expire(&mut self, now: Mono) {
        let limit = self.lost_after();
        let lost: Vec<EffectId> = self
            .pending
            .iter()
            .filter(|(_, sent)| now >= sent.lost(limit))
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            if let Some(sent) = self.pending.remove(&id) {
                let outcome = failed(&sent.what, "no result came");
                self.ended(sent.what, outcome, now);
            }
        }
    }

    /// Looks again when the oldest effect would be lost.
    pub(super) fn wake_for_pending(&mut self) {
        let limit = self.lost_after();
        let first = self.pending.values().map(|sent| sent.lost(limit)).min();
        if let Some(first) = first {
            self.wake_at(first, "an effect without a result");
        }
    }
}

impl Sent {
    /// When no result can come any more.
    fn lost(&self, limit: Duration) -> Mono {
        if let Pending::Hooks { lost, .. } = self.what {
            return lost;
        }
        self.since + limit
    }
}

/// The failure that stands for a result that never came.
fn failed(what: &Pending, why: &str) -> Outcome {
    let fault = Fault {
        class: FaultClass::Transient,
        text: why.into(),
    };
    match what {
        Pending::ReadNode(_)
        | Pending::Cordon
        | Pending::Uncordon(_)
        | Pending::Unmark
        | Pending::Acknowledge { .. } => Outcome::Node(Err(fault)),
        Pending::Evict { .. }
        | Pending::EvictOther { .. }
        | Pending::CancelEvacuation { .. }
        | Pending::DeleteMigration
        | Pending::AbortMigration { .. }
        | Pending::StopGuest { .. }
        | Pending::StartVm { .. } => Outcome::Reply(Err(fault)),
        Pending::Confirm { .. } => Outcome::Fresh(Err(fault)),
        Pending::Volumes => Outcome::Volumes(Err(fault)),
        Pending::Target { .. } => Outcome::Target(Err(fault)),
        Pending::LookHere { .. } => Outcome::Local(Err(why.into())),
        Pending::TellGuest { .. } => Outcome::Told(Err(why.into())),
        Pending::Release | Pending::TakeHold => Outcome::Hold(Err(why.into())),
        Pending::AskLogind => Outcome::Logind(LogindAnswer::Failed(why.into())),
        Pending::Hooks { gate, .. } => {
            Outcome::Hooks(Err(format!("the {gate} hooks did not end: {why}")))
        }
    }
}
