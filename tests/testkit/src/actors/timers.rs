//! When was something first seen, and when is the next thing due?

use std::collections::BTreeMap;
use std::time::Duration;

/// What has been looked at and calls for nothing until something changes or a time comes.
#[derive(Debug, Default)]
pub struct Quiet {
    known: BTreeMap<String, (String, u64, Option<Duration>)>,
}

impl Quiet {
    /// Whether this version of an object was looked at with this state of the machine, and no time has come since.
    pub fn knows(&self, timers: &mut Timers, uid: &str, version: &str, state: u64) -> bool {
        let Some((known, same, next)) = self.known.get(uid) else {
            return false;
        };
        let quiet = known == version && *same == state && next.is_none_or(|next| next > timers.now);
        if quiet && let Some(next) = *next {
            timers.reached(next);
        }
        quiet
    }

    /// Remembers a look that called for nothing; `next` is when time alone may change that.
    pub fn settle(&mut self, uid: &str, version: &str, state: u64, next: Option<Duration>) {
        self.known
            .insert(uid.to_owned(), (version.to_owned(), state, next));
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.known.clear();
    }

    /// Forgets what is no longer there.
    pub fn retain(&mut self, lives: impl Fn(&str) -> bool) {
        self.known.retain(|uid, _| lives(uid));
    }
}

/// First-seen times and the next moment at which an actor has to look again.
#[derive(Debug, Default)]
pub struct Timers {
    first: BTreeMap<String, Duration>,
    now: Duration,
    next: Option<Duration>,
}

impl Timers {
    /// Begins a look at this time.
    pub fn begin(&mut self, now: Duration) {
        self.now = now;
        self.next = None;
    }

    /// The time of this look.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Whether `delay` has passed since `key` was asked about the first time; looks again when it has.
    pub fn due(&mut self, key: &str, delay: Duration) -> bool {
        let first = *self.first.entry(key.to_owned()).or_insert(self.now);
        self.reached(first.saturating_add(delay))
    }

    /// Whether this moment has come; looks again when it has.
    pub fn reached(&mut self, at: Duration) -> bool {
        if self.now >= at {
            return true;
        }
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
        false
    }

    /// Forgets a key, so that its time begins again.
    pub fn forget(&mut self, key: &str) {
        self.first.remove(key);
    }

    /// Begins to collect the next moment of one object alone; returns that of everything so far.
    pub fn aside(&mut self) -> Option<Duration> {
        self.next.take()
    }

    /// Ends what [`aside`](Self::aside) began and returns the next moment of the one object.
    pub fn join(&mut self, everything: Option<Duration>) -> Option<Duration> {
        let own = self.next;
        self.next = [everything, own].into_iter().flatten().min();
        own
    }

    /// The next moment to look, if time alone can change anything.
    pub fn next(&self) -> Option<Duration> {
        self.next
    }
}
