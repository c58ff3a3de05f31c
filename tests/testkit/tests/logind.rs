//! The host adapter against the stand-in logind, on a private bus and in real time: every wait is bounded.
//!
//! "Nothing happened" is never a pause: something else is made to happen afterwards, and what came before it is
//! looked at ([`Stage::until_limit`]).

use std::time::Duration;
use testkit::logind::{Bus, Happened, Kind, Logind, Options, Why, spoof};
use tokio::sync::mpsc;
use vmdrain_agent::agent::ports::{Host, HostEvent};
use vmdrain_agent::drain::action::{HoldView, LogindAnswer};
use vmdrain_agent::drain::trigger::{Shutdown, Then};
use vmdrain_agent::host::{self, Timing, hold, login1};

/// Far longer than anything here takes.
const BOUND: Duration = Duration::from_secs(10);
const MINUTES: Duration = Duration::from_secs(600);
const ALL: [u32; 3] = [252, 257, 262];

fn ms(n: u64) -> Duration {
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

fn version(version: u32) -> Options {
    Options {
        version,
        limit: MINUTES,
        ..Options::default()
    }
}

/// A bus, a logind and an agent's adapter on it.
struct Stage {
    bus: Bus,
    logind: Logind,
    host: host::Logind,
    events: mpsc::Receiver<HostEvent>,
    view: HoldView,
}

impl Stage {
    async fn new(options: Options) -> Self {
        let bus = Bus::start().await.unwrap();
        let logind = Logind::start(&bus.address(), options).await.unwrap();
        Self::on(bus, logind).await
    }

    async fn on(bus: Bus, logind: Logind) -> Self {
        let host = adapter(&bus, &logind);
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

    async fn next(&mut self) -> HostEvent {
        let next = tokio::time::timeout(BOUND, self.events.recv()).await;
        next.expect("an event in time").expect("the adapter lives")
    }

    async fn shutdown(&mut self) -> Shutdown {
        loop {
            match self.next().await {
                HostEvent::Shutdown(shutdown) => return shutdown,
                HostEvent::ShutdownVanished { why } => panic!("vanished: {why}"),
                HostEvent::Hold(_) => {}
            }
        }
    }

    async fn vanished(&mut self) -> String {
        loop {
            match self.next().await {
                HostEvent::ShutdownVanished { why } => return why,
                HostEvent::Shutdown(shutdown) => panic!("one more: {shutdown:?}"),
                HostEvent::Hold(_) => {}
            }
        }
    }

    async fn hold(&mut self, wanted: impl Fn(&HoldView) -> bool) -> HoldView {
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
    async fn until_limit(&mut self, seconds: u64) -> Vec<HostEvent> {
        let limit = Duration::from_secs(seconds);
        self.logind.set_limit(limit);
        let mut before = Vec::new();
        loop {
            match self.next().await {
                HostEvent::Hold(view) if view.limit == Some(limit) => return before,
                HostEvent::Hold(_) => {}
                other => before.push(other),
            }
        }
    }

    fn locks_given(&self) -> usize {
        let ours = Happened::Locked {
            who: hold::WHO.into(),
        };
        let events = self.logind.events();
        events.iter().filter(|event| event.what == ours).count()
    }

    async fn down(&self) -> Happened {
        self.logind
            .wait_down(BOUND)
            .await
            .expect("down in time")
            .what
    }
}

fn adapter(bus: &Bus, logind: &Logind) -> host::Logind {
    host::Logind::new(host::Options {
        bus: Some(bus.address()),
        inhibit_folder: logind.inhibit_folder(),
        timing: quick(),
        ..host::Options::default()
    })
}

fn down(kind: Kind, why: Why) -> Happened {
    Happened::Down { kind, why }
}

#[tokio::test]
async fn a_shutdown_waits_for_the_release_and_no_longer() {
    for v in ALL {
        let mut stage = Stage::new(version(v)).await;
        assert!(stage.view.held, "{:?}", stage.view);
        assert_eq!(stage.view.limit, Some(MINUTES));
        assert_eq!(stage.view.trouble, "");
        assert_eq!(stage.logind.state().holders, [hold::WHO]);

        stage.logind.poweroff(Kind::Reboot).await.unwrap();
        let told = Shutdown {
            kind: (v >= 255).then_some(Then::Reboot),
            limit: Some(MINUTES),
            held: true,
        };
        assert_eq!(stage.shutdown().await, told, "systemd {v}");
        assert_eq!(
            stage.until_limit(500).await,
            [],
            "metadata and plain signal are one shutdown"
        );
        assert!(!stage.logind.state().down);

        let view = stage.host.release().await.unwrap();
        assert!(!view.held && view.trouble.is_empty(), "{view:?}");
        assert_eq!(stage.down().await, down(Kind::Reboot, Why::Released));
    }
}

#[tokio::test]
async fn the_limit_ends_it_without_a_word() {
    let mut stage = Stage::new(Options {
        limit: ms(400),
        ..version(257)
    })
    .await;
    stage.logind.poweroff(Kind::Poweroff).await.unwrap();
    assert_eq!(stage.shutdown().await.limit, Some(ms(400)));
    assert_eq!(stage.down().await, down(Kind::Poweroff, Why::Expired));
}

#[tokio::test]
async fn strangers_and_nonsense_start_nothing() {
    for v in [252, 257] {
        let mut stage = Stage::new(version(v)).await;
        let address = stage.bus.address();
        let connections = every_connection(&address).await;
        spoof(&address, None, "PrepareForShutdown", &true)
            .await
            .unwrap();
        for name in &connections {
            spoof(&address, Some(name), "PrepareForShutdown", &true)
                .await
                .unwrap();
        }
        assert_eq!(
            stage.until_limit(501).await,
            [],
            "a stranger's signal on {v}"
        );

        // From logind itself: another form, and a claim that its property does not confirm.
        let logind = &stage.logind;
        logind
            .emit_raw("PrepareForShutdown", &"true")
            .await
            .unwrap();
        logind.emit_raw("PrepareForShutdown", &()).await.unwrap();
        let odd = (true, vec!["poweroff"]);
        logind
            .emit_raw("PrepareForShutdownWithMetadata", &odd)
            .await
            .unwrap();
        logind.emit_raw("PrepareForShutdown", &true).await.unwrap();
        logind.emit_raw("SessionNew", &("c1", "/x")).await.unwrap();
        assert_eq!(stage.until_limit(502).await, [], "nonsense on {v}");

        stage.logind.poweroff(Kind::Halt).await.unwrap();
        assert!(stage.shutdown().await.held, "the real one is still heard");
    }
}

async fn every_connection(address: &str) -> Vec<String> {
    let bus = login1::connect(Some(address), BOUND).await.unwrap();
    let dbus = zbus::fdo::DBusProxy::new(&bus).await.unwrap();
    let names = dbus.list_names().await.unwrap();
    let unique = names.iter().map(ToString::to_string);
    unique.filter(|name| name.starts_with(':')).collect()
}

#[tokio::test]
async fn a_late_start_is_told_as_such() {
    for v in ALL {
        let bus = Bus::start().await.unwrap();
        let logind = Logind::start(&bus.address(), version(v)).await.unwrap();
        let _other = logind.foreign("shutdown", "other", "delay", 0).unwrap();
        logind.poweroff(Kind::Poweroff).await.unwrap();

        let mut stage = Stage::on(bus, logind).await;
        assert!(!stage.view.held);
        assert!(
            stage.view.trouble.contains("going down already"),
            "{:?}",
            stage.view
        );
        let told = stage.shutdown().await;
        assert!(!told.held);
        let tells = v >= 257;
        assert_eq!(told.kind, tells.then_some(Then::Poweroff), "systemd {v}");
        match told.limit {
            Some(left) => assert!(
                tells && left <= MINUTES && left > MINUTES - BOUND,
                "{left:?}"
            ),
            None => assert!(!tells),
        }
        let said = stage.host.take_hold().await.unwrap_err();
        assert!(said.contains("no new lock"), "{said}");
    }
}

#[tokio::test]
async fn limits_that_protect_nobody_are_told() {
    let cases = [
        (252, Duration::ZERO, "waits for nobody"),
        (257, Duration::from_secs(5), "is 5 s"),
        (252, Duration::MAX, "infinity"),
        (257, Duration::MAX, ""),
    ];
    for (v, limit, says) in cases {
        let stage = Stage::new(Options {
            limit,
            ..version(v)
        })
        .await;
        assert!(stage.view.held, "the lock is kept all the same");
        let trouble = &stage.view.trouble;
        assert!(
            trouble.contains(says) && trouble.is_empty() == says.is_empty(),
            "{trouble}"
        );
    }
    // What these sentences promise is what happens.
    let stage = Stage::new(Options {
        limit: Duration::MAX,
        ..version(252)
    })
    .await;
    stage.logind.poweroff(Kind::Poweroff).await.unwrap();
    assert_eq!(stage.down().await, down(Kind::Poweroff, Why::Bypassed));
    let mut stage = Stage::new(Options {
        limit: Duration::ZERO,
        ..version(257)
    })
    .await;
    stage.logind.poweroff(Kind::Poweroff).await.unwrap();
    assert!(
        !stage.shutdown().await.held,
        "no lock counts with a limit of 0"
    );
    assert_eq!(stage.down().await, down(Kind::Poweroff, Why::NotDelayed));
}

#[tokio::test]
async fn a_restart_of_logind_leaves_an_idle_lock_alone() {
    for v in ALL {
        let mut stage = Stage::new(version(v)).await;
        stage.logind.restart(ms(100)).await.unwrap();
        assert_eq!(stage.until_limit(503).await, []);
        assert_eq!(stage.locks_given(), 1, "the same lock");
        assert_eq!(stage.logind.state().holders, [hold::WHO]);
        stage.logind.poweroff(Kind::Reboot).await.unwrap();
        assert!(stage.shutdown().await.held);
    }
}

#[tokio::test]
async fn a_lock_that_logind_lost_is_taken_again() {
    let mut stage = Stage::new(version(257)).await;
    stage.logind.lose_locks();
    let gone = Happened::Locked {
        who: hold::WHO.into(),
    };
    let again = |events: &[_]| {
        events
            .iter()
            .filter(|e: &&testkit::logind::Event| e.what == gone)
            .count()
            == 2
    };
    while !again(&stage.logind.events()) {
        stage.host.take_hold().await.unwrap();
    }
    assert_eq!(stage.until_limit(504).await, []);
    assert_eq!(stage.logind.state().holders, [hold::WHO]);
}

/// T44: the pending shutdown is lost without a signal; the next one works with the same lock.
#[tokio::test]
async fn a_restart_of_logind_in_mid_hold_is_noticed() {
    for v in ALL {
        let mut stage = Stage::new(version(v)).await;
        stage.logind.poweroff(Kind::Poweroff).await.unwrap();
        assert!(stage.shutdown().await.held);
        stage.logind.restart(ms(50)).await.unwrap();
        let why = stage.vanished().await;
        assert!(why.contains("restarted"), "{why}");
        assert!(!stage.logind.state().preparing);
        stage.logind.poweroff(Kind::Reboot).await.unwrap();
        assert!(stage.shutdown().await.held);
        assert_eq!(stage.locks_given(), 1);
        stage.host.release().await.unwrap();
        assert_eq!(stage.down().await, down(Kind::Reboot, Why::Released));
    }
}

/// A scheduled shutdown comes a second time after a restart: a new deadline, not a cancel.
#[tokio::test]
async fn a_scheduled_shutdown_fires_again_after_a_restart() {
    for v in ALL {
        let mut stage = Stage::new(version(v)).await;
        stage.logind.schedule(Kind::Reboot, ms(100)).await.unwrap();
        assert!(stage.shutdown().await.held);
        stage.logind.restart(ms(50)).await.unwrap();
        assert!(stage.shutdown().await.held, "systemd {v}");
        assert_eq!(stage.until_limit(505).await, []);
        stage.host.release().await.unwrap();
        assert_eq!(stage.down().await, down(Kind::Reboot, Why::Released));
    }
}

/// T29 (b): released, then the job fails; the lock is there again within a second.
#[tokio::test]
async fn a_failed_job_gives_the_lock_back() {
    for v in ALL {
        let mut stage = Stage::new(version(v)).await;
        stage.logind.fail_next_job();
        stage.logind.poweroff(Kind::Poweroff).await.unwrap();
        assert!(stage.shutdown().await.held);
        assert!(!stage.host.release().await.unwrap().held);
        stage.vanished().await;
        let again = |what: &Happened| matches!(what, Happened::JobFailed);
        let failed = stage.logind.wait_for(BOUND, again).await.unwrap().at;
        stage.hold(|view| view.held).await;
        let events = stage.logind.events();
        let retaken = events
            .iter()
            .rfind(|e| matches!(e.what, Happened::Locked { .. }))
            .unwrap();
        assert!(retaken.at.since(failed) < Duration::from_secs(1));
        assert_eq!(
            stage.until_limit(506).await,
            [],
            "told once, two signals or not"
        );
        stage.logind.poweroff(Kind::Poweroff).await.unwrap();
        assert!(stage.shutdown().await.held);
    }
}

#[tokio::test]
async fn a_job_that_is_taken_away_ends_the_hold_s_reason() {
    for v in ALL {
        let mut stage = Stage::new(version(v)).await;
        stage.logind.poweroff(Kind::Poweroff).await.unwrap();
        stage.shutdown().await;
        stage.logind.unprepare().await;
        stage.vanished().await;
        assert_eq!(stage.until_limit(507).await, []);
        assert_eq!(stage.locks_given(), 1, "it was never given up");
    }
}

/// T53 and T29: `shutdown -c` works from 257 on, and never says so by a signal of its own.
#[tokio::test]
async fn a_cancel_is_believed_only_where_it_cancels() {
    for v in [257, 262] {
        let mut stage = Stage::new(version(v)).await;
        stage.logind.poweroff(Kind::Poweroff).await.unwrap();
        stage.shutdown().await;
        assert!(stage.logind.cancel().await);
        let why = stage.vanished().await;
        assert!(why.contains("called off"), "{why}");
        assert_eq!(stage.logind.state().holders, [hold::WHO]);
        stage.logind.poweroff(Kind::Reboot).await.unwrap();
        assert!(stage.shutdown().await.held);
        stage.host.release().await.unwrap();
        assert_eq!(stage.down().await, down(Kind::Reboot, Why::Released));
    }
    let mut stage = Stage::new(version(252)).await;
    stage.logind.poweroff(Kind::Poweroff).await.unwrap();
    stage.shutdown().await;
    assert!(stage.logind.cancel().await, "it says so");
    assert_eq!(stage.until_limit(508).await, [], "and does not mean it");
    stage.host.release().await.unwrap();
    assert_eq!(stage.down().await, down(Kind::Poweroff, Why::Released));
}

/// T57: a block lock of somebody else is respected on every version, also where logind would not.
#[tokio::test]
async fn a_block_lock_is_named_and_respected() {
    for v in ALL {
        let mut stage = Stage::new(version(v)).await;
        let other = stage
            .logind
            .foreign("shutdown:sleep", "fwupd", "block", 0)
            .unwrap();
        let LogindAnswer::Blocked(said) = stage.host.ask_logind(Then::Reboot).await else {
            panic!("not blocked on {v}")
        };
        assert!(
            said.contains("fwupd") && said.contains("vmdrain-agent reboot"),
            "{said}"
        );
        assert_eq!(stage.until_limit(509).await, []);
        drop(other);
        let freed = Happened::Unlocked {
            who: "fwupd".into(),
        };
        stage
            .logind
            .wait_for(BOUND, |what| *what == freed)
            .await
            .unwrap();
        assert_eq!(
            stage.host.ask_logind(Then::Reboot).await,
            LogindAnswer::Accepted
        );
        assert!(stage.shutdown().await.held);
        let second = stage.host.ask_logind(Then::Poweroff).await;
        assert_eq!(
            second,
            LogindAnswer::Accepted,
            "going down already is as good"
        );
    }
}

#[tokio::test]
async fn every_kind_is_asked_for_by_its_flags() {
    let kinds = [
        (Then::Poweroff, Kind::Poweroff),
        (Then::Reboot, Kind::Reboot),
        (Then::Halt, Kind::Halt),
        (Then::Kexec, Kind::Kexec),
        (Then::SoftReboot, Kind::SoftReboot),
    ];
    for (then, kind) in kinds {
        let mut stage = Stage::new(version(257)).await;
        assert_eq!(stage.host.ask_logind(then).await, LogindAnswer::Accepted);
        assert_eq!(stage.shutdown().await.kind, Some(then));
        stage.host.release().await.unwrap();
        assert_eq!(stage.down().await, down(kind, Why::Released));
    }
    let stage = Stage::new(version(252)).await;
    let old = stage.host.ask_logind(Then::SoftReboot).await;
    assert!(
        matches!(&old, LogindAnswer::Failed(said) if said.contains("soft-reboot")),
        "{old:?}"
    );
}

#[tokio::test]
async fn the_lock_outlives_the_bus() {
    // 252 comes back with the bus, later ones only when they are restarted.
    for v in ALL {
        let mut stage = Stage::new(version(v)).await;
        stage.bus.restart().await.unwrap();
        if v > 252 {
            let view = stage
                .hold(|view| view.trouble.contains("restart systemd-logind"))
                .await;
            assert!(!view.held);
            stage.logind.restart(ms(20)).await.unwrap();
        }
        stage
            .hold(|view| view.held && view.trouble.is_empty())
            .await;
        assert_eq!(stage.locks_given(), 1, "systemd {v}");
        stage.logind.poweroff(Kind::Poweroff).await.unwrap();
        assert!(stage.shutdown().await.held);
        stage.host.release().await.unwrap();
        assert_eq!(stage.down().await, down(Kind::Poweroff, Why::Released));
    }
}

#[tokio::test]
async fn a_bus_that_dies_in_mid_hold_loses_the_shutdown_and_says_so() {
    let mut stage = Stage::new(version(252)).await;
    stage.logind.poweroff(Kind::Poweroff).await.unwrap();
    stage.shutdown().await;
    stage.bus.restart().await.unwrap();
    stage.vanished().await;
    assert_eq!(stage.until_limit(510).await, []);
}

#[tokio::test]
async fn without_a_bus_it_starts_and_takes_the_lock_when_it_can() {
    let mut bus = Bus::start().await.unwrap();
    let logind = Logind::start(&bus.address(), version(252)).await.unwrap();
    bus.kill();
    let mut stage = Stage::on(bus, logind).await;
    assert!(!stage.view.held);
    assert!(
        stage.view.trouble.contains("cannot reach the bus"),
        "{:?}",
        stage.view
    );
    assert!(stage.host.take_hold().await.is_err());
    stage.bus.restart().await.unwrap();
    stage.hold(|view| view.held).await;
}

/// What a service manager hands back after a crash of ours is used, and no second lock is taken.
#[tokio::test]
async fn a_lock_that_was_handed_back_is_adopted() {
    let bus = Bus::start().await.unwrap();
    let logind = Logind::start(&bus.address(), version(257)).await.unwrap();
    let before = login1::connect(Some(&bus.address()), BOUND).await.unwrap();
    let manager = login1::manager(&before).await.unwrap();
    let kept = manager
        .inhibit("shutdown", hold::WHO, hold::WHY, "delay")
        .await
        .unwrap();
    logind.poweroff(Kind::Reboot).await.unwrap();

    let host = adapter(&bus, &logind);
    let other = std::fs::File::open("/dev/null").unwrap();
    let said = host.adopt(other.into()).unwrap_err();
    assert!(said.contains("no lock in"), "{said}");
    host.adopt(kept.into()).unwrap();
    let (sender, events) = mpsc::channel(64);
    let view = host.start(sender).await.unwrap();
    assert!(view.held, "{view:?}");
    let mut stage = Stage {
        bus,
        logind,
        host,
        events,
        view,
    };
    let told = stage.shutdown().await;
    assert_eq!((told.held, told.kind), (true, Some(Then::Reboot)));
    assert_eq!(stage.locks_given(), 1);
    stage.host.release().await.unwrap();
    assert_eq!(stage.down().await, down(Kind::Reboot, Why::Released));
}

/// Somebody else who keeps a copy of our lock is told about, not waited for in silence.
#[tokio::test]
async fn a_copy_in_other_hands_is_reported() {
    let stage = Stage::new(version(257)).await;
    let _copy = stage
        .logind
        .foreign("shutdown", hold::WHO, "delay", nix_uid())
        .unwrap();
    let said = stage.host.release().await.unwrap_err();
    assert!(said.contains("another process holds a copy"), "{said}");
}

fn nix_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid()
}

/// The stand-in itself: a killed holder is noticed, and the last of several locks counts.
#[tokio::test]
async fn the_stand_in_notices_a_killed_holder() {
    let bus = Bus::start().await.unwrap();
    let logind = Logind::start(&bus.address(), version(257)).await.unwrap();
    let fd = logind
        .foreign("shutdown", "victim", "delay", 0)
        .unwrap()
        .into_fd();
    let longer = logind.foreign("shutdown", "longer", "delay", 0).unwrap();
    let mut victim = std::process::Command::new("sleep")
        .arg("60")
        .stdin(std::process::Stdio::from(fd))
        .spawn()
        .unwrap();
    logind.poweroff(Kind::Poweroff).await.unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    let gone = Happened::Unlocked {
        who: "victim".into(),
    };
    logind.wait_for(BOUND, |what| *what == gone).await.unwrap();
    assert!(!logind.state().down, "another lock is left");
    drop(longer);
    let event = logind.wait_down(BOUND).await.unwrap();
    assert_eq!(event.what, down(Kind::Poweroff, Why::Released));
}
