//! A bus, a logind and an agent's adapter on it.

use std::path::Path;
use std::time::Duration;
use testkit::logind::{Bus, Happened, Kind, Logind, Options, Why};
use tokio::sync::mpsc;
use vmdrain_agent::agent::ports::{Host, HostEvent};
use vmdrain_agent::drain::action::HoldView;
use vmdrain_agent::drain::trigger::{Schedule, Shutdown};
use vmdrain_agent::host::{self, Timing, hold};

/// Far longer than anything here takes.
pub(crate) const BOUND: Duration = Duration::from_secs(10);
/// A limit that no test reaches.
pub(crate) const MINUTES: Duration = Duration::from_secs(600);
/// The versions that were measured.
pub(crate) const ALL: [u32; 3] = [252, 257, 262];

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn quick() -> Timing {
    Timing {
        probe: ms(2000),
        work: ms(5000),
        pending_poll: ms(200),
        pending_confirm: ms(80),
        limit_poll: ms(150),
        retry_first: ms(20),
        retry_most: ms(200),
        release_check: ms(1000),
    }
}

pub(crate) fn version(version: u32) -> Options {
    Options {
        version,
        limit: MINUTES,
        ..Options::default()
    }
}

/// A bus, a logind and an agent's adapter on it.
pub(crate) struct Stage {
    pub(crate) bus: Bus,
    pub(crate) logind: Logind,
    pub(crate) host: host::Logind,
    pub(crate) events: mpsc::Receiver<HostEvent>,
    pub(crate) view: HoldView,
}

impl Stage {
    pub(crate) async fn new(options: Options) -> Self {
        Self::with(options, |_| {}).await
    }

    pub(crate) async fn with(options: Options, tune: impl Fn(&mut Timing)) -> Self {
        let bus = Bus::start().await.unwrap();
        let logind = Logind::start(&bus.address(), options).await.unwrap();
        Self::tuned(bus, logind, tune).await
    }

    pub(crate) async fn on(bus: Bus, logind: Logind) -> Self {
        Self::tuned(bus, logind, |_| {}).await
    }

    /// With the files of logind's configuration below `root`.
    pub(crate) async fn rooted(bus: Bus, logind: Logind, root: &Path) -> Self {
        let options = host::Options {
            root: Some(root.to_owned()),
            ..options(&bus, &logind)
        };
        Self::begin(bus, logind, host::Logind::new(options)).await
    }

    async fn tuned(bus: Bus, logind: Logind, tune: impl Fn(&mut Timing)) -> Self {
        let mut options = options(&bus, &logind);
        tune(&mut options.timing);
        Self::begin(bus, logind, host::Logind::new(options)).await
    }

    async fn begin(bus: Bus, logind: Logind, host: host::Logind) -> Self {
        let (sender, events) = mpsc::channel(64);
        let view = host.start(sender).await.unwrap();
        Self {
            bus,
            logind,
            host,
            events,
            view,
        }
    }

    pub(crate) async fn next(&mut self) -> HostEvent {
        let next = tokio::time::timeout(BOUND, self.events.recv()).await;
        next.expect("an event in time").expect("the adapter lives")
    }

    pub(crate) async fn shutdown(&mut self) -> Shutdown {
        loop {
            match self.next().await {
                HostEvent::Shutdown(shutdown) => return shutdown,
                HostEvent::ShutdownVanished { why } => panic!("vanished: {why}"),
                HostEvent::Scheduled(_) | HostEvent::Hold(_) => {}
            }
        }
    }

    pub(crate) async fn vanished(&mut self) -> String {
        loop {
            match self.next().await {
                HostEvent::ShutdownVanished { why } => return why,
                HostEvent::Shutdown(shutdown) => panic!("one more: {shutdown:?}"),
                HostEvent::Scheduled(_) | HostEvent::Hold(_) => {}
            }
        }
    }

    /// The next news of the schedule; a shutdown before it is one too many.
    pub(crate) async fn scheduled(&mut self) -> Option<Schedule> {
        loop {
            match self.next().await {
                HostEvent::Scheduled(schedule) => return schedule,
                HostEvent::Hold(_) => {}
                other @ (HostEvent::Shutdown(_) | HostEvent::ShutdownVanished { .. }) => {
                    panic!("before any schedule: {other:?}")
                }
            }
        }
    }

    pub(crate) async fn hold(&mut self, wanted: impl Fn(&HoldView) -> bool) -> HoldView {
        loop {
            if let HostEvent::Hold(view) = self.next().await
                && wanted(&view)
            {
                return view;
            }
        }
    }

    /// Changes the limit and returns every shutdown event that came before the news of it: with that, anything
    /// that logind or a stranger has sent before has been dealt with.
    pub(crate) async fn until_limit(&mut self, seconds: u64) -> Vec<HostEvent> {
        let limit = Duration::from_secs(seconds);
        self.logind.set_limit(limit);
        let mut before = Vec::new();
        loop {
            match self.next().await {
                HostEvent::Hold(view) if view.limit == Some(limit) => return before,
                HostEvent::Scheduled(_) | HostEvent::Hold(_) => {}
                other @ (HostEvent::Shutdown(_) | HostEvent::ShutdownVanished { .. }) => {
                    before.push(other);
                }
            }
        }
    }

    pub(crate) fn locks_given(&self) -> usize {
        let ours = Happened::Locked {
            who: hold::WHO.into(),
        };
        let events = self.logind.events();
        events.iter().filter(|event| event.what == ours).count()
    }

    pub(crate) async fn down(&self) -> Happened {
        self.logind
            .wait_down(BOUND)
            .await
            .expect("down in time")
            .what
    }
}

pub(crate) fn adapter(bus: &Bus, logind: &Logind) -> host::Logind {
    host::Logind::new(options(bus, logind))
}

fn options(bus: &Bus, logind: &Logind) -> host::Options {
    host::Options {
        bus: Some(bus.address()),
        folder: Some(logind.folder()),
        root: None,
        timing: quick(),
        ..host::Options::default()
    }
}

pub(crate) fn down(kind: Kind, why: Why) -> Happened {
    Happened::Down { kind, why }
}
