//! Which guests died without a clean shutdown, where and why?

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A guest that lost its memory without having been shut down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirtyKill {
    /// Simulated time.
    pub at: Duration,
    /// Namespace of the VMI.
    pub namespace: String,
    /// Name of the VMI.
    pub name: String,
    /// Where it ran.
    pub node: String,
    /// Why, in words.
    pub reason: String,
}

/// The record of all of them; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<Vec<DirtyKill>>>);

impl Ledger {
    /// Everything so far, oldest first.
    pub fn kills(&self) -> Vec<DirtyKill> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Adds one.
    pub fn record(&self, kill: DirtyKill) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(kill);
    }
}
