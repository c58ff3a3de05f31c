//! The control plane that a host joins: where is it, and how is it asked?

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use testkit::actors::fabric::Fabric;
use testkit::actors::ledger::Ledger;
use testkit::actors::{Pace, Surroundings};
use testkit::clock::SimClock;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::pki::Authority;

/// A request takes at most this long.
const REQUEST: Duration = Duration::from_secs(20);

/// What is known of a control plane that runs.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// Kubeconfig of `system:masters`.
    pub(crate) kubeconfig: PathBuf,
    /// Certificate of the authority that signs clients.
    pub(crate) ca_cert: PathBuf,
    /// Its key.
    pub(crate) ca_key: PathBuf,
    /// The program `kubelet`.
    pub(crate) kubelet: PathBuf,
}

/// A control plane, and the played parts that work with it. Dropping it ends these parts.
pub(crate) struct Plane {
    /// Signs for nodes.
    pub(crate) authority: Authority,
    /// The program `kubelet`.
    pub(crate) kubelet: PathBuf,
    /// What runs in containers.
    pub(crate) image: Vec<u8>,
    /// The API server's port on 127.0.0.1.
    pub(crate) port: u16,
    /// What the played parts share.
    pub(crate) around: Surroundings,
    /// The authority's certificate.
    ca: PathBuf,
    /// Credentials of the played parts.
    files: tempfile::TempDir,
    admin: kube::Client,
    tasks: Mutex<Vec<AbortHandle>>,
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
    /// Joins a control plane that is ready.
    pub(crate) fn join(access: &Access, image: Vec<u8>) -> anyhow::Result<Arc<Self>> {
        let runtime = Driver::start()?;
        let kubeconfig = Kubeconfig::read_from(&access.kubeconfig)
            .with_context(|| format!("cannot read {}", access.kubeconfig.display()))?;
        let admin = runtime.handle.block_on(client(kubeconfig))?;
        let port = port_of(&access.kubeconfig)?;
        let pace = Pace {
            heartbeat: (Duration::from_secs(20), Duration::from_secs(30)),
            boot: (Duration::from_secs(1), Duration::from_secs(1)),
            ..Pace::default()
        };
        Ok(Arc::new(Self {
            authority: Authority::load(&access.ca_cert, &access.ca_key)?,
            kubelet: access.kubelet.clone(),
            image,
            port,
            around: Surroundings {
                clock: SimClock::from_wall(1.0),
                fabric: Fabric::default(),
                ledger: Ledger::default(),
                pace,
                seed: 1,
            },
            ca: access.ca_cert.clone(),
            files: tempfile::tempdir()?,
            admin,
            tasks: Mutex::default(),
            runtime,
        }))
    }

    /// A client that may do everything.
    pub(crate) fn admin(&self) -> kube::Client {
        self.admin.clone()
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
        self.owns([task.abort_handle()]);
        task
    }

    /// Ends these tasks with the plane.
    pub(crate) fn owns(&self, tasks: impl IntoIterator<Item = AbortHandle>) {
        self.tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(tasks);
    }

    /// A client that authenticates with this user entry of a kubeconfig.
    pub(crate) fn client_of(&self, user: &Value) -> anyhow::Result<kube::Client> {
        let server = format!("https://127.0.0.1:{}", self.port);
        let config = kubeconfig(&server, &self.ca.display().to_string(), user);
        self.block(client(serde_json::from_value(config)?))
    }

    /// A client that shows this certificate (with its key in one PEM text).
    pub(crate) fn client_with(&self, name: &str, pem: &str) -> anyhow::Result<kube::Client> {
        let file = self.files.path().join(name);
        std::fs::write(&file, pem)?;
        self.client_of(&serde_json::json!({"client-certificate": file, "client-key": file}))
    }

    /// Reads an object or a list; `None` when it is not there.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        self.ask("GET", path, None)
    }

    /// The items of a list.
    pub(crate) fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let mut list = self.get(path)?.unwrap_or_default();
        let items = list["items"].take();
        Ok(serde_json::from_value(items).unwrap_or_default())
    }

    /// Makes an object; one that is there already stays as it is.
    pub(crate) fn create(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        let made = self.ask("POST", path, Some(object))?;
        made.with_context(|| format!("nobody knows {path}"))
    }

    /// Merges into an object.
    pub(crate) fn merge(&self, path: &str, patch: &Value) -> anyhow::Result<Option<Value>> {
        self.ask("PATCH", path, Some(patch))
    }

    /// Deletes an object at once; one that is not there is fine.
    pub(crate) fn delete(&self, path: &str) -> anyhow::Result<()> {
        let at_once = serde_json::json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        self.ask("DELETE", path, Some(&at_once)).map(drop)
    }

    fn ask(&self, verb: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Option<Value>> {
        self.block(ask(&self.admin, verb, path, body))
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        for task in self
            .tasks
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
        {
            task.abort();
        }
    }
}

/// A kubeconfig as JSON, which is YAML too. The certificate's name is not the address at which a host reaches the server.
pub(crate) fn kubeconfig(server: &str, ca: &str, user: &Value) -> Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {
            "server": server, "tls-server-name": "localhost", "certificate-authority": ca,
        }}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    })
}

/// One request; `None` is a 404.
pub(crate) async fn ask(
    client: &kube::Client,
    verb: &str,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Option<Value>> {
    let kind = if verb == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = http::Request::builder()
        .method(verb)
        .uri(path)
        .header(http::header::CONTENT_TYPE, kind)
        .body(body.map_or_else(Vec::new, |body| body.to_string().into_bytes()))?;
    let answer = tokio::time::timeout(REQUEST, client.request::<Value>(request)).await;
    match answer {
        Ok(Ok(object)) => Ok(Some(object)),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
        Ok(Err(error)) => Err(error).with_context(|| format!("{verb} {path}")),
        Err(_) => bail!("{verb} {path}: no answer within {} s", REQUEST.as_secs()),
    }
}

async fn client(kubeconfig: Kubeconfig) -> anyhow::Result<kube::Client> {
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    Ok(kube::Client::try_from(config)?)
}

fn port_of(kubeconfig: &Path) -> anyhow::Result<u16> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let server = config
        .clusters
        .first()
        .and_then(|named| named.cluster.as_ref()?.server.clone())
        .context("a kubeconfig without a server")?;
    let url: http::Uri = server.parse()?;
    ensure!(
        matches!(url.host(), Some("127.0.0.1" | "localhost")),
        "the control plane at {server} is not on this machine's loopback"
    );
    url.port_u16()
        .with_context(|| format!("{server} names no port"))
}
