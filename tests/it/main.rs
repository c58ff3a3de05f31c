//! The integration tests: one binary.

mod cli;
mod layering;
mod scenarios;
mod simulation;
mod stop_job;
