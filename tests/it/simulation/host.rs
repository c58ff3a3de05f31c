//! The played host: one delay lock, one pending shutdown, and its boots.

use super::plan::Boot;
use std::time::Duration;
use vmdrain_agent::drain::action::HoldView;
use vmdrain_agent::drain::boot::Userspace;

#[derive(Debug)]
pub(super) struct Host {
    pub(super) held: bool,
    pub(super) pending: bool,
    pub(super) since: u64,
    /// When a scheduled shutdown comes.
    pub(super) schedule: Option<u64>,
    limit: u64,
    /// Off: no process runs on it.
    pub(super) off: bool,
    /// Which boot it is, and how often user space was started in all.
    pub(super) boot: u32,
    pub(super) starts: u32,
    soft_reboots: u64,
    /// systemd answers.
    told: bool,
    /// When this user space began.
    pub(super) up_since: u64,
}

impl Host {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            held: true,
            pending: false,
            since: 0,
            schedule: None,
            limit,
            off: false,
            boot: 1,
            starts: 1,
            soft_reboots: 0,
            told: true,
            up_since: 0,
        }
    }

    pub(super) fn comes_up(&mut self, how: Boot, now: u64) {
        self.off = false;
        self.held = true;
        self.starts += 1;
        self.up_since = now;
        self.told = how.told;
        if how.soft {
            self.soft_reboots += 1;
        } else {
            self.boot += 1;
            self.soft_reboots = 0;
        }
    }

    pub(super) fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    pub(super) fn userspace(&self) -> Userspace {
        Userspace {
            soft_reboots: self.told.then_some(self.soft_reboots),
            started: None,
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
