//! The Kubernetes adapter: everything that the agent knows from and asks of the API server.
//!
//! | file | question |
//! |---|---|
//! | `credentials.rs`, `subject.rs` | who are we, and which node does our certificate name? |
//! | `client.rs` | which client, and is it still the right one? |
//! | `api.rs` | where is the cordon written, the eviction sent, emptiness confirmed? |
//! | `events.rs` | who is told in the cluster? |
//! | `rights.rs` | what may we? |
//! | `survey.rs` | what does a plan see of it? |
//! | `collection.rs` | what is listed and watched, with which selectors? |
//! | `watch/` | how does one picture come out of seven lists and watches? |
//! | `types/` | which fields are read, and what do they mean? |
//! | `fault.rs`, `reply.rs` | what went wrong, what did the server say? |
//! | `timing.rs` | how long, how often? |

mod api;
mod client;
mod collection;
mod credentials;
mod events;
mod fault;
mod reply;
mod rights;
mod subject;
mod survey;
#[cfg(test)]
mod tests;
mod timing;
mod types;
mod watch;

pub use credentials::{AUTO, ConnectError, Origin};
pub use timing::Timing;

use crate::agent::ports::{Clock, Cluster};
use crate::drain::action::{Fault, Notice};
use crate::drain::answer::Reply;
use crate::drain::plan::Survey;
use crate::drain::world::{
    AttachedVolume, CordonNote, Fresh, NodeView, ObjectRef, Picture, VmName,
};
use client::Connection;
use events::Sent;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;
use watch::{Doors, Interest, Scene, Scope};

/// How to reach the cluster, and as which node.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the credentials are.
    pub origin: Origin,
    /// `cluster.node_name`, empty when not configured. A node's own certificate overrules it.
    pub node_name: String,
    /// Name of this host, the last resort for the name of the node.
    pub hostname: String,
    /// Time constants.
    pub timing: Timing,
}

/// A way to the cluster, and the node that is ours.
pub struct Connected<C> {
    /// The adapter.
    pub cluster: KubeCluster<C>,
    /// `metadata.name` of our Node.
    pub node_name: String,
}

/// Reads the credentials and makes a client. No request is made: that the server answers is not known yet.
pub async fn connect<C: Clock>(options: Options, clock: C) -> Result<Connected<C>, ConnectError> {
    let Options {
        origin,
        node_name,
        hostname,
        timing,
    } = options;
    let timing = Arc::new(timing);
    let (connection, certified, file) = Connection::open(origin, Arc::clone(&timing)).await?;
    let configured = node_name.trim();
    if let Some(certified) = certified.as_deref()
        && !configured.is_empty()
        && configured != certified
    {
        tracing::warn!(
            vmdrain_reason = "NodeNameIgnored",
            "cluster.node_name is '{configured}', but the certificate in {file} is that of node {certified}, and may act for no other: it is node {certified} that will be drained. Correct or remove cluster.node_name"
        );
    }
    let name = credentials::node_name(certified.as_deref(), &node_name, &hostname)
        .ok_or(ConnectError::NoNodeName { file })?;
    Ok(KubeCluster::connected(connection, name, clock, timing))
}

/// With a client that is already there, for tests in one process with a simulated cluster.
pub fn with_client<C: Clock>(
    client: kube::Client,
    node_name: &str,
    clock: C,
    timing: &Timing,
) -> Connected<C> {
    let timing = Arc::new(*timing);
    let connection = Connection::ready(client, Arc::clone(&timing));
    KubeCluster::connected(connection, node_name.to_owned(), clock, timing)
}

/// The Kubernetes API as the driver needs it.
pub struct KubeCluster<C> {
    node_name: String,
    connection: Arc<Connection>,
    clock: Arc<C>,
    timing: Arc<Timing>,
    interest: Arc<Interest>,
    doors: Arc<Doors>,
    events: Mutex<Sent>,
    watching: Mutex<Option<JoinHandle<()>>>,
}

impl<C: Clock> KubeCluster<C> {
    fn connected(
        connection: Connection,
        node_name: String,
        clock: C,
        timing: Arc<Timing>,
    ) -> Connected<C> {
        let cluster = Self {
            node_name: node_name.clone(),
            connection: Arc::new(connection),
            clock: Arc::new(clock),
            timing,
            interest: Arc::default(),
            doors: Arc::new(Doors::new()),
            events: Mutex::default(),
            watching: Mutex::new(None),
        };
        Connected { cluster, node_name }
    }

    fn start_watch(&self, scope: Scope) -> tokio::sync::watch::Receiver<Picture> {
        let (sender, receiver) = tokio::sync::watch::channel(Picture::default());
        let scene = Scene::new(
            &self.node_name,
            Arc::clone(&self.connection),
            Arc::clone(&self.clock),
            Arc::clone(&self.timing),
            Arc::clone(&self.interest),
            Arc::clone(&self.doors),
        );
        self.replace_watch(Some(tokio::spawn(scene.run(scope, sender))));
        receiver
    }

    fn replace_watch(&self, watching: Option<JoinHandle<()>>) {
        let mut held = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = std::mem::replace(&mut *held, watching) {
            before.abort();
        }
    }
}

impl<C> Drop for KubeCluster<C> {
    fn drop(&mut self) {
        let mut held = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watching) = held.take() {
            watching.abort();
        }
    }
}

impl<C: Clock> Cluster for KubeCluster<C> {
    fn watch(&self) -> tokio::sync::watch::Receiver<Picture> {
        self.start_watch(Scope::Everything)
    }

    fn watch_all(&self) -> tokio::sync::watch::Receiver<Picture> {
        self.start_watch(Scope::AllPods)
    }

    fn watch_node(&self) -> tokio::sync::watch::Receiver<Picture> {
        self.start_watch(Scope::Node)
    }

    fn unwatch(&self) {
        self.replace_watch(None);
    }

    fn hurry(&self) -> Box<dyn Send> {
        Box::new(self.doors.urgent())
    }

    async fn read_node(&self) -> Result<NodeView, Fault> {
        self.get_node().await
    }

    async fn cordon(
        &self,
        resource_version: &str,
        note: Option<&CordonNote>,
    ) -> Result<NodeView, Fault> {
        self.patch_cordon(resource_version, note).await
    }

    async fn uncordon(&self, resource_version: &str) -> Result<NodeView, Fault> {
        self.patch_uncordon(resource_version).await
    }

    async fn unmark(&self, resource_version: &str) -> Result<NodeView, Fault> {
        self.patch_unmark(resource_version).await
    }

    async fn acknowledge(&self, resource_version: &str, value: &str) -> Result<NodeView, Fault> {
        self.patch_handled(resource_version, value).await
    }

    async fn evict(&self, pod: &ObjectRef, dry_run: bool) -> Result<Reply, Fault> {
        self.post_eviction(pod, dry_run).await
    }

    async fn confirm(&self, others: bool) -> Result<Fresh, Fault> {
        self.fresh(others).await
    }

    async fn volumes(&self) -> Result<Vec<AttachedVolume>, Fault> {
        self.attached().await
    }

    async fn target(&self, migration: &ObjectRef) -> Result<Option<String>, Fault> {
        self.refused_target(migration).await
    }

    async fn cancel_evacuation(&self, vmi: &ObjectRef) -> Result<Reply, Fault> {
        self.put_cancel(vmi).await
    }

    async fn delete_migration(&self, migration: &ObjectRef) -> Result<Reply, Fault> {
        self.delete_vmim(migration).await
    }

    async fn survey(&self, others: bool) -> Survey {
        Box::pin(self.look_around(others)).await
    }

    async fn start_vm(&self, vm: &VmName) -> Result<Reply, Fault> {
        self.put_start(vm).await
    }

    async fn stop_guest(&self, pod: &ObjectRef) -> Result<Reply, Fault> {
        self.delete_pod(pod).await
    }

    async fn event(&self, notice: &Notice) -> Result<(), Fault> {
        self.post_event(notice).await
    }
}
