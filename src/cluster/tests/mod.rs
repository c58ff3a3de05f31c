//! The adapter against a scripted server, under paused time.

mod confirming;
mod credentials;
mod fake;
mod faults;
mod machines;
pub(super) mod kubeconfig;
mod malformed;
mod objects;
mod pods;
mod requests;
mod views;
mod watching;
