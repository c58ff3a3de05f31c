//! What does logind do? A state machine by version of systemd, without D-Bus and without a clock of its own.
//!
//! Times are simulated time since the start of the world. Every method returns what logind then [`Says`]; who listens, and whether
//! anybody does, is not its business.

use std::time::Duration;

use vmdrain_agent::drain::trigger::Then;

/// From the last lock's release to the shutdown transaction.
pub const TRANSACTION: Duration = Duration::from_millis(20);

/// Mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The shutdown waits, up to the limit.
    Delay,
    /// The shutdown is refused.
    Block,
    /// It is refused, but not to root.
    BlockWeak,
}

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Number.
    pub id: u64,
    /// Whose.
    pub who: String,
    /// For what, colon-separated.
    pub what: String,
    /// How.
    pub mode: Mode,
    /// When its holder lets go by itself.
    pub until: Option<Duration>,
}

impl Lock {
    fn on_shutdown(&self) -> bool {
        self.what.split(':').any(|what| what == "shutdown")
    }
}

/// What comes out of logind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// `PrepareForShutdown(true)`; the kind only where the metadata signal exists.
    Prepare {
        /// What kind, where logind tells (255 and later).
        kind: Option<Then>,
        /// How long it waits.
        limit: Duration,
    },
    /// `PrepareForShutdown(false)`.
    Unprepare,
    /// The pending shutdown was called off; nothing but the property tells.
    CalledOff,
    /// The process is gone.
    Gone,
    /// It is back. `forgot`: a shutdown was pending and is not any more.
    Back {
        /// A shutdown was pending and is not any more.
        forgot: bool,
    },
    /// The shutdown transaction begins: the host goes down.
    Down(Then),
}

/// A shutdown that waits for delay locks.
#[derive(Clone, Debug)]
struct Pending {
    kind: Then,
    deadline: Duration,
    scheduled: bool,
    /// Nobody delays it any more; the transaction begins then.
    starts: Option<Duration>,
}

/// logind.
#[derive(Debug)]
pub struct Logind {
    version: u32,
    limit: Duration,
    locks: Vec<Lock>,
    next_id: u64,
    pending: Option<Pending>,
    /// Kind and moment of `shutdown +N`.
    schedule: Option<(Then, Duration)>,
    /// Away until then.
    away: Option<Duration>,
    /// 253 and later, after the bus was restarted: it runs and nobody hears it.
    deaf: bool,
    /// The next shutdown job cannot be started, this long after the delay.
    fails: Option<Duration>,
}

impl Logind {
    /// A logind of this version of systemd, with this `InhibitDelayMaxSec`.
    pub fn new(version: u32, limit: Duration) -> Self {
        Self {
            version,
            limit,
            locks: Vec::new(),
            next_id: 1,
            pending: None,
            schedule: None,
            away: None,
            deaf: false,
            fails: None,
        }
    }

    /// `InhibitDelayMaxSec`; a change does not move the deadline of a pending shutdown.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Changes the limit (a reload).
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Whether it answers on the bus.
    pub fn answers(&self) -> bool {
        self.away.is_none() && !self.deaf
    }

    /// `PreparingForShutdown`.
    pub fn preparing(&self) -> bool {
        self.pending.is_some()
    }

    /// When the delay of a pending shutdown ends at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        self.pending.as_ref().map(|pending| pending.deadline)
    }

    /// Kind of the pending shutdown.
    pub fn pending_kind(&self) -> Option<Then> {
        self.pending.as_ref().map(|pending| pending.kind)
    }

    /// The kind as the metadata signal tells it: 255 and later.
    pub fn told(&self, kind: Then) -> Option<Then> {
        (self.version >= 255).then_some(kind)
    }

    /// What is scheduled and has not come yet.
    pub fn scheduled(&self) -> Option<(Then, Duration)> {
        self.schedule
    }

    /// All locks.
    pub fn locks(&self) -> &[Lock] {
        &self.locks
    }

    /// The next shutdown job cannot be started: `PrepareForShutdown(false)`, `after` the delay is over.
    pub fn fail_next(&mut self, after: Duration) {
        self.fails = Some(after);
    }

    /// `Inhibit`. During a delay no new shutdown lock is given.
    pub fn inhibit(
        &mut self,
        who: &str,
        what: &str,
        mode: Mode,
        until: Option<Duration>,
    ) -> Result<u64, String> {
        if !self.answers() {
            return Err("systemd-logind does not answer".into());
        }
        if mode == Mode::BlockWeak && self.version < 257 {
            return Err("block-weak is not known to this systemd".into());
        }
        let lock = Lock {
            id: self.next_id,
            who: who.into(),
            what: what.into(),
            mode,
            until,
        };
        if lock.on_shutdown() && self.pending.is_some() {
            return Err(
                "The operation inhibition has been requested for is already running".into(),
            );
        }
        self.next_id += 1;
        self.locks.push(lock);
        Ok(self.next_id - 1)
    }

    /// Every copy of the lock's descriptor is closed.
    pub fn let_go(&mut self, id: u64, now: Duration) {
        self.locks.retain(|lock| lock.id != id);
        self.look_at_locks(now);
    }

    /// `PowerOff`, `Reboot`, … by root. `Err`: refused, with logind's words.
    pub fn request(&mut self, kind: Then, now: Duration) -> Result<Vec<Says>, String> {
        if !self.answers() {
            return Err("systemd-logind does not answer".into());
        }
        if let Some(pending) = &self.pending {
            return Err(format!(
                "Action {} already in progress, refusing requested {kind} operation.",
                pending.kind
            ));
        }
        if let Some(blocker) = self.blocker() {
            return Err(format!(
                "Operation denied due to active block inhibitor of {}",
                blocker.who
            ));
        }
        self.schedule = None;
        Ok(self.prepare(kind, false, now))
    }

    /// The lock that forbids a shutdown to root: on 256 and older nobody's.
    pub fn blocker(&self) -> Option<&Lock> {
        self.locks
            .iter()
            .find(|lock| self.version >= 257 && lock.mode == Mode::Block && lock.on_shutdown())
    }

    /// `shutdown +N`.
    pub fn schedule(&mut self, kind: Then, at: Duration) {
        self.schedule = Some((kind, at));
    }

    /// `shutdown -c`: takes back what is only scheduled; a delayed shutdown only on 257 and later.
    pub fn cancel(&mut self) -> Vec<Says> {
        self.schedule = None;
        if self.pending.is_some() && self.version >= 257 && self.answers() {
            self.pending = None;
            return vec![Says::CalledOff];
        }
        Vec::new()
    }

    /// `systemctl restart systemd-logind`: locks survive, an immediate pending shutdown is forgotten without a word.
    pub fn restart(&mut self, back: Duration) -> Vec<Says> {
        self.away = Some(back);
        self.deaf = false;
        vec![Says::Gone]
    }

    /// It is stopped with the other units of a system that goes down.
    pub fn end(&mut self) -> Vec<Says> {
        self.pending = None;
        self.schedule = None;
        self.away = Some(Duration::MAX);
        vec![Says::Gone]
    }

    /// The bus was restarted. On 252 PID 1 restarts logind; later ones go on with a dead connection.
    pub fn bus_restarted(&mut self, back: Duration) -> Vec<Says> {
        if self.version < 253 {
            return self.restart(back);
        }
        self.deaf = true;
        vec![Says::Gone]
    }

    /// The host has gone down and comes up with a new logind.
    pub fn reboot(&mut self) {
        *self = Self::new(self.version, self.limit);
    }

    /// When [`Self::tick`] has to be called next.
    pub fn next(&self) -> Option<Duration> {
        let pending = self
            .pending
            .as_ref()
            .map(|pending| pending.starts.unwrap_or(pending.deadline));
        let free = self.pending.is_none() && !self.deaf;
        let schedule = self.schedule.filter(|_| free).map(|(_, at)| at);
        let locks = self.locks.iter().filter_map(|lock| lock.until).min();
        match self.away {
            Some(back) => locks.into_iter().chain([back]).min(),
            None => [pending, schedule, locks].into_iter().flatten().min(),
        }
    }

    /// Whatever is due at `now`.
    pub fn tick(&mut self, now: Duration) -> Vec<Says> {
        let mut says = Vec::new();
        self.locks
            .retain(|lock| lock.until.is_none_or(|until| now < until));
        match self.away {
            Some(back) if now < back => return says,
            Some(_) => says.extend(self.back(now)),
            None => {}
        }
        self.look_at_locks(now);
        if let Some((kind, at)) = self.schedule
            && at <= now
            && self.pending.is_none()
            && !self.deaf
        {
            says.extend(self.prepare(kind, true, now));
        }
        if let Some(pending) = &self.pending
            && pending.starts.is_some_and(|starts| starts <= now)
        {
            says.extend(self.start_job());
        }
        says
    }

    fn back(&mut self, now: Duration) -> Vec<Says> {
        self.away = None;
        let scheduled = self
            .pending
            .as_ref()
            .is_some_and(|pending| pending.scheduled);
        let lost = self.pending.take();
        let mut says = vec![Says::Back {
            forgot: lost.is_some() && !scheduled,
        }];
        if let Some(lost) = lost.filter(|_| scheduled) {
            // Its file still exists: armed again with a time in the past, so the signal comes twice.
            says.extend(self.prepare(lost.kind, true, now));
        }
        says
    }

    fn prepare(&mut self, kind: Then, scheduled: bool, now: Duration) -> Vec<Says> {
        if scheduled {
            self.schedule = None;
        }
        self.pending = Some(Pending {
            kind,
            deadline: now + self.limit,
            scheduled,
            starts: None,
        });
        self.look_at_locks(now);
        vec![Says::Prepare {
            kind: self.told(kind),
            limit: self.limit,
        }]
    }

    fn look_at_locks(&mut self, now: Duration) {
        let delayed = self
            .locks
            .iter()
            .any(|lock| lock.mode == Mode::Delay && lock.on_shutdown());
        let away = self.away.is_some();
        if let Some(pending) = &mut self.pending
            && pending.starts.is_none()
            && !away
            && (!delayed || pending.deadline <= now)
        {
            pending.starts = Some(now + TRANSACTION + self.fails.unwrap_or_default());
        }
    }

    fn start_job(&mut self) -> Vec<Says> {
        let Some(pending) = self.pending.take() else {
            return Vec::new();
        };
        if self.deaf {
            // "Error during inhibitor-delayed operation: Transport endpoint is not connected": the host stays up.
            return Vec::new();
        }
        if self.fails.take().is_some() {
            return vec![Says::Unprepare];
        }
        vec![Says::Down(pending.kind)]
    }
}
