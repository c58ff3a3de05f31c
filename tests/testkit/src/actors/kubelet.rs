//! The played kubelet: starts bound pods, stops deleted ones, renews its lease, and kills what overstays its grace period.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher;
use serde_json::{Value, json};

use super::{Pace, Surroundings};
use super::fabric::{Fabric, Host};
use super::feed::{Feed, resource};
use super::knobs::{Outcome, outcome_of, seconds_or_never};
use super::ledger::{DirtyKill, Ledger};
use super::machine::{Guest, Launcher, Machine, Shared};
use super::status::{Containers, says, status};
use super::timers::{Quiet, Timers};
use crate::api::store::timestamp;
use crate::clock::SimClock;
use crate::kubevirt::fields::{at, deleting, ended, has, is_launcher, is_true, name, namespace, owner, phase, text, uid};
use crate::kubevirt::names::{kind, knob};

/// virt-launcher kills its guest so long after the guest's own grace period.
const LAUNCHER_EXTRA: Duration = Duration::from_secs(15);
/// What an ordinary pod takes to start and to stop, unless a knob says otherwise.
const USUAL_START: Duration = Duration::from_secs(1);
const USUAL_STOP: Duration = Duration::from_millis(500);

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
    pub(super) fn new(node: &str, client: kube::Client, shared: Shared, around: &Surroundings) -> Self {
        let Surroundings { clock, fabric, ledger, pace, .. } = around.clone();
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
        let (mut changed, mut rung, mut turned) = (pods.changed(), self.shared.rung(), self.fabric.turned());
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
            let lost = machine.launchers.values().filter(|one| one.holds_guest()).cloned().collect();
            *machine = Machine::default();
            lost
        });
        for launcher in lost {
            self.ledger.record(kill(&launcher, &node, now, "the host went down under it"));
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
            let pause = if renewed { self.pace.lease } else { self.pace.retry };
            self.lease_at = self.timers.now() + pause;
            self.timers.reached(self.lease_at);
        }
        let Some(objects) = pods.objects() else { return };
        let shared = self.shared.clone();
        let deeds = shared.with(|machine| {
            let deeds = objects.values().flat_map(|pod| self.look_if_new(machine, pod, host)).collect::<Vec<_>>();
            let alive: BTreeSet<&str> = objects.values().filter(|pod| !ended(pod)).map(|pod| uid(pod)).collect();
            self.reap(machine, |pod_uid| alive.contains(pod_uid));
            machine.adopted = true;
            deeds
        });
        let listed: BTreeSet<&str> = objects.values().map(|pod| uid(pod)).collect();
        self.answered.retain(|pod_uid, _| listed.contains(pod_uid.as_str()));
        self.quiet.retain(|pod_uid| listed.contains(pod_uid));
        for deed in deeds {
            let pod = deed.pod().clone();
            if self.perform(&deed).await {
                self.answered.insert(uid(&pod).to_owned(), version(&pod).to_owned());
            } else {
                let again = self.timers.now() + self.pace.retry;
                self.timers.reached(again);
            }
        }
    }

    /// What one pod calls for, unless nothing has changed since it called for nothing.
    fn look_if_new(&mut self, machine: &mut Machine, pod: &Arc<Value>, host: &Host) -> Vec<Deed> {
        let state = |machine: &Machine| machine.launchers.get(uid(pod)).map_or(0, Launcher::fingerprint);
        let before = state(machine);
        if self.quiet.knows(&mut self.timers, uid(pod), version(pod), before) {
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
        if self.answered.get(uid(pod)).is_some_and(|known| known == version(pod)) {
            return Vec::new();
        }
        if ended(pod) {
            return if deleting(pod) { vec![Deed::Delete { pod: pod.clone() }] } else { Vec::new() };
        }
        match self.containers(machine, pod, host) {
            None if deleting(pod) && phase(pod) == "Pending" => vec![Deed::Delete { pod: pod.clone() }],
            None => Vec::new(),
            Some(containers) => {
                let status = status(pod, containers, &timestamp(self.clock.now()), "192.0.2.1");
                let mut deeds = Vec::new();
                let opens = !is_true(pod, "Ready") && is_true(&json!({"status": status}), "Ready") && phase(pod) == "Running";
                let shown = !opens || self.timers.due(&format!("ready/{}", uid(pod)), self.pace.ready);
                if shown && !says(pod, &status) {
                    deeds.push(Deed::Status { pod: pod.clone(), status });
                }
                if containers != Containers::Running && deleting(pod) {
                    deeds.push(Deed::Delete { pod: pod.clone() });
                }
                deeds
            }
        }
    }

    /// What the containers of a pod do; `None` while they have not started.
    fn containers(&mut self, machine: &mut Machine, pod: &Value, host: &Host) -> Option<Containers> {
        let launcher = is_launcher(pod) && owner(pod).is_some();
        if launcher { self.launcher(machine, pod, host) } else { self.ordinary(pod, host) }
    }

    fn ordinary(&mut self, pod: &Value, host: &Host) -> Option<Containers> {
        if deleting(pod) {
            let usual = seconds_or_never(pod, knob::TERMINATES, USUAL_STOP).unwrap_or(Duration::MAX);
            let stopped = self.timers.due(&format!("stop/{}", uid(pod)), usual.min(grace(pod)));
            return if stopped { Some(Containers::Ended(0)) } else { Some(Containers::Running).filter(|_| phase(pod) == "Running") };
        }
        if let Some((since, period)) = host.shutting_down
            && self.timers.reached(since + period.min(USUAL_STOP))
        {
            return Some(Containers::Terminated(1));
        }
        let usual = seconds_or_never(pod, knob::START_UP, USUAL_START)?;
        (phase(pod) == "Running" || self.timers.due(&format!("start/{}", uid(pod)), usual)).then_some(Containers::Running)
    }

    fn launcher(&mut self, machine: &mut Machine, pod: &Value, host: &Host) -> Option<Containers> {
        if !machine.launchers.contains_key(uid(pod)) {
            if self.lost.contains(uid(pod)) {
                // Its containers are from before the boot.
                return Some(Containers::Ended(255));
            }
            let found = phase(pod) == "Running";
            if !found && !self.may_start(pod, host) {
                return None;
            }
            let guest = if found { Guest::Found } else { Guest::Empty };
            machine.launchers.insert(uid(pod).to_owned(), fresh(pod, guest));
        }
        let launcher = machine.launchers.get_mut(uid(pod))?;
        self.terminate(launcher, pod, host);
        match launcher.ends {
            Some((at, code)) if self.timers.reached(at) => {
                Some(if host.shutting_down.is_some() { Containers::Terminated(code) } else { Containers::Ended(code) })
            }
            Some(_) | None => Some(Containers::Running),
        }
    }

    fn may_start(&mut self, pod: &Value, host: &Host) -> bool {
        if deleting(pod) || host.shutting_down.is_some() || outcome_of(pod) == Some(Outcome::Pending) {
            return false;
        }
        let Some(usual) = seconds_or_never(pod, knob::START_UP, USUAL_START) else { return false };
        self.timers.due(&format!("start/{}", uid(pod)), usual)
    }

    /// SIGTERM, and what follows when the guest takes too long.
    fn terminate(&mut self, launcher: &mut Launcher, pod: &Value, host: &Host) {
        let now = self.timers.now();
        if launcher.terminated.is_none() && (deleting(pod) || host.shutting_down.is_some()) {
            launcher.terminated = Some(now);
        }
        if launcher.ends.is_none() && !launcher.holds_guest() && (launcher.terminated.is_some() || matches!(launcher.guest, Guest::Gone { .. }) && !launcher.lingers) {
            let code = i32::from(launcher.guest == Guest::Gone { clean: false });
            launcher.ends = Some((now + USUAL_STOP, code));
        }
        let Some(since) = launcher.terminated.filter(|_| launcher.holds_guest()) else { return };
        let mut limit = grace(pod);
        if let Some((_, period)) = host.shutting_down {
            limit = limit.min(period);
        }
        let own = launcher.grace + LAUNCHER_EXTRA;
        if self.timers.reached(since + limit.min(own)) {
            let why = if own < limit { "virt-launcher gave up waiting for it" } else { "the kubelet killed its pod" };
            self.ledger.record(kill(launcher, &self.node, now, why));
            launcher.guest = Guest::Gone { clean: false };
            launcher.ends = Some((now, 137));
        }
    }

    /// Launchers whose pod object is gone are killed.
    fn reap(&mut self, machine: &mut Machine, lives: impl Fn(&str) -> bool) {
        let gone: Vec<String> = machine.launchers.keys().filter(|pod| !lives(pod)).cloned().collect();
        for pod in gone {
            if let Some(launcher) = machine.launchers.remove(&pod).filter(Launcher::holds_guest) {
                self.ledger.record(kill(&launcher, &self.node, self.timers.now(), "its pod was removed by force"));
            }
        }
    }

    async fn perform(&self, deed: &Deed) -> bool {
        let pods = |pod: &Value| -> Api<DynamicObject> { Api::namespaced_with(self.client.clone(), namespace(pod), &resource(kind::PODS)) };
        let outcome = match deed {
            Deed::Status { pod, status } => {
                let patch = json!({"metadata": {"uid": uid(pod)}, "status": status});
                pods(pod).patch_status(name(pod), &PatchParams::default(), &Patch::Strategic(patch)).await.map(|_| ())
            }
            Deed::Delete { pod } => {
                let exactly = Preconditions { uid: Some(uid(pod).to_owned()), resource_version: None };
                let parameters = DeleteParams { grace_period_seconds: Some(0), preconditions: Some(exactly), ..DeleteParams::default() };
                pods(pod).delete(name(pod), &parameters).await.map(|_| ())
            }
        };
        match outcome {
            Ok(()) => true,
            // Gone, or another pod of that name: nothing more to do.
            Err(kube::Error::Api(answer)) => matches!(answer.code, 404 | 403) || answer.code == 409 && matches!(deed, Deed::Delete { .. }),
            Err(_) => false,
        }
    }

    async fn renew_lease(&self) -> bool {
        let leases: ApiResource = resource(kind::LEASES);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), "kube-node-lease", &leases);
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let spec = json!({"holderIdentity": self.node, "leaseDurationSeconds": 40, "renewTime": now});
        let patch = Patch::Merge(json!({"spec": spec}));
        match api.patch(&self.node, &PatchParams::default(), &patch).await {
            Ok(_) => true,
            Err(kube::Error::Api(answer)) if answer.code == 404 => {
                let mut lease = DynamicObject::new(&self.node, &leases);
                lease.data = json!({"spec": spec});
                api.create(&PostParams::default(), &lease).await.is_ok()
            }
            Err(_) => false,
        }
    }

    /// Ready, boot id and device plugins, when they changed.
    async fn post_node(&mut self, host: &Host) {
        let plugins = self.shared.with(|machine| machine.plugins);
        let facts = json!([host.boot_id, plugins, host.shutting_down.is_some()]);
        if facts == self.told {
            return;
        }
        let now = timestamp(self.clock.now());
        let (value, reason, message) = if host.shutting_down.is_some() {
            ("False", "KubeletNotReady", "node is shutting down")
        } else {
            ("True", "KubeletReady", "kubelet is posting ready status")
        };
        let count = if plugins { "1k" } else { "0" };
        let patch = json!({"status": {
            "conditions": [{"type": "Ready", "status": value, "reason": reason, "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now}],
            "nodeInfo": {"bootID": host.boot_id},
            "allocatable": {crate::kubevirt::names::KVM: count}, "capacity": {crate::kubevirt::names::KVM: count},
        }});
        let nodes: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(kind::NODES));
        if nodes.patch_status(&self.node, &PatchParams::default(), &Patch::Strategic(patch)).await.is_ok() {
            self.told = facts;
        } else {
            let again = self.timers.now() + self.pace.retry;
            self.timers.reached(again);
        }
    }
}

fn version(pod: &Value) -> &str {
    text(pod, "metadata.resourceVersion")
}

fn kill(launcher: &Launcher, node: &str, at: Duration, reason: &str) -> DirtyKill {
    DirtyKill { at, namespace: launcher.namespace.clone(), name: launcher.vmi.clone(), node: node.to_owned(), reason: reason.to_owned() }
}

/// The grace period of a pod's deletion, else its own.
fn grace(pod: &Value) -> Duration {
    let path = if has(pod, "metadata.deletionGracePeriodSeconds") { "metadata.deletionGracePeriodSeconds" } else { "spec.terminationGracePeriodSeconds" };
    Duration::from_secs(at(pod, path).and_then(Value::as_u64).unwrap_or(30))
}

fn fresh(pod: &Value, guest: Guest) -> Launcher {
    let (_, vmi, vmi_uid) = owner(pod).unwrap_or_default();
    let own = at(pod, "spec.terminationGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(60);
    Launcher {
        namespace: namespace(pod).to_owned(),
        pod: text(pod, "metadata.name").to_owned(),
        vmi: vmi.to_owned(),
        vmi_uid: vmi_uid.to_owned(),
        guest,
        terminated: None,
        ends: None,
        grace: Duration::from_secs(own.saturating_sub(30)),
        receiving: false,
        lingers: false,
    }
}
