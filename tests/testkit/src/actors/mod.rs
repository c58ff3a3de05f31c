//! The played node: a kubelet and a virt-handler that speak only to an API server.
//!
//! Each node has its own pair, with its own clients (the identity is the client's). What they need to know about a VM or a pod
//! travels as annotations (`sim.vmdrain.io/…`, see [`crate::kubevirt::names::knob`]), so the same actors work against any server.
//!
//! - [`machine`]: what physically is on a host: launcher processes and guests. [`premises`]: the same as the host shows it.
//! - [`kubelet`], [`status`]: pods and their statuses. [`handler`], [`migration`]: VMIs.
//! - [`feed`]: the newest objects. [`fabric`]: power, and the network between hosts. [`ledger`]: guests that died.

pub mod fabric;
pub mod feed;
pub mod handler;
pub mod knobs;
pub mod kubelet;
pub mod ledger;
pub mod machine;
pub mod migration;
pub mod premises;

pub mod status;
pub mod timers;

use std::time::Duration;

use tokio::task::AbortHandle;

use crate::clock::SimClock;
use fabric::Fabric;
use ledger::Ledger;

/// As whom a client of an actor speaks as.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// `system:node:<node>`.
    Kubelet(String),
    /// The service account of virt-handler.
    VirtHandler,
}

/// How long the played parts take for what no knob decides.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Rhythm of the kubelet's lease.
    pub lease: Duration,
    /// Shortest and longest pause between two heartbeats of virt-handler.
    pub heartbeat: (Duration, Duration),
    /// The target prepares itself for an incoming guest.
    pub prepare: Duration,
    /// The source starts to copy after the target is ready.
    pub begin: Duration,
    /// The target tells that it has seen the incoming domain.
    pub detect: Duration,
    /// From the flip to `completed`.
    pub complete: Duration,
    /// From `completed` or `failed` to the removal of the target label.
    pub clean: Duration,
    /// The kubelet notices an opened readiness gate.
    pub ready: Duration,
    /// The launcher of a failed target ends.
    pub give_up: Duration,
    /// From the kubelet's start to virt-handler's, and from there to registered device plugins.
    pub boot: (Duration, Duration),
    /// Pause after a request that failed.
    pub retry: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let ms = Duration::from_millis;
        let s = Duration::from_secs;
        Self {
            lease: s(10),
            heartbeat: (s(60), s(132)),
            prepare: ms(700),
            begin: ms(720),
            detect: ms(500),
            complete: ms(480),
            clean: ms(400),
            ready: ms(350),
            give_up: s(1),
            boot: (s(2), s(3)),
            retry: ms(500),
        }
    }
}

/// What all actors share.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The clock.
    pub clock: SimClock,
    /// Power and network.
    pub fabric: Fabric,
    /// Where dirty deaths are recorded.
    pub ledger: Ledger,
    /// Their pace.
    pub pace: Pace,
    /// Decides the pauses between heartbeats.
    pub seed: u64,
}

/// Starts the kubelet and the virt-handler of one node, each with its own client. `shared`: what physically is on it.
pub fn spawn(
    node: &str,
    shared: machine::Shared,
    kubelet: kube::Client,
    handler: kube::Client,
    around: &Surroundings,
) -> [AbortHandle; 2] {
    let kubelet = kubelet::Kubelet::new(node, kubelet, shared.clone(), around);
    let handler = handler::Handler::new(node, handler, shared, around);
    [
        tokio::spawn(kubelet.run()).abort_handle(),
        tokio::spawn(handler.run()).abort_handle(),
    ]
}

/// Starts the virt-handler of a node whose kubelet is not played: `shared` is kept up to date by somebody else.
pub fn spawn_handler(
    node: &str,
    client: kube::Client,
    shared: machine::Shared,
    around: &Surroundings,
) -> AbortHandle {
    tokio::spawn(handler::Handler::new(node, client, shared, around).run()).abort_handle()
}
