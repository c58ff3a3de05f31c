//! The shell: one task drives the core; everything else feeds it or carries out its actions.
//!
//! - [`ports`]: what the driver needs from the world, as traits.
//! - [`driver`]: the only loop.
//! - [`effects`]: carries out one action with a time limit; never decides.
//! - [`command`]: how commands reach the driver and how its status is read.

pub mod command;
pub mod driver;
pub mod effects;
pub mod ports;
pub mod service;
