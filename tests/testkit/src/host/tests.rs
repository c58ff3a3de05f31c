//! The host against the notes on logind, version by version.

use std::time::Duration;

use tokio::sync::mpsc;
use vmdrain_agent::agent::ports::{Host as _, HostEvent};
use vmdrain_agent::drain::action::LogindAnswer;
use vmdrain_agent::drain::trigger::Then;

use super::logind::Mode;
use super::{Change, HostOptions, ModelHost};
use crate::clock::SimClock;

const LIMIT: Duration = Duration::from_secs(100);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

struct Bench {
    host: ModelHost,
    clock: SimClock,
    events: mpsc::Receiver<HostEvent>,
}

async fn bench(systemd: u32) -> Bench {
    let clock = SimClock::new(1.0);
    let options = HostOptions {
        systemd,
        limit: LIMIT,
        boot_time: seconds(60),
        hooks: Vec::new(),
    };
    let host = ModelHost::new(clock.clone(), options);
    tokio::spawn(host.clone().run());
    let (sender, events) = mpsc::channel(64);
    assert!(host.start(sender).await.unwrap().held);
    Bench {
        host,
        clock,
        events,
    }
}

impl Bench {
    fn heard(&mut self) -> Vec<HostEvent> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }

    fn shutdowns(&mut self) -> Vec<(Option<Then>, bool)> {
        self.heard()
            .into_iter()
            .filter_map(|event| match event {
                HostEvent::Shutdown(shutdown) => Some((shutdown.kind, shutdown.held)),
                HostEvent::ShutdownVanished { .. }
                | HostEvent::Scheduled(_)
                | HostEvent::Hold(_) => None,
            })
            .collect()
    }

    fn vanished(&mut self) -> bool {
        self.heard()
            .iter()
            .any(|event| matches!(event, HostEvent::ShutdownVanished { .. }))
    }

    fn down_at(&self) -> Option<Duration> {
        self.host
            .history()
            .iter()
            .find(|moment| matches!(moment.change, Change::Down(_)))
            .map(|moment| moment.at)
    }
}

#[tokio::test(start_paused = true)]
async fn the_host_goes_when_the_last_delay_lock_is_gone() {
    let mut bench = bench(257).await;
    bench
        .host
        .foreign_lock("other", "sleep:shutdown", Mode::Delay, Some(seconds(4)));
    bench.host.shut_down(Then::Poweroff);
    assert_eq!(bench.shutdowns(), [(Some(Then::Poweroff), true)]);
    bench.clock.sleep(seconds(2)).await;
    bench.host.release().await.unwrap();
    bench.clock.sleep(seconds(1)).await;
    assert!(bench.host.is_up());
    bench.clock.sleep(seconds(2)).await;
    assert_eq!(bench.down_at(), Some(Duration::from_millis(4020)));
    assert!(!bench.host.will_boot());
}

#[tokio::test(start_paused = true)]
async fn the_host_goes_when_the_limit_is_over_and_comes_back_after_a_reboot() {
    let mut bench = bench(252).await;
    bench.host.shut_down(Then::Reboot);
    assert_eq!(
        bench.shutdowns(),
        [(None, true)],
        "252 does not tell the kind"
    );
    bench.host.set_limit(seconds(500));
    bench.clock.sleep(seconds(101)).await;
    assert_eq!(bench.down_at(), Some(LIMIT + Duration::from_millis(20)));
    let boot = bench.host.boot_id();
    bench.clock.sleep(seconds(60)).await;
    assert!(bench.host.is_up());
    assert_ne!(bench.host.boot_id(), boot);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_shutdown_can_be_cancelled_from_257_on() {
    for (systemd, cancelled) in [(252, false), (257, true)] {
        let mut bench = bench(systemd).await;
        bench.host.shut_down(Then::Poweroff);
        bench.clock.sleep(seconds(1)).await;
        bench.host.cancel_schedule();
        assert_eq!(bench.vanished(), cancelled, "systemd {systemd}");
        bench.clock.sleep(seconds(200)).await;
        assert_eq!(bench.host.is_up(), cancelled, "systemd {systemd}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_logind_forgets_an_immediate_shutdown_and_repeats_a_scheduled_one() {
    let mut bench = bench(257).await;
    bench.host.shut_down(Then::Poweroff);
    bench.clock.sleep(seconds(10)).await;
    bench.host.restart_logind(seconds(1));
    bench.clock.sleep(seconds(2)).await;
    assert!(bench.vanished());
    assert!(bench.host.holds(), "the lock survives");
    bench.host.schedule(Then::Poweroff, seconds(30));
    bench.clock.sleep(seconds(40)).await;
    assert_eq!(bench.shutdowns().len(), 1);
    bench.host.restart_logind(seconds(1));
    bench.clock.sleep(seconds(2)).await;
    assert_eq!(bench.shutdowns().len(), 1, "the signal comes a second time");
    bench.clock.sleep(seconds(98)).await;
    assert!(bench.host.is_up(), "its delay starts again from zero");
    bench.clock.sleep(seconds(3)).await;
    assert!(!bench.host.is_up());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_start_leaves_the_host_up_and_the_lock_valid() {
    let mut bench = bench(257).await;
    bench.host.fail_next(seconds(3));
    bench.host.shut_down(Then::Reboot);
    bench.host.release().await.unwrap();
    bench.clock.sleep(seconds(4)).await;
    assert!(bench.vanished());
    assert!(bench.host.is_up());
    assert!(bench.host.take_hold().await.unwrap().held);
}

#[tokio::test(start_paused = true)]
async fn no_new_lock_during_a_delay_but_the_stored_one_counts() {
    let mut bench = bench(257).await;
    bench.host.shut_down(Then::Poweroff);
    bench.clock.sleep(seconds(5)).await;
    bench.host.agent_gone(true);
    let (sender, events) = mpsc::channel(64);
    bench.events = events;
    assert!(bench.host.start(sender).await.unwrap().held);
    assert_eq!(bench.shutdowns(), [(Some(Then::Poweroff), true)]);
    bench.host.agent_gone(false);
    let (sender, events) = mpsc::channel(64);
    bench.events = events;
    let hold = bench.host.start(sender).await.unwrap();
    assert!(!hold.held && !hold.trouble.is_empty());
    bench.clock.sleep(seconds(1)).await;
    assert_eq!(bench.down_at(), Some(Duration::from_millis(5020)));
}

#[tokio::test(start_paused = true)]
async fn block_locks_by_version_and_strangers_signals() {
    for (systemd, down) in [(252, true), (257, false)] {
        let mut bench = bench(systemd).await;
        bench
            .host
            .foreign_lock("backup", "shutdown", Mode::Block, None);
        assert!(matches!(
            bench.host.ask_logind(Then::Poweroff).await,
            LogindAnswer::Blocked(_)
        ));
        bench.host.signal(false, "PrepareForShutdown", &[true]);
        bench.host.signal(true, "PrepareForShutdown", &[true]);
        assert!(
            bench.shutdowns().is_empty(),
            "not confirmed by the property"
        );
        bench.host.shut_down(Then::Poweroff);
        bench.host.release().await.unwrap();
        bench.clock.sleep(seconds(1)).await;
        assert_eq!(bench.host.is_up(), !down, "systemd {systemd}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deaf_logind_after_a_restart_of_the_bus() {
    let bench = bench(257).await;
    bench.host.restart_bus(seconds(1));
    bench.clock.sleep(seconds(5)).await;
    bench.host.shut_down(Then::Poweroff);
    assert!(!bench.host.is_up(), "systemctl falls back to PID 1");
}
