//! The shell: one task drives the core.

pub mod command;
pub mod ports;
