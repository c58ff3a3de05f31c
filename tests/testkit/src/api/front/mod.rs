//! Through what does a client reach the server? In-process under paused time, or HTTPS on loopback.

mod inprocess;

pub use inprocess::Front;
