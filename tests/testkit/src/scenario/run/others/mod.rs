//! What others do in the cluster, and what goes wrong in it: every event but those of the host and the agent.

mod faults;
mod objects;
mod real;
mod vms;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::{Cluster, pdb_spec, pod_spec, share};
use super::stage::NotPlayed;
use crate::scenario::event::Do;
use crate::scenario::event::api::VirtPart;
use crate::scenario::event::cluster::{NodeDo, PdbDo, PodDo};
use crate::scenario::values::Span;

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
        if let Some(real) = &self.cluster.real {
            return Box::pin(self.in_reality(real, what)).await;
        }
        match what {
            Do::Api(what) => {
                self.api(what);
                Ok(())
            }
            Do::Virt(part, down) => {
                self.virt(*part, down.node.as_deref(), down.until);
                Ok(())
            }
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

    fn virt(&self, part: VirtPart, node: Option<&str>, until: Option<Span>) {
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
    }

    /// The namespace that is named, or the one in which there is such an object.
    fn namespace(&self, resource: &str, named: Option<&String>, name: &str) -> String {
        let find = || {
            let all = self.cluster.store().list_shared(resource);
            let found = all
                .iter()
                .find(|object| object["metadata"]["name"] == name)?;
            found["metadata"]["namespace"].as_str().map(str::to_owned)
        };
        named
            .cloned()
            .or_else(find)
            .unwrap_or_else(|| "default".into())
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
                    metadata(node, set.labels.as_ref(), set.annotations.as_ref());
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
                let space = self.namespace("pods", set.namespace.as_ref(), &set.pod);
                self.change("pods", &space, &set.pod, |pod| {
                    metadata(pod, set.labels.as_ref(), set.annotations.as_ref());
                    if let Some(ready) = set.ready {
                        let status = if ready { "True" } else { "False" };
                        condition(pod, "Ready", status, "Scenario", "set by the story", &stamp);
                    }
                })
            }
            PodDo::Delete(it) => {
                let space = self.namespace("pods", it.namespace.as_ref(), &it.pod);
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
                let space =
                    self.namespace("poddisruptionbudgets", set.namespace.as_ref(), &set.pdb);
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
                let space = self.namespace("poddisruptionbudgets", it.namespace.as_ref(), &it.pdb);
                self.cluster
                    .store()
                    .delete("poddisruptionbudgets", &space, &it.pdb);
                Ok(())
            }
        }
    }
}

fn metadata(
    object: &mut Value,
    labels: Option<&BTreeMap<String, String>>,
    annotations: Option<&BTreeMap<String, String>>,
) {
    for (key, value) in labels.into_iter().flatten() {
        object["metadata"]["labels"][key] = json!(value);
    }
    for (key, value) in annotations.into_iter().flatten() {
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
