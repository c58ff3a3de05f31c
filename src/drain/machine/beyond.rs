//! What is not ours, and can neither be taken back nor fought: said plainly, with what a person can do.

use super::Machine;
use super::undo::by_hand;
use crate::drain::action::Level;
use crate::drain::time::Mono;
use crate::drain::world::{KubeVirtView, NodeView, ObjectRef, Picture, Sight};

/// The taint of a cordon; a KubeVirt may be told to drain at it.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Key under which it is told that the Node object is gone.
const NODE_GONE: &str = "node gone";

impl Machine {
    /// KubeVirt keeps the marks of a node with its drain taint.
    pub(super) fn mark_tainted(&mut self, vmi: &ObjectRef, now: Mono) {
        let key = self.drain_taint_key();
        if key == CORDON_TAINT {
            // The cordon itself is the taint: it goes with the cordon, which the other lane sees to.
            let why = format!("KubeVirt's nodeDrainTaintKey is {key}, and the node still has it");
            return self.cancel_again(vmi, &why, now);
        }
        self.remains(format!(
            "the mark of {vmi} could not be cleared while the node has the taint {key}; afterwards: {}",
            by_hand(vmi)
        ));
    }

    fn drain_taint_key(&self) -> String {
        let seen = self.picture.kubevirt.seen();
        seen.map_or_else(
            || KubeVirtView::default().drain_taint_key,
            |kubevirt| kubevirt.drain_taint_key.clone(),
        )
    }

    /// KubeVirt migrates every VM away from a node with this taint, marked or not (kubevirt-semantics 2).
    pub(super) fn tell_of_taint(&mut self) {
        let key = self.drain_taint_key();
        let taint = format!("{key}:NoSchedule");
        let there = |node: &NodeView| node.taints.contains(&taint);
        if key != CORDON_TAINT && self.node.as_ref().is_some_and(there) {
            let node = self.policy.node_name.clone();
            self.remains(format!(
                "node {node} has the taint {key}, which is not ours and which KubeVirt takes for an order to migrate every VM away: that cannot be undone here; `kubectl taint node {node} {key}-` removes it"
            ));
        }
    }

    /// The schedule is logind's, and only who made it may know why it is there.
    pub(super) fn tell_of_schedule(&mut self) {
        let Some(due) = self.schedule else { return };
        let what = due.what();
        self.remains(format!(
            "the {what} that is scheduled still stands (`shutdown -c` takes it back); when its time comes, the node is drained again"
        ));
    }

    /// Somebody sets a taint in mid-drain that takes pods away (T66), or that says that this host is dead (T76): it is not
    /// fought, and whoever finds VMs stopped instead of moved finds the cause.
    pub(super) fn watch_taints(&mut self) {
        let (Some(seen), Some(known)) = (self.picture.node.seen(), &self.node) else {
            return;
        };
        if !self.phase.is_draining() {
            return;
        }
        let takes =
            |taint: &&String| taint.ends_with(":NoExecute") && !known.taints.contains(taint);
        let new: Vec<String> = seen.taints.iter().filter(takes).cloned().collect();
        for taint in new {
            let fenced = taint.starts_with("node.kubernetes.io/out-of-service");
            let means = if fenced {
                "somebody takes this host for dead, and its VMs may be started elsewhere while they still run here"
            } else {
                "the cluster deletes pods that do not tolerate it, so VMs may be stopped instead of moved"
            };
            let node = &self.policy.node_name;
            let text = format!(
                "the taint {taint} was set on node {node} in the middle of the drain, and not by us: {means}"
            );
            self.tell_once(&format!("taint {taint}"), Level::Warn, "ForeignTaint", text);
        }
    }

    /// Somebody deletes the Node object in mid-drain: its pods are removed by force, and their guests with them. It is told
    /// once; an Event about what is gone would reach nobody.
    pub(super) fn watch_node(&mut self, picture: &Picture) {
        let gone = self.phase.is_draining() && matches!(picture.node, Sight::Missing);
        if !gone || self.node.is_none() || self.told.contains_key(NODE_GONE) {
            return;
        }
        let text = self.node_gone_text();
        self.told.insert(NODE_GONE.to_owned(), text.clone());
        self.tell(Level::Warn, "NodeTrouble", text);
    }

    /// The same for `status`.
    pub(super) fn node_gone(&self) -> Option<String> {
        self.told.get(NODE_GONE).cloned()
    }

    fn node_gone_text(&self) -> String {
        format!(
            "the Node object {} was deleted in the middle of the drain, and not by us: the cluster removes its pods by force, so guests may be killed instead of moved; kubelet registers the node again when it is restarted",
            self.policy.node_name
        )
    }
}
