//! What goes wrong on the way to the API server and in it?
//!
//! Rules that answer, drop, hang or delay chosen requests, a server that is down, watches that are closed or expired, and
//! credentials that are rotated. Everything is in simulated time; the fronts turn [`Broken`] into a real transport error.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::call::Call;
use super::failure::Failure;
use super::log::Filter;

/// The connection breaks and the client gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Nobody listens.
    #[error("connection refused")]
    Refused,
    /// It was reset under way.
    #[error("connection reset by peer")]
    Reset,
}

/// What happens to a request that a [`Rule`] means.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// It is answered like this and does nothing.
    Answer(Failure),
    /// The connection is reset; with `after_write` the request is carried out first.
    Drop {
        /// The write happens, only its answer is lost.
        after_write: bool,
    },
    /// No answer until the rule ends (then the request goes on, if the client still waits); open watches fall silent as well.
    Hang {
        /// The write happens, only its answer is held back.
        after_write: bool,
    },
    /// It is carried out later by this much simulated time.
    Delay(Duration),
}

/// A fault.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Which requests.
    pub filter: Filter,
    /// What happens to them.
    pub effect: Effect,
    /// How many requests at most; `None`: all.
    pub times: Option<u32>,
    /// Simulated time (since the start of the world) at which it ends; `None`: never.
    pub until: Option<Duration>,
}

/// What the rules want for one request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) delay: Duration,
    /// The effect that is no delay, with the number of its rule.
    pub(super) effect: Option<(u64, Effect)>,
}

/// What an open watch has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Flows,
    /// Nothing comes through; look again when the faults change or this moment ([`NEVER`]) comes.
    Silent(Duration),
    /// The connection breaks.
    Breaks,
    /// The server closes it in order.
    Closes,
    /// The server says 410 and closes it.
    Expires,
}

/// How often watches were closed and expired when a watch began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Epoch {
    closed: u64,
    expired: u64,
}

/// The end of what has no end.
pub(super) const NEVER: Duration = Duration::MAX;

#[derive(Debug, Default)]
struct Table {
    rules: Vec<(u64, Rule)>,
    next: u64,
    /// Until when the server is down, if it is.
    down: Option<Duration>,
    epoch: Epoch,
    generation: u64,
    /// Old generations and until when they are accepted.
    old: Vec<(u64, Duration)>,
}

/// All faults of one API server. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Faults {
    table: Arc<Mutex<Table>>,
    changed: Arc<watch::Sender<u64>>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            table: Arc::default(),
            changed: Arc::new(watch::channel(0).0),
        }
    }
}

impl Faults {
    /// Adds a fault; the number ends it with [`remove`](Self::remove).
    pub fn add(&self, rule: Rule) -> u64 {
        self.change(|table| {
            table.next += 1;
            table.rules.push((table.next, rule));
            table.next
        })
    }

    /// Ends a fault.
    pub fn remove(&self, number: u64) {
        self.change(|table| table.rules.retain(|(own, _)| *own != number));
    }

    /// Ends all rules and brings the server up; credentials stay as they are.
    pub fn clear(&self) {
        self.change(|table| {
            table.rules.clear();
            table.down = None;
        });
    }

    /// The server refuses connections and breaks the open ones, until this moment of simulated time (`None`: until [`up`](Self::up)).
    pub fn down(&self, until: Option<Duration>) {
        self.change(|table| table.down = Some(until.unwrap_or(NEVER)));
    }

    /// The server is back.
    pub fn up(&self) {
        self.change(|table| table.down = None);
    }

    /// Every open watch is closed in order.
    pub fn close_watches(&self) {
        self.change(|table| table.epoch.closed += 1);
    }

    /// Every open watch gets 410; see [`Server::expire_watches`](super::server::Server::expire_watches), which also forgets the history.
    pub(super) fn expire_watches(&self) {
        self.change(|table| table.epoch.expired += 1);
    }

    /// Makes a new generation of credentials and accepts the old ones until `now + grace`; returns the new generation.
    pub fn rotate_credentials(&self, now: Duration, grace: Duration) -> u64 {
        self.change(|table| {
            table.old.push((table.generation, now + grace));
            table.generation += 1;
            table.generation
        })
    }

    /// The newest generation of credentials.
    pub fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// Whether credentials of a generation are accepted at `now`.
    pub fn accepts(&self, generation: u64, now: Duration) -> bool {
        let table = self.lock();
        generation == table.generation
            || table
                .old
                .iter()
                .any(|(old, until)| *old == generation && now < *until)
    }

    /// Whether the server refuses connections at `now`.
    pub fn is_down(&self, now: Duration) -> bool {
        self.lock().is_down(now)
    }

    /// When the server comes back by itself ([`NEVER`]: not), if it is down.
    pub(super) fn back_at(&self, now: Duration) -> Option<Duration> {
        self.lock().down.filter(|until| now < *until)
    }

    /// Wakes whoever has to look at the faults again.
    pub(super) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// What happens to this request; counts it against the rules that apply.
    pub(super) fn take(&self, user: &str, call: &Call, now: Duration) -> Plan {
        let mut plan = Plan::default();
        let mut table = self.lock();
        for (number, rule) in &mut table.rules {
            if !rule.applies(user, call, now) {
                continue;
            }
            match &rule.effect {
                Effect::Delay(by) => plan.delay += *by,
                _ if plan.effect.is_some() => continue,
                effect @ (Effect::Answer(_) | Effect::Drop { .. } | Effect::Hang { .. }) => {
                    plan.effect = Some((*number, effect.clone()));
                }
            }
            if let Some(times) = &mut rule.times {
                *times -= 1;
            }
        }
        plan
    }

    /// When a rule that is in force at `now` ends by itself ([`NEVER`]: not).
    pub(super) fn in_force(&self, number: u64, now: Duration) -> Option<Duration> {
        let table = self.lock();
        let (_, rule) = table.rules.iter().find(|(own, _)| *own == number)?;
        Some(rule.end()).filter(|end| now < *end)
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.lock().epoch
    }

    /// What an open watch that began at `began` has to do.
    pub(super) fn stream(&self, user: &str, call: &Call, began: Epoch, now: Duration) -> Stream {
        let table = self.lock();
        if table.is_down(now) {
            return Stream::Breaks;
        }
        let silent = table.rules.iter().find(|(_, rule)| {
            matches!(rule.effect, Effect::Hang { .. })
                && rule.times.is_none()
                && rule.applies(user, call, now)
        });
        match silent {
            Some((_, rule)) => Stream::Silent(rule.end()),
            None if table.epoch.expired != began.expired => Stream::Expires,
            None if table.epoch.closed != began.closed => Stream::Closes,
            None => Stream::Flows,
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.send_modify(|count| *count += 1);
        result
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn is_down(&self, now: Duration) -> bool {
        self.down.is_some_and(|until| now < until)
    }
}

impl Rule {
    fn end(&self) -> Duration {
        self.until.unwrap_or(NEVER)
    }

    fn applies(&self, user: &str, call: &Call, now: Duration) -> bool {
        self.times != Some(0) && now < self.end() && self.filter.matches_call(user, call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    fn call() -> Call {
        Call {
            verb: "create".into(),
            resource: "pods".into(),
            rest: "eviction".into(),
            name: "virt-launcher-a-x".into(),
            ..Call::default()
        }
    }

    fn rule(effect: Effect) -> Rule {
        let filter = Filter {
            resource: "pods".into(),
            subresource: "eviction".into(),
            name: "virt-launcher-a-*".into(),
            ..Filter::default()
        };
        Rule {
            filter,
            effect,
            times: None,
            until: None,
        }
    }

    #[test]
    fn rules_count_and_end() {
        let faults = Faults::default();
        faults.add(Rule {
            times: Some(2),
            ..rule(Effect::Drop { after_write: true })
        });
        faults.add(Rule {
            until: Some(Duration::from_secs(6)),
            ..rule(Effect::Delay(Duration::from_secs(1)))
        });
        for expected in [true, true, false] {
            let plan = faults.take("u", &call(), NOW);
            assert_eq!(plan.effect.is_some(), expected);
            assert_eq!(plan.delay, Duration::from_secs(1));
        }
        assert_eq!(
            faults.take("u", &call(), Duration::from_secs(6)),
            Plan::default()
        );
        assert_eq!(
            faults.take(
                "u",
                &Call {
                    rest: String::new(),
                    ..call()
                },
                NOW
            ),
            Plan::default()
        );
    }

    #[test]
    fn streams_fall_silent_break_close_and_expire() {
        let faults = Faults::default();
        let watch = Call {
            verb: "watch".into(),
            resource: "pods".into(),
            ..Call::default()
        };
        let began = faults.epoch();
        assert_eq!(faults.stream("u", &watch, began, NOW), Stream::Flows);
        let filter = Filter {
            verb: "watch".into(),
            ..Filter::default()
        };
        let hang = faults.add(Rule {
            filter,
            effect: Effect::Hang { after_write: false },
            times: None,
            until: None,
        });
        assert_eq!(
            faults.stream("u", &watch, began, NOW),
            Stream::Silent(NEVER)
        );
        faults.remove(hang);
        faults.close_watches();
        assert_eq!(faults.stream("u", &watch, began, NOW), Stream::Closes);
        faults.expire_watches();
        assert_eq!(faults.stream("u", &watch, began, NOW), Stream::Expires);
        faults.down(Some(Duration::from_secs(9)));
        assert_eq!(faults.stream("u", &watch, began, NOW), Stream::Breaks);
        assert!(!faults.is_down(Duration::from_secs(9)));
    }

    #[test]
    fn old_credentials_live_for_the_grace_time() {
        let faults = Faults::default();
        assert_eq!(faults.rotate_credentials(NOW, Duration::from_secs(10)), 1);
        assert!(faults.accepts(0, Duration::from_secs(14)));
        assert!(!faults.accepts(0, Duration::from_secs(15)));
        assert!(faults.accepts(1, Duration::from_secs(15)));
    }
}
