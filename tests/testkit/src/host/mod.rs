//! The host of the in-process front: a machine with logind and a service manager, as the agent's ports see it.
//!
//! - [`logind`]: what logind does, by version of systemd; no clock, no D-Bus.
//! - [`ModelHost`]: the machine: boots, goes down, runs logind, keeps our lock in the fd store over a crash of the agent. It
//!   implements [`vmdrain_agent::agent::ports::Host`] with the *outcome* of the real adapter: what a stranger sends, or what logind's
//!   property does not confirm, never reaches the agent.
//! - [`MemoryStore`], [`ModelClock`]: the other two ports.

mod clock;
pub mod logind;
mod machine;
mod port;
mod state;
mod store;
#[cfg(test)]
mod tests;

pub use clock::ModelClock;
pub use machine::{Change, HostHook, HostOptions, ModelHost, Moment};
pub use store::MemoryStore;
