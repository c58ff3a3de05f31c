//! The pods that are no VM's, in a drain of all pods: when is whose turn, what keeps one here, and is anything left that can
//! go (design section 3.5)?
//!
//! Their turn comes when fresh lists have shown that no VM is left. They never stand in the way of a guest's clean stop.

use super::Machine;
use super::pending::Pending;
use crate::drain::action::{Action, Fault, Level};
use crate::drain::answer::{Answer, Reply, judge};
use crate::drain::others::{
    Group, OtherTrack, Scope, Stance, group, is_final_loss, owner, refusal, stance, turn,
};
use crate::drain::status::{PodState, PodStatus};
use crate::drain::time::Mono;
use crate::drain::world::{OtherPod, PdbView, Picture};
use std::collections::BTreeSet;

/// As many requests about pods as with VMs: each goes through virt-api's webhook.
const POSTS_IN_FLIGHT: usize = 10;

impl Machine {
    /// This drain is one of all pods.
    pub(super) fn all_pods(&self) -> bool {
        let asked = self.drain.as_ref().and_then(|d| d.trigger.as_ref()?.scope);
        self.drain.is_some() && asked.unwrap_or(self.policy.others.scope) == Scope::AllPods
    }

    /// Starts the watches that this drain needs.
    pub(super) fn watch(&mut self) {
        let action = if self.all_pods() {
            Action::WatchAll
        } else {
            Action::Watch
        };
        self.actions.push_back(action);
    }

    /// Keeps the memory of each pod in step with the picture.
    pub(super) fn see_others(&mut self, picture: &Picture, now: Mono) {
        let Some(pods) = picture.others.seen().filter(|_| self.all_pods()) else {
            return;
        };
        let mut here = BTreeSet::new();
        for pod in pods {
            let known = self.others.get_mut(&pod.pod.uid);
            if matches!(stance(pod, &self.policy.others), Stance::Stays(_)) {
                continue;
            }
            here.insert(pod.pod.uid.as_str());
            if let Some(track) = known {
                track.pod = pod.clone();
                track.gone = false;
            } else {
                let track = OtherTrack::new(pod.clone(), now);
                self.others.insert(pod.pod.uid.clone(), track);
            }
        }
        let over = self
            .others
            .iter_mut()
            .filter(|(uid, track)| !track.gone && !here.contains(uid.as_str()));
        for (_, track) in over {
            track.gone = true;
            let took = super::show::span(now.since(track.first_seen));
            let says = if track.posts > 0 {
                format!("gone after {took}")
            } else {
                "gone, not by this drain".into()
            };
            track.show(PodState::Gone, says, now);
        }
    }

    /// Says of every pod where it stands; answers with those that are due, in their order.
    fn show_others(&mut self, their_turn: bool, now: Mono) -> Vec<String> {
        let early = self
            .drain
            .as_ref()
            .is_some_and(|d| d.scheduled && !d.shutting_down);
        let rules = &self.policy.others;
        let pdbs = self.picture.pdbs.seen().map_or(&[][..], Vec::as_slice);
        let timing = self.policy.timing;
        let here = || self.others.values().filter(|t| !t.gone);
        let first = here()
            .filter(|t| stance(&t.pod, rules) == Stance::Goes)
            .map(|t| group(&t.pod, rules))
            .min();
        let mut due = Vec::new();
        let mut wakes = Vec::new();
        for (key, track) in self.others.iter_mut().filter(|(_, t)| !t.gone) {
            let (state, says) = match stance(&track.pod, rules) {
                Stance::Blocked(why) => (PodState::Blocked, why.to_string()),
                Stance::Stays(_) => (PodState::Waiting, String::new()),
                Stance::Goes if track.pod.deleting => (PodState::Going, going(track)),
                Stance::Goes if early && is_final_loss(&track.pod) => (
                    PodState::Waiting,
                    "waits until the time of the scheduled shutdown has come: what goes with it does not come back".into(),
                ),
                Stance::Goes if !their_turn => {
                    (PodState::Queued, "waits until the VMs are gone".into())
                }
                Stance::Goes => {
                    let own = group(&track.pod, rules);
                    if first.is_some_and(|first| own > first) {
                        (PodState::Queued, queued(own, first))
                    } else {
                        let at = track.due(pdbs, &timing);
                        if track.in_flight.is_none() && at <= now {
                            due.push(key.clone());
                        } else if track.in_flight.is_none() {
                            wakes.push(at);
                        }
                        asked(track, pdbs)
                    }
                }
            };
            track.show(state, says, now);
        }
        due.sort_by(|a, b| {
            let of = |key: &String| self.others.get(key).map(|t| turn(&t.pod));
            of(a).cmp(&of(b)).then(a.cmp(b))
        });
        for at in wakes {
            self.wake_at(at, "ask about a pod again");
        }
        due
    }

    /// While VMs are here: the pods are only shown.
    pub(super) fn others_wait(&mut self, now: Mono) {
        if self.all_pods() {
            self.show_others(false, now);
        }
    }

    /// No VM is left: sends what is due. False when nothing is left that can go by itself.
    pub(super) fn others_step(&mut self, now: Mono) -> bool {
        let due = self.show_others(true, now);
        self.tell_blocked();
        let room = POSTS_IN_FLIGHT.saturating_sub(self.posts_in_flight());
        for key in due.into_iter().take(room) {
            self.evict_other(&key);
        }
        self.others_can_go()
    }

    fn evict_other(&mut self, key: &str) {
        let Some(pod) = self.others.get(key).map(|t| t.pod.pod.clone()) else {
            return;
        };
        let id = self.effect(Pending::EvictOther {
            key: key.to_owned(),
        });
        if let Some(track) = self.others.get_mut(key) {
            track.in_flight = Some(id);
            track.posts += 1;
        }
        self.actions.push_back(Action::Evict {
            id,
            pod,
            dry_run: false,
        });
    }

    pub(super) fn other_answered(&mut self, key: &str, result: Result<Reply, Fault>, now: Mono) {
        let jitter = self.jitter();
        let timing = self.policy.timing;
        let pdbs = self.picture.pdbs.seen().map_or(&[][..], Vec::as_slice);
        let Some(track) = self.others.get_mut(key) else {
            return;
        };
        let (answer, after) = match result {
            Ok(reply) => (judge(&reply), reply.retry_after),
            Err(fault) => (Answer::Unexpected(fault.text), None),
        };
        let refused = matches!(
            answer,
            Answer::Budget { .. } | Answer::SeveralBudgets | Answer::Denied(_)
        );
        let told = refused.then(|| {
            let why = refusal(&answer, &track.pod.pod, pdbs);
            format!("pod {} is not evicted: {why}", track.pod.pod)
        });
        let granted = answer == Answer::Granted;
        track.answered(answer, after, now, &timing, jitter);
        if granted && let Some(drain) = &mut self.drain {
            drain.last_accepted = now;
        }
        if let Some(text) = told {
            self.tell_once(&format!("pod {key}"), Level::Warn, "PodBlocked", text);
        }
    }

    /// Pods that this drain may evict are still here.
    pub(super) fn others_can_go(&self) -> bool {
        let mut here = self.others.values().filter(|t| !t.gone);
        here.any(|t| stance(&t.pod, &self.policy.others) == Stance::Goes)
    }

    /// Pods that are still here, each with the reason.
    pub(super) fn others_left(&self) -> Vec<(&OtherPod, &str, bool)> {
        let here = self.others.values().filter(|t| !t.gone);
        let mut left: Vec<_> = here
            .map(|t| (&t.pod, t.says.as_str(), t.is_going()))
            .collect();
        left.sort_by(|a, b| a.0.pod.cmp(&b.0.pod));
        left
    }

    /// `2 pod(s) (a/b: why; …)`; empty: none is left.
    pub(super) fn others_left_text(&self) -> String {
        const NAMED: usize = 5;
        let left = self.others_left();
        if left.is_empty() {
            return String::new();
        }
        let mut names: Vec<String> = left
            .iter()
            .take(NAMED)
            .map(|(pod, says, _)| format!("{}: {says}", pod.pod))
            .collect();
        if left.len() > NAMED {
            names.push(format!("and {} more", left.len() - NAMED));
        }
        format!("{} other pod(s) ({})", left.len(), names.join("; "))
    }

    fn tell_blocked(&mut self) {
        let rules = &self.policy.others;
        let here = self.others.iter().filter(|(_, t)| !t.gone);
        let blocked: Vec<_> = here
            .filter_map(|(key, t)| match stance(&t.pod, rules) {
                Stance::Blocked(why) => {
                    Some((key.clone(), format!("pod {} stays: {why}", t.pod.pod)))
                }
                Stance::Stays(_) | Stance::Goes => None,
            })
            .collect();
        for (key, text) in blocked {
            self.tell_once(&format!("pod {key}"), Level::Warn, "PodBlocked", text);
        }
    }

    /// The drain is over, these pods are left.
    pub(super) fn leave_others(&mut self, now: Mono) {
        let mut told = Vec::new();
        for track in self.others.values_mut().filter(|t| !t.gone) {
            let says = std::mem::take(&mut track.says);
            told.push(format!("pod {} is left: {says}", track.pod.pod));
            track.show(PodState::Left, says, now);
        }
        for text in told {
            self.tell(Level::Warn, "PodLeft", text);
        }
    }

    /// For the status, in the order of their names.
    pub(super) fn other_rows(&self, now: Mono) -> Vec<PodStatus> {
        let mut rows: Vec<PodStatus> = self
            .others
            .values()
            .map(|track| PodStatus {
                namespace: track.pod.pod.namespace.clone(),
                name: track.pod.pod.name.clone(),
                owner: owner(&track.pod),
                phase: track.shown,
                says: track.says.clone(),
                posts: track.posts,
                since: now.since(track.shown_since).as_secs_f64(),
            })
            .collect();
        rows.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        rows
    }
}

/// An eviction or a deletion takes its course.
fn going(track: &OtherTrack) -> String {
    let by = if track.posts > 0 {
        "is being deleted"
    } else {
        "is being deleted by somebody else"
    };
    format!("{by}, it has {} s to end", track.pod.grace.as_secs())
}

/// It is its turn: where its eviction stands.
fn asked(track: &OtherTrack, pdbs: &[PdbView]) -> (PodState, String) {
    match &track.last {
        _ if track.granted.is_some() => (PodState::Going, going(track)),
        None => (PodState::Going, "its eviction is being asked for".into()),
        Some((answer, _)) => (PodState::Waiting, refusal(answer, &track.pod.pod, pdbs)),
    }
}

fn queued(own: Group, first: Option<Group>) -> String {
    if own.kubevirt && first.is_some_and(|first| !first.kubevirt) {
        return "is part of KubeVirt: waits until every other pod is gone".into();
    }
    format!(
        "waits for the pods before it (drain.order, priority {})",
        own.priority
    )
}
