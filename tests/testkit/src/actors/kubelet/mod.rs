//! The played kubelet: starts bound pods, stops deleted ones, renews its lease, and kills what overstays its grace period.

mod containers;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher;
use serde_json::{Value, json};

pub use containers::fresh;

use super::fabric::{Fabric, Host};
use super::feed::Feed;
use super::ledger::{DirtyKill, Ledger};
use super::machine::{Launcher, Machine, Shared};
use super::status::{Containers, says, status};
use super::timers::{Quiet, Timers};
use super::{Pace, Surroundings};
use crate::api::store::timestamp;
use crate::clock::SimClock;
use crate::kubevirt::fields::{deleting, ended, is_true, phase, text, uid};
use crate::kubevirt::names::kind;

/// The kubelet of one node.
pub struct Kubelet {
    pub(super) node: String,
    pub(super) client: kube::Client,
    pub(super) clock: SimClock,
    pub(super) fabric: Fabric,
    pub(super) shared: Shared,
    pub(super) ledger: Ledger,
    pub(super) pace: Pace,
    timers: Timers,
    boots: u64,
    lease_at: Duration,
    told: Value,
    /// Pods whose containers were lost with the power.
    lost: BTreeSet<String>,
    /// The version of a pod over which its last request was sent: until the feed shows a newer one there is nothing new to say.
    answered: BTreeMap<String, String>,
    quiet: Quiet,
}

/// One request that the picture calls for.
#[derive(Debug, PartialEq)]
enum Deed {
    Status { pod: Arc<Value>, status: Value },
    Delete { pod: Arc<Value> },
}

impl Deed {
    fn pod(&self) -> &Arc<Value> {
        match self {
            Self::Status { pod, .. } | Self::Delete { pod } => pod,
        }
    }
}

impl Kubelet {
    pub(super) fn new(
        node: &str,
        client: kube::Client,
        shared: Shared,
        around: &Surroundings,
    ) -> Self {
        let Surroundings {
            clock,
            fabric,
            ledger,
            pace,
            ..
        } = around.clone();
        Self {
            node: node.to_owned(),
            client,
            clock,
            fabric,
            shared,
            ledger,
            pace,
            timers: Timers::default(),
            boots: 0,
            lease_at: Duration::ZERO,
            told: Value::Null,
            lost: BTreeSet::new(),
            answered: BTreeMap::new(),
            quiet: Quiet::default(),
        }
    }

    /// Runs for ever.
    pub async fn run(mut self) {
        let selector = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node));
        let (pods, _watch) = Feed::start(&self.client, kind::PODS, selector);
        let (mut changed, mut rung, mut turned) =
            (pods.changed(), self.shared.rung(), self.fabric.turned());
        loop {
            changed.borrow_and_update();
            rung.borrow_and_update();
            if turned.has_changed().unwrap_or(false) {
                turned.borrow_and_update();
                self.quiet.clear();
            }
            let host = self.fabric.host(&self.node);
            self.timers.begin(self.clock.elapsed());
            if host.on {
                self.work(&pods, &host).await;
            } else {
                self.lose_power();
            }
            let next = self.timers.next().filter(|_| host.on);
            let wait = async {
                match next {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => {}
                _ = changed.changed() => {}
                _ = rung.changed() => {}
                _ = turned.changed() => self.quiet.clear(),
            }
        }
    }

    /// Without power every guest loses its memory.
    fn lose_power(&mut self) {
        let (node, now) = (self.node.clone(), self.timers.now());
        let shared = self.shared.clone();
        let lost: Vec<Launcher> = shared.with(|machine| {
            self.lost.extend(machine.launchers.keys().cloned());
            let lost = machine
                .launchers
                .values()
                .filter(|one| one.holds_guest())
                .cloned()
                .collect();
            *machine = Machine::default();
            lost
        });
        for launcher in lost {
            self.ledger
                .record(kill(&launcher, &node, now, "the host went down under it"));
        }
        self.told = Value::Null;
    }

    async fn work(&mut self, pods: &Feed, host: &Host) {
        if host.boots != self.boots {
            self.boots = host.boots;
            self.lease_at = self.timers.now();
        }
        self.post_node(host).await;
        if self.timers.reached(self.lease_at) {
            let renewed = self.renew_lease().await;
            if !renewed {
                // Meanwhile it may have been called unknown: as soon as it can it says that it is Ready.
                self.told = Value::Null;
            }
            let pause = if renewed {
                self.pace.lease
            } else {
                self.pace.retry
            };
            self.lease_at = self.timers.now() + pause;
            self.timers.reached(self.lease_at);
        }
        let Some(objects) = pods.objects() else {
            return;
        };
        let shared = self.shared.clone();
        let deeds = shared.with(|machine| {
            let deeds = objects
                .values()
                .flat_map(|pod| self.look_if_new(machine, pod, host))
                .collect::<Vec<_>>();
            let alive: BTreeSet<&str> = objects
                .values()
                .filter(|pod| !ended(pod))
                .map(|pod| uid(pod))
                .collect();
            self.reap(machine, |pod_uid| alive.contains(pod_uid));
            machine.adopted = true;
            deeds
        });
        let listed: BTreeSet<&str> = objects.values().map(|pod| uid(pod)).collect();
        self.answered
            .retain(|pod_uid, _| listed.contains(pod_uid.as_str()));
        self.quiet.retain(|pod_uid| listed.contains(pod_uid));
        for deed in deeds {
            let pod = deed.pod().clone();
            if self.perform(&deed).await {
                self.answered
                    .insert(uid(&pod).to_owned(), version(&pod).to_owned());
            } else {
                let again = self.timers.now() + self.pace.retry;
                self.timers.reached(again);
            }
        }
    }

    /// What one pod calls for, unless nothing has changed since it called for nothing.
    fn look_if_new(&mut self, machine: &mut Machine, pod: &Arc<Value>, host: &Host) -> Vec<Deed> {
        let state = |machine: &Machine| {
            machine
                .launchers
                .get(uid(pod))
                .map_or(0, Launcher::fingerprint)
        };
        let before = state(machine);
        if self
            .quiet
            .knows(&mut self.timers, uid(pod), version(pod), before)
        {
            return Vec::new();
        }
        let everything = self.timers.aside();
        let deeds = self.look(machine, pod, host);
        let next = self.timers.join(everything);
        if deeds.is_empty() && state(machine) == before {
            self.quiet.settle(uid(pod), version(pod), before, next);
        }
        deeds
    }

    /// What one pod calls for.
    fn look(&mut self, machine: &mut Machine, pod: &Arc<Value>, host: &Host) -> Vec<Deed> {
        if self
            .answered
            .get(uid(pod))
            .is_some_and(|known| known == version(pod))
        {
            return Vec::new();
        }
        if ended(pod) {
            return if deleting(pod) {
                vec![Deed::Delete { pod: pod.clone() }]
            } else {
                Vec::new()
            };
        }
        match self.containers(machine, pod, host) {
            None if deleting(pod) && phase(pod) == "Pending" => {
                vec![Deed::Delete { pod: pod.clone() }]
            }
            None => Vec::new(),
            Some(containers) => {
                let status = status(pod, containers, &timestamp(self.clock.now()), "192.0.2.1");
                let mut deeds = Vec::new();
                let opens = !is_true(pod, "Ready")
                    && is_true(&json!({"status": status}), "Ready")
                    && phase(pod) == "Running";
                let shown = !opens
                    || self
                        .timers
                        .due(&format!("ready/{}", uid(pod)), self.pace.ready);
                if shown && !says(pod, &status) {
                    deeds.push(Deed::Status {
                        pod: pod.clone(),
                        status,
                    });
                }
                if containers != Containers::Running && deleting(pod) {
                    deeds.push(Deed::Delete { pod: pod.clone() });
                }
                deeds
            }
        }
    }
}

fn version(pod: &Value) -> &str {
    text(pod, "metadata.resourceVersion")
}

fn kill(launcher: &Launcher, node: &str, at: Duration, reason: &str) -> DirtyKill {
    DirtyKill {
        at,
        namespace: launcher.namespace.clone(),
        name: launcher.vmi.clone(),
        node: node.to_owned(),
        reason: reason.to_owned(),
    }
}
