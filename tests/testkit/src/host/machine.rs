//! The machine: up or down, its logind, its boots, and the agent's lock in the fd store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use vmdrain_agent::agent::ports::HostEvent;
use vmdrain_agent::drain::action::HoldView;
use vmdrain_agent::drain::trigger::{Shutdown, Then};

use super::ModelClock;
use super::logind::{Lock, Logind, Mode, Says};
use crate::clock::SimClock;

/// The agent's name in logind's list.
pub(super) const WHO: &str = "vmdrain-agent";

/// What a host is like.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Version of systemd.
    pub systemd: u32,
    /// `InhibitDelayMaxSec`.
    pub limit: Duration,
    /// From down to up.
    pub boot_time: Duration,
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
}

#[derive(Debug)]
pub(super) struct State {
    options: HostOptions,
    pub(super) logind: Logind,
    pub(super) up: bool,
    boot: u32,
    /// When the host comes up, and whether with the same boot id.
    boots: Option<(Duration, bool)>,
    /// A request that waits for logind to be back.
    waiting: Option<Then>,
    /// Number of the agent's lock.
    pub(super) ours: Option<u64>,
    /// Whether the agent wants its lock back when it is lost.
    pub(super) wanted: bool,
    pub(super) listener: Option<mpsc::Sender<HostEvent>>,
    pub(super) status_line: String,
    history: Vec<Moment>,
}

impl ModelHost {
    /// A host that is up, with nobody on it.
    pub fn new(clock: SimClock, options: HostOptions) -> Self {
        let state = State {
            logind: Logind::new(options.systemd, options.limit),
            options,
            up: true,
            boot: 1,
            boots: None,
            waiting: None,
            ours: None,
            wanted: false,
            listener: None,
            status_line: String::new(),
            history: Vec::new(),
        };
        Self {
            boot_clock: ModelClock::new(clock.clone()),
            state: Arc::new(Mutex::new(state)),
            clock,
            changed: Arc::new(watch::channel(0).0),
        }
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
        state.logind.next().is_some() || state.boots.is_some() || state.waiting.is_some()
    }

    /// Whether logind counts the agent's lock.
    pub fn holds(&self) -> bool {
        let state = self.lock();
        state.up && state.ours.is_some()
    }

    /// `/proc/sys/kernel/random/boot_id`.
    pub fn boot_id(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.lock().boot)
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

    /// The shutdown target is started past logind.
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
        let boots = |state: &State| (state.boot, state.up);
        let mut state = self.lock();
        let before = boots(&state);
        let result = change(&mut state, now);
        if boots(&state) != before && state.up {
            self.boot_clock.booted();
        }
        drop(state);
        self.changed.send_modify(|count| *count += 1);
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&self) -> Option<Duration> {
        if !self.up {
            return self.boots.map(|(at, _)| at);
        }
        self.logind.next()
    }

    fn tick(&mut self, now: Duration) {
        if let Some((at, same_boot)) = self.boots
            && at <= now
        {
            self.boots = None;
            self.up = true;
            self.boot += u32::from(!same_boot);
            self.remember(now, Change::Up { same_boot });
        }
        if self.up {
            let says = self.logind.tick(now);
            self.said(says, now);
        }
    }

    fn shut_down(&mut self, kind: Then, now: Duration) {
        if !self.up {
            return self.note(now, format!("{kind}: the host is already down"));
        }
        match self.logind.request(kind, now) {
            Ok(says) => self.said(says, now),
            Err(_) if self.logind.next().is_some() && !self.logind.answers() => {
                // D-Bus activation: systemctl waits for logind to be back.
                self.waiting = Some(kind);
            }
            Err(_) if !self.logind.answers() => {
                self.note(
                    now,
                    format!("{kind}: logind is deaf, systemctl starts the target itself"),
                );
                self.go_down(kind, now);
            }
            Err(why) => self.note(now, format!("{kind}: {why}")),
        }
    }

    /// What the adapter tells the agent about what logind says, and what follows.
    pub(super) fn said(&mut self, says: Vec<Says>, now: Duration) {
        for said in says {
            match said {
                Says::Prepare { .. } => {
                    let deadline = self.logind.deadline().unwrap_or(now);
                    self.remember(now, Change::Announced { deadline });
                    self.announce(self.logind.limit());
                }
                Says::Unprepare => self.vanished(now, "logind could not start the shutdown"),
                Says::CalledOff => self.vanished(now, "the shutdown was called off"),
                Says::Gone => self.tell_hold(),
                Says::Back { forgot } => self.logind_back(forgot, now),
                Says::Down(kind) => self.go_down(kind, now),
            }
        }
    }

    fn logind_back(&mut self, forgot: bool, now: Duration) {
        self.note(now, "systemd-logind is back".into());
        self.tell_hold();
        if forgot {
            self.vanished(
                now,
                "systemd-logind was restarted, which forgets a pending shutdown",
            );
        }
        if let Some(kind) = self.waiting.take() {
            self.shut_down(kind, now);
        }
    }

    fn vanished(&mut self, now: Duration, why: &str) {
        self.remember(now, Change::CalledOff);
        self.tell(HostEvent::ShutdownVanished { why: why.into() });
        self.tell_hold();
    }

    pub(super) fn announce(&self, limit: Duration) {
        let kind = self
            .logind
            .pending_kind()
            .and_then(|kind| self.logind.told(kind));
        self.tell(HostEvent::Shutdown(Shutdown {
            kind,
            limit: Some(limit),
            held: self.ours.is_some() && !limit.is_zero(),
        }));
    }

    fn announce_again(&mut self, now: Duration) {
        self.remember(now, Change::Note("announced once more".into()));
        self.announce(self.logind.limit());
    }

    fn go_down(&mut self, kind: Then, now: Duration) {
        self.up = false;
        self.listener = None;
        self.ours = None;
        self.waiting = None;
        self.logind.reboot();
        self.remember(now, Change::Down(kind));
        let boots = match kind {
            Then::Reboot | Then::Kexec => Some(false),
            Then::SoftReboot => Some(true),
            Then::Poweroff | Then::Halt => None,
        };
        self.boots = boots.map(|same_boot| (now + self.options.boot_time, same_boot));
    }

    /// The lock as the adapter sees it.
    pub(super) fn view(&self) -> HoldView {
        if !self.logind.answers() {
            return HoldView {
                held: false,
                limit: None,
                trouble: "systemd-logind does not answer; the lock stays as it is".into(),
            };
        }
        let held = self.ours.is_some();
        HoldView {
            held,
            limit: Some(self.logind.limit()),
            trouble: if held || !self.wanted {
                String::new()
            } else {
                "the host is going down already and logind gives no new lock".into()
            },
        }
    }

    pub(super) fn take(&mut self, now: Duration) -> Result<(), String> {
        self.wanted = true;
        if self.ours.is_none() {
            let id = self.logind.inhibit(WHO, "shutdown", Mode::Delay, None)?;
            self.ours = Some(id);
            self.remember(now, Change::LockTaken);
        }
        Ok(())
    }

    pub(super) fn give_up(&mut self, now: Duration) {
        self.wanted = false;
        if let Some(id) = self.ours.take() {
            self.remember(now, Change::LockGone("released"));
            self.logind.let_go(id, now);
        }
    }

    pub(super) fn blocker(&self) -> Option<&Lock> {
        // The adapter respects block locks on every version, also where logind would not.
        self.logind.locks().iter().find(|lock| {
            lock.mode == Mode::Block && lock.what.split(':').any(|what| what == "shutdown")
        })
    }

    fn tell_hold(&self) {
        self.tell(HostEvent::Hold(self.view()));
    }

    fn tell(&self, event: HostEvent) {
        if let Some(listener) = &self.listener {
            // Full or closed: the agent hangs or is gone; a real signal would be lost just the same.
            let _ = listener.try_send(event);
        }
    }

    pub(super) fn remember(&mut self, at: Duration, change: Change) {
        self.history.push(Moment { at, change });
    }

    pub(super) fn note(&mut self, at: Duration, text: String) {
        self.remember(at, Change::Note(text));
    }
}

async fn sleep_until(clock: &SimClock, at: Option<Duration>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
