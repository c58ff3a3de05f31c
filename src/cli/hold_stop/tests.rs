//! The stop job against played daemons: joined, dead, hung, refusing, too slow.

use super::*;
use crate::cli::tests::{Paper, Played, drain as at, vm};
use crate::drain::status::VmPhase;

/// The drain of our own process, played.
struct OwnPlayed(Played);

impl Own for OwnPlayed {
    type Daemon = Played;
    fn daemon(&self) -> &Played {
        &self.0
    }
    async fn end(self) {}
}

fn playing(feed: Vec<Result<Status, CallError>>) -> Played {
    Played {
        feed,
        ..Played::default()
    }
}

fn gone() -> CallError {
    CallError::Unreachable("no vmdrain-agent is on the bus".into())
}

fn empties() -> Vec<Result<Status, CallError>> {
    let moved = vm("a", VmPhase::Migrated, "");
    vec![
        Ok(at(
            "evacuating",
            1.0,
            None,
            vec![vm("a", VmPhase::Migrating, "")],
        )),
        Ok(at("drained", 9.0, Some(Exit::Done), vec![moved])),
    ]
}

/// Plays a stop job of `budget` seconds; its exit, what it wrote, and how often a drain of its own was begun.
async fn play(
    budget: u64,
    daemon: Result<&Played, CallError>,
    own: Result<&Played, String>,
) -> (Exit, String, usize) {
    let paper = Paper::default();
    let mut screen = paper.screen();
    let mut out = Out::new(&mut screen);
    let job = Job::new(Some(Then::Poweroff), Duration::from_secs(budget));
    let begun = std::cell::Cell::new(0);
    let begin = || {
        begun.set(begun.get() + 1);
        let own = own.map(|own| OwnPlayed(own.clone()));
        async { own }
    };
    let exit = super::drain(&job, daemon.cloned(), begin, &mut out).await;
    (exit, paper.text(), begun.get())
}

#[tokio::test(start_paused = true)]
async fn the_daemon_is_asked_and_followed_to_its_end() {
    let daemon = playing(empties());
    let unused = Err("not wanted".to_owned());
    let (exit, text, own) = play(1680, Ok(&daemon), unused).await;
    assert_eq!((exit, own), (Exit::Done, 0), "{text}");
    assert_eq!(
        daemon.asked(),
        ["trigger the host is going down (poweroff, stop job)"]
    );
    assert!(text.contains("default/a: migrating"), "{text}");
    assert!(
        text.ends_with("no VM is left on this host, it may go down\n"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_empty_already_ends_it_at_once() {
    let daemon = playing(vec![Ok(at("drained", 9.0, Some(Exit::Done), vec![]))]);
    let before = timer();
    let (exit, _, _) = play(1680, Ok(&daemon), Err("not wanted".into())).await;
    assert_eq!((exit, timer() - before), (Exit::Done, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_named() {
    let left = vm("b", VmPhase::Left, "no node has room");
    let daemon = playing(vec![Ok(at("deadline", 9.0, Some(Exit::Left), vec![left]))]);
    let (exit, text, _) = play(1680, Ok(&daemon), Err("not wanted".into())).await;
    assert_eq!(exit, Exit::Left);
    assert!(
        text.contains("default/b: left (no node has room)"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_daemon_a_dying_one_and_one_that_refuses_are_replaced() {
    let own = playing(empties());
    let dies = playing(
        [Ok(at("evacuating", 1.0, None, vec![]))]
            .into_iter()
            .chain((0..9).map(|_| Err(gone())))
            .collect(),
    );
    let refuses = Played {
        refuses: Some(CallError::Failed(
            "Trigger knows no option 'stop_job'".into(),
        )),
        ..Played::default()
    };
    let forgets = playing(vec![Ok(Status::default()); 9]);
    for (daemon, why) in [
        (Err(gone()), "no vmdrain-agent"),
        (Ok(&dies), "no vmdrain-agent"),
        (Ok(&refuses), "stop_job"),
        (Ok(&forgets), "no longer speaks"),
    ] {
        let (exit, text, begun) = play(1680, daemon, Ok(&own)).await;
        assert_eq!((exit, begun), (Exit::Done, 1), "{text}");
        assert!(
            text.contains(why) && text.contains("drains by itself"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_hangs_is_left_within_half_a_minute() {
    let silent = playing(vec![]);
    // Its last status, told again and again.
    let stands = playing(vec![Ok(at("evacuating", 5.0, None, vec![])); 40]);
    let own = playing(empties());
    for daemon in [&silent, &stands] {
        let before = timer();
        let slow = Slow(daemon.clone());
        let paper = Paper::default();
        let mut screen = paper.screen();
        let job = Job::new(None, Duration::from_secs(1680));
        let begin = || async { Ok(OwnPlayed(own.clone())) };
        let exit = super::drain(&job, Ok(slow), begin, &mut Out::new(&mut screen)).await;
        assert_eq!(exit, Exit::Done, "{}", paper.text());
        assert!(
            timer() - before < Duration::from_secs(30),
            "{:?}",
            timer() - before
        );
        assert!(
            paper.text().contains("drains by itself"),
            "{}",
            paper.text()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn it_always_ends_in_time() {
    let endless = Slow(playing(
        (0..5000)
            .map(|n| Ok(at("evacuating", f64::from(n), None, vec![])))
            .collect(),
    ));
    let paper = Paper::default();
    let mut screen = paper.screen();
    let before = timer();
    let job = Job::new(None, stopping::budget(&stopping::Seen::default(), true));
    let begin = || async { Err::<OwnPlayed, _>("not wanted".to_owned()) };
    let exit = super::drain(&job, Ok(endless), begin, &mut Out::new(&mut screen)).await;
    assert_eq!(exit, Exit::Left);
    assert!(
        timer() - before < Duration::from_secs(29 * 60),
        "{:?}",
        timer() - before
    );
    assert!(paper.text().contains("stop job is over"));
    let beats = paper.text().matches("evacuating:").count();
    assert!(
        (25..40).contains(&beats),
        "{beats} lines of a drain without news"
    );
}

#[tokio::test(start_paused = true)]
async fn without_any_way_it_says_so() {
    let (exit, text, _) = play(60, Err(gone()), Err("no kubeconfig".into())).await;
    assert_eq!(exit, Exit::NoCluster);
    assert!(text.contains("no VM can be moved: no kubeconfig"), "{text}");
}

/// A daemon that tells its status once a second, as the real one does at least.
#[derive(Clone)]
struct Slow(Played);

struct SlowFeed(<Played as Daemon>::Feed);

impl Daemon for Slow {
    type Feed = SlowFeed;
    async fn trigger(&self, trigger: &Trigger) -> Result<String, CallError> {
        self.0.trigger(trigger).await
    }
    async fn cancel(&self, abort_migrations: bool) -> Result<String, CallError> {
        self.0.cancel(abort_migrations).await
    }
    async fn extend(&self, by: Duration) -> Result<String, CallError> {
        self.0.extend(by).await
    }
    async fn release(&self, ending: crate::drain::trigger::Ending) -> Result<String, CallError> {
        self.0.release(ending).await
    }
    async fn restore(&self) -> Result<String, CallError> {
        self.0.restore().await
    }
    async fn status(&self) -> Result<Arc<Status>, CallError> {
        self.0.status().await
    }
    async fn follow(&self) -> Result<SlowFeed, CallError> {
        Ok(SlowFeed(self.0.follow().await?))
    }
}

impl Feed for SlowFeed {
    async fn next(&mut self) -> Result<Arc<Status>, CallError> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.0.next().await
    }
}
