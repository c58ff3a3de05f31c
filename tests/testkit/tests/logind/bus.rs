//! What happens when the bus itself goes away?

use super::stage::{ALL, Stage, down, ms, version};
use testkit::logind::{Bus, Kind, Logind, Why};
use vmdrain_agent::agent::ports::Host;

#[tokio::test]
async fn the_lock_outlives_the_bus() {
    // 252 comes back with the bus, later ones only when they are restarted.
    for v in ALL {
        let mut stage = Stage::new(version(v)).await;
        stage.bus.restart().await.unwrap();
        // The view of the start is an event too: what counts is what is said after the loss.
        stage.hold(|view| !view.held).await;
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
