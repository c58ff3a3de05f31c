//! What people see of a node that waits to be given back.

use super::{Act, Restore};
use crate::drain::machine::Machine;
use crate::drain::machine::show::span;
use crate::drain::phase::Phase;
use crate::drain::restore::unmet;
use crate::drain::status::RestoreStatus;
use crate::drain::time::Mono;
use crate::drain::world::{CordonMark, NodeView};

impl Machine {
    /// What a restore by hand did not wait for; empty when nothing.
    pub(in crate::drain::machine) fn skipped(&self, node: &NodeView) -> String {
        let CordonMark::Note(note) = &node.cordon else {
            return String::new();
        };
        let policy = &self.policy;
        let since = policy.start().since(note.start());
        let missing = unmet(node, note, since, &policy.boot_id, policy.up_since);
        let texts: Vec<_> = missing.iter().map(ToString::to_string).collect();
        texts.join("; ")
    }

    /// For `status`.
    pub(in crate::drain::machine) fn restore_row(&self, now: Mono) -> Option<RestoreStatus> {
        let restore = self.restore.as_ref()?;
        if self.phase != Phase::Restoring {
            return None;
        }
        let of_record = restore.record.as_ref().map(|r| r.drain.clone());
        let found = restore.found.as_ref().map(|f| f.drain.clone());
        Some(RestoreStatus {
            drain: found.or(of_record).unwrap_or_default(),
            waiting_for: now.since(restore.since).as_secs_f64(),
            late: now >= restore.since + self.policy.restore_wait,
            waits: restore.waits(),
        })
    }

    /// The sentence of `status` while a node waits to be given back.
    pub(in crate::drain::machine) fn restore_says(&self) -> String {
        let Some(restore) = &self.restore else {
            return "the node is being given back".into();
        };
        let waits = restore.waits().join("; ");
        match &restore.found {
            None => {
                format!("the host was down; looking whether the node is to be given back: {waits}")
            }
            Some(found) => match found.act {
                Act::Wait(_) => format!("the node will be given back; it waits: {waits}"),
                Act::Uncordon => "the node can receive VMs again and is being given back".into(),
                Act::Unmark => {
                    "somebody has uncordoned the node, our marker is being removed".into()
                }
            },
        }
    }

    /// What a person should know about it now.
    pub(in crate::drain::machine) fn restore_warning(&self, now: Mono) -> Option<String> {
        let restore = self.restore.as_ref()?;
        let late = now >= restore.since + self.policy.restore_wait;
        let waited = span(now.since(restore.since));
        if self.phase == Phase::Restoring {
            let waits = restore.waits().join("; ");
            return late
                .then(|| format!("the node is still cordoned {waited} after it came up: {waits}"));
        }
        let trouble = &restore.trouble;
        (!trouble.is_empty())
            .then(|| format!("whether the node has to be given back is not known yet: {trouble}"))
    }
}

impl Restore {
    /// What is waited for, each as a sentence part.
    pub(super) fn waits(&self) -> Vec<String> {
        let unmet = match self.found.as_ref().map(|found| &found.act) {
            Some(Act::Wait(unmet)) => unmet.as_slice(),
            Some(Act::Uncordon | Act::Unmark) | None => &[],
        };
        let mut waits: Vec<_> = unmet.iter().map(ToString::to_string).collect();
        if !self.trouble.is_empty() {
            waits.push(self.trouble.clone());
        } else if self.found.is_none() {
            waits.push("the Node is being read".into());
        }
        waits
    }
}
