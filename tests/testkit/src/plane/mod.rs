//! A real control plane on this machine: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and KubeVirt's virt-api and
//! virt-controller, as plain processes on loopback. Only kubelets and virt-handlers are played ([`crate::actors`]).
//!
//! ```text
//!  tests/control-plane/build ─► binaries ─► children (processes) ◄─ servers (their command lines)
//!                                                │ ready
//!                          install (CRDs, rights, KubeVirt, webhooks) ─► nodes (played)
//! ```
//!
//! - [`ControlPlane::start`] starts everything and returns when it answers; dropping it ends everything.
//! - [`ControlPlane::kubeconfig`], [`ControlPlane::token`]: credentials of anybody; [`ControlPlane::short_token`]: one that expires soon.
//! - [`ControlPlane::stop`], [`ControlPlane::resume`]: one server goes away and comes back.
//! - [`command`]: `clustersim control-plane up|down|status`.

mod binaries;
mod children;
pub mod command;
mod credentials;
mod install;
mod nodes;
mod pki;
mod ports;
mod record;
mod requests;
mod revive;
mod servers;
mod token;
mod version;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;

pub use binaries::Binaries;
pub use credentials::Who;
pub use nodes::{Nodes, node_objects};
pub use requests::{Caller, Reply, collection, path_of};
pub use servers::Server;
pub use version::Version;

use children::Nursery;
use credentials::Credentials;
use ports::Ports;

/// A server has so much real time to answer after its start (a busy machine takes three times as long as an idle one).
const PATIENCE: Duration = Duration::from_secs(120);

/// What to start, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which KubeVirt.
    pub version: Version,
    /// Where everything is kept: certificates, kubeconfigs, etcd's data, logs. It is made when it is missing.
    pub dir: PathBuf,
    /// More addresses of this machine on which the API server answers, beside 127.0.0.1: it then listens on all of them, and its
    /// certificate names these.
    pub addresses: Vec<IpAddr>,
    /// Feature gates of KubeVirt.
    pub gates: Vec<String>,
}

impl Options {
    /// A version in a folder, on loopback only, with KubeVirt's own defaults.
    pub fn new(version: Version, dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        Self {
            version,
            // Kubeconfigs name files by it.
            dir: std::path::absolute(&dir).unwrap_or(dir),
            addresses: Vec::new(),
            gates: Vec::new(),
        }
    }
}

/// A running control plane. Everything ends when it is dropped, or when this process dies.
pub struct ControlPlane {
    options: Options,
    binaries: Binaries,
    ports: Ports,
    credentials: Credentials,
    nursery: Nursery,
    admin: Caller,
    /// The servers that were started again.
    revivals: Mutex<Vec<String>>,
}

impl ControlPlane {
    /// Starts everything, builds it first when that was never done, and waits until it answers.
    ///
    /// `tell` hears of every step that is done. Needs a tokio runtime with time and I/O. Fails when something cannot be built, does
    /// not start or does not answer in time; the message names its log.
    pub async fn start(options: Options, tell: impl Fn(&str)) -> anyhow::Result<Self> {
        let binaries = Binaries::build(options.version)?;
        // What an earlier one has left there speaks of other ports and authorities.
        for folder in ["etcd", "kubeconfig", "log", "pki"] {
            let old = options.dir.join(folder);
            if old.exists() {
                std::fs::remove_dir_all(&old)
                    .with_context(|| format!("cannot remove {}", old.display()))?;
            }
        }
        let ports = Ports::free()?;
        let credentials = Credentials::make(&options, &ports)?;
        let nursery = Nursery::open(&options.dir)?;
        let admin = Caller::new(&credentials.kubeconfig(&Who::Admin)?).await?;
        let plane = Self {
            options,
            binaries,
            ports,
            credentials,
            nursery,
            admin,
            revivals: Mutex::default(),
        };
        tell("certificates");
        plane.launch(Server::Etcd)?;
        plane.launch(Server::ApiServer)?;
        plane.answers(Server::ApiServer).await?;
        tell("etcd and kube-apiserver");
        plane.launch(Server::ControllerManager)?;
        plane.launch(Server::Scheduler)?;
        install::crds_and_rights(&plane).await?;
        tell("KubeVirt's kinds and rights");
        plane.launch(Server::VirtApi)?;
        plane.answers(Server::VirtApi).await?;
        tell("virt-api");
        install::hooks(&plane).await?;
        plane.launch(Server::VirtController)?;
        plane.answers(Server::VirtController).await?;
        plane.answers(Server::ControllerManager).await?;
        tell("virt-controller");
        Ok(plane)
    }

    /// Which KubeVirt.
    pub fn version(&self) -> Version {
        self.options.version
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        self.url_at(IpAddr::from([127, 0, 0, 1]))
    }

    /// The same server at another of its addresses.
    pub fn url_at(&self, address: IpAddr) -> String {
        self.ports.url(address)
    }

    /// Certificate of the authority that signs the API server's and all clients' certificates (PEM).
    pub fn ca(&self) -> PathBuf {
        self.credentials.ca()
    }

    /// The programs that run, and those beside them (kubectl, kubelet).
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Where everything is kept.
    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// A kubeconfig with a certificate of this identity, made when it does not exist yet.
    pub fn kubeconfig(&self, who: &Who) -> anyhow::Result<PathBuf> {
        self.credentials.kubeconfig(who)
    }

    /// Certificate and key of this identity in one PEM text, fresh in every call, valid for so long.
    pub fn certificate(&self, who: &Who, valid: Duration) -> anyhow::Result<String> {
        self.credentials.certificate(who, valid)
    }

    /// A token of a service account, valid for so long (the server gives at least 10 minutes); bound to a node when one is named.
    pub async fn token(
        &self,
        (namespace, account): (&str, &str),
        node: Option<&str>,
        valid: Duration,
    ) -> anyhow::Result<String> {
        credentials::token(&self.admin, (namespace, account), node, valid).await
    }

    /// A kubeconfig around a token; `name` is the name of its file.
    pub fn token_kubeconfig(&self, name: &str, token: &str) -> anyhow::Result<PathBuf> {
        self.credentials.token_kubeconfig(name, token)
    }

    /// Requests as the cluster's administrator, with the answers as they are.
    pub fn admin(&self) -> &Caller {
        &self.admin
    }

    /// Requests as anybody with a certificate.
    pub async fn caller(&self, who: &Who) -> anyhow::Result<Caller> {
        Caller::new(&self.kubeconfig(who)?).await
    }

    /// Ends one server at once, as a crash would.
    pub fn stop(&self, server: Server) -> anyhow::Result<()> {
        self.nursery.end(server.name())
    }

    /// Starts a server that was stopped, and waits until it answers.
    pub async fn resume(&self, server: Server) -> anyhow::Result<()> {
        self.launch(server)?;
        self.answers(server).await
    }

    /// How a server ended by itself, if it did. virt-controller does when it cannot renew its lease in time; in a cluster its kubelet
    /// would start it again.
    pub fn ended(&self, server: Server) -> Option<String> {
        self.nursery.ended(server.name())
    }

    /// Process ids by server.
    pub fn processes(&self) -> Vec<(String, u32)> {
        self.nursery.processes()
    }

    fn launch(&self, server: Server) -> anyhow::Result<()> {
        let line = servers::command_line(self, server)?;
        self.nursery.start(server.name(), line)
    }

    /// Waits until a server answers; fails early when its process has ended.
    async fn answers(&self, server: Server) -> anyhow::Result<()> {
        let asked = async {
            loop {
                if servers::answers(self, server).await {
                    return Ok(());
                }
                if let Some(how) = self.nursery.ended(server.name()) {
                    anyhow::bail!("{} ended by itself ({how})", server.name());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let answered = tokio::time::timeout(PATIENCE, asked).await;
        let log = self.nursery.log(server.name());
        answered
            .map_err(|_| {
                anyhow::anyhow!(
                    "{} does not answer after {} s",
                    server.name(),
                    PATIENCE.as_secs()
                )
            })
            .and_then(|result| result)
            .with_context(|| {
                format!(
                    "see {}; its last words: {}",
                    log.display(),
                    children::last_words(&log)
                )
            })
    }
}
