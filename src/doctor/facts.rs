//! What was seen of this host and its cluster: plain data.

use crate::drain::action::Holder;
use crate::drain::plan::Plan;
use crate::drain::stop::HandlerDoubt;
use crate::drain::world::{KubeVirtView, NodeView, Sight};
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Looked at as root: what is missing is missing, and not only hidden.
    pub root: bool,
    /// Version and state of the daemon, or why it cannot be asked.
    pub daemon: Result<(String, String), String>,
    /// Complaints about the configuration; `Ok`: valid.
    pub config: Result<(), String>,
    /// `drain.allow_guest_shutdown` is `never`.
    pub guests_never_stopped: bool,
    /// What logind says, or why it cannot be asked.
    pub logind: Result<LogindFacts, String>,
    /// What PID 1 says, or why it cannot be asked.
    pub units: Result<UnitFacts, String>,
    /// What the API server says.
    pub cluster: ClusterFacts,
    /// `machine-id` of this host.
    pub machine_id: String,
    /// DMI product UUID of this host.
    pub system_uuid: String,
}

/// logind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogindFacts {
    /// How long it waits for delay locks.
    pub limit: Duration,
    /// What is wrong with that, with its cure in it; empty when all is well.
    pub trouble: String,
    /// The file that sets it, or "logind's own default"; empty when not known.
    pub limit_by: String,
    /// Our lock is in its list.
    pub held: bool,
    /// Everybody else who holds a shutdown, and units that stop guests.
    pub others: Vec<Holder>,
}

/// One unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitState {
    /// `ActiveState`.
    pub active: String,
    /// `UnitFileState`: `enabled`, `disabled`, …; empty: there is no such unit.
    pub file: String,
    /// Its files have changed since it was loaded.
    pub needs_reload: bool,
    /// Its fragment is not the one of the package: an override in /etc.
    pub fragment: String,
}

/// A running container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Name of its scope.
    pub name: String,
    /// It is stopped only after our stop job.
    pub after_hold: bool,
}

/// PID 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitFacts {
    /// `vmdrain-agent.service`.
    pub agent: UnitState,
    /// `vmdrain-hold.service`.
    pub hold: UnitState,
    /// `TimeoutStopUSec` of the latter; `None`: no limit, or not loaded.
    pub stop_limit: Option<Duration>,
    /// `JobTimeoutUSec` of the targets with which the system ends; `None`: no limit.
    pub job_limits: BTreeMap<String, Option<Duration>>,
    /// Containers that run.
    pub scopes: Vec<Scope>,
}

/// A right that was asked for by a SelfSubjectAccessReview, where these can be trusted (control-plane.md 6.a).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// `create pods/eviction`.
    pub what: String,
    /// What cannot be done without it.
    pub costs: String,
    /// The part of the manifest that gives it; empty: a kubelet has it anyway.
    pub manifest: String,
    /// A drain cannot do without it.
    pub vital: bool,
    /// The answer, or why there is none.
    pub allowed: Result<bool, String>,
}

/// The cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFacts {
    /// Why there is no way to the API server at all; empty when there is.
    pub unconnected: String,
    /// The name of the node.
    pub node_name: String,
    /// The own Node, or why it cannot be read.
    pub node: Option<Result<NodeView, String>>,
    /// Rights that were asked about.
    pub rights: Vec<Right>,
    /// The KubeVirt object.
    pub kubevirt: Sight<KubeVirtView>,
    /// virt-handler is known to be alive here, or why not; `None`: not looked at.
    pub handler: Option<Result<(), HandlerDoubt>>,
    /// The plan, which has the budgets, the time and what cannot be seen.
    pub plan: Option<Plan>,
    /// Other nodes that could take VMs, where nodes can be seen: (ready and schedulable, all).
    pub others: Option<(usize, usize)>,
}

impl Default for Facts {
    /// Nothing was looked at.
    fn default() -> Self {
        let unseen = || "not looked at".to_owned();
        Self {
            root: false,
            daemon: Err(unseen()),
            config: Ok(()),
            guests_never_stopped: false,
            logind: Err(unseen()),
            units: Err(unseen()),
            cluster: ClusterFacts::default(),
            machine_id: String::new(),
            system_uuid: String::new(),
        }
    }
}
