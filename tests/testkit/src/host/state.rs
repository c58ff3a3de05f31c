//! The machine from inside: its logind, its boots, the agent's lock, and what the adapter would tell the agent of them.

use std::time::Duration;

use tokio::sync::mpsc;
use vmdrain_agent::agent::ports::HostEvent;
use vmdrain_agent::drain::action::{HoldView, Holder};
use vmdrain_agent::drain::trigger::{Schedule, Shutdown, Then};
use vmdrain_agent::host::{self, hold};

use super::logind::{Lock, Logind, Mode, Says};
use super::machine::{Change, HostOptions, Moment};

/// The agent's name in logind's list.
const WHO: &str = "vmdrain-agent";

/// What a listener knows of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing yet.
    Nothing,
    /// Kind and moment, or that nothing is scheduled.
    Schedule(Option<(Then, Duration)>),
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) options: HostOptions,
    pub(super) logind: Logind,
    pub(super) up: bool,
    pub(super) boot: u32,
    /// How often user space was restarted in this boot.
    pub(super) soft_reboots: u64,
    /// When the host comes up, and whether with the same boot id.
    pub(super) boots: Option<(Duration, bool)>,
    /// A request that waits for logind to be back.
    pub(super) waiting: Option<Then>,
    /// Number of the agent's lock.
    pub(super) ours: Option<u64>,
    /// Whether the agent wants its lock back when it is lost.
    pub(super) wanted: bool,
    pub(super) listener: Option<mpsc::Sender<HostEvent>>,
    /// What the listener knows of the schedule.
    pub(super) told_schedule: Told,
    /// The stop jobs of the system run, and then it goes down.
    pub(super) stopping: Option<Then>,
    pub(super) status_line: String,
    pub(super) history: Vec<Moment>,
}

impl State {
    pub(super) fn new(options: HostOptions) -> Self {
        Self {
            logind: Logind::new(options.systemd, options.limit),
            options,
            up: true,
            boot: 1,
            soft_reboots: 0,
            boots: None,
            waiting: None,
            ours: None,
            wanted: false,
            listener: None,
            told_schedule: Told::Nothing,
            stopping: None,
            status_line: String::new(),
            history: Vec::new(),
        }
    }

    pub(super) fn next(&self) -> Option<Duration> {
        if !self.up {
            return self.boots.map(|(at, _)| at);
        }
        self.logind.next()
    }

    pub(super) fn tick(&mut self, now: Duration) {
        if let Some((at, same_boot)) = self.boots
            && at <= now
        {
            self.boots = None;
            self.up = true;
            self.boot += u32::from(!same_boot);
            self.soft_reboots = if same_boot { self.soft_reboots + 1 } else { 0 };
            self.remember(now, Change::Up { same_boot });
        }
        if self.up {
            let says = self.logind.tick(now);
            self.said(says, now);
        }
    }

    pub(super) fn shut_down(&mut self, kind: Then, now: Duration) {
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

    pub(super) fn announce_again(&mut self, now: Duration) {
        self.remember(now, Change::Note("announced once more".into()));
        self.announce(self.logind.limit());
    }

    pub(super) fn go_down(&mut self, kind: Then, now: Duration) {
        self.up = false;
        self.listener = None;
        self.ours = None;
        self.waiting = None;
        self.stopping = None;
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
                ..HoldView::default()
            };
        }
        let held = self.ours.is_some();
        HoldView {
            held,
            limit: Some(self.logind.limit()),
            trouble: if held || !self.wanted {
                self.limit_trouble()
            } else {
                "the host is going down already and logind gives no new lock".into()
            },
            limit_by: String::new(),
            others: self.others(),
        }
    }

    /// What the real adapter says about such a limit.
    fn limit_trouble(&self) -> String {
        let usec = u64::try_from(self.logind.limit().as_micros()).unwrap_or(u64::MAX);
        let least = host::Options::default().least_limit;
        hold::limit_trouble(usec, self.options.systemd >= 257, least, None)
    }

    /// Locks of others on shutdowns.
    fn others(&self) -> Vec<Holder> {
        let ours = self.ours;
        let others = self.logind.locks().iter().filter(|lock| {
            Some(lock.id) != ours && lock.what.split(':').any(|what| what == "shutdown")
        });
        others
            .map(|lock| Holder {
                who: lock.who.clone(),
                why: String::new(),
                mode: match lock.mode {
                    Mode::Delay => "delay",
                    Mode::Block => "block",
                    Mode::BlockWeak => "block-weak",
                }
                .into(),
                uid: 0,
            })
            .collect()
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

    pub(super) fn tell_hold(&self) {
        self.tell(HostEvent::Hold(self.view()));
    }

    /// What is scheduled, when that has changed. While a shutdown is pending its own signal tells.
    pub(super) fn tell_schedule(&mut self, now: Duration) {
        if !self.logind.answers() || self.listener.is_none() {
            return;
        }
        if self.logind.preparing() {
            self.told_schedule = Told::Nothing;
            return;
        }
        let current = self.logind.scheduled();
        if self.told_schedule != Told::Schedule(current) {
            self.told_schedule = Told::Schedule(current);
            self.tell(HostEvent::Scheduled(current.map(|(kind, at)| Schedule {
                kind: Some(kind),
                within: at.saturating_sub(now),
            })));
        }
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
