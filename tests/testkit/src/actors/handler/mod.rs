//! The played virt-handler: guests that start, shut down and migrate; the heartbeat and the schedulable label.

mod departures;
mod guests;
mod presence;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DynamicObject, PostParams};
use kube::runtime::watcher;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::fabric::{Fabric, Host};
use super::feed::{Feed, Objects, resource};
use super::ledger::Ledger;
use super::machine::{Guest, Machine, Shared};
use super::timers::{Quiet, Timers};
use super::{Pace, Surroundings};
use crate::api::store::timestamp;
use crate::clock::SimClock;
use crate::kubernetes::engine::seed_of;
use crate::kubevirt::fields::{has, name, namespace, phase, text, uid};
use crate::kubevirt::names::{self, kind};

/// The virt-handler of one node.
pub struct Handler {
    pub(super) node: String,
    pub(super) client: kube::Client,
    pub(super) clock: SimClock,
    pub(super) fabric: Fabric,
    pub(super) shared: Shared,
    pub(super) ledger: Ledger,
    pub(super) pace: Pace,
    pub(super) timers: Timers,
    /// The losses of both ends when a migration began, by VMIM uid.
    pub(super) spans: BTreeMap<String, (u64, u64)>,
    /// Migrations that were handed over to this node as the source, by VMI uid: VMIM uids in order.
    pub(super) seen: BTreeMap<String, Vec<String>>,
    /// The version of a VMI over which it was written last: until a feed shows a newer one there is nothing new to write.
    written: BTreeMap<String, String>,
    quiet: Quiet,
    random: SmallRng,
    beat_at: Duration,
    /// Starts of this process: boot count, and whether it ran at the last look.
    started: (u64, bool),
}

/// A VMI as it should be written, and what goes with it.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) vmi: Value,
    pub(super) events: Vec<(&'static str, &'static str, String)>,
    pub(super) then: Effect,
}

/// What becomes true on the host once the write was accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    /// The guest runs in this VMI's launcher (its pod by name).
    Runs {
        namespace: String,
        pod: String,
    },
}

impl Handler {
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
            seed,
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
            spans: BTreeMap::new(),
            seen: BTreeMap::new(),
            written: BTreeMap::new(),
            quiet: Quiet::default(),
            random: SmallRng::seed_from_u64(seed_of(seed, node)),
            beat_at: Duration::ZERO,
            started: (0, false),
        }
    }

    /// Runs for ever.
    pub async fn run(mut self) {
        let labelled =
            |key: &str| watcher::Config::default().labels(&format!("{key}={}", self.node));
        let (here, _here) = Feed::start(&self.client, kind::VMIS, labelled(names::NODE_NAME));
        let (coming, _coming) =
            Feed::start(&self.client, kind::VMIS, labelled(names::MIGRATION_TARGET));
        let (mut left, mut arrived) = (here.changed(), coming.changed());
        let (mut rung, mut turned) = (self.shared.rung(), self.fabric.turned());
        loop {
            if turned.has_changed().unwrap_or(false) {
                self.quiet.clear();
            }
            for receiver in [&mut left, &mut arrived, &mut rung, &mut turned] {
                receiver.borrow_and_update();
            }
            let host = self.fabric.host(&self.node);
            let runs = host.on && host.handler;
            self.timers.begin(self.clock.elapsed());
            if runs {
                self.work(&here, &coming, &host).await;
            } else {
                self.stopped(&host).await;
            }
            let next = self.timers.next().filter(|_| runs);
            let wait = async {
                match next {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => {}
                _ = left.changed() => {}
                _ = arrived.changed() => {}
                _ = rung.changed() => {}
                _ = turned.changed() => self.quiet.clear(),
            }
        }
    }

    /// A virt-handler that was asked to stop says so on its node; a killed one says nothing.
    async fn stopped(&mut self, host: &Host) {
        if self.started.1 && host.on && host.shutting_down.is_some() {
            self.label("false", false).await;
        }
        self.started.1 = false;
    }

    async fn work(&mut self, here: &Feed, coming: &Feed, host: &Host) {
        if self.started != (host.boots, true) {
            let first = self.started.0 == 0 && host.boots == 1;
            self.started = (host.boots, true);
            self.start(first, host).await;
        }
        self.beat(host).await;
        let (Some(here), Some(coming)) = (here.objects(), coming.objects()) else {
            return;
        };
        if !self.shared.with(|machine| machine.adopted) {
            return;
        }
        self.follow_departures(&here).await;
        let shared = self.shared.clone();
        shared.with(|machine| self.drop_targets(machine, &coming));
        let all = newest(here, coming);
        let shared = self.shared.clone();
        let writes: Vec<_> = shared.with(|machine| {
            all.values()
                .filter_map(|vmi| Some((vmi, self.look_if_new(machine, vmi)?)))
                .collect()
        });
        let listed: BTreeSet<&str> = all.values().map(|vmi| uid(vmi)).collect();
        self.quiet.retain(|vmi_uid| listed.contains(vmi_uid));
        for (vmi, write) in writes {
            self.put(vmi, write).await;
        }
    }

    /// What one VMI calls for, unless nothing has changed since it called for nothing.
    fn look_if_new(&mut self, machine: &mut Machine, vmi: &Value) -> Option<Write> {
        let version = text(vmi, "metadata.resourceVersion");
        if self
            .written
            .get(uid(vmi))
            .is_some_and(|known| known == version)
        {
            return None;
        }
        let before = machine.fingerprint_of_vmi(uid(vmi));
        if self
            .quiet
            .knows(&mut self.timers, uid(vmi), version, before)
        {
            return None;
        }
        let everything = self.timers.aside();
        let write = self.look(machine, vmi);
        let next = self.timers.join(everything);
        if write.is_none() && machine.fingerprint_of_vmi(uid(vmi)) == before {
            self.quiet.settle(uid(vmi), version, before, next);
        }
        write
    }

    /// What one VMI calls for.
    fn look(&mut self, machine: &mut Machine, vmi: &Value) -> Option<Write> {
        let mut write = Write {
            vmi: vmi.clone(),
            events: Vec::new(),
            then: Effect::Nothing,
        };
        if text(vmi, "status.nodeName") == self.node {
            match phase(vmi) {
                "Scheduled" => self.scheduled(machine, &mut write),
                "Running" => self.running(machine, &mut write),
                _ => {}
            }
        }
        if phase(vmi) == "Running" && has(vmi, "status.migrationState.targetNode") {
            self.migrate(machine, &mut write);
        }
        (write.vmi != *vmi).then_some(write)
    }

    /// Events that come without a write are sent on their own.
    fn tell_later(&self, vmi: &Value, events: &mut Vec<(&'static str, &'static str, String)>) {
        let (client, vmi, now) = (
            self.client.clone(),
            vmi.clone(),
            timestamp(self.clock.now()),
        );
        for (type_, reason, message) in events.drain(..) {
            tokio::spawn(tell(
                client.clone(),
                vmi.clone(),
                type_,
                reason,
                message,
                now.clone(),
            ));
        }
    }

    async fn put(&mut self, old: &Value, write: Write) {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace(old), &resource(kind::VMIS));
        let accepted = match serde_json::from_value::<DynamicObject>(write.vmi) {
            Ok(object) => api
                .replace(name(old), &PostParams::default(), &object)
                .await
                .is_ok(),
            Err(_) => false,
        };
        if !accepted {
            // Somebody wrote in between, or virt-api is down: look again with the newest object.
            let again = self.timers.now() + self.pace.retry;
            self.timers.reached(again);
            return;
        }
        self.written.insert(
            uid(old).to_owned(),
            text(old, "metadata.resourceVersion").to_owned(),
        );
        if let Effect::Runs { namespace, pod } = write.then {
            self.shared.with(|machine| {
                if let Some(launcher) = machine.of_pod(&namespace, &pod) {
                    launcher.guest = Guest::Running;
                }
            });
        }
        let now = timestamp(self.clock.now());
        for (type_, reason, message) in write.events {
            tell(
                self.client.clone(),
                old.clone(),
                type_,
                reason,
                message,
                now.clone(),
            )
            .await;
        }
    }
}

/// Both feeds as one; the object with the higher resourceVersion wins.
fn newest(here: Objects, coming: Objects) -> Objects {
    let version = |object: &Arc<Value>| {
        text(object, "metadata.resourceVersion")
            .parse::<u64>()
            .unwrap_or(0)
    };
    let mut all = here;
    for (key, object) in coming {
        match all.get(&key) {
            Some(known) if version(known) >= version(&object) => {}
            _ => {
                all.insert(key, object);
            }
        }
    }
    all
}

async fn tell(
    client: kube::Client,
    about: Value,
    type_: &'static str,
    reason: &'static str,
    message: String,
    now: String,
) {
    let event = json!({
        "metadata": {"generateName": format!("{}.", name(&about)), "namespace": namespace(&about)},
        "involvedObject": {
            "apiVersion": about["apiVersion"], "kind": about["kind"], "namespace": namespace(&about), "name": name(&about), "uid": uid(&about),
        },
        "type": type_, "reason": reason, "message": message, "count": 1, "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": "virt-handler"}, "reportingComponent": "virt-handler", "reportingInstance": "",
    });
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, namespace(&about), &resource("events"));
    if let Ok(object) = serde_json::from_value::<DynamicObject>(event) {
        // An event that cannot be sent is lost, as everywhere.
        let _ = api.create(&PostParams::default(), &object).await;
    }
}
