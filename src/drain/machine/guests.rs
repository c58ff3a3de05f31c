//! Stopping guests by the deletion of their pods: who is to be stopped, the requests, their answers, what is kept of
//! them.

use super::Machine;
use super::pending::Pending;
use crate::drain::action::{Action, Fault, Level};
use crate::drain::answer::{Answer, Reply, judge_delete};
use crate::drain::fallback::Schedule;
use crate::drain::stop::{HandlerDoubt, StopNote, StopWhy, Stopping, handler_alive};
use crate::drain::time::Mono;
use crate::drain::track::Abort;
use crate::drain::world::ObjectRef;
use std::collections::{BTreeMap, BTreeSet};

/// What is wanted of the guests in one step.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Guests that are to be stopped now, by the keys of their tracks, and why.
    pub(super) stops: BTreeMap<String, StopWhy>,
    /// Migrations that are to be aborted first, and why.
    pub(super) aborts: Vec<(String, ObjectRef, StopWhy)>,
    /// When to look again.
    pub(super) wakes: Vec<(Mono, &'static str)>,
    /// Guests are stopped because the deadline is near.
    pub(super) falls_back: bool,
    /// Who is left, in which order.
    pub(super) schedule: Schedule,
    /// Places in the queue, where that is not simply the longest first.
    pub(super) turns: BTreeMap<String, usize>,
    /// VMs that would not be gone before their guests need the time.
    pub(super) without: BTreeSet<String>,
    /// VMs whose migration is not begun any more, because it would not end in time.
    pub(super) too_late: BTreeSet<String>,
}

/// Deletions pass no webhook of KubeVirt's, so more of them may be on the wire than evictions.
const STOPS_IN_FLIGHT: usize = 50;

impl Machine {
    /// Whether virt-handler is known to be alive here.
    pub(super) fn handler(&self, now: Mono) -> Result<(), HandlerDoubt> {
        let node = self.picture.node.seen().or(self.node.as_ref());
        handler_alive(node, self.policy.timing.handler_silent, now)
    }

    /// Asks for the stops that are due, in the order of the list; true when anything was sent.
    pub(super) fn send_stops(&mut self, due: Vec<(String, StopWhy)>, now: Mono) -> bool {
        let on_the_wire = |p: &Pending| matches!(p, Pending::StopGuest { .. });
        let room = STOPS_IN_FLIGHT.saturating_sub(self.count_pending(on_the_wire));
        let mut stops = Vec::new();
        for (key, why) in due.into_iter().take(room) {
            let Some(track) = self.tracks.get_mut(&key) else {
                continue;
            };
            let first = track.stop.is_none();
            let stop = track.stop.get_or_insert_with(|| Stopping {
                asked: now,
                why: why.to_string(),
                ..Stopping::default()
            });
            stop.in_flight = true;
            let (pod, vmi) = (track.pod.clone(), track.vmi());
            let text = format!("{}: its guest is shut down by us: {why}", track.vm);
            let id = self.effect(Pending::StopGuest { key });
            stops.push(Action::StopGuest { id, pod });
            if first {
                self.tell_vm(Level::Info, "VmStopping", text, vmi);
            }
        }
        if stops.is_empty() {
            return false;
        }
        // Written down before anything is sent: after a crash it is known who has stopped them.
        self.persist();
        self.actions.extend(stops);
        true
    }

    pub(super) fn stop_answered(&mut self, key: &str, result: Result<Reply, Fault>, now: Mono) {
        let timing = self.policy.timing;
        let Some(track) = self.tracks.get_mut(key) else {
            return;
        };
        let vm = track.vm.clone();
        let Some(stop) = &mut track.stop else { return };
        stop.in_flight = false;
        let answer = match result {
            Ok(reply) => judge_delete(&reply),
            Err(fault) => Answer::Unexpected(fault.text),
        };
        let (why, denied) = match answer {
            Answer::Granted => {
                stop.accepted = Some(now);
                stop.trouble.clear();
                if let Some(drain) = &mut self.drain {
                    drain.last_accepted = now;
                }
                return;
            }
            // Not there any more: the picture will show it.
            Answer::Gone => ("the API server says that its pod is gone".to_owned(), false),
            Answer::Denied(why) => (
                format!("this host may not delete its own launcher pods: {why}"),
                true,
            ),
            Answer::Unauthorized => (
                "the API server does not accept our credentials".into(),
                false,
            ),
            Answer::Throttled => ("the API server is overloaded".into(), false),
            Answer::Unexpected(why) => (why, false),
            Answer::Marked
            | Answer::InProgress
            | Answer::NotTheActivePod
            | Answer::NotMigratable
            | Answer::HotplugPod
            | Answer::VmiGone
            | Answer::KubeVirtFailed(_)
            | Answer::Budget { .. }
            | Answer::SeveralBudgets
            | Answer::WebhookDown
            | Answer::NamespaceTerminating => {
                ("an answer that belongs to an eviction".into(), false)
            }
        };
        stop.failed(why, timing.retry_first, timing.retry_most, now);
        if denied {
            let text = format!(
                "{vm}: its guest cannot be shut down by us: {}",
                stop.trouble
            );
            let vmi = track.vmi();
            self.tell_vm(Level::Warn, "VmStopFailed", text, vmi);
        }
    }

    /// Asks for the end of migrations that stand in the way of a stop.
    pub(super) fn send_aborts(&mut self, aborts: Vec<(String, ObjectRef, StopWhy)>, now: Mono) {
        for (key, migration, why) in aborts {
            let Some(track) = self.tracks.get_mut(&key) else {
                continue;
            };
            track.abort = Some(Abort {
                migration: migration.uid.clone(),
                asked: now,
                refused: String::new(),
            });
            let text = format!(
                "{}: its migration is aborted, because {}",
                track.vm,
                why.of_abort()
            );
            let vmi = track.vmi();
            self.tell_vm(Level::Info, "MigrationAborting", text, vmi);
            let id = self.effect(Pending::AbortMigration { key });
            self.actions
                .push_back(Action::DeleteMigration { id, migration });
        }
    }

    pub(super) fn abort_answered(&mut self, key: &str, result: Result<Reply, Fault>) {
        let Some(track) = self.tracks.get_mut(key) else {
            return;
        };
        let Some(abort) = &mut track.abort else {
            return;
        };
        abort.refused = match result {
            Ok(reply) if reply.code < 300 || reply.code == 404 || reply.code == 409 => return,
            Ok(reply) if reply.code == 403 => {
                "right delete on virtualmachineinstancemigrations is missing; rbac/abort.yaml gives it"
                    .into()
            }
            Ok(reply) => format!("HTTP {}: {}", reply.code, reply.message),
            Err(fault) => fault.text,
        };
        let text = format!(
            "{}: its migration cannot be aborted ({}); it goes on as long as there is time, and its guest is shut down after that",
            track.vm, abort.refused
        );
        let vmi = track.vmi();
        self.tell_vm(Level::Warn, "MigrationNotAborted", text, vmi);
    }

    /// Guests that this drain has stopped, or may have.
    pub(super) fn stops_ours(&self) -> Vec<StopNote> {
        let inherited = self
            .drain
            .iter()
            .flat_map(|d| d.inherited_stops.values().cloned());
        let asked = self.tracks.values().filter_map(|track| {
            let stop = track.stop.as_ref()?;
            Some(StopNote {
                vmi: track.vmi(),
                pod: track.pod.clone(),
                asked: stop.asked,
                why: stop.why.clone(),
                here: stop.here && stop.accepted.is_some(),
            })
        });
        let mut all: Vec<_> = asked.chain(inherited).collect();
        all.sort();
        all.dedup();
        all
    }
}

impl From<StopNote> for Stopping {
    /// What a later process knows of a stop: that it was asked for. It asks again where the pod does not end; one that was
    /// told by signal is not told twice.
    fn from(note: StopNote) -> Self {
        Self {
            asked: note.asked,
            why: note.why,
            here: note.here,
            accepted: note.here.then_some(note.asked),
            ..Self::default()
        }
    }
}
