//! Waiting: what a log sees, how each ending is told, Ctrl-C once and twice, a daemon that goes away.

use super::*;
use crate::cli::commands::after_the_one_before;
use crate::cli::tests::{Paper, Played, drain, vm};
use crate::drain::status::VmPhase;

fn waiting(ours: bool) -> Waiting {
    Waiting {
        id: "d1".into(),
        ours,
    }
}

async fn follow(
    feed: Vec<Result<Status, CallError>>,
    presses: impl Stream<Item = ()>,
    ours: bool,
) -> (Result<Exit, Failure>, String, Vec<String>) {
    let daemon = Played {
        feed,
        ..Played::default()
    };
    let paper = Paper::default();
    let ended = wait_for(&daemon, &waiting(ours), presses, &mut paper.screen()).await;
    (ended, paper.text(), daemon.asked())
}

fn never() -> impl Stream<Item = ()> {
    stream::pending()
}

/// Ctrl-C at these moments.
fn presses(at: &'static [u64]) -> impl Stream<Item = ()> {
    let begin = Duration::ZERO;
    stream::unfold((0, begin), move |(n, before)| async move {
        let Some(next) = at.get(n) else {
            return std::future::pending().await;
        };
        let next = Duration::from_millis(*next);
        tokio::time::sleep(next.saturating_sub(before)).await;
        Some(((), (n + 1, next)))
    })
}

#[tokio::test(start_paused = true)]
async fn a_log_gets_one_line_per_change() {
    let mut moved = vm("a", VmPhase::Migrated, "");
    moved.target = Some("n2".into());
    moved.took = Some(65.0);
    let feed = vec![
        Ok(drain(
            "evacuating",
            1.0,
            None,
            vec![vm("a", VmPhase::Queued, "2 slots are taken")],
        )),
        Ok(drain(
            "evacuating",
            2.0,
            None,
            vec![vm("a", VmPhase::Queued, "1 slots are taken")],
        )),
        Ok(drain(
            "evacuating",
            3.0,
            None,
            vec![vm("a", VmPhase::Migrating, "")],
        )),
        Ok(drain("drained", 68.0, Some(Exit::Done), vec![moved])),
    ];
    let (ended, text, _) = follow(feed, never(), false).await;
    assert_eq!(ended, Ok(Exit::Done));
    assert_eq!(
        text,
        "\
[    1s] evacuating: 1 VM(s) still here
[    1s] default/a: queued (2 slots are taken)
[    3s] default/a: migrating
[ 1m08s] drained: 0 VM(s) still here
[ 1m08s] default/a: migrated to n2 after 1m05s
"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_names_every_vm_that_is_left_with_its_reason() {
    let vms = vec![
        vm("a", VmPhase::Migrated, ""),
        vm(
            "b",
            VmPhase::Left,
            "the budget default/pdb allows no disruption",
        ),
        vm("c", VmPhase::Migrating, "copying"),
    ];
    let feed = vec![Ok(drain("deadline", 9.0, Some(Exit::Left), vms))];
    let (ended, _, _) = follow(feed, never(), false).await;
    let failure = ended.expect_err("left");
    assert_eq!(failure.exit, Exit::Left);
    let told = failure.to_string();
    assert!(
        told.contains("default/b: left (the budget default/pdb allows no disruption)"),
        "{told}"
    );
    assert!(told.contains("default/c: migrating (copying)"), "{told}");
    assert!(!told.contains("default/a"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn every_exit_of_a_drain_is_the_exit_of_the_program() {
    for exit in Exit::ALL {
        let feed = vec![Ok(drain("x", 1.0, Some(exit), vec![]))];
        let ended = match follow(feed, never(), false).await.0 {
            Ok(exit) => exit,
            Err(failure) => failure.exit,
        };
        assert_eq!(ended, exit);
    }
}

#[tokio::test(start_paused = true)]
async fn one_ctrl_c_leaves_the_drain_alone() {
    let feed = vec![Ok(drain("evacuating", 1.0, None, vec![]))];
    let (ended, text, asked) = follow(feed, presses(&[100]), false).await;
    assert_eq!(ended, Ok(Exit::Detached));
    assert!(
        text.contains("no longer watching; the drain goes on"),
        "{text}"
    );
    assert!(asked.is_empty(), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_second_ctrl_c_in_time_cancels_and_waits_for_the_end() {
    struct Slow;
    impl Feed for Slow {
        async fn next(&mut self) -> Result<Arc<Status>, CallError> {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(Arc::new(drain(
                "cancelled",
                10.0,
                Some(Exit::Cancelled),
                vec![],
            )))
        }
    }
    struct Slowly(Played);
    impl Daemon for Slowly {
        type Feed = Slow;
        async fn trigger(
            &self,
            trigger: &crate::drain::trigger::Trigger,
        ) -> Result<String, CallError> {
            self.0.trigger(trigger).await
        }
        async fn cancel(&self, abort: bool) -> Result<String, CallError> {
            self.0.cancel(abort).await
        }
        async fn extend(&self, by: Duration) -> Result<String, CallError> {
            self.0.extend(by).await
        }
        async fn release(
            &self,
            ending: crate::drain::trigger::Ending,
        ) -> Result<String, CallError> {
            self.0.release(ending).await
        }
        async fn restore(&self) -> Result<String, CallError> {
            self.0.restore().await
        }
        async fn status(&self) -> Result<Arc<Status>, CallError> {
            self.0.status().await
        }
        async fn follow(&self) -> Result<Slow, CallError> {
            Ok(Slow)
        }
    }
    let daemon = Slowly(Played::default());
    let paper = Paper::default();
    let twice = presses(&[100, 3000]);
    let ended = wait_for(&daemon, &waiting(false), twice, &mut paper.screen()).await;
    assert_eq!(ended, Ok(Exit::Cancelled));
    assert_eq!(daemon.0.asked(), ["cancel false"]);
    assert!(
        paper.text().contains("cancelling the drain"),
        "{}",
        paper.text()
    );
}

#[tokio::test(start_paused = true)]
async fn too_late_a_second_ctrl_c_comes_after_the_end() {
    let feed = vec![Ok(drain("evacuating", 1.0, None, vec![]))];
    let (ended, _, asked) = follow(feed, presses(&[100, 3200]), false).await;
    assert_eq!(ended, Ok(Exit::Detached));
    assert!(asked.is_empty(), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_this_process_is_not_left_by_ctrl_c() {
    let feed = vec![Ok(drain("evacuating", 1.0, None, vec![]))];
    let daemon = Played {
        feed,
        ..Played::default()
    };
    let paper = Paper::default();
    let mut screen = paper.screen();
    let (waiting, thrice) = (waiting(true), presses(&[100, 9000, 9100]));
    let wait = wait_for(&daemon, &waiting, thrice, &mut screen);
    let ended = tokio::time::timeout(Duration::from_secs(60), wait).await;
    assert!(ended.is_err(), "{ended:?}");
    assert!(
        paper.text().contains("part of this program"),
        "{}",
        paper.text()
    );
    assert_eq!(daemon.asked(), ["cancel false"]);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_comes_back_is_followed_on() {
    let gone = || Err(CallError::Unreachable("no owner".into()));
    let mut feed = vec![Ok(drain("evacuating", 1.0, None, vec![]))];
    feed.extend((0..PATIENCE).map(|_| gone()));
    feed.push(Ok(drain("drained", 40.0, Some(Exit::Done), vec![])));
    let (ended, text, _) = follow(feed, never(), false).await;
    assert_eq!(ended, Ok(Exit::Done));
    assert_eq!(text.matches("does not answer").count(), 1, "{text}");

    let forever = (0..=PATIENCE).map(|_| gone()).collect();
    let (ended, _, _) = follow(forever, never(), false).await;
    assert_eq!(ended.expect_err("lost").exit, Exit::NoDaemon);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_forgot_the_drain_is_not_waited_for() {
    let feed = (0..=STRANGE).map(|_| Ok(Status::default())).collect();
    let (ended, _, _) = follow(feed, never(), false).await;
    let failure = ended.expect_err("forgotten");
    assert_eq!(failure.exit, Exit::Failed);
    assert!(failure.what.contains("d1"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn following_json_gives_one_line_per_change_until_ctrl_c() {
    let feed = vec![
        Ok(drain(
            "evacuating",
            1.0,
            None,
            vec![vm("a", VmPhase::Queued, "in 5 s")],
        )),
        Ok(drain(
            "evacuating",
            2.0,
            None,
            vec![vm("a", VmPhase::Queued, "in 4 s")],
        )),
        Ok(drain(
            "drained",
            3.0,
            Some(Exit::Done),
            vec![vm("a", VmPhase::Migrated, "")],
        )),
    ];
    let daemon = Played {
        feed,
        ..Played::default()
    };
    let paper = Paper::default();
    let ended = status(&daemon, Format::Json, presses(&[100]), &mut paper.screen()).await;
    assert_eq!(ended, Ok(Exit::Done));
    let text = paper.text();
    let states: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Status>(line).expect("JSON").state)
        .collect();
    assert_eq!(states, ["evacuating", "drained"]);
}

#[tokio::test(start_paused = true)]
async fn past_its_deadline_a_drain_is_waited_for_until_it_is_undone() {
    let stuck = || vec![vm("a", VmPhase::Left, "no node fits")];
    let feed = vec![
        Ok(drain("evacuating", 1.0, None, stuck())),
        Ok(drain("cancelling", 9.0, Some(Exit::Left), stuck())),
        Ok(drain("deadline", 11.0, Some(Exit::Left), stuck())),
    ];
    let (ended, text, _) = follow(feed, never(), true).await;
    let failure = ended.unwrap_err();
    assert_eq!(failure.exit, Exit::Left);
    assert!(failure.what.starts_with("deadline: "), "{}", failure.what);
    assert!(text.contains("[   11s]"), "{text}");
}

/// `trigger --standalone` over the record of a process that died; what happened then, and what was asked.
async fn over_a_record(feed: Vec<Status>) -> (Result<Exit, Failure>, String, Vec<String>) {
    let daemon = Played {
        feed: feed.into_iter().map(Ok).collect(),
        ..Played::default()
    };
    let paper = Paper::default();
    let never = || Ok(stream::pending::<()>());
    let trigger = crate::drain::trigger::Trigger::default();
    let screen = &mut paper.screen();
    let ended = after_the_one_before(&daemon, &trigger, never, screen).await;
    (ended, paper.text(), daemon.asked())
}

#[tokio::test(start_paused = true)]
async fn without_a_daemon_the_drain_of_before_is_ended_before_a_new_one_begins() {
    let done = || drain("drained", 5.0, Some(Exit::Done), vec![]);
    for before in [
        drain("evacuating", 1.0, None, vec![]),
        drain("cancelling", 1.0, Some(Exit::Left), vec![]),
    ] {
        let (ended, text, asked) = over_a_record(vec![before, done()]).await;
        assert_eq!(ended, Ok(Exit::Done));
        assert!(text.starts_with("drain d1 of an earlier run"), "{text}");
        assert_eq!(asked, ["status", "trigger "]);
    }
    let (ended, text, _) = over_a_record(vec![done()]).await;
    assert_eq!(ended, Ok(Exit::Done));
    assert!(text.starts_with("drain d1 has begun"), "{text}");
    let called_off = drain("cancelled", 2.0, Some(Exit::Cancelled), vec![]);
    let begun = drain("evacuating", 1.0, None, vec![]);
    let (ended, _, asked) = over_a_record(vec![begun, called_off]).await;
    assert_eq!((ended, asked.len()), (Ok(Exit::Cancelled), 1));
}
