//! The core: decides what happens to the VMs of this node. Pure: no I/O, no clock, no runtime.

pub mod action;
pub mod again;
pub mod answer;
pub mod boot;
pub mod budgets;
pub mod eta;
pub mod fallback;
pub mod fate;
pub mod hooks;
pub mod judge;
pub mod machine;
pub mod pacing;
pub mod phase;
pub mod plan;
pub mod policy;
pub mod record;
pub mod request;
pub mod restore;
pub mod status;
pub mod stop;
pub mod time;
pub mod track;
pub mod trigger;
pub mod verdict;
pub mod ways;
pub mod world;
