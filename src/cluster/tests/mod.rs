//! The adapter against a scripted server, under paused time.

mod confirming;
mod credentials;
mod fake;
mod faults;
pub(super) mod kubeconfig;
mod machines;
mod malformed;
mod objects;
mod pods;
mod requests;
mod targets;
mod views;
mod watching;
