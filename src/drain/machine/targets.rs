//! Why does the target pod of a migration not start? In the scheduler's own words, where we may read them.
//!
//! Such a pod runs on no node yet, so it is in no list of this node's pods: it is asked for by the UID of its VMIM, only while
//! one waits, after some patience and then now and then. Without the right (`rbac/targets.yaml`) one question of a drain is
//! refused, and no other is asked.

use super::Machine;
use super::pending::Pending;
use crate::drain::action::{Action, Fault, FaultClass, Level};
use crate::drain::status::VmPhase;
use crate::drain::time::Mono;
use crate::drain::verdict::{Verdict, Wait};
use crate::drain::world::{MigrationPhase, MigrationView, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};

/// So much of the scheduler's words is shown, in characters: a cluster of a hundred nodes has many reasons.
const SHOWN: usize = 240;

/// What the scheduler adds about pods that it might have pushed out: of no use to whoever waits.
const PREEMPTION: &str = "preemption:";

/// What is known of the target pods of a drain.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Targets {
    /// The right to see them is missing: nobody asks again in this drain.
    denied: bool,
    /// By the UID of their VMIMs.
    of: BTreeMap<String, Target>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
struct Target {
    /// Not asked about before.
    next: Mono,
    /// What the scheduler says against every node; empty: nothing that we know of.
    says: String,
}

impl Machine {
    /// Asks about the target pod that has waited longest without a question, when it is time for one.
    pub(super) fn targets_step(&mut self, now: Mono) {
        self.forget_targets();
        let waiting = self.waiting_targets();
        let asking = self.waits_for(|p| matches!(p, Pending::Target { .. }));
        let timing = self.policy.timing;
        let Some(targets) = self.drain.as_mut().map(|d| &mut d.targets) else {
            return;
        };
        if targets.denied {
            return;
        }
        let mut first: Option<(Mono, ObjectRef)> = None;
        for migration in waiting {
            let target = targets.of.entry(migration.uid.clone());
            let target = target.or_insert_with(|| Target {
                next: now + timing.target_patience,
                says: String::new(),
            });
            if first.as_ref().is_none_or(|(at, _)| target.next < *at) {
                first = Some((target.next, migration));
            }
        }
        let Some((at, migration)) = first.filter(|_| !asking) else {
            return;
        };
        if at > now {
            return self.wake_at(at, "is its target pod placed");
        }
        if let Some(target) = targets.of.get_mut(&migration.uid) {
            target.next = now + timing.target_again;
        }
        let id = self.effect(Pending::Target {
            migration: migration.uid.clone(),
        });
        self.actions.push_back(Action::ReadTarget { id, migration });
    }

    /// VMIMs that wait for their target pods, of the VMs that are shown as such.
    fn waiting_targets(&self) -> Vec<ObjectRef> {
        let shown = |t: &&crate::drain::track::Track| {
            t.ended.is_none() && !t.inbound && t.shown == VmPhase::Scheduling
        };
        let tracks = self.tracks.values().filter(shown);
        let vms: BTreeSet<_> = tracks.map(|t| &t.vm).collect();
        if vms.is_empty() {
            return Vec::new();
        }
        let all = self.picture.migrations.seen().into_iter().flatten();
        all.filter(|m| m.phase == MigrationPhase::Scheduling && !m.deleting && vms.contains(&m.vm))
            .map(|m| m.migration.clone())
            .collect()
    }

    /// Migrations that are over have no target pod any more.
    fn forget_targets(&mut self) {
        let (Some(drain), Some(all)) = (&mut self.drain, self.picture.migrations.seen()) else {
            return;
        };
        if drain.targets.of.is_empty() {
            return;
        }
        let alive = all.iter().filter(|m| !m.is_final());
        let alive: BTreeSet<&str> = alive.map(|m| m.migration.uid.as_str()).collect();
        let targets = &mut drain.targets.of;
        targets.retain(|uid, _| alive.contains(uid.as_str()));
    }

    /// The answer: the scheduler's words, or that it has none.
    pub(super) fn target_read(&mut self, migration: &str, result: Result<Option<String>, Fault>) {
        let Some(targets) = self.drain.as_mut().map(|d| &mut d.targets) else {
            return;
        };
        match result {
            Ok(says) => {
                if let Some(target) = targets.of.get_mut(migration) {
                    target.says = says.map(|text| shortened(&text)).unwrap_or_default();
                }
            }
            Err(fault) if fault.class == FaultClass::Denied => {
                targets.denied = true;
                targets.of.clear();
                let text = format!(
                    "why a target pod does not start can only be guessed: {}",
                    fault.text
                );
                self.tell(Level::Info, "TargetsUnseen", text);
            }
            Err(fault) if fault.class == FaultClass::Fatal => {
                let text = format!(
                    "why a target pod does not start is not known: {}",
                    fault.text
                );
                self.tell_once("target pod", Level::Warn, "TargetUnreadable", text);
            }
            // Asked again after the usual pause.
            Err(_) => {}
        }
    }

    /// The verdict on a VM whose target pod does not start, with what is known of that pod.
    pub(super) fn with_schedulers_words(
        &self,
        verdict: Verdict,
        migrations: &[&MigrationView],
    ) -> Verdict {
        let Some(targets) = self.drain.as_ref().map(|d| &d.targets) else {
            return verdict;
        };
        if !matches!(
            verdict,
            Verdict::Wait(Wait::Scheduling | Wait::Unplaced { .. })
        ) {
            return verdict;
        }
        let newest = migrations.iter().rev().find(|m| !m.is_final());
        let target = newest.and_then(|m| targets.of.get(&m.migration.uid));
        match target.filter(|t| !t.says.is_empty()) {
            Some(target) => Verdict::Wait(Wait::Unschedulable {
                says: target.says.clone(),
            }),
            None if matches!(verdict, Verdict::Wait(Wait::Unplaced { .. })) => {
                Verdict::Wait(Wait::Unplaced {
                    denied: targets.denied,
                })
            }
            None => verdict,
        }
    }
}

/// In one line, without what the scheduler says about preemption and without a dot at the end.
fn shortened(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    // Before it the sentence ends, whatever comes after is about other pods.
    let line = match line.split_once(PREEMPTION) {
        Some((before, _)) if !before.trim().is_empty() => before,
        Some(_) | None => &line,
    };
    let line = line.trim().trim_end_matches('.');
    if line.chars().count() <= SHOWN {
        return line.to_owned();
    }
    let cut: String = line.chars().take(SHOWN).collect();
    format!("{}…", cut.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedulers_words_are_one_line_without_its_thoughts_about_preemption() {
        let text = "0/3 nodes are available: 1 Insufficient memory,\n 2 node(s) were unschedulable. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
        assert_eq!(
            shortened(text),
            "0/3 nodes are available: 1 Insufficient memory, 2 node(s) were unschedulable"
        );
        assert_eq!(shortened(" too big\u{1b}[31m. "), "too big [31m");
        assert_eq!(shortened("preemption: none"), "preemption: none");
        assert_eq!(shortened(""), "");
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        let short = shortened(&"ü".repeat(1000));
        assert_eq!(short.chars().count(), SHOWN + 1);
        assert!(short.ends_with('…'));
    }
}
