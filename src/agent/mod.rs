//! The shell: one task drives the core; everything else feeds it or carries out its actions.
//!
//! - [`ports`]: what the driver needs from the world, as traits.
//! - [`driver`]: the only loop.
//! - [`effects`]: carries out one action with a time limit; never decides.
//! - `patience`: what a host without credentials waits for, and what becomes of a stored lock meanwhile.
//! - `recorder`: writes the record, off the loop; who must not overtake it waits.
//! - [`planner`]: makes a plan, beside the loop; [`checkup`] adds what `doctor` has to know of the cluster.
//! - `announcer`: posts Events, behind the requests of the drain.
//! - [`command`]: how commands reach the driver and how its status is read.

mod announcer;
pub mod checkup;
pub mod command;
pub mod driver;
pub mod effects;
mod patience;
pub mod planner;
pub mod ports;
mod recorder;
pub mod service;
