//! The integration tests: one binary.

mod cli;
mod configuration;
mod estimates;
mod layering;
mod matrix;
mod scenarios;
mod simulation;
mod stop_job;
