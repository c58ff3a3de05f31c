//! Through what does a client reach the server? In-process under paused time, or HTTPS on loopback.

mod connection;
mod credentials;
mod https;
mod inprocess;
mod pki;
#[cfg(test)]
mod tests;

pub use credentials::Paths;
pub use https::{Options, Serving, serve_https};
pub use inprocess::Front;
