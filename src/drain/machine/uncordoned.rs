//! The cordon is refused: what happens to the guests when the deadline is near (T61)?
//!
//! Nothing is moved or stopped on a node that others can still put VMs on. But a host that really goes down would kill its
//! guests: where the policy is to shut them down, they are told in time all the same.

use super::Machine;
use super::advance::Due;
use super::index::Index;
use crate::drain::action::Level;
use crate::drain::phase::Phase;
use crate::drain::time::Mono;

impl Machine {
    /// The node could not be cordoned for want of a right, the host goes down, and the time that is left belongs to the
    /// guests.
    pub(super) fn must_stop_uncordoned(&mut self, now: Mono) -> bool {
        let refused = |drain: &super::Drain| drain.cordon_refused && drain.shutting_down;
        if !self.drain.as_ref().is_some_and(refused) {
            return false;
        }
        let wanted = self.wanted(&Index::of(&self.picture), now);
        for &(at, why) in &wanted.wakes {
            if at > now {
                self.wake_at(at, why);
            }
        }
        if !wanted.falls_back {
            return false;
        }
        let trouble = self.drain.as_ref().map(|d| d.trouble.clone());
        let text = format!(
            "the deadline is near and the node is not cordoned: guests are shut down all the same, because the host goes down; their owners may start them here again ({})",
            trouble.unwrap_or_default()
        );
        self.tell_once("uncordoned", Level::Warn, "StoppedUncordoned", text);
        self.phase = Phase::FallingBack;
        true
    }

    /// Without the cordon nobody is evicted: what is due is the guests' end alone.
    pub(super) fn stop_uncordoned(&mut self, due: Due, now: Mono) {
        let stops = due.stop.into_iter().map(|(_, key, why)| (key, why));
        self.send_stops(stops.collect(), now);
        self.maybe_confirm(now);
    }
}
