//! The hold: not dropped too early, not kept too long.

use std::time::Duration;

use vmdrain_agent::drain::local::LocalGuest;

use super::{Found, Terms};
use crate::host::{Change, Moment};
use crate::scenario::Rule;
use crate::scenario::run::observer::Pod;
use crate::scenario::run::scene::Scene;
use crate::scenario::values::show;

/// How much before its own deadline the agent may let go, in all.
const ROUNDING: Duration = Duration::from_secs(5);

/// Follows the host's history.
#[derive(Debug, Default)]
pub(super) struct Host {
    seen: usize,
    deadline: Option<Duration>,
    stopping: bool,
}

impl Host {
    /// Whether logind has announced a shutdown that is not taken back, or the stop jobs run.
    pub(super) fn going_down(&self) -> bool {
        self.deadline.is_some() || self.stopping
    }

    pub(super) fn step(
        &mut self,
        terms: &Terms,
        scene: &Scene<'_>,
        history: &[Moment],
        found: &mut Found,
    ) {
        let fresh = history.get(self.seen..).unwrap_or_default();
        self.seen += fresh.len();
        for moment in fresh {
            match &moment.change {
                Change::Announced { deadline } => self.deadline = Some(*deadline),
                Change::CalledOff => self.deadline = None,
                // What logind has announced, and its limit with it, is over.
                Change::Stopping => (self.deadline, self.stopping) = (None, true),
                Change::LockGone("released") => self.released(terms, scene, moment.at, found),
                Change::Down(_) => self.down(terms, moment.at, found),
                Change::LockTaken | Change::LockGone(_) | Change::Up { .. } | Change::Note(_) => {}
            }
        }
    }

    fn released(&self, terms: &Terms, scene: &Scene<'_>, at: Duration, found: &mut Found) {
        // The objects may be behind: a kubelet without an API server tells nobody.
        let processes = scene.premises.map(|premises| premises.look().guests);
        let runs = |pod: &&Pod| {
            let of = |guest: &LocalGuest| {
                (&guest.vm.namespace, &guest.vm.name) == (&pod.vm.0, &pod.vm.1)
            };
            processes.as_ref().is_none_or(|all| all.iter().any(of))
        };
        let left: Vec<&str> = scene
            .observer
            .guests_here()
            .filter(runs)
            .map(|pod| pod.name.as_str())
            .collect();
        let over = self
            .deadline
            .is_some_and(|limit| at + terms.margin + ROUNDING + terms.slack.at(at) >= limit);
        // In the stop jobs the lock holds nothing any more.
        if !left.is_empty() && !over && !self.stopping {
            found.add(
                Rule::EarlyRelease,
                format!("the hold was dropped with {} still here", left.join(", ")),
            );
        }
    }

    fn down(&mut self, terms: &Terms, at: Duration, found: &mut Found) {
        self.stopping = false;
        if let Some(deadline) = self.deadline.take()
            && at > deadline + Duration::from_secs(1) + terms.slack.at(at)
        {
            found.add(
                Rule::HeldTooLong,
                format!(
                    "the host went down {} after the limit",
                    show(at.saturating_sub(deadline))
                ),
            );
        }
    }
}
