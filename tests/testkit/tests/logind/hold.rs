//! Does the lock hold the host, and for how long?

use super::stage::{ALL, BOUND, MINUTES, Stage, adapter, down, ms, version};
use std::time::Duration;
use testkit::logind::{Bus, Event, Happened, Kind, Logind, Options, Why};
use testkit::systemd1::{System, Systemd};
use tokio::sync::mpsc;
use vmdrain_agent::agent::ports::Host;
use vmdrain_agent::drain::action::UNIT_MODE;
use vmdrain_agent::drain::trigger::{Shutdown, Then};
use vmdrain_agent::host::{hold, login1};

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
    let again = |events: &[_]| events.iter().filter(|e: &&Event| e.what == gone).count() == 2;
    while !again(&stage.logind.events()) {
        stage.host.take_hold().await.unwrap();
    }
    assert_eq!(stage.until_limit(504).await, []);
    assert_eq!(stage.logind.state().holders, [hold::WHO]);
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
    assert!(said.contains("no lock of logind"), "{said}");
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

/// A logind that hangs: a release does not wait for it, and what is lost is said.
#[tokio::test]
async fn a_logind_that_hangs_stops_neither_the_release_nor_the_reports() {
    let mut stage = Stage::with(version(257), |timing| timing.probe = ms(100)).await;
    let hang = stage.logind.hang().await;
    let view = stage.hold(|view| !view.held).await;
    assert!(view.trouble.contains("no answer to"), "{view:?}");
    let view = stage.host.release().await.unwrap();
    assert!(view.trouble.contains("could not confirm"), "{view:?}");
    let freed = Happened::Unlocked {
        who: hold::WHO.into(),
    };
    stage
        .logind
        .wait_for(BOUND, |what| *what == freed)
        .await
        .unwrap();
    drop(hang);
    assert!(stage.host.take_hold().await.unwrap().held, "well again");
}

/// T64: the limit shrinks while nothing happens, and the file that did it is named.
#[tokio::test]
async fn a_limit_that_shrinks_is_noticed_with_its_file() {
    let root = tempfile::tempdir().unwrap();
    let drop_ins = root.path().join("etc/systemd/logind.conf.d");
    std::fs::create_dir_all(&drop_ins).unwrap();
    let write = |name: &str, value: &str| {
        let text = format!("[Login]\nInhibitDelayMaxSec={value}\n");
        std::fs::write(drop_ins.join(name), text).unwrap();
    };
    write("zz-vmdrain-agent.conf", "10min");
    let bus = Bus::start().await.unwrap();
    let logind = Logind::start(&bus.address(), version(252)).await.unwrap();
    let mut stage = Stage::rooted(bus, logind, root.path()).await;
    assert!(
        stage.view.limit_by.ends_with("zz-vmdrain-agent.conf"),
        "{:?}",
        stage.view
    );
    write("zzz-somebody.conf", "20s");
    stage.logind.set_limit(Duration::from_secs(20));
    let view = stage.hold(|view| !view.trouble.is_empty()).await;
    assert!(view.held, "the lock is kept all the same");
    assert!(view.limit_by.ends_with("zzz-somebody.conf"), "{view:?}");
    assert!(
        view.trouble.contains("is 20 s") && view.trouble.contains("zzz-somebody"),
        "{view:?}"
    );
    // Gone again, but logind has not been told.
    std::fs::remove_file(drop_ins.join("zzz-somebody.conf")).unwrap();
    let view = stage
        .hold(|view| view.trouble.contains("has not read"))
        .await;
    assert_eq!(view.limit_by, "", "{view:?}");
    stage.logind.set_limit(MINUTES);
    stage.hold(|view| view.trouble.is_empty()).await;
}

/// Scenario 22: everybody else who holds a shutdown is seen, coming and going.
#[tokio::test]
async fn other_holders_are_seen() {
    let mut stage = Stage::new(version(257)).await;
    let kubelet = stage
        .logind
        .foreign("shutdown", "kubelet", "delay", 0)
        .unwrap();
    let view = stage.hold(|view| !view.others.is_empty()).await;
    assert_eq!(
        (view.others[0].who.as_str(), view.others.len()),
        ("kubelet", 1)
    );
    stage.logind.poweroff(Kind::Poweroff).await.unwrap();
    assert!(stage.shutdown().await.held);
    // It lets go early: we still hold.
    drop(kubelet);
    let gone = Happened::Unlocked {
        who: "kubelet".into(),
    };
    stage
        .logind
        .wait_for(BOUND, |what| *what == gone)
        .await
        .unwrap();
    assert!(!stage.logind.state().down);
    stage.host.release().await.unwrap();
    assert_eq!(stage.down().await, down(Kind::Poweroff, Why::Released));
}

/// A unit that stops guests holds no lock: PID 1 is asked about it, and nothing depends on its answer.
#[tokio::test]
async fn a_unit_that_stops_guests_is_seen() {
    let mut stage = Stage::new(version(257)).await;
    assert!(
        stage.view.held && stage.view.others.is_empty(),
        "without a PID 1 on the bus: {:?}",
        stage.view
    );
    let with = |libvirt_guests| System {
        libvirt_guests,
        ..System::running()
    };
    let pid1 = Systemd::start(&stage.bus.address(), with(Some("active")))
        .await
        .unwrap();
    let view = stage.hold(|view| !view.others.is_empty()).await;
    let found = &view.others[0];
    assert_eq!(
        (found.who.as_str(), found.mode.as_str(), view.others.len()),
        ("libvirt-guests.service", UNIT_MODE, 1)
    );
    for quiet in [Some("inactive"), None] {
        pid1.set(with(quiet));
        stage.hold(|view| view.others.is_empty()).await;
        pid1.set(with(Some("active")));
        stage.hold(|view| !view.others.is_empty()).await;
    }
}
