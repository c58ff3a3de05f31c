//! The simulated Kubernetes API server: what a client sees, and who may see it.
//!
//! - [`kinds`]: which resources exist, under which names.
//! - [`store`]: the objects, their revisions and their history. Controllers work on it directly.
//! - [`admission`]: where the KubeVirt part hooks in (webhooks and the aggregated subresources).
//! - [`failure`]: an answer that is not a success, with the words of the real server.

pub mod admission;
pub mod failure;
pub mod kinds;
pub mod store;

pub use admission::{Admission, AllowAll, EvictionRequest, Later, SubresourceRequest};
pub use failure::Failure;
pub use store::{Change, ChangeKind, Expired, Store};
