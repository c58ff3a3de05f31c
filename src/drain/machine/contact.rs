//! Is the API server there? Its signs of life, and since when there are none.
//!
//! One failed request says little: a webhook that is slow, a watch that was cut. The server counts as away when it was not
//! heard of for `drain.api_unreachable_timeout`, never more than a quarter of the time left, and a GET of the own Node (or a
//! fresh list) has failed since.

use super::Machine;
use super::pending::{Pending, Why};
use crate::drain::action::{Action, Fault, FaultClass, Outcome};
use crate::drain::local::patience;
use crate::drain::time::Mono;
use crate::drain::track::doubled;
use crate::drain::world::{Picture, Sight};
use std::time::Duration;

/// Answers of a proxy or a load balancer that has no API server behind it.
const NOBODY_BEHIND: std::ops::RangeInclusive<u16> = 502..=504;

/// When it was heard of last, and what has failed since.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Contact {
    /// The last sign of life.
    pub(super) reached: Mono,
    /// Something has failed since.
    failing: bool,
    /// What proves it has failed since.
    proven: bool,
    /// The last failure, as a sentence part.
    pub(super) why: String,
    /// Questions that were asked only to find out, since `reached`.
    asked: u32,
    /// No such question before.
    ask_at: Mono,
}

impl Contact {
    /// A drain begins: nobody was asked yet.
    pub(super) fn new(now: Mono) -> Self {
        Self {
            reached: now,
            ..Self::default()
        }
    }

    fn heard(&mut self, at: Mono) {
        if at >= self.reached {
            *self = Self::new(at);
        }
    }

    fn failed(&mut self, why: &str, proves: bool) {
        self.failing = true;
        self.proven |= proves;
        why.clone_into(&mut self.why);
    }
}

impl Machine {
    /// A picture came: it is as old as the newest word of the server in it.
    pub(super) fn heard_of(&mut self, picture: &Picture) {
        let Some(drain) = &mut self.drain else { return };
        let words = [
            word(&picture.node),
            word(&picture.pods),
            word(&picture.vmis),
            word(&picture.vms),
            word(&picture.migrations),
            word(&picture.pdbs),
            word(&picture.kubevirt),
        ];
        let fresh = words.iter().filter_map(|word| word.as_ref().ok()).max();
        if let Some(at) = fresh.filter(|at| **at > drain.contact.reached) {
            drain.contact.heard(*at);
        }
        let broken = words.iter().filter_map(|word| word.as_ref().err());
        let mut since = broken
            .flatten()
            .filter(|(_, at)| *at >= drain.contact.reached);
        if let Some((why, _)) = since.next_back() {
            drain.contact.failed(why, false);
        }
    }

    /// An effect has ended: did the server answer?
    pub(super) fn heard_by(&mut self, what: &Pending, outcome: &Outcome, now: Mono) {
        let Some(drain) = &mut self.drain else { return };
        let proves = matches!(what, Pending::ReadNode(_) | Pending::Confirm { .. });
        let fault: Option<&Fault> = match outcome {
            Outcome::Node(Err(fault))
            | Outcome::Fresh(Err(fault))
            | Outcome::Reply(Err(fault))
            | Outcome::Volumes(Err(fault))
            | Outcome::Target(Err(fault)) => Some(fault),
            Outcome::Reply(Ok(reply)) if NOBODY_BEHIND.contains(&reply.code) => {
                let why = format!("HTTP {}: {}", reply.code, reply.message);
                return drain.contact.failed(&why, false);
            }
            Outcome::Node(Ok(_))
            | Outcome::Fresh(Ok(_))
            | Outcome::Reply(Ok(_))
            | Outcome::Volumes(Ok(_))
            | Outcome::Target(Ok(_)) => None,
            Outcome::Hold(_)
            | Outcome::Logind(_)
            | Outcome::Hooks(_)
            | Outcome::Local(_)
            | Outcome::Told(_) => return,
        };
        match fault.map(|fault| (fault.class, fault.text.as_str())) {
            None | Some((FaultClass::Conflict | FaultClass::Denied | FaultClass::Gone, _)) => {
                drain.contact.heard(now);
            }
            // A server that does not let us in is of no more use than none.
            Some((FaultClass::Transient | FaultClass::Unauthorized, why)) => {
                drain.contact.failed(why, proves);
            }
            Some((FaultClass::Fatal, _)) => {}
        }
    }

    /// When the server counts as away; `None`: it does not, as far as is known.
    fn away_at(&self) -> Option<Mono> {
        let drain = self.drain.as_ref()?;
        drain.contact.proven.then(|| self.silent_until())
    }

    /// So long its silence is nothing.
    fn silent_until(&self) -> Mono {
        let Some(drain) = &self.drain else {
            return Mono::default();
        };
        let reached = drain.contact.reached;
        let left = drain.deadline.left(reached);
        // Past its deadline a drain that is held has all the time.
        let usual = if drain.falling.holding {
            self.policy.unreachable
        } else {
            patience(self.policy.unreachable, left)
        };
        let hurry = usual.min(self.policy.timing.request);
        let rack = drain.is_of_the_rack();
        if rack || drain.falling.asked || drain.falling.since.is_some() {
            // Guests are told by the clock, or all of them: nothing is gained by waiting.
            return reached + hurry;
        }
        // Guests that need the time that is left do not wait for it either.
        let begins = self.begins_here().filter(|_| self.may_stop());
        let last = begins.map(|at| at.max(reached + hurry));
        last.map_or(reached + usual, |at| at.min(reached + usual))
    }

    /// Whether the server is away. Asks where nobody has heard of it for long.
    pub(super) fn is_away(&mut self, now: Mono) -> bool {
        let until = self.silent_until();
        let away = self.away_at().is_some_and(|at| at <= now);
        let Some(drain) = &self.drain else {
            return false;
        };
        let contact = &drain.contact;
        let silence = until.since(contact.reached) / 2;
        let first = if contact.failing {
            contact.reached + silence.min(self.policy.timing.request / 2)
        } else {
            contact.reached + silence.max(self.policy.timing.retry_first)
        };
        let at = first.max(contact.ask_at);
        if self.waits_for(|p| matches!(p, Pending::ReadNode(_))) {
            // Its answer tells.
        } else if at <= now {
            self.ask_whether_it_lives(now);
        } else {
            self.wake_at(at, "does the API server live");
        }
        if !away && until > now {
            self.wake_at(until, "the API server is away");
        }
        away
    }

    fn ask_whether_it_lives(&mut self, now: Mono) {
        let timing = self.policy.timing;
        if let Some(drain) = &mut self.drain {
            let contact = &mut drain.contact;
            contact.asked = contact.asked.saturating_add(1);
            contact.ask_at = now + doubled(timing.retry_first, timing.retry_most, contact.asked);
        }
        let id = self.effect(Pending::ReadNode(Why::Contact));
        self.actions.push_back(Action::ReadNode(id));
    }

    /// How long nobody has heard of it, for people.
    pub(super) fn silence(&self, now: Mono) -> Duration {
        let reached = self.drain.as_ref().map(|d| d.contact.reached);
        now.since(reached.unwrap_or(now))
    }
}

/// When the server has said something about this kind last, or since when it does not and why.
fn word<T>(sight: &Sight<T>) -> Result<Mono, Option<(String, Mono)>> {
    match sight {
        Sight::Seen { fresh, .. } => Ok(*fresh),
        Sight::Broken { why, since } => Err(Some((why.clone(), *since))),
        Sight::Pending | Sight::Forbidden { .. } | Sight::Missing => Err(None),
    }
}
