//! The simulated Kubernetes controllers: who binds pods, counts budgets, taints nodes and makes pods again?
//!
//! - [`engine`]: how every controller of the simulated world runs.
//! - [`scheduler`], [`disruption`], [`nodes`], [`workloads`], [`attachments`].

pub mod attachments;
pub mod disruption;
pub mod engine;
pub mod nodes;
pub mod scheduler;
pub mod selector;
pub mod workloads;

use std::time::Duration;

use engine::Controller;

/// All controllers of the process, for [`engine::run`].
pub fn controllers(node_unknown: Duration, pod_eviction: Duration) -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(scheduler::Scheduler),
        Box::new(disruption::Disruption),
        Box::new(nodes::NodeLifecycle::new(node_unknown, pod_eviction)),
        Box::new(workloads::Workloads),
        Box::new(attachments::Attachments::default()),
    ]
}
