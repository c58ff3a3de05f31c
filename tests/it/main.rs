//! The integration tests: one binary.

mod cli;
mod layering;
mod simulation;
