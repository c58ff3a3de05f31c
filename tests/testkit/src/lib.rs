//! The simulated world that vmdrain-agent is tested against; never shipped.

pub mod api;
pub mod clock;
pub mod host;
pub mod logind;
pub mod scenario;
