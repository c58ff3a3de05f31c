//! What must be true of the cluster itself: KubeVirt's own invariants, marks and cordons.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Found, Terms};
use crate::api::{Change, ChangeKind};
use crate::scenario::Rule;
use crate::scenario::run::observer::{LAUNCHER, key, text};
use crate::scenario::run::scene::{Scene, from_agent};

/// Follows the changes.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) cancelled: bool,
    kills_seen: BTreeSet<String>,
    /// Source node of every VMIM that holds a slot.
    running: BTreeMap<String, String>,
}

impl Cluster {
    pub(super) fn step(
        &mut self,
        terms: &Terms,
        scene: &Scene<'_>,
        changes: &[Change],
        found: &mut Found,
    ) {
        for (key, story) in &scene.observer.vms {
            if let Some(how) = &story.killed
                && self.kills_seen.insert(format!("{}/{}", key.0, key.1))
            {
                found.add(
                    Rule::DirtyKill,
                    format!("the guest of {}/{} was killed: {how}", key.0, key.1),
                );
            }
        }
        for change in changes {
            match change.resource.as_str() {
                "virtualmachineinstancemigrations" => self.migration(scene, change),
                "virtualmachineinstances" => flip(change, found),
                "pods" => pods(scene, &change.object, found),
                _ => {}
            }
        }
        self.slots(terms, found);
    }

    pub(super) fn end(&mut self, terms: &Terms, scene: &Scene<'_>, found: &mut Found) {
        if self.cancelled && terms.can_unmark {
            for (key, story) in &scene.observer.vms {
                let marked_by_us = scene.log.entries().iter().any(|entry| {
                    from_agent(scene.host, entry)
                        && !entry.dry_run
                        && entry.subresource == "eviction"
                        && entry.message.contains("Eviction triggered")
                        && entry.name.starts_with(&format!("virt-launcher-{}-", key.1))
                });
                if story.mark.as_deref() == Some(scene.host) && marked_by_us {
                    found.add(
                        Rule::MarksCleared,
                        format!("{}/{} is still marked after the cancel", key.0, key.1),
                    );
                }
            }
        }
        if scene.observer.ours && !scene.observer.cordoned {
            found.add(Rule::Cordons, "our marker is on a node that is not cordoned");
        }
    }

    fn migration(&mut self, scene: &Scene<'_>, change: &Change) {
        let uid = text(&change.object, &["metadata", "uid"]).to_owned();
        let phase = text(&change.object, &["status", "phase"]);
        let holds = matches!(
            phase,
            "Scheduling" | "Scheduled" | "PreparingTarget" | "TargetReady" | "Running"
        );
        if change.kind == ChangeKind::Deleted || !holds {
            self.running.remove(&uid);
        } else if !self.running.contains_key(&uid) {
            let vm = (
                text(&change.object, &["metadata", "namespace"]).to_owned(),
                text(&change.object, &["spec", "vmiName"]).to_owned(),
            );
            let node = scene.observer.vms.get(&vm).map(|story| story.node.clone());
            self.running.insert(uid, node.unwrap_or_default());
        }
    }

    fn slots(&self, terms: &Terms, found: &mut Found) {
        let (per_node, per_cluster) = terms.slots;
        if self.running.len() > per_cluster {
            found.add(Rule::KubeVirt, format!("{} migrations at once in the cluster", self.running.len()));
        }
        let mut by_node: BTreeMap<&str, usize> = BTreeMap::new();
        for node in self.running.values() {
            *by_node.entry(node).or_default() += 1;
        }
        for (node, count) in by_node {
            if count > per_node {
                found.add(Rule::KubeVirt, format!("{count} migrations at once out of {node}"));
            }
        }
    }
}

/// The change of a VMI's node, its label and the removal of the mark are one step.
fn flip(change: &Change, found: &mut Found) {
    let Some(before) = &change.previous else {
        return;
    };
    let node = |vmi: &Value| text(vmi, &["status", "nodeName"]).to_owned();
    let (from, to) = (node(before), node(&change.object));
    if from.is_empty() || to.is_empty() || from == to || change.kind == ChangeKind::Deleted {
        return;
    }
    let name = key(&change.object).1;
    let label = text(&change.object, &["metadata", "labels", "kubevirt.io/nodeName"]);
    if label != to {
        found.add(Rule::KubeVirt, format!("{name} moved to {to} and its label says {label}"));
    }
    if text(&change.object, &["status", "evacuationNodeName"]) == from {
        found.add(Rule::KubeVirt, format!("{name} moved to {to} and is still marked for {from}"));
    }
}

/// At most two active launcher pods for one VMI, never on one node.
fn pods(scene: &Scene<'_>, pod: &Value, found: &mut Found) {
    if text(pod, &["metadata", "labels", "kubevirt.io"]) != LAUNCHER {
        return;
    }
    let owner = |pod: &Value| {
        let owner = &pod["metadata"]["ownerReferences"][0]["uid"];
        owner.as_str().unwrap_or_default().to_owned()
    };
    let mine = owner(pod);
    if mine.is_empty() {
        return;
    }
    let all = scene.store.list_shared("pods");
    let active: Vec<&str> = all
        .iter()
        .filter(|other| owner(other) == mine)
        .filter(|other| !matches!(text(other, &["status", "phase"]), "Succeeded" | "Failed"))
        .filter(|other| other["metadata"]["deletionTimestamp"].is_null())
        .map(|other| text(other, &["spec", "nodeName"]))
        .collect();
    let nodes: BTreeSet<&&str> = active.iter().filter(|node| !node.is_empty()).collect();
    let bound = active.iter().filter(|node| !node.is_empty()).count();
    if active.len() > 2 || nodes.len() < bound {
        found.add(
            Rule::KubeVirt,
            format!("{} has {} active pods on {nodes:?}", key(pod).1, active.len()),
        );
    }
}
