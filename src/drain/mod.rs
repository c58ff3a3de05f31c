//! The core: decides what happens to the VMs of this node. Pure: no I/O, no clock, no runtime.

pub mod action;
pub mod answer;
pub mod policy;
pub mod record;
pub mod status;
pub mod time;
pub mod trigger;
pub mod world;
