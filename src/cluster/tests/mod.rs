//! The adapter against a scripted server, under paused time.

mod credentials;
mod fake;
mod requests;
mod views;
mod watching;
