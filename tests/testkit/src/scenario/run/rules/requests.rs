//! What the agent asked of the API server: in the right order, of the right objects, not twice.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Found, Terms};
use crate::api::log::Entry;
use crate::scenario::run::observer::Pod;
use crate::scenario::run::scene::Scene;
use crate::scenario::{Rule, Scenario};

/// How long a mark has to be visible before a repeated eviction counts as one too many: a watch may lag behind.
const VISIBLE: Duration = Duration::from_secs(2);

const WRITES: [&str; 6] = [
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "put",
];

/// Follows the request log.
#[derive(Debug)]
pub(super) struct Requests {
    host: String,
    seen: usize,
    /// Entries that were not answered when they were seen.
    open: Vec<usize>,
    cordoned_once: bool,
    evicted_once: bool,
    pub(super) consent: bool,
    /// Pods by UID, with the time of the last POST that was answered with "accepted".
    accepted: BTreeMap<String, Duration>,
}

impl Requests {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            host: scenario.host.node.clone(),
            seen: 0,
            open: Vec::new(),
            cordoned_once: false,
            evicted_once: false,
            consent: false,
            accepted: BTreeMap::new(),
        }
    }

    pub(super) fn step(&mut self, terms: &Terms, scene: &Scene<'_>, found: &mut Found) {
        self.cordoned_once |= scene.observer.cordoned;
        let fresh = scene.log.entries_from(self.seen);
        let first = self.seen;
        self.seen += fresh.len();
        for (index, entry) in fresh.iter().enumerate() {
            if !scene.from_agent(entry) {
                continue;
            }
            self.asked(terms, scene, entry, found);
            if entry.status.is_some() {
                self.answered(terms, scene, entry, found);
            } else if entry.verb != "watch" {
                self.open.push(first + index);
            }
        }
        self.late_answers(terms, scene, found);
    }

    fn late_answers(&mut self, terms: &Terms, scene: &Scene<'_>, found: &mut Found) {
        for index in std::mem::take(&mut self.open) {
            match scene.log.answered(index) {
                Some(entry) => self.answered(terms, scene, &entry, found),
                None => self.open.push(index),
            }
        }
    }

    fn asked(&mut self, terms: &Terms, scene: &Scene<'_>, entry: &Entry, found: &mut Found) {
        if is_eviction(entry) {
            self.eviction(terms, scene, entry, found);
        } else if is_stop(entry) {
            self.write(scene, entry, found);
            self.stop(scene, entry, found);
        } else if WRITES.contains(&entry.verb.as_str()) {
            self.write(scene, entry, found);
        }
    }

    fn eviction(&mut self, terms: &Terms, scene: &Scene<'_>, entry: &Entry, found: &mut Found) {
        let name = format!("{}/{}", entry.namespace, entry.name);
        let pod = pod(scene, entry);
        if entry.uid.is_none() {
            found.add(
                Rule::UidPrecondition,
                format!("pod {name} was evicted without its UID"),
            );
        }
        if entry.name.starts_with("hp-volume-") || pod.is_some_and(|pod| pod.mirror) {
            found.add(
                Rule::NeverEvicted,
                format!("pod {name} must never be evicted"),
            );
        } else if let Some(pod) = pod.filter(|pod| !pod.launcher) {
            other(terms, scene, pod, found);
        }
        if let Some(pod) = pod
            && pod.node != self.host
        {
            found.add(
                Rule::OwnNodeOnly,
                format!("pod {name} of node {} was evicted", pod.node),
            );
        }
        if entry.dry_run {
            return;
        }
        if !self.evicted_once && !self.cordoned_once {
            found.add(
                Rule::CordonFirst,
                format!("pod {name} was evicted before the cordon"),
            );
        }
        self.evicted_once = true;
        if let Some(pod) = pod {
            self.repeated(terms, scene, entry, pod, found);
        }
    }

    /// The deletion of a pod is as much as an eviction: of launchers, by UID, after the cordon; and with the grace
    /// period that the pod has.
    fn stop(&mut self, scene: &Scene<'_>, entry: &Entry, found: &mut Found) {
        let name = format!("{}/{}", entry.namespace, entry.name);
        if entry.uid.is_none() {
            found.add(
                Rule::UidPrecondition,
                format!("pod {name} was deleted without its UID"),
            );
        }
        if pod(scene, entry).is_some_and(|pod| pod.mirror || !pod.launcher) {
            found.add(
                Rule::LaunchersOnly,
                format!("pod {name} is no launcher and was deleted"),
            );
        }
        if !self.cordoned_once {
            found.add(
                Rule::CordonFirst,
                format!("pod {name} was deleted before the cordon"),
            );
        }
    }

    /// A second POST although the first was accepted and what it caused can be seen.
    fn repeated(
        &self,
        terms: &Terms,
        scene: &Scene<'_>,
        entry: &Entry,
        pod: &Pod,
        found: &mut Found,
    ) {
        let Some(accepted) = entry.uid.as_ref().and_then(|uid| self.accepted.get(uid)) else {
            return;
        };
        let visible = |since: Option<Duration>| {
            since.is_some_and(|since| since.max(*accepted) + VISIBLE + terms.slack.fixed < entry.at)
        };
        let story = scene.observer.vms.get(&pod.vm);
        let marked = story.and_then(|story| story.marked_since);
        let busy = if terms.sees_vmis {
            visible(marked)
        } else {
            visible(pod.evicting_since) && visible(marked)
        };
        if busy {
            found.add(
                Rule::NoRepeat,
                format!(
                    "pod {} was evicted again while its VM is marked or migrates",
                    pod.name
                ),
            );
        }
    }

    fn write(&self, scene: &Scene<'_>, entry: &Entry, found: &mut Found) {
        let mut foreign = |what: String| {
            found.add(Rule::OwnNodeOnly, format!("{} of {what}", entry.verb));
        };
        match (entry.resource.as_str(), entry.subresource.as_str()) {
            ("nodes", _) if entry.name != self.host => foreign(format!("node {}", entry.name)),
            ("pods", _) => {
                match scene.observer.pods.values().find(|pod| {
                    !pod.over && pod.name == format!("{}/{}", entry.namespace, entry.name)
                }) {
                    Some(pod) if pod.node != self.host => {
                        foreign(format!("pod {} of node {}", pod.name, pod.node));
                    }
                    _ => {}
                }
            }
            ("virtualmachineinstances", _) => {
                let key = (entry.namespace.clone(), entry.name.clone());
                let story = scene.observer.vms.get(&key);
                let ours = story.is_some_and(|story| {
                    story.node == self.host || story.mark.as_deref() == Some(&self.host)
                });
                // Right after the flip the watch may still show it here; such a write finds no mark and changes nothing.
                if !ours && story.is_some_and(|story| story.first_node != self.host) {
                    foreign(format!("VMI {}/{}", entry.namespace, entry.name));
                }
            }
            (
                "events"
                | "selfsubjectaccessreviews"
                | "selfsubjectreviews"
                | "leases"
                | "nodes"
                | "virtualmachineinstancemigrations"
                | "virtualmachines",
                _,
            ) => {}
            (other, _) => foreign(format!("{other} {}/{}", entry.namespace, entry.name)),
        }
    }

    fn answered(&mut self, terms: &Terms, scene: &Scene<'_>, entry: &Entry, found: &mut Found) {
        if is_eviction(entry) && !entry.dry_run {
            self.eviction_answered(terms, scene, entry, found);
        } else if is_stop(entry) && matches!(entry.status, Some(200..=202)) {
            self.guest_stopped(terms, scene, entry, found);
        }
        let uncordons = entry.resource == "nodes"
            && entry.verb == "patch"
            && entry.status == Some(200)
            && entry.body.as_ref().is_some_and(uncordon);
        if uncordons && scene.observer.foreign_cordon {
            found.add(Rule::Cordons, "a cordon of somebody else was undone");
        }
    }

    fn eviction_answered(
        &mut self,
        terms: &Terms,
        scene: &Scene<'_>,
        entry: &Entry,
        found: &mut Found,
    ) {
        let accepted = entry.status == Some(429) && entry.message.contains("vacuation");
        if accepted && let Some(uid) = &entry.uid {
            self.accepted
                .insert(uid.clone(), entry.answered.unwrap_or(entry.at));
        }
        if matches!(entry.status, Some(200 | 201)) {
            self.guest_stopped(terms, scene, entry, found);
        }
    }

    /// A guest is shut down by a request of the agent's: somebody has to have agreed to that.
    fn guest_stopped(&self, terms: &Terms, scene: &Scene<'_>, entry: &Entry, found: &mut Found) {
        let guest = pod(scene, entry).is_some_and(|pod| pod.launcher && pod.guest);
        let consent = (self.consent || terms.always_stop) && !terms.never_stop;
        if guest && !consent {
            found.add(
                Rule::UnwantedStop,
                format!(
                    "the guest of {}/{} is shut down although nobody agreed to that",
                    entry.namespace, entry.name
                ),
            );
        }
    }
}

/// A pod that is no VM's: only where all pods are drained, only with consent, and after the VMs.
fn other(terms: &Terms, scene: &Scene<'_>, pod: &Pod, found: &mut Found) {
    let name = &pod.name;
    if !terms.all_pods {
        let how = format!("pod {name} is no launcher and was evicted");
        return found.add(Rule::LaunchersOnly, how);
    }
    if pod.owner == "DaemonSet" || pod.over {
        let how = format!("pod {name} is a DaemonSet's or over, and must never be evicted");
        found.add(Rule::NeverEvicted, how);
    }
    if pod.empty_dir && !terms.allow_empty_dir || pod.owner.is_empty() && !terms.allow_unmanaged {
        let how = format!("pod {name} was evicted although nobody agreed to lose it");
        found.add(Rule::NeverEvicted, how);
    }
    let guests: Vec<&str> = scene
        .observer
        .guests_here()
        .map(|pod| pod.name.as_str())
        .collect();
    if !guests.is_empty() {
        let how = format!(
            "pod {name} was evicted while {} was here",
            guests.join(", ")
        );
        found.add(Rule::LaunchersOnly, how);
    }
}

fn is_eviction(entry: &Entry) -> bool {
    entry.verb == "create" && entry.resource == "pods" && entry.subresource == "eviction"
}

fn is_stop(entry: &Entry) -> bool {
    entry.verb == "delete" && entry.resource == "pods" && entry.subresource.is_empty()
}

fn uncordon(body: &serde_json::Value) -> bool {
    let spec = &body["spec"];
    spec.get("unschedulable")
        .is_some_and(|to| to.is_null() || *to == false)
}

/// The pod that an eviction means: by UID, else by name.
fn pod<'a>(scene: &Scene<'a>, entry: &Entry) -> Option<&'a Pod> {
    let pods = &scene.observer.pods;
    let by_uid = entry.uid.as_ref().and_then(|uid| pods.get(uid));
    by_uid.or_else(|| {
        let name = format!("{}/{}", entry.namespace, entry.name);
        pods.values().find(|pod| !pod.over && pod.name == name)
    })
}
