//! The control plane that hosts join, and the node to which their VMs move: shared by all cases of a run.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::actors::machine::Shared;
use testkit::actors::{self, Pace, Surroundings};
use testkit::clock::SimClock;
use testkit::plane::{Caller, ControlPlane, Nodes, Options, Server, Version, Who};
use testkit::world::NodeSpec;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::objects;

/// The node to which VMs move.
pub(crate) const PEER: &str = "vmdrain-peer";
/// A request takes at most this long.
const REQUEST: Duration = Duration::from_secs(20);
/// The tokens of the played parts are valid for so long.
const TOKEN: Duration = Duration::from_secs(6 * 3600);
/// Longer than any run; the kubelet does not think of renewing such a certificate.
pub(crate) const LONG: Duration = Duration::from_secs(24 * 3600);

/// A control plane, and the played parts that work with it. Dropping it ends everything.
pub(crate) struct Plane {
    /// What runs in containers.
    pub(crate) image: Vec<u8>,
    /// The API server's port on 127.0.0.1.
    pub(crate) port: u16,
    /// What the played parts share.
    pub(crate) around: Surroundings,
    admin: Caller,
    tasks: Mutex<Vec<AbortHandle>>,
    /// Ends before the servers do.
    _nodes: Nodes,
    control: Arc<ControlPlane>,
    runtime: Driver,
}

/// A thread in which everything asynchronous happens. Dropping it ends it.
struct Driver {
    handle: tokio::runtime::Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Driver {
    fn start() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            // An answer and a sender that is gone mean the same.
            let _ = runtime.block_on(stopped);
        });
        Ok(Self {
            handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            crate::complain("a played part has panicked");
        }
    }
}

impl Plane {
    /// Starts everything in a folder; `tell` hears how far it is.
    pub(crate) fn start(
        version: Version,
        dir: &Path,
        image: Vec<u8>,
        tell: impl Fn(&str),
    ) -> anyhow::Result<Arc<Self>> {
        let runtime = Driver::start()?;
        let options = Options::new(version, dir);
        let control = runtime
            .handle
            .block_on(ControlPlane::start(options, tell))?;
        let control = Arc::new(control);
        let url: http::Uri = control.url().parse()?;
        let clock = SimClock::from_wall(1.0);
        let nodes = Nodes::new(clock.clone(), 1);
        let peer = NodeSpec::new(PEER);
        runtime.handle.block_on(nodes.add(&control, &peer))?;
        let plane = Arc::new(Self {
            image,
            port: url.port_u16().context("an API server without a port")?,
            around: Surroundings {
                clock,
                fabric: nodes.fabric().clone(),
                ledger: nodes.ledger().clone(),
                pace: Pace::default(),
                seed: 1,
            },
            admin: control.admin().clone(),
            tasks: Mutex::default(),
            _nodes: nodes,
            control,
            runtime,
        });
        plane.prepare()?;
        plane.spawn(keep_up(Arc::downgrade(&plane.control)));
        Ok(plane)
    }

    /// What all cases need: room for many migrations at a time, and the right of kubelets to renew their certificates.
    fn prepare(&self) -> anyhow::Result<()> {
        let room = json!({"spec": {"configuration": {"migrations": {
            "parallelMigrationsPerCluster": 20, "parallelOutboundMigrationsPerNode": 5,
        }}}});
        let kubevirt = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";
        self.block(self.admin.done("PATCH", kubevirt, &room))?;
        self.create(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "nodes-renew-their-certificates"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
        }))?;
        Ok(())
    }

    /// A client that may do everything.
    pub(crate) fn admin(&self) -> kube::Client {
        self.admin.client()
    }

    /// The program `kubelet`.
    pub(crate) fn kubelet(&self) -> PathBuf {
        self.control.binaries().program("kubelet")
    }

    /// The authority's certificate.
    pub(crate) fn ca(&self) -> anyhow::Result<String> {
        let file = self.control.ca();
        std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    }

    /// Certificate and key of a node's kubelet in one PEM text, as the kubelet keeps them.
    pub(crate) fn certificate(&self, node: &str, valid: Duration) -> anyhow::Result<String> {
        self.control.certificate(&Who::Node(node.into()), valid)
    }

    /// Waits for something asynchronous.
    pub(crate) fn block<F: Future>(&self, future: F) -> F::Output {
        self.runtime.handle.block_on(future)
    }

    /// Starts something that ends with the plane at the latest.
    pub(crate) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::JoinHandle<()> {
        let task = self.runtime.handle.spawn(task);
        self.own(task.abort_handle());
        task
    }

    fn own(&self, task: AbortHandle) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push(task);
    }

    /// Makes a node as KubeVirt knows it, and starts the played virt-handler of it. `shared` is what is on its host.
    pub(crate) fn make_node(&self, name: &str, shared: &Shared) -> anyhow::Result<()> {
        self.create(&objects::node(name))?;
        let task = self.block(async {
            let account = ("kubevirt", "kubevirt-handler");
            let token = self.control.token(account, Some(name), TOKEN).await?;
            let file = format!("handler-{name}");
            let handler = Caller::new(&self.control.token_kubeconfig(&file, &token)?).await?;
            let (client, shared) = (handler.client(), shared.clone());
            anyhow::Ok(actors::spawn_handler(name, client, shared, &self.around))
        })?;
        self.own(task);
        Ok(())
    }

    /// Reads an object; `None` when it is not there.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let reply = self.ask("GET", path, &Value::Null)?;
        Ok(reply.filter(|reply| !reply.is_null()))
    }

    /// The items of a list.
    pub(crate) fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let mut list = self.get(path)?.unwrap_or_default();
        let items = list["items"].take();
        Ok(serde_json::from_value(items).unwrap_or_default())
    }

    /// Makes an object; one that is there already stays as it is.
    pub(crate) fn create(&self, object: &Value) -> anyhow::Result<()> {
        self.block(self.admin.create(object)).map(drop)
    }

    /// Makes something below an object: an eviction.
    pub(crate) fn post(&self, path: &str, object: &Value) -> anyhow::Result<()> {
        self.block(self.admin.done("POST", path, object)).map(drop)
    }

    /// Deletes an object at once; one that is not there is fine.
    pub(crate) fn delete(&self, path: &str) -> anyhow::Result<()> {
        let at_once = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        self.ask("DELETE", path, &at_once).map(drop)
    }

    /// `None` is a 404.
    fn ask(&self, verb: &str, path: &str, body: &Value) -> anyhow::Result<Option<Value>> {
        let asked = async {
            tokio::time::timeout(REQUEST, self.admin.ask(verb, path, body))
                .await
                .with_context(|| format!("{verb} {path} was not answered in time"))?
        };
        let reply = self.block(asked)?;
        ensure!(
            reply.is_success() || reply.status == 404,
            "{verb} {path}: {} {}",
            reply.status,
            reply.text.trim()
        );
        Ok(reply.is_success().then(|| reply.json()))
    }
}

/// Starts virt-controller again when it has ended, as a kubelet would: on a busy machine it cannot renew its lease in time.
async fn keep_up(control: Weak<ControlPlane>) {
    while let Some(control) = control.upgrade() {
        let server = Server::VirtController;
        if let Some(how) = control.ended(server) {
            crate::complain(&format!(
                "virt-controller has ended ({how}) and is started again"
            ));
            if let Err(error) = control.resume(server).await {
                crate::complain(&format!("virt-controller does not come back: {error:#}"));
            }
        }
        drop(control);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        for task in tasks.drain(..) {
            task.abort();
        }
    }
}
