//! The simulated Kubernetes API server: what a client sees, and who may see it.
//!
//! - [`server`]: one request in, one answer out; [`front`]: in-process for a kube client, or HTTPS on loopback.
//! - [`store`]: the objects, their revisions and their history. Controllers work on it directly.
//! - [`admission`]: where the KubeVirt part hooks in (webhooks and the aggregated subresources).
//! - [`rights`]: RBAC, the Node authorizer and NodeRestriction; [`identity`]: who asks.
//! - [`faults`]: what goes wrong; [`log`]: what was asked.
//! - [`failure`]: an answer that is not a success, with the words of the real server.
//! - [`kinds`], [`discovery`], [`openapi`], [`tables`]: which resources exist, and how they show themselves to kubectl.

pub mod admission;
pub mod answer;
pub mod call;
pub mod discovery;
pub mod failure;
pub mod faults;
pub mod front;
pub mod identity;
pub mod kinds;
pub mod log;
pub mod openapi;
pub mod patch;
mod protobuf;
pub mod rights;
pub mod selectors;
pub mod server;
pub mod store;
pub mod tables;
#[cfg(test)]
pub(crate) mod tests;

pub use admission::{Admission, AllowAll, EvictionRequest, Later, SubresourceRequest};
pub use failure::Failure;
pub use faults::{Effect, Faults, Rule};
pub use front::{Options, Paths, Serving, serve_https};
pub use identity::Identity;
pub use log::{Entry, Filter, Log};
pub use rights::Rights;
pub use server::Server;
pub use store::{Change, ChangeKind, Expired, Store};
