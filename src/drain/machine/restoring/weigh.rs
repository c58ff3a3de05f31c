//! What does the Node call for: to be given back, to be waited for, or to be left as it is?

use super::{Act, Found};
use crate::drain::action::{Action, Level};
use crate::drain::boot::Since;
use crate::drain::machine::Machine;
use crate::drain::machine::cordon::version;
use crate::drain::phase::Phase;
use crate::drain::restore::unmet;
use crate::drain::world::{CordonMark, CordonNote, NodeView};

impl Machine {
    /// What does this Node call for?
    pub(super) fn weigh(&mut self, node: NodeView) {
        if self
            .node
            .as_ref()
            .is_some_and(|n| version(n) > version(&node))
        {
            return;
        }
        if let Some(refusal) = self.another_machine(&node) {
            self.tell(Level::Warn, "RestoreRefused", refusal.to_string());
            self.stop_restoring();
            return;
        }
        let note = match node.cordon.clone() {
            CordonMark::Note(note) => note,
            CordonMark::Absent => return self.nothing_is_ours(&node),
            CordonMark::Damaged(why) => return self.marker_is_damaged(node, &why),
        };
        let since = self.policy.start().since(note.start());
        if !since.was_down() {
            return self.host_was_not_down(node, &note, since);
        }
        if self.is_kept(&note) && node.unschedulable {
            let text = format!(
                "node {} stays cordoned: drain {} was to keep it so over the boot (--keep-cordoned). `vmdrain-agent restore` gives it back",
                node.name, note.drain
            );
            return self.cordon_stays(node, Level::Info, text);
        }
        self.give_back(node, &note, since);
    }

    fn is_kept(&self, note: &CordonNote) -> bool {
        let record = self.restore.as_ref().and_then(|r| r.record.as_ref());
        note.keep || record.is_some_and(|r| r.drain == note.drain && r.keeps_cordon())
    }

    fn nothing_is_ours(&mut self, node: &NodeView) {
        // Only somebody who waited wants to hear of it.
        if self.phase == Phase::Restoring {
            let text = if node.unschedulable {
                format!(
                    "our marker is no longer on node {}: its cordon is not ours and stays",
                    node.name
                )
            } else {
                format!("node {} has been given back already", node.name)
            };
            self.tell(Level::Info, "NothingToRestore", text);
        }
        self.stop_restoring();
        // There is nothing that they could wait for.
        self.starts_due();
        self.forget();
    }

    fn marker_is_damaged(&mut self, node: NodeView, why: &str) {
        let text = format!(
            "node {} carries a marker of this agent that cannot be read ({why}): nobody knows whose its cordon is, so it stays. `kubectl uncordon {}` removes it",
            node.name, node.name
        );
        if node.unschedulable {
            self.tell(Level::Warn, "CordonForeign", text);
        }
        self.stop_restoring();
        self.forget();
        self.node = Some(node);
    }

    fn host_was_not_down(&mut self, node: NodeView, note: &CordonNote, since: Since) {
        let (level, why) = match since {
            Since::Unknown => (
                Level::Warn,
                "whether the host has been down since cannot be told (its boot id, or systemd's count of soft-reboots, was not known)",
            ),
            Since::Same | Since::Rebooted | Since::SoftRebooted => {
                (Level::Info, "the host has not been down since")
            }
        };
        let text = format!(
            "node {} stays cordoned by drain {}: {why}. `vmdrain-agent restore` gives it back",
            node.name, note.drain
        );
        self.cordon_stays(node, level, text);
    }

    fn cordon_stays(&mut self, node: NodeView, level: Level, text: String) {
        if node.unschedulable {
            self.tell(level, "CordonStays", text);
        }
        self.stop_restoring();
        self.node = Some(node);
    }

    fn give_back(&mut self, node: NodeView, note: &CordonNote, since: Since) {
        let policy = &self.policy;
        let missing = unmet(&node, note, since, &policy.boot_id, policy.up_since);
        let Some(restore) = &mut self.restore else {
            return;
        };
        restore.trouble.clear();
        restore.foreign |= !node.unschedulable;
        let act = match (restore.foreign, missing.is_empty()) {
            (true, _) => Act::Unmark,
            (false, true) => Act::Uncordon,
            (false, false) => Act::Wait(missing),
        };
        let before = restore.found.replace(Found {
            drain: note.drain.clone(),
            act: act.clone(),
        });
        let waits = restore.waits().join("; ");
        let watch = matches!(act, Act::Wait(_)) && !restore.watching;
        restore.watching |= watch;
        self.phase = Phase::Restoring;
        if watch {
            self.actions.push_back(Action::WatchNode);
        }
        let name = node.name.clone();
        self.node = Some(node);
        if before.is_some_and(|found| found.act == act) {
            return;
        }
        self.tell_found(&name, &act, &waits, since);
    }

    fn tell_found(&mut self, name: &str, act: &Act, waits: &str, since: Since) {
        let how = match since {
            Since::SoftRebooted => "its user space was restarted (soft-reboot)",
            Since::Rebooted | Since::Same | Since::Unknown => "the host has booted",
        };
        match act {
            Act::Wait(_) => {
                let text = format!("{how}; node {name} will be given back, it waits: {waits}");
                // The first one also as an Event: people look there for why a node is cordoned.
                if self.told.contains_key("restoring") {
                    self.tell(Level::Info, "Restoring", text);
                } else {
                    self.tell_once("restoring", Level::Info, "Restoring", text);
                }
            }
            Act::Unmark => {
                let text = format!(
                    "somebody has uncordoned node {name} since the drain: only our marker is removed, and a cordon that is there now stays"
                );
                self.tell(Level::Info, "RestoredByOthers", text);
            }
            Act::Uncordon => {}
        }
    }
}
