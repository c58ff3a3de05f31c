//! testkit

pub mod api;
pub mod clock;
