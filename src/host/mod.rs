//! The systemd adapter: the hold on the host, the record on disk, the clock, signals and who we are.
//!
//! ```text
//!  logind ──signals──► worker (one task) ──HostEvent──► driver
//!    ▲                    │ owns the subscriptions, watches a pending shutdown, reconnects
//!    └── take/release/ask ┴── Logind (what the driver calls; closing the hold never waits for the bus)
//! ```
//!
//! | file | answers |
//! |---|---|
//! | `logind.rs` | what the driver may ask of logind |
//! | `worker.rs` | what logind tells us, and how the hold survives logind and the bus |
//! | `session.rs` | what belongs to one connection, and who logind is on it |
//! | `look.rs` | what one look at logind finds: the lock, the limit, what is pending |
//! | `limits.rs` | who sets the limit, and to what |
//! | `schedule.rs` | whether a shutdown is scheduled for later |
//! | `pending.rs` | whether an announced shutdown is still pending |
//! | `hold.rs` | where the lock's file descriptor is, and what `held` means |
//! | `ask.rs` | how logind is asked to go down, and who forbids it |
//! | `login1.rs` | what logind's interface looks like on the wire |
//! | `hooks.rs` | which programs of the administrator run at the gates of a drain |
//! | `guests/` | which guests run here, and how one is told to end without the API server |
//! | `notify.rs` | what the service manager is told (`sd_notify`), and its fd store |
//! | `system1.rs` | what PID 1 says: jobs, soft-reboots, units that stop guests |
//! | `checkup.rs`, `units.rs` | what `doctor` has to know of logind and PID 1 |
//! | `stopping.rs` | whether the system is really going down (net 3) |
//! | `ending.rs` | the host as a drain of the stop job sees it |
//! | `store.rs` | where the record is kept |
//! | `clock.rs`, `signals.rs`, `identity.rs`, `instance.rs` | the time, Unix signals, who this machine is, are we alone |

pub mod ask;
pub mod checkup;
pub mod clock;
pub mod ending;
pub mod guests;
pub mod hold;
pub mod hooks;
pub mod identity;
pub mod instance;
pub mod limits;
pub mod login1;
pub mod logind;
mod look;
pub mod notify;
pub mod pending;
mod schedule;
mod session;
pub mod signals;
pub mod stopping;
pub mod store;
pub mod system1;
pub mod timing;
pub mod units;
mod worker;

pub use clock::BootClock;
pub use ending::EndingHost;
pub use guests::Guests;
pub use hooks::Hooks;
pub use identity::Identity;
pub use instance::{Instance, NotAlone};
pub use logind::{Logind, Options};
pub use signals::{Signal, Signals};
pub use store::FileStore;
pub use timing::Timing;
