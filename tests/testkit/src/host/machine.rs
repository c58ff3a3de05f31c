//! The machine from outside: what can be done to it, and what can be seen of it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use vmdrain_agent::agent::ports::Clock as _;
use vmdrain_agent::drain::action::HoldView;
use vmdrain_agent::drain::boot::Userspace;
use vmdrain_agent::drain::hooks::Gate;
use vmdrain_agent::drain::time::Mono;
use vmdrain_agent::drain::trigger::Then;

use super::ModelClock;
use super::logind::Mode;
use super::state::State;
use crate::actors::premises::Premises;
use crate::clock::SimClock;

/// What a host is like.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Version of systemd.
    pub systemd: u32,
    /// `InhibitDelayMaxSec`.
    pub limit: Duration,
    /// From down to up.
    pub boot_time: Duration,
    /// The administrator's hooks.
    pub hooks: Vec<HostHook>,
}

/// A hook that lies on the host.
#[derive(Clone, Debug)]
pub struct HostHook {
    /// Its directory.
    pub gate: Gate,
    /// Its name there.
    pub name: String,
    /// How long it takes.
    pub takes: Duration,
    /// What it ends with.
    pub exit: u8,
}

/// Something that happened to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// logind announced a shutdown; `deadline` is the end of its delay.
    Announced {
        /// When the delay ends at the latest.
        deadline: Duration,
    },
    /// An announced shutdown is no longer pending.
    CalledOff,
    /// The stop jobs of the system run: it goes down without logind's delay, when they are over.
    Stopping,
    /// The agent's lock was taken.
    LockTaken,
    /// The agent's lock is gone, for this reason.
    LockGone(&'static str),
    /// The host goes down.
    Down(Then),
    /// It is up again; `same_boot`: only its user space was restarted.
    Up {
        /// The boot id did not change.
        same_boot: bool,
    },
    /// Anything else worth a line in the trace.
    Note(String),
}

/// A change and when it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Simulated time.
    pub at: Duration,
    /// What.
    pub change: Change,
}

/// The simulated host. Cheap to clone; all clones are the same host.
#[derive(Clone, Debug)]
pub struct ModelHost {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) clock: SimClock,
    pub(super) boot_clock: ModelClock,
    changed: Arc<watch::Sender<u64>>,
    /// When its user space began, on its boot clock.
    up_since: Arc<Mutex<Mono>>,
    /// Its launchers; nobody knows of any until it is told.
    premises: Arc<OnceLock<Premises>>,
}

impl ModelHost {
    /// A host that is up, with nobody on it.
    pub fn new(clock: SimClock, options: HostOptions) -> Self {
        let state = State::new(options);
        Self {
            boot_clock: ModelClock::new(clock.clone()),
            state: Arc::new(Mutex::new(state)),
            clock,
            changed: Arc::new(watch::channel(0).0),
            up_since: Arc::default(),
            premises: Arc::default(),
        }
    }

    /// These launchers run on it.
    pub fn runs(&self, premises: Premises) {
        // Told once, when the cluster is made.
        let _ = self.premises.set(premises);
    }

    pub(super) fn premises(&self) -> Result<&Premises, String> {
        let none = || "this host shows no processes".to_owned();
        self.premises.get().ok_or_else(none)
    }

    /// Plays the host until it is dropped.
    pub async fn run(self) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let next = self.lock().next();
            tokio::select! {
                _ = changed.changed() => {}
                () = sleep_until(&self.clock, next) => self.with(State::tick),
            }
        }
    }

    /// `CLOCK_BOOTTIME` of the host.
    pub fn boot_clock(&self) -> ModelClock {
        self.boot_clock.clone()
    }

    /// Changes whenever something happened.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether the host is up.
    pub fn is_up(&self) -> bool {
        self.lock().up
    }

    /// Whether the host will come up by itself.
    pub fn will_boot(&self) -> bool {
        self.lock().boots.is_some()
    }

    /// Whether a shutdown is announced, scheduled, or the host is booting: something will happen.
    pub fn is_busy(&self) -> bool {
        let state = self.lock();
        state.logind.next().is_some()
            || state.boots.is_some()
            || state.waiting.is_some()
            || state.stopping.is_some()
    }

    /// Whether logind counts the agent's lock.
    pub fn holds(&self) -> bool {
        let state = self.lock();
        state.up && state.ours.is_some()
    }

    /// The lock as the adapter sees it.
    pub fn look(&self) -> HoldView {
        self.lock().view()
    }

    /// `/proc/sys/kernel/random/boot_id`.
    pub fn boot_id(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.lock().boot)
    }

    /// What systemd says about its user space.
    pub fn userspace(&self) -> Userspace {
        let state = self.lock();
        let count = state.soft_reboots;
        Userspace {
            soft_reboots: (state.options.systemd >= 256).then_some(count),
            // systemd needs a moment after the kernel; zero is its word for "never".
            started: Some(self.up_since().0 * 1000 + 1),
        }
    }

    /// When that user space began, on its boot clock.
    pub fn up_since(&self) -> Mono {
        *self.up_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `systemctl status` shows of the agent.
    pub fn status_line(&self) -> String {
        self.lock().status_line.clone()
    }

    /// Everything that happened, oldest first.
    pub fn history(&self) -> Vec<Moment> {
        self.lock().history.clone()
    }

    /// Somebody shuts the host down through logind; what logind answered is in the history.
    pub fn shut_down(&self, kind: Then) {
        self.with(|state, now| state.shut_down(kind, now));
    }

    /// The shutdown target is started past logind: the stop jobs begin, logind ends with the other units.
    pub fn begin_to_stop(&self, kind: Then) {
        self.with(|state, now| {
            if state.up {
                state.stopping = Some(kind);
                state.remember(now, Change::Stopping);
                let says = state.logind.end();
                state.said(says, now);
            }
        });
    }

    /// The kind of shutdown whose stop jobs run.
    pub fn stopping(&self) -> Option<Then> {
        self.lock().stopping
    }

    /// The stop jobs are over.
    pub fn shut_down_past_logind(&self, kind: Then) {
        self.with(|state, now| state.go_down(kind, now));
    }

    /// `shutdown +N`.
    pub fn schedule(&self, kind: Then, within: Duration) {
        self.with(|state, now| state.logind.schedule(kind, now + within));
    }

    /// `shutdown -c`.
    pub fn cancel_schedule(&self) {
        self.with(|state, now| {
            state.waiting = None;
            let says = state.logind.cancel();
            state.said(says, now);
        });
    }

    /// The next shutdown job cannot be started.
    pub fn fail_next(&self, after: Duration) {
        self.with(|state, _| state.logind.fail_next(after));
    }

    /// The host comes up in `after`, or after its boot time.
    pub fn boot(&self, after: Option<Duration>, same_boot: bool) {
        self.with(|state, now| {
            if !state.up {
                let after = after.unwrap_or(state.options.boot_time);
                state.boots = Some((now + after, same_boot));
            }
        });
    }

    /// `systemctl restart systemd-logind`.
    pub fn restart_logind(&self, away: Duration) {
        self.with(|state, now| {
            let says = state.logind.restart(now + away);
            state.said(says, now);
        });
    }

    /// The bus is restarted.
    pub fn restart_bus(&self, away: Duration) {
        self.with(|state, now| {
            let says = state.logind.bus_restarted(now + away);
            state.said(says, now);
        });
    }

    /// Another `InhibitDelayMaxSec`, reloaded.
    pub fn set_limit(&self, limit: Duration) {
        self.with(|state, _| {
            state.options.limit = limit;
            state.logind.set_limit(limit);
            state.tell_hold();
        });
    }

    /// Somebody else takes a lock.
    pub fn foreign_lock(&self, who: &str, what: &str, mode: Mode, held: Option<Duration>) {
        self.with(|state, now| {
            let until = held.map(|held| now + held);
            if let Err(why) = state.logind.inhibit(who, what, mode, until) {
                state.note(now, format!("{who} got no lock: {why}"));
            }
            // The real adapter looks every minute.
            state.tell_hold();
        });
    }

    /// A signal on the bus. Only what logind itself sends about a shutdown that its property confirms gets past the adapter.
    pub fn signal(&self, from_logind: bool, member: &str, body: &[bool]) {
        self.with(|state, now| {
            state.note(now, format!("signal {member} {body:?}"));
            let believed = from_logind
                && member == "PrepareForShutdown"
                && body == [true]
                && state.logind.preparing()
                && state.logind.answers();
            if believed {
                state.announce_again(now);
            }
        });
    }

    /// The agent's process has died. With `stored` the service manager keeps its lock (a crash, a restart), without it does not.
    pub fn agent_gone(&self, stored: bool) {
        self.with(|state, now| {
            state.listener = None;
            if !stored && let Some(id) = state.ours.take() {
                state.logind.let_go(id, now);
                state.remember(now, Change::LockGone("the agent has ended"));
            }
        });
    }

    /// Does something to the state now and tells whoever waits.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut State, Duration) -> T) -> T {
        let now = self.clock.elapsed();
        let mut state = self.lock();
        let (boot, up) = (state.boot, state.up);
        let result = change(&mut state, now);
        state.tell_schedule(now);
        if state.boot != boot {
            self.boot_clock.booted();
        }
        if state.up && !up {
            let mut since = self.up_since.lock().unwrap_or_else(PoisonError::into_inner);
            *since = self.boot_clock.now();
        }
        drop(state);
        self.changed.send_modify(|count| *count += 1);
        result
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sleep_until(clock: &SimClock, at: Option<Duration>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
