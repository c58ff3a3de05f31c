//! Is logind asked in the right words, and are those who forbid it heard?

use super::stage::{ALL, BOUND, Stage, down, version};
use testkit::logind::{Happened, Kind, Why};
use vmdrain_agent::agent::ports::Host;
use vmdrain_agent::drain::action::LogindAnswer;
use vmdrain_agent::drain::trigger::Then;

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
