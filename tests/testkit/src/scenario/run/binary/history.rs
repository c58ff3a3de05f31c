//! What the stand-in logind has seen, in the words and the time of the story.

use std::time::Duration;

use vmdrain_agent::drain::time::Mono;
use vmdrain_agent::drain::trigger::Then;
use vmdrain_agent::host::clock as boot;

use crate::clock::SimClock;
use crate::host::{Change, Moment};
use crate::logind::{Event, Happened, Kind};

/// The host's history.
#[derive(Debug)]
pub(super) struct History {
    clock: SimClock,
    /// The same moment on the real boot clock and on the story's.
    zero: (Mono, Duration),
    /// Version of systemd, for the next boot.
    pub(super) version: u32,
    /// logind's limit in the story's time.
    pub(super) limit: Duration,
    seen: usize,
    /// From this event of logind's on, a lock that goes is not released by the agent but dies with it.
    ends_from: Option<usize>,
    moments: Vec<Moment>,
}

impl History {
    pub(super) fn new(clock: SimClock, version: u32, limit: Duration) -> Self {
        Self {
            zero: (boot::now(), clock.elapsed()),
            clock,
            version,
            limit,
            seen: 0,
            ends_from: None,
            moments: Vec::new(),
        }
    }

    pub(super) fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// The agent is being ended: the next loss of its lock is not a release.
    pub(super) fn agent_ends(&mut self, events: usize) {
        self.ends_from = Some(events);
    }

    /// The agent runs again; a lock that the service manager kept for it is its own.
    pub(super) fn agent_starts(&mut self) {
        self.ends_from = None;
    }

    /// Whether the last thing that happened to the host's power was that it went down.
    pub(super) fn is_down(&self) -> bool {
        self.last_power()
            .is_some_and(|change| matches!(change, Change::Down(_)))
    }

    /// Whether it comes up again by itself.
    pub(super) fn boots(&self) -> bool {
        matches!(
            self.last_power(),
            Some(Change::Down(Then::Reboot | Then::Kexec | Then::SoftReboot))
        )
    }

    /// Whether it went down for a soft-reboot.
    pub(super) fn was_soft(&self) -> bool {
        matches!(self.last_power(), Some(Change::Down(Then::SoftReboot)))
    }

    fn last_power(&self) -> Option<&Change> {
        let power = |moment: &&Moment| matches!(moment.change, Change::Down(_) | Change::Up { .. });
        self.moments
            .iter()
            .rev()
            .find(power)
            .map(|moment| &moment.change)
    }

    /// The host has booted, with a logind that has seen nothing yet.
    pub(super) fn up(&mut self, same_boot: bool) {
        self.seen = 0;
        self.ends_from = None;
        self.moments.push(Moment {
            at: self.clock.elapsed(),
            change: Change::Up { same_boot },
        });
    }

    /// The stop jobs of the system begin; logind has ended.
    pub(super) fn stopping(&mut self, events: &[Event]) {
        self.catch_up(events);
        self.moments.push(Moment {
            at: self.clock.elapsed(),
            change: Change::Stopping,
        });
    }

    /// Takes in what is new in logind's own journal.
    pub(super) fn catch_up(&mut self, events: &[Event]) {
        for (number, event) in events.iter().enumerate().skip(self.seen) {
            let at = self.moment(event.at);
            if let Some(change) = self.change(&event.what, number, at) {
                self.moments.push(Moment { at, change });
            }
        }
        self.seen = events.len();
    }

    fn moment(&self, at: Mono) -> Duration {
        self.zero.1 + at.since(self.zero.0).mul_f64(self.clock.speed())
    }

    fn change(&mut self, what: &Happened, number: usize, at: Duration) -> Option<Change> {
        let ours = |who: &str| who == "vmdrain-agent";
        match what {
            Happened::Prepared { .. } => Some(Change::Announced {
                deadline: at + self.limit,
            }),
            Happened::Cancelled
            | Happened::Forgotten
            | Happened::Unprepared
            | Happened::JobFailed => Some(Change::CalledOff),
            Happened::Locked { who } if ours(who) => {
                self.ends_from = None;
                Some(Change::LockTaken)
            }
            Happened::Unlocked { who } if ours(who) => {
                let died = self.ends_from.is_some_and(|from| number >= from);
                Some(Change::LockGone(if died {
                    "the agent has ended"
                } else {
                    "released"
                }))
            }
            Happened::Down { kind, .. } => Some(Change::Down(then(*kind))),
            Happened::Gone => Some(Change::Note("logind left the bus".into())),
            Happened::Back => Some(Change::Note("logind is on the bus".into())),
            Happened::Locked { .. } | Happened::Unlocked { .. } => None,
        }
    }
}

fn then(kind: Kind) -> Then {
    match kind {
        Kind::Poweroff => Then::Poweroff,
        Kind::Reboot => Then::Reboot,
        Kind::Halt => Then::Halt,
        Kind::Kexec => Then::Kexec,
        Kind::SoftReboot => Then::SoftReboot,
    }
}
