//! Which guests are on a host whose kubelet is a real one?
//!
//! The played virt-handler knows the launchers of its host from [`Shared`]. Where the kubelet is played too, that one keeps it up to
//! date; here the truth is in real processes: a container's cgroup says whether it runs, a file in a volume of its pod that it got
//! SIGTERM, and it ends when a file there says so. A guest whose process ends while it still runs or shuts down has lost its memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher;
use serde_json::Value;
use testkit::actors::feed::{Feed, Objects};
use testkit::actors::kubelet::fresh;
use testkit::actors::ledger::DirtyKill;
use testkit::actors::machine::{Guest, Launcher, Machine, Shared};
use testkit::kubevirt::fields::{is_launcher, owner, text, uid};
use testkit::kubevirt::names::kind;
use testkit::plane::Caller;

use super::objects;
use super::plane::Plane;
use super::tree::Sight;

const LOOK: Duration = Duration::from_millis(20);
/// From the guest's end to the end of virt-launcher.
const USUAL_END: Duration = Duration::from_millis(300);

/// What it watches.
pub(super) struct Watched {
    /// The node.
    pub(super) node: String,
    /// What is on the host.
    pub(super) shared: Shared,
    /// `/var/lib/kubelet/pods` of the host, seen from outside.
    pub(super) pods: PathBuf,
    /// The host's containers.
    pub(super) tree: Sight,
}

/// Starts to watch; ends with the returned task.
pub(super) fn start(plane: &Arc<Plane>, watched: Watched) -> tokio::task::JoinHandle<()> {
    let admin = Caller::of(plane.admin());
    let around = plane.around.clone();
    plane.spawn(async move {
        let selector =
            watcher::Config::default().fields(&format!("spec.nodeName={}", watched.node));
        let (pods, feed) = Feed::start(&admin.client(), kind::PODS, selector);
        let _ends_with_this_task = AbortOnDrop(feed);
        let mut plugins = Plugins::default();
        let mut scopes = BTreeMap::new();
        loop {
            let host = around.fabric.host(&watched.node);
            let now = around.clock.elapsed();
            let lost = watched.shared.with(|machine| {
                if host.on {
                    if let Some(objects) = pods.objects() {
                        watched.begin(machine, &objects, &mut scopes);
                        machine.adopted = true;
                    }
                    watched.go_on(machine, &scopes, now)
                } else {
                    let lost = machine.launchers.values().filter(|one| one.holds_guest());
                    let lost = lost.cloned().collect();
                    *machine = Machine::default();
                    lost
                }
            });
            for launcher in lost {
                around.ledger.record(DirtyKill {
                    at: now,
                    namespace: launcher.namespace,
                    name: launcher.vmi,
                    node: watched.node.clone(),
                    reason: "its process ended under it".to_owned(),
                });
            }
            let usable = watched.shared.with(|machine| machine.plugins);
            plugins.tell(&admin, &watched.node, host.on && usable).await;
            around.clock.sleep(LOOK).await;
        }
    })
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Watched {
    /// Launchers whose `compute` container has begun.
    fn begin(&self, machine: &mut Machine, pods: &Objects, scopes: &mut BTreeMap<String, String>) {
        for pod in pods.values() {
            let is_new = is_launcher(pod) && owner(pod).is_some() && !scopes.contains_key(uid(pod));
            if !is_new {
                continue;
            }
            let Some(scope) = compute_scope(pod) else {
                continue;
            };
            let life = self.tree.life(&scope);
            if life.is_some_and(|life| life.ended.is_none()) {
                machine
                    .launchers
                    .insert(uid(pod).to_owned(), fresh(pod, Guest::Empty));
                scopes.insert(uid(pod).to_owned(), scope);
            }
        }
    }

    /// What the processes say of their guests, and are told. Answers the guests that lost their memory.
    fn go_on(
        &self,
        machine: &mut Machine,
        scopes: &BTreeMap<String, String>,
        now: Duration,
    ) -> Vec<Launcher> {
        let mut over = BTreeSet::new();
        for (pod, launcher) in &mut machine.launchers {
            let volume = volume(&self.pods, pod);
            if launcher.terminated.is_none() && volume.join("sigterm").exists() {
                launcher.terminated = Some(now);
            }
            let done = launcher.terminated.is_some()
                || matches!(launcher.guest, Guest::Gone { .. }) && !launcher.lingers;
            if launcher.ends.is_none() && !launcher.holds_guest() && done {
                let code = i32::from(launcher.guest == Guest::Gone { clean: false });
                launcher.ends = Some((now + USUAL_END, code));
            }
            if let Some((at, code)) = launcher.ends
                && now >= at
            {
                end(&volume, code);
            }
            let life = scopes.get(pod).and_then(|scope| self.tree.life(scope));
            if life.is_none_or(|life| life.ended.is_some()) {
                over.insert(pod.clone());
            }
        }
        let over = over.into_iter();
        over.filter_map(|pod| machine.launchers.remove(&pod))
            .filter(Launcher::holds_guest)
            .collect()
    }
}

/// The unit in which the guest's container runs.
fn compute_scope(pod: &Value) -> Option<String> {
    let statuses = pod["status"]["containerStatuses"].as_array()?;
    let compute = statuses.iter().find(|one| one["name"] == "compute")?;
    let id = text(compute, "containerID").strip_prefix("containerd://")?;
    Some(format!("cri-containerd-{id}.scope"))
}

/// The volume through which virt-launcher and virt-handler speak.
fn volume(pods: &Path, pod: &str) -> PathBuf {
    pods.join(pod)
        .join("volumes/kubernetes.io~empty-dir/private")
}

/// Tells virt-launcher to end.
fn end(volume: &Path, code: i32) {
    let file = volume.join("end");
    if !file.exists() {
        let beside = volume.join(".end");
        // A pod that is gone needs nothing; everything else is tried again at the next look.
        let _ = std::fs::write(&beside, code.to_string())
            .and_then(|()| std::fs::rename(&beside, &file));
    }
}

/// The devices that virt-handler's plugins have registered with the kubelet, as its Node tells them.
#[derive(Default)]
struct Plugins {
    told: Option<bool>,
}

impl Plugins {
    async fn tell(&mut self, admin: &Caller, node: &str, usable: bool) {
        if self.told == Some(usable) {
            return;
        }
        let path = format!("/api/v1/nodes/{node}/status");
        let sent = admin.done("PATCH", &path, &objects::devices(usable)).await;
        if sent.is_ok() {
            self.told = Some(usable);
        }
    }
}
