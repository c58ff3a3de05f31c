//! Which user space of this boot runs? PID 1 is asked, whatever its version can say.

use super::stage::{BOUND, ms};
use std::time::Instant;
use testkit::logind::Bus;
use testkit::systemd1::{System, Systemd};
use vmdrain_agent::drain::boot::{Since, Start, Userspace};
use vmdrain_agent::host::{Identity, Timing, clock};

async fn asked(bus: &Bus) -> Identity {
    Identity::ask(Some(&bus.address()), &Timing::default()).await
}

fn since(then: Userspace, now: Userspace) -> Since {
    let start = |userspace| Start {
        boot: "one",
        userspace,
    };
    start(now).since(start(then))
}

#[tokio::test]
async fn every_version_tells_a_soft_reboot_as_it_can() {
    for (version, counts) in [
        (252, false),
        (254, false),
        (255, false),
        (256, true),
        (257, true),
        (262, true),
    ] {
        let bus = Bus::start().await.unwrap();
        let started = clock::monotonic().0 * 1000;
        let mut facts = System {
            version,
            soft_reboots: 2,
            userspace: started,
            ..System::running()
        };
        let systemd = Systemd::start(&bus.address(), facts.clone()).await.unwrap();
        let before = asked(&bus).await;
        let wanted = Userspace {
            soft_reboots: counts.then_some(2),
            started: Some(started),
        };
        assert_eq!(before.userspace, wanted, "systemd {version}");
        // Just now, on the clock that counts from the boot.
        let late = clock::now().since(before.up_since());
        assert!(late < BOUND, "systemd {version}: {late:?}");
        assert_eq!(
            since(before.userspace, asked(&bus).await.userspace),
            Since::Same
        );

        facts.soft_reboots += 1;
        facts.userspace += 1_000_000;
        systemd.set(facts);
        let after = asked(&bus).await;
        assert_eq!(
            since(before.userspace, after.userspace),
            Since::SoftRebooted,
            "systemd {version}"
        );
        assert_eq!(before.boot_id, after.boot_id);
    }
}

#[tokio::test]
async fn without_systemd_nothing_is_known_and_nobody_waits() {
    let bus = Bus::start().await.unwrap();
    #[allow(
        clippy::disallowed_methods,
        reason = "how long it really takes is the question"
    )]
    let begun = Instant::now();
    let identity = asked(&bus).await;
    assert!(identity.userspace.is_unknown());
    assert_eq!(identity.up_since().0, 0, "the boot itself");
    let gone = Identity::ask(Some("unix:path=/nowhere/at/all"), &Timing::default()).await;
    assert!(gone.userspace.is_unknown() && gone.boot_id == identity.boot_id);
    assert!(begun.elapsed() < ms(1500), "{:?}", begun.elapsed());
}
