//! The played host: one delay lock and one pending shutdown.

use std::time::Duration;
use vmdrain_agent::drain::action::HoldView;

#[derive(Debug)]
pub(super) struct Host {
    pub(super) held: bool,
    pub(super) pending: bool,
    pub(super) since: u64,
    /// When a scheduled shutdown comes.
    pub(super) schedule: Option<u64>,
    limit: u64,
}

impl Host {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            held: true,
            pending: false,
            since: 0,
            schedule: None,
            limit,
        }
    }

    pub(super) fn view(&self) -> HoldView {
        HoldView {
            held: self.held,
            limit: Some(Duration::from_millis(self.limit)),
            ..HoldView::default()
        }
    }
}
