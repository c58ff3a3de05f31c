//! Is `shutdown +10` heard of when it is typed, on every version, and only once?

use super::stage::{ALL, BOUND, Stage, down, ms, version};
use std::time::Duration;
use testkit::logind::{Bus, Kind, Logind, Why};
use vmdrain_agent::agent::ports::{Host, HostEvent};
use vmdrain_agent::drain::trigger::Then;

const HOUR: Duration = Duration::from_secs(3600);

/// Nobody looks by the clock here: what is heard was told by logind or by its folder.
async fn stage(v: u32) -> Stage {
    let mut stage = Stage::with(version(v), |timing| timing.limit_poll = HOUR).await;
    assert_eq!(stage.scheduled().await, None, "the first look");
    stage
}

#[tokio::test]
async fn it_is_heard_when_it_is_typed_moved_and_called_off() {
    for v in ALL {
        let mut stage = stage(v).await;
        stage.logind.schedule(Kind::Reboot, HOUR).await.unwrap();
        let told = stage.scheduled().await.unwrap();
        assert_eq!(told.kind, Some(Then::Reboot), "systemd {v}");
        assert!(
            told.within <= HOUR && told.within + BOUND > HOUR,
            "{told:?}"
        );
        stage.logind.schedule(Kind::Halt, 2 * HOUR).await.unwrap();
        let told = stage.scheduled().await.unwrap();
        assert_eq!(told.kind, Some(Then::Halt));
        assert!(told.within > HOUR, "{told:?}");
        assert!(stage.logind.cancel().await);
        assert_eq!(stage.scheduled().await, None);
        assert!(!stage.logind.state().preparing);
    }
}

#[tokio::test]
async fn when_its_time_comes_the_signal_tells_and_nothing_else() {
    for v in ALL {
        let mut stage = stage(v).await;
        stage
            .logind
            .schedule(Kind::Poweroff, ms(500))
            .await
            .unwrap();
        assert!(stage.scheduled().await.is_some());
        loop {
            match stage.next().await {
                HostEvent::Shutdown(shutdown) => {
                    assert!(shutdown.held);
                    break;
                }
                HostEvent::Hold(_) => {}
                other @ (HostEvent::Scheduled(_) | HostEvent::ShutdownVanished { .. }) => {
                    panic!("systemd {v}: {other:?}")
                }
            }
        }
        stage.host.release().await.unwrap();
        assert_eq!(stage.down().await, down(Kind::Poweroff, Why::Released));
    }
}

/// An immediate shutdown takes the place of a scheduled one: that is no calling off.
#[tokio::test]
async fn an_immediate_one_takes_its_place() {
    for v in ALL {
        let mut stage = stage(v).await;
        stage.logind.schedule(Kind::Reboot, HOUR).await.unwrap();
        assert!(stage.scheduled().await.is_some());
        stage.logind.poweroff(Kind::Poweroff).await.unwrap();
        loop {
            match stage.next().await {
                HostEvent::Shutdown(_) => break,
                HostEvent::Scheduled(None) => panic!("systemd {v}: called off"),
                HostEvent::Scheduled(Some(_))
                | HostEvent::Hold(_)
                | HostEvent::ShutdownVanished { .. } => {}
            }
        }
        assert_eq!(stage.logind.state().scheduled, None);
    }
}

#[tokio::test]
async fn a_restart_of_logind_or_of_the_agent_finds_it_again() {
    for v in ALL {
        let bus = Bus::start().await.unwrap();
        let logind = Logind::start(&bus.address(), version(v)).await.unwrap();
        logind.schedule(Kind::Reboot, HOUR).await.unwrap();
        let mut stage = Stage::on(bus, logind).await;
        // It was told before the start was done.
        let first = stage.events.try_recv();
        let mut seen = vec![first.unwrap()];
        while let Ok(more) = stage.events.try_recv() {
            seen.push(more);
        }
        let told = |event: &HostEvent| matches!(event, HostEvent::Scheduled(Some(_)));
        assert_eq!(
            seen.iter().filter(|event| told(event)).count(),
            1,
            "{seen:?}"
        );
        stage.logind.restart(ms(50)).await.unwrap();
        assert_eq!(stage.until_limit(514).await, []);
        stage.logind.cancel().await;
        assert_eq!(stage.scheduled().await, None, "and nothing was told twice");
    }
}
