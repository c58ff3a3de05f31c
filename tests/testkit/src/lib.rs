//! testkit

pub mod api;
pub mod clock;
pub mod actors;
pub mod kubernetes;
pub mod kubevirt;
pub mod world;
