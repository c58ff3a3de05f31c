//! What was seen in a story, for somebody who tells it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use vmdrain_agent::drain::status::Status;

use super::observer::{Key, Story};
use crate::api::log::Entry;
use crate::host::Moment;

/// What was seen, for somebody who tells the story.
#[derive(Debug)]
pub struct Ending {
    /// The agent's last status.
    pub status: Option<Arc<Status>>,
    /// The host's history.
    pub history: Vec<Moment>,
    /// When the story began on the clock of the history.
    pub origin: Duration,
    /// What became of each VM.
    pub vms: BTreeMap<Key, Story>,
    /// Ordinary pods that were on the host, by namespace and name: whether each is gone.
    pub pods: BTreeMap<Key, bool>,
    /// What the agent asked.
    pub asked: Vec<Entry>,
    /// When its status first said that a drain has ended.
    pub drained: Option<Duration>,
    /// Since when no launcher pod's guest container runs on the host; `None`: one does, or none ever did.
    pub emptied: Option<Duration>,
    /// Whether the host's node is cordoned at the end.
    pub cordoned: bool,
}
