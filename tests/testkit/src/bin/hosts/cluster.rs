//! The cluster of one host: simulated, served over HTTPS on loopback, in real time, and watched.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use testkit::api::front::{Options as HttpsOptions, serve_https};
use testkit::api::log::Entry;
use testkit::api::server::Server;
use testkit::clock::SimClock;
use testkit::scenario::Scenario;
use testkit::scenario::expect::Fate;
use testkit::scenario::run::changes::Changes;
use testkit::scenario::run::cluster::{Cluster as Played, Machine};
use testkit::scenario::run::observer::Observer;
use testkit::scenario::run::scene::PLAYED;
use tokio::sync::mpsc as orders;

/// The node that the host is.
pub(crate) const NODE: &str = "n1";
/// How often the store is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// Where the kubelet keeps its credentials.
const PKI: &str = "/var/lib/kubelet/pki";
/// Where everybody expects a kubelet's kubeconfig.
const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";

type Order = Box<dyn FnOnce(&Played) + Send>;

/// What was seen of the cluster until now, on the case's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    /// Launcher pods on the host's node in which a guest runs, or ran until a moment ago: `compute` is running.
    pub(crate) guests: usize,
    /// Whether a migration is under way.
    pub(crate) migrating: bool,
    /// When the last guest's process had ended and no migration was under way any more.
    pub(crate) empty_at: Option<Duration>,
    /// When the node was cordoned (`true`) and uncordoned, and whether our marker was on it.
    pub(crate) cordons: Vec<Cordon>,
    /// Guests that lost their memory, and how.
    pub(crate) killed: Vec<String>,
    /// What became of each VM.
    pub(crate) fates: Vec<(String, Option<Fate>)>,
}

/// A change of the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cordon {
    /// When.
    pub(crate) at: Duration,
    /// `spec.unschedulable`.
    pub(crate) on: bool,
    /// Our marker is there.
    pub(crate) ours: bool,
}

impl Sight {
    /// Whether the node is cordoned now.
    pub(crate) fn is_cordoned(&self) -> bool {
        self.cordons.last().is_some_and(|last| last.on)
    }

    /// How often it was uncordoned.
    pub(crate) fn uncordons(&self) -> usize {
        self.cordons.iter().filter(|change| !change.on).count()
    }
}

/// A cluster that runs in a thread of its own. Dropping it ends it.
pub(crate) struct Cluster {
    server: Arc<Server>,
    sight: Arc<Mutex<Sight>>,
    orders: Option<orders::UnboundedSender<Order>>,
    api: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Starts the cluster of a story (its timeline is not played). `api` is the folder for credentials.
    pub(crate) fn start(
        story: &str,
        clock: &SimClock,
        machine_id: &str,
        api: &Path,
    ) -> anyhow::Result<Self> {
        let scenario = Scenario::parse(Path::new("hosts"), story)?;
        let machine = Machine {
            boot_id: String::new(),
            machine_id: machine_id.to_owned(),
            system_uuid: vmdrain_agent::host::Identity::read().system_uuid,
        };
        let (started, starts) = mpsc::channel();
        let (send, receive) = orders::unbounded_channel();
        let sight = Arc::<Mutex<Sight>>::default();
        let (shared, folder, clock) = (sight.clone(), api.to_owned(), clock.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let living = async {
                let played =
                    Played::start(&scenario, &clock, 1, &machine).map_err(anyhow::Error::msg)?;
                let serving =
                    serve_https(played.server.clone(), HttpsOptions::in_dir(&folder)).await?;
                // Nobody waits for it only when the case has failed already.
                let _ = started.send(Ok(played.server.clone()));
                live(&played, receive, &shared, &clock).await;
                serving.shutdown().await;
                anyhow::Ok(())
            };
            let ended = runtime
                .map_err(anyhow::Error::from)
                .and_then(|it| it.block_on(living));
            if let Err(error) = ended {
                let _ = started.send(Err(error));
            }
        });
        let server = starts.recv().context("the cluster's thread has ended")??;
        Ok(Self {
            server,
            sight,
            orders: Some(send),
            api: api.to_owned(),
            thread: Some(thread),
        })
    }

    /// What was seen until now.
    pub(crate) fn sight(&self) -> Sight {
        lock(&self.sight).clone()
    }

    /// Everything that the agent has asked, oldest first.
    pub(crate) fn asked(&self) -> Vec<Entry> {
        let mut all = self.server.log.entries();
        all.retain(|entry| !entry.agent.starts_with(PLAYED) && entry.agent != PERSON);
        all
    }

    /// The evictions that the agent has asked for in earnest.
    pub(crate) fn evictions(&self) -> Vec<Entry> {
        let mut all = self.asked();
        all.retain(|entry| entry.subresource == "eviction" && !entry.dry_run);
        all
    }

    /// VMs that are marked for evacuation.
    pub(crate) fn marked(&self) -> Vec<String> {
        let vmis = self.server.store.list_shared("virtualmachineinstances");
        let marked = vmis
            .iter()
            .filter(|vmi| vmi["status"]["evacuationNodeName"].is_string());
        marked
            .map(|vmi| vmi["metadata"]["name"].to_string())
            .collect()
    }

    /// The host's Node object.
    pub(crate) fn node(&self) -> serde_json::Value {
        self.server.store.get("nodes", "", NODE).unwrap_or_default()
    }

    /// Does something to the cluster; it happens before anything that is done later.
    pub(crate) fn act(&self, order: impl FnOnce(&Played) + Send + 'static) -> anyhow::Result<()> {
        let (done, wait) = mpsc::channel();
        let order = move |played: &Played| {
            order(played);
            // The caller is gone only when its thread has failed.
            let _ = done.send(());
        };
        let orders = self.orders.as_ref().context("the cluster has ended")?;
        orders
            .send(Box::new(order))
            .ok()
            .context("the cluster has ended")?;
        wait.recv().context("the cluster has ended")
    }

    /// `kubectl cordon` by a person.
    pub(crate) fn cordon_by_somebody(&self) -> anyhow::Result<()> {
        self.act(|played| {
            // The node exists; an update of it has nothing to answer.
            let _ = played.store().update("nodes", "", NODE, |node| {
                node["spec"]["unschedulable"] = true.into();
            });
        })
    }

    /// A kubelet reports this boot without having restarted anything: the system of the first boot.
    pub(crate) fn first_boot(&self, boot_id: &str) -> anyhow::Result<()> {
        let id = boot_id.to_owned();
        self.act(move |played| played.world.node_reports(NODE, &id))
    }

    /// Somebody migrates a VM to the host.
    pub(crate) fn move_back(&self, vm: &str) -> anyhow::Result<()> {
        let vm = vm.to_owned();
        let (tell, told) = mpsc::channel();
        self.act(move |played| {
            let moved = played.world.migrate("default", &vm, Some(NODE));
            // The receiver waits below.
            let _ = tell.send(moved.map_err(|failure| failure.message));
        })?;
        told.recv()?.map_err(anyhow::Error::msg)?;
        Ok(())
    }

    /// No migration of the VM is under way, and it runs on the host.
    pub(crate) fn settled(&self, vm: &str) -> bool {
        let migrations = self
            .server
            .store
            .list_shared("virtualmachineinstancemigrations");
        let under_way = migrations
            .iter()
            .filter(|one| one["spec"]["vmiName"] == vm)
            .any(|one| {
                !matches!(
                    one["status"]["phase"].as_str(),
                    Some("Succeeded" | "Failed")
                )
            });
        let vmi = self
            .server
            .store
            .get("virtualmachineinstances", "default", vm);
        !under_way && vmi.is_some_and(|vmi| vmi["status"]["nodeName"] == NODE)
    }

    /// The host is off: what is still on it dies.
    pub(crate) fn host_off(&self) -> anyhow::Result<()> {
        self.act(|played| played.world.node_off(NODE))
    }

    /// The host has booted.
    pub(crate) fn host_on(&self, boot_id: &str) -> anyhow::Result<()> {
        let id = boot_id.to_owned();
        self.act(move |played| played.world.node_boot(NODE, &id))
    }

    /// The kubelet's files for a host: path, content, mode.
    pub(crate) fn credentials(&self) -> anyhow::Result<Vec<(String, Vec<u8>, u32)>> {
        let pki = self.api.join("pki");
        let mut files = Vec::new();
        for entry in fs::read_dir(&pki).with_context(|| format!("cannot read {}", pki.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "ca.crt" || name.starts_with(&format!("kubelet-{NODE}.")) {
                files.push((format!("{PKI}/{name}"), fs::read(entry.path())?, 0o600));
            }
        }
        let theirs = self.api.join(format!("kubelet-{NODE}.kubeconfig"));
        let config = fs::read_to_string(&theirs)?.replace(&pki.display().to_string(), PKI);
        files.push((KUBECONFIG.to_owned(), config.into_bytes(), 0o600));
        Ok(files)
    }
}

/// What a person's requests call themselves.
const PERSON: &str = "kubectl";

impl Drop for Cluster {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            crate::complain("the simulated cluster has panicked");
        }
    }
}

fn lock(sight: &Mutex<Sight>) -> MutexGuard<'_, Sight> {
    sight.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries out orders and watches, until nobody can give orders any more.
async fn live(
    played: &Played,
    mut orders: orders::UnboundedReceiver<Order>,
    sight: &Mutex<Sight>,
    clock: &SimClock,
) {
    let mut observer = Observer::new(NODE);
    let mut changes = Changes::default();
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(order) => order(played),
                None => return,
            },
            () = clock.sleep(LOOK) => {}
        }
        let now = clock.elapsed();
        let news = changes.take(played.store());
        let kills = played.world.dirty_kills();
        let mut seen = lock(sight);
        if news.is_empty() && kills.len() == seen.killed.len() {
            continue;
        }
        for change in &news {
            observer.change(change, now);
            let last = seen.cordons.last();
            let same =
                last.is_some_and(|last| last.on == observer.cordoned && last.ours == observer.ours);
            if !same && (observer.cordoned || last.is_some_and(|last| last.on)) {
                seen.cordons.push(Cordon {
                    at: now,
                    on: observer.cordoned,
                    ours: observer.ours,
                });
            }
        }
        // Stricter than "the guest has moved": the process on the source has ended as well.
        let here = observer
            .pods
            .values()
            .filter(|pod| pod.launcher && pod.node == NODE);
        let guests = here.filter(|pod| pod.guest && !pod.over).count();
        let migrating = observer
            .vms
            .values()
            .any(|story| !story.migrating.is_empty());
        if guests == 0 && !migrating && (seen.guests > 0 || seen.migrating) {
            seen.empty_at = Some(now);
        }
        seen.guests = guests;
        seen.migrating = migrating;
        seen.killed = kills
            .iter()
            .map(|kill| format!("{}/{} ({})", kill.namespace, kill.name, kill.reason))
            .collect();
        seen.fates = observer
            .vms
            .iter()
            .map(|((_, name), story)| (name.clone(), story.fate()))
            .collect();
    }
}
