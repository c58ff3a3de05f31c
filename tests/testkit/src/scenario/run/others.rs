//! What others do in the cluster, and what goes wrong in it: every event but those of the host and the agent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::{Cluster, outcome, pdb_spec, pod_spec, share, vm_spec};
use super::stage::NotPlayed;
use crate::api::failure::Failure;
use crate::api::faults::{Effect, Rule};
use crate::api::log::Filter;
use crate::kubevirt::names::knob;
use crate::scenario::event::Do;
use crate::scenario::event::api::{Answer, ApiDo, Trouble, VirtPart};
use crate::scenario::event::cluster::{NodeDo, PdbDo, PodDo, VmDo, VmSet};
use crate::scenario::values::Span;
use crate::scenario::words::Migratable;
use crate::scenario::world::Vm;

/// Plays events on a cluster. Times in the story are moved by `origin`, when it began on the world's clock.
pub struct Others<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// When the story began.
    pub origin: Duration,
    /// The host's node.
    pub host: &'a str,
}

type Played = Result<(), NotPlayed>;

impl Others<'_> {
    /// Plays one event.
    pub async fn play(&self, what: &Do) -> Played {
        match what {
            Do::Api(what) => self.api(what),
            Do::Virt(part, down) => self.virt(*part, down.node.as_deref(), down.until),
            Do::Vm(what) => self.vm(what).await,
            Do::Node(what) => self.node(what),
            Do::Pod(what) => self.pod(what),
            Do::Pdb(what) => self.pdb(what),
            Do::Apply(apply) => self.apply(&apply.yaml),
            Do::Lease(_) => Err(NotPlayed::NotYet("drain slots (leases)")),
            Do::Host(_) | Do::Agent(_) => Err(NotPlayed::Cannot("this belongs to the host".into())),
        }
    }

    fn moment(&self, until: Option<Span>) -> Option<Duration> {
        until.map(|until| self.origin + until.0)
    }

    fn api(&self, what: &ApiDo) -> Played {
        let server = &self.cluster.server;
        let now = server.clock().elapsed();
        match what {
            ApiDo::Answer(answer) => {
                server.faults.add(self.answer(answer));
            }
            ApiDo::Drop(it) => self.trouble(
                it,
                Effect::Drop {
                    after_write: it.after_write,
                },
            ),
            ApiDo::Hang(it) => self.trouble(
                it,
                Effect::Hang {
                    after_write: it.after_write,
                },
            ),
            ApiDo::Delay(it) => {
                self.trouble(it, Effect::Delay(it.by.unwrap_or_default().0));
            }
            ApiDo::Down(down) => server.faults.down(self.moment(down.until)),
            ApiDo::ExpireWatches => server.expire_watches(),
            ApiDo::CloseWatches => server.faults.close_watches(),
            ApiDo::RotateCredentials(rotate) => {
                server.faults.rotate_credentials(now, rotate.grace.0);
            }
        }
        Ok(())
    }

    /// Faults hit the agent, not the played parts, which share its credentials: those fill a real node in other ways.
    fn filter(&self, parts: [&Option<String>; 4]) -> Filter {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let [verb, resource, subresource, name] = parts;
        let without = subresource.is_none() && resource.is_some();
        Filter {
            user: format!("system:node:{}", self.host),
            verb: text(verb),
            resource: text(resource),
            subresource: if without {
                "-".into()
            } else {
                text(subresource)
            },
            name: text(name),
            ..Filter::default()
        }
    }

    fn answer(&self, answer: &Answer) -> Rule {
        let mut failure = match &answer.reason {
            Some(reason) => Failure::new(answer.status, reason, answer.message.clone()),
            None => Failure {
                reason: None,
                ..Failure::new(answer.status, "", answer.message.clone())
            },
        };
        for cause in &answer.causes {
            failure = failure.with_cause(&cause.reason, &cause.message, "");
        }
        if let Some(wait) = answer.retry_after {
            failure = failure.with_retry_after(u32::try_from(wait.0.as_secs()).unwrap_or(u32::MAX));
        }
        Rule {
            filter: self.filter([
                &answer.verb,
                &answer.resource,
                &answer.subresource,
                &answer.name,
            ]),
            effect: Effect::Answer(failure),
            times: answer.times,
            until: self.moment(answer.until),
        }
    }

    fn trouble(&self, trouble: &Trouble, effect: Effect) {
        self.cluster.server.faults.add(Rule {
            filter: self.filter([
                &trouble.verb,
                &trouble.resource,
                &trouble.subresource,
                &trouble.name,
            ]),
            effect,
            times: trouble.times,
            until: self.moment(trouble.until),
        });
    }

    fn virt(&self, part: VirtPart, node: Option<&str>, until: Option<Span>) -> Played {
        let until = self.moment(until);
        let world = &self.cluster.world;
        match part {
            VirtPart::Api => world.virt_api.down(until.unwrap_or(Duration::MAX)),
            VirtPart::Controller => match until {
                Some(until) => world.virt_controller.down_until(until),
                None => world.virt_controller.down(),
            },
            VirtPart::Handler => world.virt_handler_down(node.unwrap_or(self.host), until),
        }
        Ok(())
    }

    async fn vm(&self, what: &VmDo) -> Played {
        let world = &self.cluster.world;
        let space =
            |ns: &Option<String>, vm: &str| self.namespace("virtualmachineinstances", ns, vm);
        let done = match what {
            VmDo::Create(new) => {
                let made = world.vm_create(&vm_spec(new));
                self.not_yet_running(new);
                made
            }
            VmDo::Delete(vm) => {
                world.vm_delete(&space(&vm.namespace, &vm.vm), &vm.vm);
                Ok(())
            }
            VmDo::Set(set) => return self.vm_set(set),
            VmDo::Migrate(it) => world
                .migrate(&space(&it.namespace, &it.vm), &it.vm, it.to.as_deref())
                .map(drop),
            VmDo::Start(vm) => {
                let ns = self.namespace("virtualmachines", &vm.namespace, &vm.vm);
                world.vm_start(&ns, &vm.vm).await
            }
            VmDo::Stop(vm) => world.vm_stop(&space(&vm.namespace, &vm.vm), &vm.vm).await,
        };
        done.map_err(|failure| NotPlayed::Cannot(failure.message))
    }

    /// A VM that appears on a node in mid-story is left one step before Running: only then does virt-handler wait for its pod.
    fn not_yet_running(&self, new: &Vm) {
        if new.node.is_some() {
            for name in new.names() {
                let store = self.cluster.store();
                store.update("virtualmachineinstances", &new.namespace, &name, |vmi| {
                    vmi["status"]["phase"] = json!("Scheduled");
                });
            }
        }
    }

    /// The namespace that is named, or the one in which there is such an object.
    fn namespace(&self, resource: &str, named: &Option<String>, name: &str) -> String {
        let find = || {
            let all = self.cluster.store().list_shared(resource);
            let found = all
                .iter()
                .find(|object| object["metadata"]["name"] == name)?;
            found["metadata"]["namespace"].as_str().map(str::to_owned)
        };
        named
            .clone()
            .or_else(find)
            .unwrap_or_else(|| "default".into())
    }

    fn vm_set(&self, set: &VmSet) -> Played {
        let space = self.namespace("virtualmachineinstances", &set.namespace, &set.vm);
        if let Some(marked) = set.marked {
            self.cluster.world.vm_mark(&space, &set.vm, marked);
        }
        let stamp = self.cluster.store().stamp();
        self.change("virtualmachineinstances", &space, &set.vm, |vmi| {
            let seconds = |span: Duration| json!(span.as_secs_f64().to_string());
            let never = |span: Option<Duration>| span.map_or(json!("never"), seconds);
            let annotations = &mut vmi["metadata"]["annotations"];
            if let Some(time) = set.migration_time {
                annotations[knob::MIGRATION_SECONDS] = seconds(time.0);
            }
            if let Some(list) = &set.migration {
                let list: Vec<String> = list.iter().map(outcome).collect();
                annotations[knob::MIGRATION] = json!(list.join("|"));
            }
            if let Some(time) = set.guest_shutdown {
                annotations[knob::GUEST_SHUTDOWN] = never(time.after());
            }
            if let Some(time) = set.source_pod_lingers {
                annotations[knob::SOURCE_LINGERS] = never(time.after());
            }
            for (key, value) in set.labels.iter().flatten() {
                vmi["metadata"]["labels"][key] = json!(value);
            }
            if let Some(memory) = set.memory {
                vmi["spec"]["domain"]["memory"]["guest"] = json!(memory.0.to_string());
                let rate = set.rate.map_or(1 << 30, |rate| rate.0);
                let time = Duration::from_millis(memory.0.saturating_mul(1000) / rate);
                vmi["metadata"]["annotations"][knob::MIGRATION_SECONDS] = seconds(time);
            }
            if let Some(strategy) = set.eviction_strategy {
                match strategy.name() {
                    Some(name) => vmi["spec"]["evictionStrategy"] = json!(name),
                    None => drop(
                        vmi["spec"]
                            .as_object_mut()
                            .map(|it| it.remove("evictionStrategy")),
                    ),
                }
            }
            let migratable = set.migratable.as_ref().map(|can| match can {
                Migratable::Yes => ("True", ""),
                Migratable::No(why) => ("False", why.as_str()),
            });
            if let Some((status, why)) = migratable {
                condition(vmi, "LiveMigratable", status, why, why, &stamp);
            }
            if let Some(it) = &set.condition {
                condition(vmi, &it.kind, &it.status, &it.reason, &it.message, &stamp);
            }
        })
    }

    fn change(
        &self,
        resource: &str,
        space: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Played {
        match self.cluster.store().update(resource, space, name, change) {
            Some(_) => Ok(()),
            None => Err(NotPlayed::Cannot(format!(
                "there is no {resource} {name} now"
            ))),
        }
    }

    fn node(&self, what: &NodeDo) -> Played {
        match what {
            NodeDo::Cordon(it) => self.change("nodes", "", &it.node, |node| {
                node["spec"]["unschedulable"] = json!(true);
            }),
            NodeDo::Uncordon(it) => self.change("nodes", "", &it.node, |node| {
                drop(
                    node["spec"]
                        .as_object_mut()
                        .map(|spec| spec.remove("unschedulable")),
                );
            }),
            NodeDo::Delete(it) => {
                self.cluster.store().delete("nodes", "", &it.node);
                Ok(())
            }
            NodeDo::Taint(taint) => self.change("nodes", "", &taint.node, |node| {
                let new = json!({"key": taint.key, "value": taint.value, "effect": taint.effect});
                match node["spec"]["taints"].as_array_mut() {
                    Some(taints) => taints.push(new),
                    None => node["spec"]["taints"] = json!([new]),
                }
            }),
            NodeDo::Set(set) => {
                let stamp = self.cluster.store().stamp();
                self.change("nodes", "", &set.node, |node| {
                    metadata(node, &set.labels, &set.annotations);
                    if let Some(id) = &set.machine_id {
                        node["status"]["nodeInfo"]["machineID"] = json!(id);
                    }
                    if let Some(id) = &set.system_uuid {
                        node["status"]["nodeInfo"]["systemUUID"] = json!(id);
                    }
                    if let Some(ready) = set.ready {
                        let status = if ready { "True" } else { "False" };
                        condition(
                            node,
                            "Ready",
                            status,
                            "Scenario",
                            "set by the story",
                            &stamp,
                        );
                    }
                })
            }
        }
    }

    fn pod(&self, what: &PodDo) -> Played {
        match what {
            PodDo::Create(new) => {
                let done = self.cluster.world.pod_create(&pod_spec(new, self.host));
                done.map_err(|failure| NotPlayed::Cannot(failure.message))
            }
            PodDo::Set(set) => {
                let stamp = self.cluster.store().stamp();
                let space = self.namespace("pods", &set.namespace, &set.pod);
                self.change("pods", &space, &set.pod, |pod| {
                    metadata(pod, &set.labels, &set.annotations);
                    if let Some(ready) = set.ready {
                        let status = if ready { "True" } else { "False" };
                        condition(pod, "Ready", status, "Scenario", "set by the story", &stamp);
                    }
                })
            }
            PodDo::Delete(it) => {
                let space = self.namespace("pods", &it.namespace, &it.pod);
                self.cluster.store().delete("pods", &space, &it.pod);
                Ok(())
            }
        }
    }

    fn pdb(&self, what: &PdbDo) -> Played {
        let number = |text: String| {
            text.parse::<u64>()
                .map_or_else(|_| json!(text), |number| json!(number))
        };
        match what {
            PdbDo::Create(new) => {
                let done = self.cluster.world.pdb_create(&pdb_spec(new));
                done.map_err(|failure| NotPlayed::Cannot(failure.message))
            }
            PdbDo::Set(set) => {
                let space = self.namespace("poddisruptionbudgets", &set.namespace, &set.pdb);
                self.change("poddisruptionbudgets", &space, &set.pdb, |pdb| {
                    for (key, value) in [
                        ("minAvailable", &set.min_available),
                        ("maxUnavailable", &set.max_unavailable),
                    ] {
                        if let Some(value) = value {
                            for old in ["minAvailable", "maxUnavailable"] {
                                drop(pdb["spec"].as_object_mut().map(|spec| spec.remove(old)));
                            }
                            pdb["spec"][key] = number(share(value));
                        }
                    }
                })
            }
            PdbDo::Delete(it) => {
                let space = self.namespace("poddisruptionbudgets", &it.namespace, &it.pdb);
                self.cluster
                    .store()
                    .delete("poddisruptionbudgets", &space, &it.pdb);
                Ok(())
            }
        }
    }

    /// Any object, malformed or not: past the server's checks, as an old or broken client could have stored it.
    fn apply(&self, yaml: &str) -> Played {
        let cannot = |why: String| NotPlayed::Cannot(format!("object.apply: {why}"));
        let object: Value =
            serde_saphyr::from_str(yaml).map_err(|error| cannot(error.to_string()))?;
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let Some(known) = crate::api::kinds::KINDS
            .iter()
            .find(|known| known.kind == kind)
        else {
            return Err(cannot(format!("there is no kind '{kind}'")));
        };
        let text = |field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let store = self.cluster.store();
        let space = if known.namespaced && text("namespace").is_empty() {
            "default".into()
        } else {
            text("namespace")
        };
        let mut object = object.clone();
        if known.namespaced {
            object["metadata"]["namespace"] = json!(space);
        }
        let replaced = store.update(known.plural, &space, &text("name"), |old| {
            *old = object.clone()
        });
        if replaced.is_none() {
            store
                .create(known.plural, object)
                .map_err(|failure| cannot(failure.message))?;
        }
        Ok(())
    }
}

fn metadata(
    object: &mut Value,
    labels: &Option<BTreeMap<String, String>>,
    annotations: &Option<BTreeMap<String, String>>,
) {
    for (key, value) in labels.iter().flatten() {
        object["metadata"]["labels"][key] = json!(value);
    }
    for (key, value) in annotations.iter().flatten() {
        object["metadata"]["annotations"][key] = json!(value);
    }
}

fn condition(
    object: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    stamp: &str,
) {
    crate::kubevirt::fields::set_condition(object, kind, status, reason, message, stamp);
}
