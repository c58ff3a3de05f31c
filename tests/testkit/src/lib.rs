//! testkit

pub mod scenario;
