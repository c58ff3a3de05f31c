//! On which node does a pod run, and with which words is it left pending?

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::engine::{Controller, Key, Queue, Unavailable};
use super::selector::selects;
use crate::actors::knobs::{Outcome, outcome_of};
use crate::api::{Change, ChangeKind, Store};
use crate::kubevirt::fields::{
    deleting, ended, is_true, label, milli_cpus, name, namespace, quantity, set_condition, text,
};
use crate::kubevirt::names::{self, kind};

const POD: &str = "pod";

/// The scheduler.
#[derive(Debug)]
pub struct Scheduler;

/// What a pod asks for, or a node has.
#[derive(Clone, Copy, Debug, Default)]
struct Resources {
    memory: u64,
    milli_cpus: u64,
    kvm: u64,
}

impl Scheduler {
    fn place(store: &Store, pod: &Value, queue: &mut Queue) {
        if let Some(Outcome::Unschedulable(message)) = outcome_of(pod) {
            return refuse(store, pod, &message);
        }
        let mut nodes = store.list_shared(kind::NODES);
        queue.shuffle(&mut nodes);
        let used = usage(store);
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut best: Option<(u64, Arc<Value>)> = None;
        for node in &nodes {
            match fits(
                store,
                pod,
                node,
                used.get(name(node)).copied().unwrap_or_default(),
            ) {
                Ok(free) if best.as_ref().is_none_or(|(most, _)| free > *most) => {
                    best = Some((free, node.clone()));
                }
                Ok(_) => {}
                Err(why) => *reasons.entry(why).or_default() += 1,
            }
        }
        match best {
            Some((_, node)) => bind(store, pod, name(&node)),
            None => refuse(store, pod, &summary(nodes.len(), &reasons)),
        }
    }
}

fn bind(store: &Store, pod: &Value, node: &str) {
    let now = store.stamp();
    store.update(kind::PODS, namespace(pod), name(pod), |pod| {
        pod["spec"]["nodeName"] = json!(node);
        set_condition(pod, "PodScheduled", "True", "", "", &now);
    });
}

fn refuse(store: &Store, pod: &Value, message: &str) {
    let now = store.stamp();
    store.update(kind::PODS, namespace(pod), name(pod), |pod| {
        set_condition(pod, "PodScheduled", "False", "Unschedulable", message, &now);
    });
    store.record_event(pod, "Warning", "FailedScheduling", message);
}

/// `0/3 nodes are available: 1 Insufficient memory, 2 node(s) were unschedulable. …`
fn summary(nodes: usize, reasons: &BTreeMap<String, usize>) -> String {
    let parts: Vec<String> = reasons
        .iter()
        .map(|(why, count)| format!("{count} {why}"))
        .collect();
    format!(
        "0/{nodes} nodes are available: {}. preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling.",
        parts.join(", ")
    )
}

fn requests(pod: &Value) -> Resources {
    let mut sum = Resources::default();
    for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
        let wanted = &container["resources"]["requests"];
        sum.memory += quantity(&wanted["memory"]);
        sum.milli_cpus += milli_cpus(&wanted["cpu"]);
        sum.kvm += quantity(&wanted[names::KVM]);
    }
    sum
}

fn usage(store: &Store) -> BTreeMap<String, Resources> {
    let mut used: BTreeMap<String, Resources> = BTreeMap::new();
    for pod in store
        .list_shared(kind::PODS)
        .iter()
        .filter(|pod| !ended(pod))
    {
        let node = text(pod, "spec.nodeName");
        if !node.is_empty() {
            let (sum, more) = (used.entry(node.to_owned()).or_default(), requests(pod));
            sum.memory += more.memory;
            sum.milli_cpus += more.milli_cpus;
            sum.kvm += more.kvm;
        }
    }
    used
}

/// The memory that is free on a node that fits, or why it does not.
fn fits(store: &Store, pod: &Value, node: &Value, used: Resources) -> Result<u64, String> {
    if node["spec"]["unschedulable"] == true
        && !tolerates(pod, names::UNSCHEDULABLE_TAINT, "NoSchedule")
    {
        return Err("node(s) were unschedulable".to_owned());
    }
    for taint in node["spec"]["taints"].as_array().into_iter().flatten() {
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        if effect != "PreferNoSchedule" && !tolerates(pod, key, effect) {
            return Err(format!(
                "node(s) had untolerated taint {{{key}: {}}}",
                text(taint, "value")
            ));
        }
    }
    if !is_true(node, "Ready") {
        return Err("node(s) were not ready".to_owned());
    }
    let selected = pod["spec"]["nodeSelector"]
        .as_object()
        .is_none_or(|wanted| {
            wanted
                .iter()
                .all(|(key, value)| Some(label(node, key)) == value.as_str())
        });
    if !selected {
        return Err("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    if excluded(store, pod, name(node)) {
        return Err("node(s) didn't satisfy existing pods anti-affinity rules".to_owned());
    }
    let (wanted, has) = (requests(pod), &node["status"]["allocatable"]);
    let short = |what: &str| Err(format!("Insufficient {what}"));
    if used.kvm + wanted.kvm > quantity(&has[names::KVM]) {
        return short(names::KVM);
    }
    if used.milli_cpus + wanted.milli_cpus > milli_cpus(&has["cpu"]) {
        return short("cpu");
    }
    match quantity(&has["memory"]).checked_sub(used.memory + wanted.memory) {
        Some(free) => Ok(free),
        None => short("memory"),
    }
}

fn tolerates(pod: &Value, key: &str, effect: &str) -> bool {
    pod["spec"]["tolerations"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|one| {
            let by_key = text(one, "key") == key
                || text(one, "key").is_empty() && text(one, "operator") == "Exists";
            by_key && (text(one, "effect").is_empty() || text(one, "effect") == effect)
        })
}

/// Required anti-affinity by host name: no pod of these labels may be there.
fn excluded(store: &Store, pod: &Value, node: &str) -> bool {
    let rules = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].as_array();
    rules.into_iter().flatten().any(|rule| {
        store.list_shared(kind::PODS).iter().any(|other| {
            !ended(other)
                && text(other, "spec.nodeName") == node
                && namespace(other) == namespace(pod)
                && selects(&rule["labelSelector"], &other["metadata"]["labels"])
        })
    })
}

/// Whether a pod waits for a node.
fn is_waiting(pod: &Value) -> bool {
    text(pod, "spec.nodeName").is_empty() && !ended(pod) && !deleting(pod)
}

impl Controller for Scheduler {
    fn name(&self) -> &'static str {
        "scheduler"
    }

    fn changed(&mut self, store: &Store, change: &Change, queue: &mut Queue) {
        let object = &change.object;
        match change.resource.as_str() {
            kind::PODS if is_waiting(object) && change.kind == ChangeKind::Added => {
                queue.soon(Key::of(POD, object));
            }
            // Room may have become free.
            kind::PODS if change.kind == ChangeKind::Deleted || ended(object) => wake(store, queue),
            kind::NODES => {
                let same = change.previous.as_ref().is_some_and(|old| {
                    old["spec"] == object["spec"]
                        && old["status"]["allocatable"] == object["status"]["allocatable"]
                        && old["metadata"]["labels"] == object["metadata"]["labels"]
                        && is_true(old, "Ready") == is_true(object, "Ready")
                });
                if !same {
                    wake(store, queue);
                }
            }
            _ => {}
        }
    }

    fn reconcile(
        &mut self,
        store: &Store,
        key: &Key,
        queue: &mut Queue,
    ) -> Result<(), Unavailable> {
        if let Some(pod) = store
            .get_shared(kind::PODS, &key.namespace, &key.name)
            .filter(|pod| is_waiting(pod))
        {
            Self::place(store, &pod, queue);
        }
        Ok(())
    }
}

fn wake(store: &Store, queue: &mut Queue) {
    for pod in store
        .list_shared(kind::PODS)
        .iter()
        .filter(|pod| is_waiting(pod))
    {
        queue.soon(Key::of(POD, pod));
    }
}
