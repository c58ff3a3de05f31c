//! What must be true of the cluster: no guest is killed, marks and cordons end as they should.

use std::collections::BTreeSet;

use super::{Found, Terms};
use crate::scenario::Rule;
use crate::scenario::run::scene::Scene;

/// Follows the VMs.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) cancelled: bool,
    kills_seen: BTreeSet<String>,
}

impl Cluster {
    pub(super) fn step(&mut self, scene: &Scene<'_>, found: &mut Found) {
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
    }

    pub(super) fn end(&self, terms: &Terms, scene: &Scene<'_>, found: &mut Found) {
        if self.cancelled && terms.can_unmark {
            marks(scene, found);
        }
        if scene.observer.ours && !scene.observer.cordoned {
            found.add(
                Rule::Cordons,
                "our marker is on a node that is not cordoned",
            );
        }
    }
}

/// No VM that the agent has marked is still marked.
fn marks(scene: &Scene<'_>, found: &mut Found) {
    let log = scene.log.entries();
    for (key, story) in &scene.observer.vms {
        let marked_by_us = log.iter().any(|entry| {
            scene.from_agent(entry)
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
