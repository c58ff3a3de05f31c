//! The configuration: where does a value come from, is it allowed, and what does it mean?
//!
//! Three stages. *Raw*: every layer is read by itself and each of its values is tried alone, so that a
//! complaint can name the layer and the key (`raw.rs`). *Merged*: the layers on top of each other, later
//! ones win, and each value keeps its origin ([`load`]). *Validated*: [`Settings`], typed and within
//! their ranges; the rest of the program sees nothing else.
//!
//! | layer, lowest first | |
//! | --- | --- |
//! | `/usr/lib/vmdrain-agent/config.d/*.toml` | the distribution |
//! | `/etc/vmdrain-agent/config.toml` | the administrator |
//! | `/etc/vmdrain-agent/config.d/*.toml` | the administrator, in pieces |
//! | `/run/vmdrain-agent/config.d/*.toml` | until the next boot |
//! | `VMDRAIN_SECTION__KEY` | the environment |
//! | `--set section.key=value` | the command line |
//!
//! Within a directory the files count in the order of their names. A key that does not exist, or that
//! does not do anything yet, is an error: a setting without an effect is worse than none.

pub mod error;
mod faults;
mod keys;
pub mod load;
pub mod maintenance;
mod policy;
mod raw;
pub mod settings;
pub mod sources;
pub mod values;

pub use error::{ConfigError, Problem};
pub use load::{Live, Loaded};
pub use maintenance::Maintenance;
pub use settings::Settings;
pub use sources::Sources;

#[cfg(test)]
mod tests;
