//! The simulated world that vmdrain-agent is tested against; never shipped.

pub mod actors;
pub mod api;
pub mod bench;
pub mod clock;
pub mod demo;
pub mod differential;
pub mod host;
pub mod kubernetes;
pub mod kubevirt;
pub mod logind;
pub mod plane;
pub mod scenario;
pub mod serve;
pub mod systemd1;
pub mod world;
