//! A host with a real kubelet, the agent on it, and its place in a real cluster: what a case begins with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::actors::machine::Shared;

use super::chronicle::Chronicle;
use super::network::Network;
use super::node::{self, Kubelet};
use super::objects::{self, Vm};
use super::plane::{PEER, Plane};
use super::tree::{Life, Tree};
use super::witness;
use crate::host::{Down, Host};
use crate::nspawn::Wiring;
use crate::patience::{Answer, Patience};
use crate::suite::Context;

/// From PID 1 to a Ready node with running VMs, on a busy machine.
pub(super) const SETTLED: Duration = Duration::from_secs(120);

/// What is there when a case begins.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// VMs on the host.
    pub(crate) vms: Vec<Vm>,
    /// Other pods on it, and how long each works on after SIGTERM.
    pub(crate) pods: Vec<(&'static str, u32)>,
    /// Its kubelet.
    pub(crate) kubelet: Kubelet,
    /// logind's limit.
    pub(crate) limit: u32,
    /// Further files on the host: path and content.
    pub(crate) files: Vec<(&'static str, &'static str)>,
}

impl Plan {
    /// Two VMs that copy for so many seconds, and one other pod.
    pub(crate) fn moving(seconds: f64) -> Self {
        Self {
            vms: vec![Vm::new("db", seconds), Vm::new("web", seconds)],
            pods: vec![("other", 1)],
            kubelet: Kubelet {
                graceful: (Duration::ZERO, Duration::ZERO),
            },
            limit: 60,
            files: Vec::new(),
        }
    }

    /// kubelet's graceful node shutdown is on.
    pub(crate) fn graceful(mut self, seconds: u64) -> Self {
        self.kubelet.graceful = (Duration::from_secs(seconds), Duration::from_secs(2));
        self
    }
}

/// A host in a cluster. Dropping it ends the host and takes its objects away.
pub(crate) struct Stage {
    /// The host; it ends before what it stands on.
    pub(crate) host: Host,
    /// What the API server has shown.
    pub(crate) chronicle: Chronicle,
    /// The cluster.
    pub(crate) plane: Arc<Plane>,
    /// The case's clock.
    pub(crate) patience: Patience,
    /// Name of its Node and of the case's namespace.
    pub(crate) name: String,
    tree: Tree,
    pub(super) shared: Shared,
    witness: tokio::task::JoinHandle<()>,
    network: Network,
}

impl Stage {
    /// Lays everything out; the host is off.
    fn lay_out(context: &Context, plan: &Plan) -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("w{number}-{}", std::process::id());
        let plane = context.plane.clone().context("there is no control plane")?;
        make_namespace(&plane, &name, &context.patience)?;
        let network = Network::make(context.run_name(), &plane)?;
        let host = context.wired_host(Wiring {
            network: network.name.clone(),
            binds: vec![
                (plane.kubelet(), node::KUBELET.into(), false),
                (context.folder("containerd")?, node::CONTAINERD.into(), true),
            ],
        })?;
        node::lay_out(&host, &name, &plan.kubelet, &network, &plane)?;
        host.write(
            "/etc/systemd/logind.conf.d/zzz-case.conf",
            &format!("[Login]\nInhibitDelayMaxSec={}\n", plan.limit),
        )?;
        host.write(
            "/etc/vmdrain-agent/config.d/50-case.toml",
            "[budget]\nmargin = \"1s\"\n[timing.host]\nlimit_poll = \"2s\"\n",
        )?;
        for (path, content) in &plan.files {
            host.write(path, content)?;
        }
        let tree = Tree::watch(host.cgroup_dirs(), &context.patience.clock);
        let shared = Shared::default();
        let watched = witness::Watched {
            node: name.clone(),
            shared: shared.clone(),
            pods: host.root.join(node::PODS.trim_start_matches('/')),
            tree: tree.sight(),
        };
        let witness = witness::start(&plane, watched);
        plane.make_node(&name, &shared)?;
        let chronicle = Chronicle::start(&plane, &name, &context.patience.clock);
        Ok(Self {
            host,
            chronicle,
            plane,
            patience: context.patience.clone(),
            name,
            tree,
            shared,
            witness,
            network,
        })
    }

    /// Boots, and waits until everything of the plan runs and the agent holds the host.
    fn begin(&mut self, plan: &Plan) -> anyhow::Result<()> {
        self.boot()?;
        for vm in &plan.vms {
            let vm = objects::machine(vm, &self.name, &self.name, PEER);
            self.plane.create(&vm)?;
        }
        for (name, seconds) in &plan.pods {
            let pod = objects::pod(name, &self.name, &self.name, *seconds);
            self.plane.create(&pod)?;
        }
        self.wait("everything runs on the host", SETTLED, || {
            let vms = self.vms_on(&self.name)?.len();
            let pods = self.pods_in("Running")?.len();
            Ok(vms == plan.vms.len() && pods == plan.vms.len() + plan.pods.len())
        })?;
        self.wait_held()
    }

    /// Boots; returns when the kubelet has told this boot and virt-handler's devices are there. Answers when PID 1 ran.
    pub(crate) fn boot(&mut self) -> anyhow::Result<Duration> {
        let id = self.host.boot()?;
        let booted = self.now();
        self.wait("the node is Ready in this boot", SETTLED, || {
            let node = self.chronicle.now();
            Ok(node.is_some_and(|node| node.ready && node.boot_id == id))
        })?;
        self.plane.around.fabric.change(&self.name, |host| {
            host.on = true;
            host.handler = true;
            host.boot_id = id;
        });
        self.wait("VMs can be started on the node", SETTLED, || {
            Ok(self.chronicle.now().is_some_and(|node| node.takes_vms))
        })?;
        Ok(booted)
    }

    /// Waits until logind lists our lock, the unit is active and the stop job is in place.
    pub(crate) fn wait_held(&self) -> anyhow::Result<()> {
        self.wait("the agent holds the host", SETTLED, || {
            Ok(self.host.seen().is_locked())
        })?;
        for unit in ["vmdrain-agent.service", "vmdrain-hold.service"] {
            self.wait(&format!("{unit} is active"), SETTLED, || {
                Ok(self.is_active(unit))
            })?;
        }
        Ok(())
    }

    /// Whether a unit is active.
    pub(crate) fn is_active(&self, unit: &str) -> bool {
        self.host.peek(&["systemctl", "is-active", unit]) == "active"
    }

    /// Waits for anything; a host that is gone ends the wait.
    pub(crate) fn wait(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<Duration> {
        self.patience.wait(what, limit, || {
            let found = look()?;
            ensure!(
                found || !self.host.is_gone(),
                "the host went down while this was waited for: {what}"
            );
            Ok(found.then(|| self.now()))
        })
    }

    /// Now, on the case's clock.
    pub(crate) fn now(&self) -> Duration {
        self.patience.now()
    }

    /// Somebody types something on the host, and it works.
    pub(crate) fn types_well(&self, words: &[&str]) -> anyhow::Result<Answer> {
        self.host.run(words)?.good()
    }

    /// `status -o json`.
    pub(crate) fn status(&self) -> anyhow::Result<Value> {
        let text = self.host.ask(&["vmdrain-agent", "status", "-o", "json"])?;
        serde_json::from_str(&text).with_context(|| format!("the status is no JSON: {text}"))
    }

    /// Waits until the host is down, and takes its power away.
    pub(crate) fn wait_down(&mut self, limit: Duration) -> anyhow::Result<Down> {
        let down = self.host.wait_down(limit)?;
        self.power_off();
        Ok(down)
    }

    fn power_off(&self) {
        self.plane.around.fabric.change(&self.name, |host| {
            host.on = false;
            host.handler = false;
        });
    }

    /// Gives kubelet and agent a certificate that is valid for so long, as if they had begun with it.
    pub(crate) fn begin_with_certificate(&self, valid: Duration) -> anyhow::Result<()> {
        node::certificate(&self.host, &self.name, valid, &self.plane)?;
        for unit in ["vmdrain-agent", "kubelet"] {
            self.types_well(&["systemctl", "restart", unit])?;
        }
        self.wait_held()
    }

    /// A service, or a container by its scope.
    pub(crate) fn life(&self, unit: &str) -> Option<Life> {
        self.tree.sight().life(unit)
    }

    /// When each container that has ended did so, in order.
    pub(crate) fn ended_containers(&self) -> Vec<Duration> {
        let lives = self.tree.sight().lives();
        let containers = lives
            .iter()
            .filter(|(name, _)| name.starts_with("cri-containerd-"));
        let mut ended: Vec<_> = containers.filter_map(|(_, life)| life.ended).collect();
        ended.sort();
        ended
    }

    /// Cuts the host's cable: nothing outside can be reached from now on.
    pub(crate) fn cut_off(&self) -> anyhow::Result<()> {
        self.network.cut()
    }

    /// Containers that run now.
    pub(crate) fn containers(&self) -> usize {
        let lives = self.tree.sight().lives();
        lives
            .iter()
            .filter(|(name, life)| name.starts_with("cri-containerd-") && life.ended.is_none())
            .count()
    }

    /// When the main container of a pod that is no VM said something, by the kubelet's record of its output.
    pub(crate) fn said(&self, pod: &str, what: &str) -> anyhow::Result<Option<Duration>> {
        let logs = self.host.root.join("var/log/pods");
        let begins = format!("{}_{pod}_", self.name);
        for entry in std::fs::read_dir(&logs).into_iter().flatten().flatten() {
            if !entry.file_name().to_string_lossy().starts_with(&begins) {
                continue;
            }
            let text = std::fs::read_to_string(entry.path().join("main/0.log"))?;
            let line = text.lines().find(|line| line.ends_with(what));
            let Some(line) = line else { return Ok(None) };
            let unix: f64 = line.split(' ').nth(3).unwrap_or_default().parse()?;
            return Ok(Some(self.moment(unix)));
        }
        Ok(None)
    }

    /// Unix time on the case's clock.
    fn moment(&self, unix: f64) -> Duration {
        let clock = &self.patience.clock;
        let ago = clock.now().as_duration().as_secs_f64() - unix;
        clock
            .elapsed()
            .saturating_sub(Duration::from_secs_f64(ago.max(0.0)))
    }

    /// Lines of a unit's journal that contain a text.
    pub(crate) fn journal(&self, unit: &str, text: &str) -> anyhow::Result<Vec<String>> {
        let all = self.host.journal(&[&format!("--unit={unit}")])?;
        let lines = all.lines().filter(|line| line.contains(text));
        Ok(lines.map(str::to_owned).collect())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.power_off();
        self.witness.abort();
        let vms = self.path("kubevirt.io/v1", "virtualmachines");
        // The control plane ends with the suite; this only makes room for the cases that follow.
        let _ = self.plane.delete(&vms);
        for pod in self.plane.list(&self.pods()).unwrap_or_default() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            if pod["spec"]["nodeName"] == *self.name {
                let _ = self.plane.delete(&format!("{}/{name}", self.pods()));
            }
        }
        let _ = self.plane.delete(&format!("/api/v1/nodes/{}", self.name));
    }
}

/// Makes a namespace in which pods can be made.
fn make_namespace(plane: &Plane, name: &str, patience: &Patience) -> anyhow::Result<()> {
    plane.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))?;
    let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    patience.wait("the namespace's service account", SETTLED, || {
        plane.get(&account)
    })?;
    Ok(())
}

/// Plays a case; a failure shows what the host's journal says of it.
pub(crate) fn play(
    context: &Context,
    plan: &Plan,
    story: impl FnOnce(&mut Stage) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let mut stage = Stage::lay_out(context, plan)?;
    let played = stage.begin(plan).and_then(|()| story(&mut stage));
    context.conclude(played, &stage.host)
}
