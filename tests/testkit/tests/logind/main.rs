//! The host adapter against the stand-in logind, on a private bus and in real time: every wait is bounded.
//!
//! "Nothing happened" is never a pause: something else is made to happen afterwards, and what came before it is
//! looked at ([`stage::Stage::until_limit`]).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on shall say where"
)]

mod ask;
mod bus;
mod hold;
mod schedule;
mod signals;
mod stage;
mod userspace;
mod vanish;
