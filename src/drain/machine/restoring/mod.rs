//! After a boot: is the node still cordoned by us, what does it wait for, and when is it given back (design section
//! 3.10)?
//!
//! The Node's marker decides; a record of an earlier start of the host only adds that the cordon was to be kept.
//! Everything is looked up anew by every process, so a crash between any two steps has no second effect: the
//! uncordon takes the marker away, and without a marker nothing is ours.

mod back;
mod show;
mod weigh;

use super::Machine;
use super::pending::{Pending, Why};
use crate::drain::action::{Action, Fault, FaultClass, Level};
use crate::drain::phase::Phase;
use crate::drain::policy::Policy;
use crate::drain::record::{FORMAT, Record};
use crate::drain::restore::Unmet;
use crate::drain::time::Mono;
use crate::drain::world::{NodeView, Picture, Sight};
use std::time::Duration;

/// What is missing is told again after `restore.wait`, but never more often.
const AGAIN: Duration = Duration::from_secs(60);

/// How far it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Restore {
    /// When this process began to look.
    since: Mono,
    /// When what is missing is told (again).
    late_at: Mono,
    /// Record of an earlier start of the host.
    record: Option<Record>,
    /// What the Node called for when it was looked at last; `None`: it has to be read.
    found: Option<Found>,
    /// A picture has come that was not looked at yet.
    news: bool,
    /// The Node is being watched.
    watching: bool,
    /// The node was seen uncordoned: a cordon that it has since is not ours.
    foreign: bool,
    /// Why the Node cannot be read, seen or patched.
    trouble: String,
}

/// What the Node calls for.
#[derive(Clone, Debug, PartialEq)]
struct Found {
    drain: String,
    act: Act,
}

#[derive(Clone, Debug, PartialEq)]
enum Act {
    Wait(Vec<Unmet>),
    Uncordon,
    /// Somebody was quicker: only our marker is left to be removed.
    Unmark,
}

impl Machine {
    /// The machine of a new process: goes on where `record` was written, or looks whether a node that was down is
    /// to be given back.
    pub fn start(policy: Policy, seed: u64, record: Option<Record>, now: Mono) -> Self {
        let mut machine = Self::new(policy, seed);
        machine.now = now;
        let known = record.filter(|r| r.format == FORMAT);
        if let Some(record) = &known {
            machine.owed_before(record.starts.clone());
            // Remembered as written, so that it is forgotten when all is done.
            machine.persisted.clone_from(&known);
        }
        let was_down = |r: &Record| machine.policy.start().since(r.start()).was_down();
        match known {
            Some(record) if !was_down(&record) && is_unfinished(&record) => {
                machine.resume_drain(record, now);
            }
            record => machine.look_after_boot(record.filter(was_down), now),
        }
        machine
    }

    fn look_after_boot(&mut self, record: Option<Record>, now: Mono) {
        if !self.policy.restore {
            return;
        }
        if record.is_some() {
            self.persisted.clone_from(&record);
        }
        if let Some(record) = &record {
            let text = format!(
                "the state file is of an earlier start of the host (drain {}, {}): that drain is over",
                record.drain, record.phase
            );
            self.tell(Level::Info, "RecordOld", text);
            if record.cordon_ours {
                self.phase = Phase::Restoring;
            }
        }
        self.restore = Some(Restore {
            since: now,
            late_at: now + self.policy.restore_wait,
            record,
            found: None,
            news: false,
            watching: false,
            foreign: false,
            trouble: String::new(),
        });
    }

    /// The configuration was read again.
    pub(super) fn restore_switched(&mut self, was: bool) {
        let at_rest = self.phase == Phase::Idle && self.drain.is_none();
        match (was, self.policy.restore) {
            (false, true) if at_rest => self.look_after_boot(None, self.now),
            (true, false) if self.restore.is_some() => {
                self.stop_restoring();
                let text = "restore.enabled is false now: the node is not given back by itself";
                self.tell(Level::Info, "RestoreOff", text.into());
            }
            _ => {}
        }
    }

    /// Does what is due.
    pub(super) fn restore_step(&mut self, now: Mono) {
        if self.restore.is_none() {
            return;
        }
        let busy = self.waits_for(|p| {
            matches!(
                p,
                Pending::ReadNode(_) | Pending::Uncordon(_) | Pending::Unmark
            )
        });
        if !busy {
            self.look_at_news();
            self.restore_act(now);
        }
        self.tell_if_late(now);
    }

    fn look_at_news(&mut self) {
        let news = self.restore.as_mut().map(|r| std::mem::take(&mut r.news));
        if news != Some(true) {
            return;
        }
        match self.picture.node.clone() {
            Sight::Seen { value, .. } => self.weigh(value),
            Sight::Forbidden { why } | Sight::Broken { why, .. } => {
                if let Some(restore) = &mut self.restore {
                    restore.trouble = format!("the Node cannot be seen: {why}");
                }
            }
            Sight::Missing => {
                let node = &self.policy.node_name;
                if let Some(restore) = &mut self.restore {
                    restore.trouble =
                        format!("the Node cannot be seen: there is no node {node} in this cluster");
                }
            }
            Sight::Pending => {}
        }
    }

    fn restore_act(&mut self, now: Mono) {
        let Some(restore) = &self.restore else { return };
        let act = restore.found.as_ref().map(|found| found.act.clone());
        if matches!(act, Some(Act::Wait(_))) {
            return;
        }
        if now < self.retry_at {
            self.wake_at(self.retry_at, "look at the node again");
            return;
        }
        let known = self.node.as_ref().map(|n| n.resource_version.clone());
        let resource_version = known.unwrap_or_default();
        let action = match act {
            Some(Act::Uncordon) => Action::Uncordon {
                id: self.effect(Pending::Uncordon(Why::Boot)),
                resource_version,
            },
            Some(Act::Unmark) => Action::Unmark {
                id: self.effect(Pending::Unmark),
                resource_version,
            },
            Some(Act::Wait(_)) | None => {
                Action::ReadNode(self.effect(Pending::ReadNode(Why::Boot)))
            }
        };
        self.actions.push_back(action);
    }

    /// Never silently: after `restore.wait` it is told what is missing, and again and again, while it goes on.
    fn tell_if_late(&mut self, now: Mono) {
        let again = self.policy.restore_wait.max(AGAIN);
        let Some(restore) = &mut self.restore else {
            return;
        };
        if now < restore.late_at {
            let at = restore.late_at;
            self.wake_at(at, "say what the restore waits for");
            return;
        }
        restore.late_at = now + again;
        let at = restore.late_at;
        let waited = super::show::span(now.since(restore.since));
        let waits = restore.waits().join("; ");
        let node = &self.policy.node_name;
        let text = match &restore.found {
            Some(_) => format!(
                "node {node} is still cordoned {waited} after it came up: {waits}. It is given back as soon as that has changed; `vmdrain-agent restore` does it at once"
            ),
            None => format!(
                "for {waited} it is not known whether node {node} has to be given back: {waits}. The agent goes on asking"
            ),
        };
        self.wake_at(at, "say again what the restore waits for");
        self.tell_once("restore late", Level::Warn, "RestoreLate", text);
    }

    /// The newest picture while a node waits to be given back.
    pub(super) fn restore_sees(&mut self, picture: Picture) {
        self.picture = picture;
        if let Some(restore) = &mut self.restore {
            restore.news = true;
        }
    }

    pub(super) fn read_after_boot(&mut self, result: Result<NodeView, Fault>, now: Mono) {
        match result {
            Ok(node) => {
                self.retry_done();
                self.weigh(node);
            }
            Err(fault) => self.restore_trouble("cannot read the node", &fault, now),
        }
    }

    /// The patch that gives the node back, or takes our marker away, has been answered.
    pub(super) fn given_back(&mut self, result: Result<NodeView, Fault>, now: Mono) {
        match result {
            Ok(node) if node.unschedulable => {
                self.stop_restoring();
                self.forget();
                self.node = Some(node);
            }
            Ok(node) => {
                let text = format!("node {} is given back: it can receive VMs again", node.name);
                let by_us = self.restore.as_ref().is_some_and(|r| !r.foreign);
                self.stop_restoring();
                self.starts_due();
                self.forget();
                if by_us {
                    self.tell_once("restored", Level::Info, "Restored", text);
                }
            }
            Err(fault) => self.restore_trouble("cannot uncordon the node", &fault, now),
        }
    }

    fn restore_trouble(&mut self, what: &str, fault: &Fault, now: Mono) {
        self.retry_later(fault, now);
        let cure = match fault.class {
            FaultClass::Denied => {
                ". Give the agent's identity the right to read and patch its own node, or give it back with `kubectl uncordon`"
            }
            FaultClass::Gone => ". Check cluster.node_name",
            FaultClass::Transient
            | FaultClass::Conflict
            | FaultClass::Unauthorized
            | FaultClass::Fatal => "",
        };
        let text = format!("{what}: {}{cure}", fault.text);
        if let Some(restore) = &mut self.restore {
            // The answer may have been lost: what is there now has to be read.
            restore.found = None;
            restore.trouble.clone_from(&text);
        }
        // A host that boots often comes up before its network does: that is told only when it lasts.
        if !matches!(fault.class, FaultClass::Conflict | FaultClass::Transient) {
            self.tell_once("node", Level::Warn, "NodeTrouble", text);
        }
    }

    /// Nothing more is to be done: at rest, nothing watched, the Node no longer followed.
    pub(super) fn stop_restoring(&mut self) {
        let Some(restore) = self.restore.take() else {
            return;
        };
        if restore.watching {
            self.actions.push_back(Action::Unwatch);
        }
        if self.phase == Phase::Restoring {
            self.phase = Phase::Idle;
        }
        self.picture = Picture::default();
        self.node = None;
        self.retry_done();
    }
}

fn is_unfinished(record: &Record) -> bool {
    let asks_logind = record.trigger.as_ref().is_some_and(|t| t.then.is_some());
    match record.phase.as_str() {
        "preparing" | "evacuating" | "falling_back" | "holding" | "confirming" | "cancelling" => {
            true
        }
        // The host has yet to be let go, or to be sent down.
        "drained" => {
            record.shutting_down || record.scheduled || (asks_logind && record.exit.is_none())
        }
        "deadline" => record.shutting_down || asks_logind,
        _ => false,
    }
}
