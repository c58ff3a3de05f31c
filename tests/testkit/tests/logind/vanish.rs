//! Is a shutdown that goes away noticed, although hardly any signal tells?

use super::stage::{ALL, BOUND, Stage, down, ms, version};
use std::time::Duration;
use testkit::logind::{Happened, Kind, Why};
use vmdrain_agent::agent::ports::Host;
use vmdrain_agent::host::hold;

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
