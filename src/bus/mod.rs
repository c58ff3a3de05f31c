//! Our own D-Bus interface: what other programs and our command line see of the daemon.
//!
//! ```text
//!  vmdrain-agent status/trigger/… ─ client.rs ─┐
//!  busctl, gdbus, other programs ──────────────┴─► io.vmdrain.Agent1 (agent1.rs) ─► command::Handle ─► driver
//!                                   signals ◄── service.rs ◄── watch<Status> ◄────────────────────────┘
//! ```
//!
//! | file | answers |
//! |---|---|
//! | `agent1.rs` | which methods, properties and signals there are |
//! | `options.rs` | which keys `Trigger` and `Cancel` take, on the wire and back |
//! | `facts.rs` | what the properties are worth, and which have changed |
//! | `gate.rs` | who may call what |
//! | `polkit.rs` | what polkit says |
//! | `maintenance/` | which signals of others ask for a drain |
//! | `service.rs` | how the interface is kept on the bus and its signals are sent |
//! | `client.rs` | how the command line asks the daemon |

pub mod agent1;
pub mod client;
pub mod error;
pub mod facts;
pub mod gate;
pub mod maintenance;
pub mod options;
pub mod polkit;
pub mod service;

pub use client::{Client, ClientError};
pub use service::Service;

/// Bus name and interface.
pub const NAME: &str = "io.vmdrain.Agent1";
/// The one object.
pub const PATH: &str = "/io/vmdrain/Agent1";
/// Error name of a refusal: the text is the sentence for people.
pub const REFUSED: &str = "io.vmdrain.Error.Refused";
/// Error name of a failure that is no refusal.
pub const FAILED: &str = "io.vmdrain.Error.Failed";
