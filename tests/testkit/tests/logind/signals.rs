//! Which signals start a drain?

use super::stage::{ALL, BOUND, MINUTES, Stage, ms, version};
use std::collections::HashMap;
use testkit::logind::{Bus, Kind, Logind, spoof};
use vmdrain_agent::agent::ports::Host;
use vmdrain_agent::drain::trigger::Then;
use vmdrain_agent::host::login1;
use zbus::Variant;

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
        for name in &connections {
            spoof(&address, Some(name), "PrepareForShutdown", &true)
                .await
                .unwrap();
            spoof(&address, Some(name), "PrepareForShutdown", &false)
                .await
                .unwrap();
        }
        assert_eq!(
            stage.until_limit(513).await,
            [],
            "no new deadline and no end by a stranger"
        );
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
                tells && left <= MINUTES && left + BOUND > MINUTES,
                "{left:?}"
            ),
            None => assert!(!tells),
        }
        let said = stage.host.take_hold().await.unwrap_err();
        assert!(said.contains("no new lock"), "{said}");
    }
}

/// Announced again while it is pending: one more shutdown with its own limit, not two and not none.
#[tokio::test]
async fn a_second_announcement_is_a_new_deadline() {
    for v in ALL {
        let mut stage = Stage::new(version(v)).await;
        stage.logind.poweroff(Kind::Reboot).await.unwrap();
        stage.shutdown().await;
        let logind = &stage.logind;
        if v >= 255 {
            let about = (true, HashMap::from([("type", Variant::new("reboot"))]));
            logind
                .emit_raw("PrepareForShutdownWithMetadata", &about)
                .await
                .unwrap();
        }
        logind.emit_raw("PrepareForShutdown", &true).await.unwrap();
        assert_eq!(stage.shutdown().await.limit, Some(MINUTES));
        assert_eq!(stage.until_limit(511).await, [], "systemd {v}");
    }
}

/// A bus that was away when the signal was sent: the shutdown is found by looking.
#[tokio::test]
async fn a_signal_that_was_missed_is_made_up_for() {
    let mut stage = Stage::with(version(257), |timing| timing.retry_first = ms(300)).await;
    stage.bus.restart().await.unwrap();
    stage.logind.restart(ms(0)).await.unwrap();
    stage.logind.poweroff(Kind::Poweroff).await.unwrap();
    let told = stage.shutdown().await;
    assert_eq!((told.held, told.kind), (true, Some(Then::Poweroff)));
    assert!(told.limit.is_some_and(|left| left <= MINUTES), "{told:?}");
    assert_eq!(stage.until_limit(512).await, []);
}
