//! What are the properties worth, and which have changed?

use crate::drain::status::Status;
use crate::drain::time::Mono;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use zbus::Variant;

/// A deadline that moves by less than this is the same one: it is computed from a relative time.
const SAME_DEADLINE: Duration = Duration::from_secs(1);

/// The properties at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Name of the phase.
    pub state: String,
    /// Id of the current or last drain.
    pub drain_id: String,
    /// Why it was started.
    pub reason: String,
    /// Microseconds on `CLOCK_BOOTTIME`; 0: no drain is running.
    pub deadline: u64,
    /// VMs that this drain has seen.
    pub vms_total: u32,
    /// Still here.
    pub vms_remaining: u32,
    /// Our lock is listed.
    pub inhibitor_held: bool,
    /// How long logind waits for delay locks; 0: not known.
    pub hold_budget_usec: u64,
    /// The drain that has ended, and its exit code.
    pub finished: Option<(String, u8)>,
}

impl Facts {
    fn of(status: &Status, now: Mono) -> Self {
        let drain = status.drain.clone().unwrap_or_default();
        let running = status.drain.is_some() && drain.exit.is_none();
        let deadline = drain.deadline_in.filter(|_| running).map_or(0, |left| {
            let span = Duration::try_from_secs_f64(left.abs()).unwrap_or_default();
            let at = if left < 0.0 { now - span } else { now + span };
            at.0.saturating_mul(1000)
        });
        Self {
            state: status.state.clone(),
            finished: drain.exit.map(|exit| (drain.id.clone(), exit)),
            drain_id: drain.id,
            reason: drain.reason,
            deadline,
            vms_total: u32::try_from(status.vms_total).unwrap_or(u32::MAX),
            vms_remaining: u32::try_from(status.vms_remaining).unwrap_or(u32::MAX),
            inhibitor_held: status.hold.held,
            hold_budget_usec: status.hold.limit.map_or(0, usec),
        }
    }

    /// The properties that differ from `old`, ready for `PropertiesChanged`.
    pub fn changed_since(&self, old: &Self) -> HashMap<&'static str, Variant<'_>> {
        let mut changed = HashMap::new();
        let mut put = |differs: bool, name: &'static str, value: Variant<'static>| {
            if differs {
                changed.insert(name, value);
            }
        };
        let text = |text: &String| Variant::new(text.clone());
        put(self.state != old.state, "State", text(&self.state));
        put(
            self.drain_id != old.drain_id,
            "DrainId",
            text(&self.drain_id),
        );
        put(self.reason != old.reason, "Reason", text(&self.reason));
        put(
            self.deadline != old.deadline,
            "Deadline",
            Variant::new(self.deadline),
        );
        put(
            self.vms_total != old.vms_total,
            "VmsTotal",
            Variant::new(self.vms_total),
        );
        put(
            self.vms_remaining != old.vms_remaining,
            "VmsRemaining",
            Variant::new(self.vms_remaining),
        );
        put(
            self.inhibitor_held != old.inhibitor_held,
            "InhibitorHeld",
            Variant::new(self.inhibitor_held),
        );
        put(
            self.hold_budget_usec != old.hold_budget_usec,
            "HoldBudgetUSec",
            Variant::new(self.hold_budget_usec),
        );
        changed
    }
}

fn usec(seconds: f64) -> u64 {
    let span = Duration::try_from_secs_f64(seconds.max(0.0));
    span.map_or(u64::MAX, |span| {
        u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
    })
}

/// The newest snapshot and the facts in it.
#[derive(Debug, Default)]
pub struct Newest {
    status: Arc<Status>,
    facts: Facts,
}

impl Newest {
    /// Takes in a snapshot, unless it is the one that is here already.
    pub fn take_in(&mut self, status: &Arc<Status>, now: Mono) {
        if Arc::ptr_eq(&self.status, status) {
            return;
        }
        let mut facts = Facts::of(status, now);
        let moved = Mono(facts.deadline.abs_diff(self.facts.deadline) / 1000);
        if facts.drain_id == self.facts.drain_id
            && facts.deadline != 0
            && moved.since(Mono(0)) < SAME_DEADLINE
        {
            facts.deadline = self.facts.deadline;
        }
        self.status = status.clone();
        self.facts = facts;
    }

    /// The facts.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::status::{DrainStatus, HoldStatus};

    fn draining(left: f64, exit: Option<u8>) -> Arc<Status> {
        Arc::new(Status {
            state: "evacuating".into(),
            drain: Some(DrainStatus {
                id: "d".into(),
                deadline_in: Some(left),
                exit,
                ..DrainStatus::default()
            }),
            hold: HoldStatus {
                held: true,
                limit: Some(2700.0),
                trouble: String::new(),
                ..HoldStatus::default()
            },
            ..Status::default()
        })
    }

    #[test]
    fn a_deadline_stands_still_while_time_goes_on() {
        let mut newest = Newest::default();
        newest.take_in(&draining(60.0, None), Mono(1_000));
        let first = newest.facts().clone();
        assert_eq!(first.deadline, 61_000_000);
        newest.take_in(&draining(49.7, None), Mono(11_000));
        assert!(newest.facts().changed_since(&first).is_empty());
        newest.take_in(&draining(100.0, None), Mono(12_000));
        let changed = newest.facts().changed_since(&first);
        assert!(changed.len() == 1 && changed.contains_key("Deadline"));
        newest.take_in(&draining(90.0, Some(3)), Mono(13_000));
        assert_eq!(newest.facts().deadline, 0);
        assert_eq!(newest.facts().finished, Some(("d".into(), 3)));
    }

    #[test]
    fn budgets_are_microseconds() {
        assert_eq!(usec(2.5), 2_500_000);
        assert_eq!(usec(f64::INFINITY), u64::MAX);
        assert_eq!(usec(-1.0), 0);
    }
}
