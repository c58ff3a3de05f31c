//! The simulated cluster of a story: made from its tables.

use std::sync::Arc;

use serde_json::Value;
use tower::ServiceExt as _;
use vmdrain_agent::drain::policy::seconds;
use vmdrain_agent::drain::ways::DEADLINE_ANNOTATION;

use super::scene::PLAYED;
use crate::actors::premises::Premises;
use crate::actors::{Pace, Role};
use crate::api::rights::Rights;
use crate::api::server::Server;
use crate::api::{Identity, Store};
use crate::clock::SimClock;
use crate::kubevirt::{Settings, VirtApi};
use crate::scenario::Scenario;
use crate::scenario::values::Rate;
use crate::scenario::words::{
    Migratable, Outcome, PodOwner, Recreated, Rights as Granted, Share, VmOwner,
};
use crate::scenario::world::{Node, Pdb, Pod, UnhealthyPolicy, Vm};
use crate::world::{self, AttachmentSpec, Inventory, NodeSpec, PdbSpec, PodSpec, VmSpec, World};

/// A cluster that runs.
pub struct Cluster {
    /// Its API server.
    pub server: Arc<Server>,
    /// Everything behind it.
    pub world: World,
    /// The real control plane behind it, when there is one: the world then only looks on.
    pub real: Option<super::real::Real>,
    /// What physically is on the host of the story, where that is played here.
    pub premises: Option<Premises>,
}

/// Transfer speed when a VM names none.
const RATE: Rate = Rate(1 << 30);

/// The ids that the host's node reports; an empty one is made from the node's name.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// `status.nodeInfo.bootID`.
    pub boot_id: String,
    /// `status.nodeInfo.machineID`.
    pub machine_id: String,
    /// `status.nodeInfo.systemUUID`.
    pub system_uuid: String,
}

impl Machine {
    /// A machine of which only the boot is known.
    pub fn booted(boot_id: String) -> Self {
        Self {
            boot_id,
            ..Self::default()
        }
    }
}

impl Cluster {
    /// Starts the cluster of a story. Needs a tokio runtime.
    pub fn start(
        scenario: &Scenario,
        clock: &SimClock,
        seed: u64,
        machine: &Machine,
    ) -> Result<Self, String> {
        let store = Store::new(clock.clone(), seed);
        let virt_api = VirtApi::new(store.clone(), settings(scenario)?);
        let server = Server::new(
            store.clone(),
            Arc::new(virt_api.clone()),
            rights(&scenario.host.rights)?,
        );
        let inventory = inventory(scenario, machine, clock.speed());
        let played = server.clone();
        let clients = Arc::new(move |role: Role| {
            let identity = match role {
                Role::Kubelet(node) => Identity::kubelet(&node),
                Role::VirtHandler => Identity::service_account("kubevirt", "kubevirt-handler"),
            };
            client(&played, identity, PLAYED)
        });
        let world = world::start(
            &store,
            &virt_api,
            &inventory,
            clients,
            Pace::default(),
            seed,
        )
        .map_err(|failure| failure.message)?;
        Ok(Self {
            server,
            premises: world.premises(&scenario.host.node),
            world,
            real: None,
        })
    }

    /// The objects.
    pub fn store(&self) -> &Store {
        self.world.store()
    }

    /// machineID and systemUUID of a node.
    pub fn ids(&self, node: &str) -> (String, String) {
        let object = self.store().get("nodes", "", node).unwrap_or_default();
        let info = &object["status"]["nodeInfo"];
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        (text(&info["machineID"]), text(&info["systemUUID"]))
    }

    /// A client with the agent's credentials.
    pub fn agent_client(&self, node: &str) -> kube::Client {
        client(&self.server, Identity::kubelet(node), "vmdrain-agent")
    }
}

/// A client in this process that names itself.
fn client(server: &Arc<Server>, identity: Identity, agent: &'static str) -> kube::Client {
    let named = server.front(identity).map_request(
        move |mut request: http::Request<kube::client::Body>| {
            let value = http::HeaderValue::from_static(agent);
            request
                .headers_mut()
                .insert(http::header::USER_AGENT, value);
            request
        },
    );
    kube::Client::new(named, "default")
}

pub(super) fn rights(granted: &Granted) -> Result<Rights, String> {
    match granted {
        Granted::Full => Ok(Rights::full()),
        Granted::Base => Ok(Rights::base()),
        Granted::Granted(list) => Rights::with_list(list).map_err(|error| error.to_string()),
    }
}

pub(super) fn settings(scenario: &Scenario) -> Result<Settings, String> {
    let kubevirt = &scenario.kubevirt;
    let part =
        |number: u32| u8::try_from(number).map_err(|_| "a version that is too large".to_owned());
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(Settings {
        version: (part(kubevirt.version.major)?, part(kubevirt.version.minor)?),
        per_cluster: count(kubevirt.parallel_migrations_per_cluster),
        per_node: count(kubevirt.parallel_outbound_migrations_per_node),
        cluster_eviction_strategy: kubevirt
            .cluster_eviction_strategy
            .name()
            .unwrap_or("None")
            .to_owned(),
        drain_taint_key: kubevirt.drain_taint_key.clone(),
        priority_queue: kubevirt.priority_queue,
        ..Settings::default()
    })
}

/// The agent of a faster world reads this annotation on its own clock.
fn hastened(mut vm: VmSpec, speed: f64) -> VmSpec {
    if let Some(text) = vm.annotations.get_mut(DEADLINE_ANNOTATION)
        && let Ok(span) = seconds::parse(text)
    {
        *text = format!("{}s", span.as_secs_f64() / speed);
    }
    vm
}

/// What the story begins with, in a world that is so much faster.
pub(super) fn inventory(scenario: &Scenario, machine: &Machine, speed: f64) -> Inventory {
    let host = &scenario.host.node;
    let nodes = scenario.nodes.iter().map(|node| {
        let own = if node.name == *host {
            machine.clone()
        } else {
            Machine::default()
        };
        NodeSpec {
            boot_id: own.boot_id,
            machine_id: own.machine_id,
            system_uuid: own.system_uuid,
            ..node_spec(node)
        }
    });
    Inventory {
        nodes: nodes.collect(),
        vms: scenario
            .vms
            .iter()
            .filter(|vm| vm.count > 0)
            .map(|vm| hastened(vm_spec(vm), speed))
            .collect(),
        pods: scenario
            .pods
            .iter()
            .map(|pod| pod_spec(pod, host))
            .collect(),
        pdbs: scenario.pdbs.iter().map(pdb_spec).collect(),
        attachments: scenario
            .volume_attachments
            .iter()
            .map(|it| AttachmentSpec {
                node: it.node.clone(),
                detaches: it.detaches.after(),
            })
            .collect(),
    }
}

/// A node as the world wants it.
pub fn node_spec(node: &Node) -> NodeSpec {
    NodeSpec {
        ready: node.ready,
        unschedulable: node.unschedulable,
        labels: node.labels.clone(),
        memory: node.memory.0.to_string(),
        cpus: node.cpus,
        control_plane: node.control_plane,
        ..NodeSpec::new(&node.name)
    }
}

/// A VM as the world wants it; without a node it is scheduled like any other.
pub fn vm_spec(vm: &Vm) -> VmSpec {
    let rate = vm.rate.unwrap_or(RATE).0;
    let by_rate = std::time::Duration::from_millis(vm.memory.0.saturating_mul(1000) / rate);
    VmSpec {
        namespace: vm.namespace.clone(),
        count: usize::try_from(vm.count).unwrap_or(usize::MAX),
        owner: match &vm.owner {
            VmOwner::Vm(strategy) => world::VmOwner::Vm(strategy.clone()),
            VmOwner::ReplicaSet => world::VmOwner::ReplicaSet,
            VmOwner::Pool => world::VmOwner::Pool,
            VmOwner::Other(kind) => world::VmOwner::Other(kind.clone()),
            VmOwner::Nobody => world::VmOwner::None,
        },
        eviction_strategy: vm.eviction_strategy.name().map(str::to_owned),
        not_migratable: match &vm.migratable {
            Migratable::Yes => None,
            Migratable::No(why) => Some(why.clone()),
        },
        memory: vm.memory.0.to_string(),
        dedicated_cpus: vm.dedicated_cpus,
        migration_time: vm.migration_time.map_or(by_rate, |span| span.0),
        start_up: vm.start_up.0,
        migration: vm.migration.iter().map(outcome).collect(),
        guest_shutdown: vm.guest_shutdown.after(),
        grace_period: vm.grace_period.0,
        source_pod_lingers: vm.source_pod_lingers.after(),
        hotplug_disks: usize::try_from(vm.hotplug_disks).unwrap_or(usize::MAX),
        labels: vm.labels.clone(),
        annotations: vm.annotations.clone(),
        vm_annotations: vm.vm_annotations.clone(),
        priority: vm.priority.clone(),
        marked: false,
        ..VmSpec::new(&vm.name, vm.node.as_deref().unwrap_or_default())
    }
}

/// An outcome in the played parts' own words.
pub fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Ok => "ok".into(),
        Outcome::Fail(why) => format!("fail:{why}"),
        Outcome::Stuck => "stuck".into(),
        Outcome::Unschedulable(why) => format!("unschedulable:{why}"),
        Outcome::Pending => "pending".into(),
    }
}

/// A pod as the world wants it.
pub fn pod_spec(pod: &Pod, host: &str) -> PodSpec {
    PodSpec {
        namespace: pod.namespace.clone(),
        owner: match &pod.owner {
            PodOwner::Controller(kind, name) => format!("{kind}/{name}"),
            PodOwner::Mirror => "mirror".into(),
            PodOwner::Nobody => "none".into(),
        },
        ready: pod.ready,
        empty_dir: pod.empty_dir,
        grace_period: pod.grace_period.0,
        stops_in: pod.stops_in.after(),
        finished: pod.finished,
        priority: pod.priority,
        recreated: pod.recreated.as_ref().map(|recreated| match recreated {
            Recreated::Never => "never".into(),
            Recreated::Elsewhere => "elsewhere".into(),
            Recreated::SameName(Some(node)) => format!("same_name:{node}"),
            Recreated::SameName(None) => "same_name:pending".into(),
        }),
        labels: pod.labels.clone(),
        ..PodSpec::new(&pod.name, pod.node.as_deref().unwrap_or(host))
    }
}

/// A budget as the world wants it.
pub fn pdb_spec(pdb: &Pdb) -> PdbSpec {
    PdbSpec {
        namespace: pdb.namespace.clone(),
        min_available: pdb.min_available.as_ref().map(share),
        max_unavailable: pdb.max_unavailable.as_ref().map(share),
        selector: pdb.selector.clone(),
        unhealthy_pod_eviction_policy: match pdb.unhealthy_pod_eviction_policy {
            UnhealthyPolicy::IfHealthyBudget => None,
            UnhealthyPolicy::AlwaysAllow => Some("AlwaysAllow".into()),
        },
        ..PdbSpec::new(&pdb.name)
    }
}

/// A number or a percentage as text.
pub fn share(share: &Share) -> String {
    match share {
        Share::Pods(count) => count.to_string(),
        Share::Percent(text) => text.clone(),
    }
}
