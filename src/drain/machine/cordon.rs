//! The cordon: whose it is, when it is set, when it is taken away (design section 6).

use super::Machine;
use super::pending::{Pending, Why};
use crate::drain::action::{Action, Fault, FaultClass, Level, Token};
use crate::drain::phase::Phase;
use crate::drain::policy::OnForeignUncordon;
use crate::drain::restore::offered;
use crate::drain::time::Mono;
use crate::drain::trigger::Refusal;
use crate::drain::world::{CordonMark, CordonNote, NodeView};

impl Machine {
    pub(super) fn node_read(&mut self, why: Why, result: Result<NodeView, Fault>, now: Mono) {
        match (why, result) {
            (Why::Restore(token), Ok(node)) => self.restore_read(token, node),
            (Why::Restore(token), Err(fault)) => {
                self.answer(
                    token,
                    Err(Refusal::BadRequest(format!(
                        "cannot read the node: {}",
                        fault.text
                    ))),
                );
            }
            (Why::Boot, result) => self.read_after_boot(result, now),
            // That it has answered is all that was asked.
            (Why::Contact, _) => {}
            (Why::Drain, Ok(node)) => self.read_for_drain(node, now),
            (Why::Undo, Ok(node)) => self.read_for_undo(node),
            (Why::Drain, Err(fault)) => self.node_trouble("cannot read the node", &fault, now),
            (Why::Undo, Err(fault)) => self.undo_trouble("cannot read the node", &fault, now),
        }
    }

    /// Design section 6: before the first write, is this Node this machine?
    pub(super) fn another_machine(&self, node: &NodeView) -> Option<Refusal> {
        let (theirs, ours) =
            node.another_machine(&self.policy.machine_id, &self.policy.system_uuid)?;
        Some(Refusal::AnotherMachine {
            node: node.name.clone(),
            theirs,
            ours,
        })
    }

    fn read_for_drain(&mut self, node: NodeView, now: Mono) {
        if let Some(refusal) = self.another_machine(&node) {
            self.refuse(&refusal, now);
            return;
        }
        let Some(drain) = &mut self.drain else { return };
        self.retries = 0;
        let mine = drain.id.clone();
        match (node.unschedulable, &node.cordon) {
            (true, CordonMark::Note(note)) if note.drain == mine => self.cordon_is_ours(node, now),
            (true, CordonMark::Absent) => self.cordon_is_foreign(
                node,
                "somebody else cordoned the node before; its cordon stays",
                now,
            ),
            (true, CordonMark::Damaged(why)) => {
                let text = format!(
                    "the node is cordoned and its marker cannot be read ({why}); its cordon stays"
                );
                self.cordon_is_foreign(node, &text, now);
            }
            // Not cordoned, or cordoned by an earlier drain of ours: one patch makes it this drain's.
            (false, _) | (true, CordonMark::Note(_)) => self.send_cordon(node),
        }
    }

    fn send_cordon(&mut self, node: NodeView) {
        let Some(drain) = &self.drain else { return };
        let before = match &node.cordon {
            CordonMark::Note(note) if node.unschedulable => Some(note),
            CordonMark::Note(_) | CordonMark::Absent | CordonMark::Damaged(_) => None,
        };
        let (handler, kvm) = match before {
            Some(before) => (before.handler, before.kvm),
            None => offered(&node, self.policy.up_since),
        };
        let note = CordonNote {
            drain: drain.id.clone(),
            boot: self.policy.boot_id.clone(),
            reason: drain.reason.clone(),
            // A node that was cordoned to stay so stays so, whatever drains it on its way down.
            keep: drain.keeps_cordon() || before.is_some_and(|before| before.keep),
            userspace: self.policy.userspace,
            handler,
            kvm,
            waiting: before.and_then(|before| self.waited_since(before)),
        };
        self.persist();
        let id = self.effect(Pending::Cordon);
        self.actions.push_back(Action::Cordon {
            id,
            resource_version: node.resource_version,
            note: Some(note),
        });
    }

    pub(super) fn cordoned(&mut self, result: Result<NodeView, Fault>, now: Mono) {
        match result {
            Ok(node) => self.cordon_is_ours(node, now),
            // The answer was lost or somebody was quicker: read again and decide again.
            Err(fault) if self.phase == Phase::Cancelling => {
                self.undo_trouble("cannot cordon the node", &fault, now);
            }
            Err(fault) => self.node_trouble("cannot cordon the node", &fault, now),
        }
    }

    fn cordon_is_ours(&mut self, node: NodeView, now: Mono) {
        let Some(drain) = &mut self.drain else { return };
        drain.cordoned = true;
        drain.cordon_ours = true;
        drain.cordon_version = version(&node);
        drain.trouble.clear();
        let text = format!("node {} is cordoned", node.name);
        self.node = Some(node);
        self.retry_done();
        self.tell_once("cordon", Level::Info, "Cordoned", text);
        // A picture that came before this answer may be newer all the same.
        self.watch_cordon(now);
    }

    fn cordon_is_foreign(&mut self, node: NodeView, why: &str, now: Mono) {
        let Some(drain) = &mut self.drain else { return };
        drain.cordoned = true;
        drain.cordon_ours = false;
        drain.cordon_version = version(&node);
        drain.trouble.clear();
        self.node = Some(node);
        self.retry_done();
        self.tell_once("cordon", Level::Info, "CordonForeign", why.to_owned());
        self.watch_cordon(now);
    }

    pub(super) fn node_trouble(&mut self, what: &str, fault: &Fault, now: Mono) {
        self.retry_later(fault, now);
        let text = match fault.class {
            FaultClass::Denied => format!(
                "{what}: {}. No VM is evicted from a node that is not cordoned; give the agent's identity the right to patch its own node",
                fault.text
            ),
            FaultClass::Gone => format!("{what}: {}. Check cluster.node_name", fault.text),
            FaultClass::Transient
            | FaultClass::Conflict
            | FaultClass::Unauthorized
            | FaultClass::Fatal => format!("{what}: {}", fault.text),
        };
        if let Some(drain) = &mut self.drain {
            drain.trouble.clone_from(&text);
            drain.cordon_refused |= fault.class == FaultClass::Denied && !drain.cordoned;
        }
        if fault.class != FaultClass::Conflict {
            self.tell_once("node", Level::Warn, "NodeTrouble", text);
        }
    }

    /// Asks for the cordon where it is missing; called on every step of a drain.
    pub(super) fn want_cordon(&mut self, now: Mono) {
        let busy = self.waits_for(|p| matches!(p, Pending::ReadNode(_) | Pending::Cordon));
        if busy || self.drain.as_ref().is_none_or(|d| d.cordoned) {
            return;
        }
        if now < self.retry_at {
            self.wake_at(self.retry_at, "cordon again");
            return;
        }
        let id = self.effect(Pending::ReadNode(Why::Drain));
        self.actions.push_back(Action::ReadNode(id));
    }

    /// The newest picture of the Node: did somebody uncordon it (T36)?
    pub(super) fn watch_cordon(&mut self, now: Mono) {
        let Some(node) = self.picture.node.seen().cloned() else {
            return;
        };
        let Some(drain) = &mut self.drain else { return };
        let newer = version(&node) > drain.cordon_version;
        if !(drain.cordoned && newer) {
            return;
        }
        if node.unschedulable {
            self.node = Some(node);
            return;
        }
        drain.cordoned = false;
        drain.cordon_version = version(&node);
        let draining = self.phase.is_draining();
        self.node = Some(node);
        if draining
            && self.policy.on_foreign_uncordon == OnForeignUncordon::Abort
            && !self.drain.as_ref().is_some_and(|d| d.shutting_down)
        {
            self.start_cancel(
                "somebody uncordoned the node, and drain.on_foreign_uncordon is \"abort\"",
            );
        } else if draining {
            self.told.remove("cordon");
            self.retry_done();
            self.tell(
                Level::Warn,
                "Recordon",
                "somebody uncordoned the node during the drain; it is cordoned again".into(),
            );
            self.want_cordon(now);
        }
    }

    fn read_for_undo(&mut self, node: NodeView) {
        // Not ours yet: by the picture it is free, or its marker is of the start before.
        let open = !node.unschedulable || self.is_of_another_start(&node);
        let Some(drain) = &mut self.drain else { return };
        let late = drain
            .cordon_may_land
            .filter(|until| self.now < *until && open);
        if let Some(until) = late {
            self.retry_at = until;
            return;
        }
        let (ours, kept) = match &node.cordon {
            // Of this drain, or of an earlier one that this one was about to take over.
            CordonMark::Note(note) => (
                true,
                // An earlier drain was to keep it: a cancel gives back what this one did.
                note.keep && !drain.keeps_cordon(),
            ),
            CordonMark::Absent | CordonMark::Damaged(_) => (false, false),
        };
        if !ours || kept {
            drain.undo.uncordon_done = true;
            if node.unschedulable {
                let text = if ours {
                    format!(
                        "node {} was cordoned to stay so before this drain (--keep-cordoned): its cordon stays",
                        node.name
                    )
                } else {
                    format!("the cordon of node {} is not ours, it stays", node.name)
                };
                let reason = if ours { "CordonStays" } else { "CordonForeign" };
                self.tell(Level::Info, reason, text);
            }
            self.node = Some(node);
            return;
        }
        if self.goes_back_to_waiting(&node) {
            return;
        }
        let id = self.effect(Pending::Uncordon(Why::Undo));
        self.actions.push_back(Action::Uncordon {
            id,
            resource_version: node.resource_version,
        });
    }

    pub(super) fn uncordoned(&mut self, why: Why, result: Result<NodeView, Fault>, now: Mono) {
        match (why, result) {
            (Why::Boot, result) => self.given_back(result, now),
            (Why::Restore(token), Ok(node)) => {
                let skipped = self.node.as_ref().map(|before| self.skipped(before));
                let text = match skipped.filter(|skipped| !skipped.is_empty()) {
                    None => format!("node {} is given back: it can receive VMs again", node.name),
                    Some(skipped) => format!(
                        "node {} is given back; not waited for: {skipped}",
                        node.name
                    ),
                };
                self.stop_restoring();
                self.node = Some(node);
                self.phase = Phase::Idle;
                self.drain = None;
                self.tracks.clear();
                self.others.clear();
                self.starts_due();
                self.forget();
                self.tell(Level::Info, "Restored", text.clone());
                self.answer(token, Ok(text));
            }
            (Why::Restore(token), Err(fault)) if fault.class == FaultClass::Conflict => {
                let id = self.effect(Pending::ReadNode(Why::Restore(token)));
                self.actions.push_back(Action::ReadNode(id));
            }
            (Why::Restore(token), Err(fault)) => {
                self.answer(
                    token,
                    Err(Refusal::BadRequest(format!(
                        "cannot uncordon the node: {}",
                        fault.text
                    ))),
                );
            }
            (Why::Undo | Why::Drain | Why::Contact, Ok(node)) => {
                let text = format!("node {} is uncordoned", node.name);
                self.node = Some(node);
                if let Some(drain) = &mut self.drain {
                    drain.undo.uncordon_done = true;
                    drain.cordoned = false;
                    drain.cordon_ours = false;
                }
                self.retry_done();
                self.tell(Level::Info, "Uncordoned", text);
            }
            (Why::Undo | Why::Drain | Why::Contact, Err(fault)) => {
                self.undo_trouble("cannot uncordon the node", &fault, now);
            }
        }
    }

    fn restore_read(&mut self, token: Token, node: NodeView) {
        if let Some(refusal) = self.another_machine(&node) {
            self.answer(token, Err(refusal));
            return;
        }
        let name = node.name.clone();
        match (&node.cordon, node.unschedulable) {
            (CordonMark::Note(_), _) => {
                let id = self.effect(Pending::Uncordon(Why::Restore(token)));
                self.actions.push_back(Action::Uncordon {
                    id,
                    resource_version: node.resource_version.clone(),
                });
                self.node = Some(node);
            }
            (_, false) => self.answer(token, Err(Refusal::NotCordoned { node: name })),
            (CordonMark::Damaged(why), true) => {
                self.answer(
                    token,
                    Err(Refusal::CordonNotOurs {
                        node: name,
                        who: format!("its marker cannot be read: {why}"),
                    }),
                );
            }
            (CordonMark::Absent, true) => {
                self.answer(
                    token,
                    Err(Refusal::CordonNotOurs {
                        node: name,
                        who: "it has no marker of this agent".into(),
                    }),
                );
            }
        }
    }
}

/// Resource versions are compared as numbers; what is none counts as oldest.
pub(super) fn version(node: &NodeView) -> u64 {
    node.resource_version.parse().unwrap_or(0)
}
