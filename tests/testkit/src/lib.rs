//! The simulated world that vmdrain-agent is tested against.

pub mod logind;
