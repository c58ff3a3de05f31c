//! Where does one measurement take place? A fresh simulated cluster behind HTTPS, and a host with a private bus and a stand-in logind.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tempfile::TempDir;
use tower::ServiceExt as _;
use vmdrain_agent::host::Identity as Host;

use super::watcher::Watcher;
use crate::actors::{Pace, Role};
use crate::api::{Entry, Identity, Options, Rights, Server, Serving, Store, serve_https};
use crate::clock::SimClock;
use crate::kubevirt::{Settings, VirtApi};
use crate::logind::{Bus, Logind};
use crate::world::{Inventory, NodeSpec, VmSpec, World, start};

/// The node that is emptied.
pub(super) const NODE: &str = "n1";
/// Where its VMs can go.
const OTHERS: [&str; 2] = ["n2", "n3"];
/// How the played parts name themselves: the played kubelet of [`NODE`] has the agent's identity.
const PLAYED: &str = "clustersim";
/// How often the requests are looked at; each carries the time at which it came.
const LOOK: Duration = Duration::from_millis(20);
/// Far longer than anything that is waited for without a limit of its own.
pub(super) const BOUND: Duration = Duration::from_secs(60);

/// What a measurement needs to know about the cluster.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// KubeVirt's minor version.
    pub(super) minor: u8,
    /// What runs on the node.
    pub(super) vms: Vec<VmSpec>,
    /// Simulated seconds per second.
    pub(super) speed: f64,
    /// Seed of everything random in the model.
    pub(super) seed: u64,
}

impl Setting {
    /// KubeVirt 1.7 in real time.
    pub(super) fn new(vms: Vec<VmSpec>, seed: u64) -> Self {
        Self {
            minor: 7,
            vms,
            speed: 1.0,
            seed,
        }
    }
}

/// A running cluster.
pub(super) struct Arena {
    /// Its API server.
    pub(super) server: Arc<Server>,
    /// When its node became empty.
    pub(super) watcher: Watcher,
    serving: Serving,
    dir: TempDir,
    _world: World,
}

impl Arena {
    /// Starts it.
    pub(super) async fn start(setting: &Setting) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("bench").tempdir()?;
        let store = Store::new(SimClock::from_wall(setting.speed), setting.seed);
        let virt_api = VirtApi::new(store.clone(), Settings::of(1, setting.minor));
        let server = Server::new(store.clone(), Arc::new(virt_api.clone()), Rights::full());
        let played = server.clone();
        let clients = Arc::new(move |role: Role| client(&played, role));
        let inventory = Inventory {
            nodes: nodes(),
            vms: setting.vms.clone(),
            ..Inventory::default()
        };
        let world = start(
            &store,
            &virt_api,
            &inventory,
            clients,
            Pace::default(),
            setting.seed,
        )
        .map_err(|failure| anyhow!("the cluster cannot be made: {}", failure.message))?;
        let serving = serve_https(server.clone(), Options::in_dir(dir.path().join("api"))).await?;
        let watcher = Watcher::start(&store);
        Ok(Self {
            server,
            watcher,
            serving,
            dir,
            _world: world,
        })
    }

    /// A folder that lives as long as this.
    pub(super) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Kubeconfig of the cluster's administrator.
    pub(super) fn admin(&self) -> PathBuf {
        self.serving.paths.admin.clone()
    }

    /// Kubeconfig of the node.
    pub(super) fn kubelet(&self) -> anyhow::Result<PathBuf> {
        let paths = &self.serving.paths.kubelets;
        paths
            .get(NODE)
            .cloned()
            .context("no kubeconfig of the node")
    }

    /// Now, on the clock of the cluster.
    pub(super) fn now(&self) -> Duration {
        self.server.clock().elapsed()
    }

    /// A span of the cluster's clock in real time.
    pub(super) fn real(&self, simulated: Duration) -> Duration {
        self.server.clock().real(simulated)
    }

    /// What was asked by the program that is measured, not by the played parts.
    pub(super) fn asked(&self) -> Vec<Entry> {
        let mut entries = self.server.log.entries();
        entries.retain(|entry| entry.agent != PLAYED);
        entries
    }

    /// Waits until `wanted` finds something in the requests.
    pub(super) async fn wait_asked<T>(
        &self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&[Entry]) -> Option<T>,
    ) -> anyhow::Result<T> {
        let search = async {
            let (mut read, mut asked) = (0, Vec::new());
            loop {
                let news = self.server.log.entries_from(read);
                read += news.len();
                asked.extend(news.into_iter().filter(|entry| entry.agent != PLAYED));
                if let Some(found) = wanted(&asked) {
                    return found;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(limit, search)
            .await
            .map_err(|_| anyhow!("no {what} after {limit:?}"))
    }
}

/// The host's side: a bus and the logind on it.
pub(super) struct HostSide {
    /// logind.
    pub(super) logind: Logind,
    /// Dropped after logind.
    bus: Bus,
}

impl HostSide {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let bus = Bus::start().await?;
        let logind = Logind::start(&bus.address(), crate::logind::Options::default()).await?;
        Ok(Self { logind, bus })
    }

    pub(super) fn address(&self) -> String {
        self.bus.address()
    }
}

/// When an entry is the cordon: a patch of our node.
pub(super) fn cordons(entry: &Entry) -> bool {
    entry.verb == "patch" && entry.resource == "nodes" && entry.name == NODE
}

/// When an entry is a real eviction.
pub(super) fn evicts(entry: &Entry) -> bool {
    entry.verb == "create" && entry.subresource == "eviction" && !entry.dry_run
}

fn client(server: &Arc<Server>, role: Role) -> kube::Client {
    let identity = match role {
        Role::Kubelet(node) => Identity::kubelet(&node),
        Role::VirtHandler => Identity::service_account("kubevirt", "kubevirt-handler"),
    };
    let named =
        server
            .front(identity)
            .map_request(|mut request: http::Request<kube::client::Body>| {
                let value = http::HeaderValue::from_static(PLAYED);
                request
                    .headers_mut()
                    .insert(http::header::USER_AGENT, value);
                request
            });
    kube::Client::new(named, "default")
}

/// Our node is this machine, or the agent would not touch it.
fn nodes() -> Vec<NodeSpec> {
    let host = Host::read();
    let roomy = |name: &str| NodeSpec {
        memory: "8Ti".to_owned(),
        cpus: 4096,
        ..NodeSpec::new(name)
    };
    let ours = NodeSpec {
        machine_id: host.machine_id,
        system_uuid: host.system_uuid,
        boot_id: host.boot_id,
        ..roomy(NODE)
    };
    std::iter::once(ours)
        .chain(OTHERS.iter().map(|name| roomy(name)))
        .collect()
}
