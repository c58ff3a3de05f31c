//! The simulated KubeVirt: what do virt-api and virt-controller answer and do, version by version?
//!
//! - [`settings`]: version, limits and time constants; [`install`] puts KubeVirt's objects into the store.
//! - [`virt_api`]: the webhooks and the subresources.
//! - [`controller`]: evacuations, migrations, VMs, replica sets, budgets, nodes.
//! - [`names`], [`fields`]: labels and how JSON is read.

pub mod controller;
pub mod fields;
pub mod names;
pub mod settings;
pub mod virt_api;

pub use settings::{Settings, Timings, Version, install};
pub use virt_api::VirtApi;
