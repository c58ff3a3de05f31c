//! A drain that began while the node waited to be given back is called off: the node goes back to waiting.
//!
//! An uncordon at once would offer a node that cannot run a VM yet. The marker carries what is needed for it (the
//! start of the host before the wait), so a crash in between costs nothing: with the old start in it, every process
//! finds a node that waits.

use crate::drain::action::{Action, Level};
use crate::drain::machine::Machine;
use crate::drain::machine::pending::Pending;
use crate::drain::world::{BootNote, CordonMark, CordonNote, NodeView};

impl Machine {
    /// What a drain that takes this cordon over has to write down.
    pub(in crate::drain::machine) fn waited_since(&self, before: &CordonNote) -> Option<BootNote> {
        if self.was_down_since(before) {
            return Some(BootNote {
                boot: before.boot.clone(),
                userspace: before.userspace,
            });
        }
        before.waiting.clone()
    }

    /// The marker was written in an earlier start of the host: no drain of this one has taken it over.
    pub(in crate::drain::machine) fn is_of_another_start(&self, node: &NodeView) -> bool {
        matches!(&node.cordon, CordonMark::Note(note) if self.was_down_since(note))
    }

    fn was_down_since(&self, note: &CordonNote) -> bool {
        self.policy.start().since(note.start()).was_down()
    }

    /// The cordon of a drain that is being undone: was the node waiting before it? Then its marker becomes what it
    /// was. False: there was no wait, the node is to be uncordoned.
    pub(in crate::drain::machine) fn goes_back_to_waiting(&mut self, node: &NodeView) -> bool {
        let CordonMark::Note(note) = &node.cordon else {
            return false;
        };
        if !node.unschedulable {
            return false;
        }
        if self.was_down_since(note) {
            if let Some(drain) = &mut self.drain {
                drain.undo.uncordon_done = true;
                drain.undo.waits_again = true;
                drain.cordon_ours = false;
            }
            self.node = Some(node.clone());
            self.retry_done();
            return true;
        }
        let Some(before) = note.waiting.clone() else {
            return false;
        };
        let note = CordonNote {
            boot: before.boot,
            userspace: before.userspace,
            keep: false,
            waiting: None,
            ..note.clone()
        };
        let id = self.effect(Pending::Cordon);
        self.actions.push_back(Action::Cordon {
            id,
            resource_version: node.resource_version.clone(),
            note: Some(note),
        });
        true
    }

    /// The drain is undone; the wait goes on where it was.
    pub(in crate::drain::machine) fn wait_again(&mut self) {
        let node = &self.policy.node_name;
        if self.policy.restore {
            let text = format!(
                "node {node} waited to be given back when the drain began, and does so again: it is uncordoned as soon as it can receive VMs (`vmdrain-agent restore` does it at once)"
            );
            self.tell(Level::Info, "RestoreGoesOn", text);
            self.look_after_boot(None, self.now);
        } else {
            let text = format!(
                "node {node} stays cordoned as it was before the drain (restore.enabled is false). `vmdrain-agent restore` gives it back"
            );
            self.tell(Level::Info, "CordonStays", text);
        }
    }
}
