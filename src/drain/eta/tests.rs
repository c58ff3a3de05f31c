//! The schedule, what is learned, and how it is said.

use super::*;

const GIB: u64 = 1 << 30;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn job(gib: u64, stage: Stage) -> Job {
    Job {
        memory: Some(gib * GIB),
        stage,
        stop: None,
    }
}

fn knobs() -> Knobs {
    Knobs {
        rate: GIB,
        setup: s(5),
        tail: s(2),
        guest_shutdown: s(10),
        slots: 2,
        ends_in: None,
    }
}

fn close(is: Duration, expected: u64) {
    let off = (is.as_secs_f64() - s(expected).as_secs_f64()).abs();
    assert!(off < 0.5, "{is:?} is not {expected} s");
}

#[test]
fn the_longest_go_first_over_the_slots() {
    let jobs = [5, 45, 15, 15].map(|gib| job(gib, Stage::Queued));
    let seen = forecast(&jobs, &knobs(), &[]);
    // b alone: 50 s; c, d and a one after the other: 20 + 20 + 10 s. Then the tail.
    close(seen.vms[1].unwrap().likely, 52);
    close(seen.vms[2].unwrap().likely, 22);
    close(seen.vms[3].unwrap().likely, 42);
    close(seen.vms[0].unwrap().likely, 52);
    close(seen.whole.likely, 52);
    assert!(
        seen.whole.low < s(30) && seen.whole.high > s(100),
        "nothing seen yet"
    );
}

#[test]
fn what_runs_has_its_slot_and_what_ends_needs_none() {
    let jobs = [
        job(15, Stage::Moving(s(10))),
        job(15, Stage::Moving(s(2))),
        job(15, Stage::Queued),
        job(1, Stage::Leaving(s(1))),
        job(
            1,
            Stage::Ending {
                for_long: s(4),
                grace: s(60),
            },
        ),
        job(1, Stage::Unknown),
    ];
    let seen = forecast(&jobs, &knobs(), &[]);
    close(seen.vms[0].unwrap().likely, 12);
    close(seen.vms[2].unwrap().likely, 32);
    close(seen.vms[3].unwrap().likely, 1);
    close(seen.vms[4].unwrap().likely, 6);
    close(seen.vms[4].unwrap().high, 56);
    assert_eq!((seen.unknown, seen.vms[5]), (1, None));
}

#[test]
fn one_slot_more_or_fewer_changes_the_end() {
    let jobs = [job(15, Stage::Queued); 6];
    for (slots, end) in [(1, 122), (2, 62), (3, 42), (6, 22), (60, 22)] {
        let knobs = Knobs { slots, ..knobs() };
        close(forecast(&jobs, &knobs, &[]).whole.likely, end);
    }
    // Three run although the limit is now one.
    let jobs: Vec<Job> = [5, 10, 15]
        .into_iter()
        .map(|gib| job(gib, Stage::Moving(s(0))))
        .chain([job(15, Stage::Queued)])
        .collect();
    let one = Knobs {
        slots: 1,
        ..knobs()
    };
    close(forecast(&jobs, &one, &[]).vms[3].unwrap().likely, 42);
}

#[test]
fn a_slow_network_is_learned() {
    // Half the rate, and 8 s instead of 5.
    let real = |gib: u64| Seen {
        memory: gib * GIB,
        took: s(8 + 2 * gib),
        tail: Some(s(4)),
    };
    let jobs = [job(64, Stage::Queued)];
    let off = |seen: &[Seen]| {
        let end = forecast(&jobs, &knobs(), seen).whole;
        let truth = s(8 + 128 + 4);
        (end.likely.as_secs_f64() / truth.as_secs_f64() - 1.0).abs()
    };
    assert!(off(&[]) > 0.4);
    assert!(off(&[real(16)]) < 0.2, "{}", off(&[real(16)]));
    assert!(off(&[real(16), real(8), real(4)]) < 0.1);
    let spans = |seen: &[Seen]| {
        let whole = forecast(&jobs, &knobs(), seen).whole;
        whole.high.as_secs_f64() / whole.low.as_secs_f64()
    };
    assert!(spans(&[]) > spans(&[real(16)]));
    assert!(spans(&[real(16)]) > spans(&[real(16), real(8), real(4), real(2)]));
}

#[test]
fn a_migration_that_is_late_is_not_over_in_a_moment() {
    let late = |so_far| {
        let jobs = [job(15, Stage::Moving(s(so_far)))];
        forecast(&jobs, &knobs(), &[]).whole.likely
    };
    close(late(0), 22);
    assert!(late(40) > s(6), "{:?}", late(40));
    assert!(late(200) > s(15), "{:?}", late(200));
    // And the next ones are expected to be as slow.
    let jobs = [job(15, Stage::Moving(s(100))), job(15, Stage::Queued)];
    let one = Knobs {
        slots: 1,
        ..knobs()
    };
    assert!(forecast(&jobs, &one, &[]).vms[1].unwrap().likely > s(90));
}

#[test]
fn nothing_is_said_more_precisely_than_it_is_known() {
    let span = |low, likely, high| {
        words(Span {
            low: s(low),
            likely: s(likely),
            high: s(high),
        })
    };
    assert_eq!(span(11, 22, 44), "about 20s (10s to 45s)");
    assert_eq!(span(131, 262, 524), "about 4m 30s (2m to 8m 30s)");
    assert_eq!(span(1000, 2000, 4000), "about 33m (17m to 1h 5m)");
    assert_eq!(span(20, 21, 22), "about 20s");
    assert_eq!(span(0, 0, 0), "a few seconds");
    assert_eq!(span(0, 1, 60), "about 5s (0s to 1m)");
}

#[test]
fn need_against_time() {
    let need = Span {
        low: s(50),
        likely: s(100),
        high: s(200),
    };
    assert_eq!(fits(need, s(30), s(230)), Fits::Yes);
    assert_eq!(fits(need, s(30), s(229)), Fits::Tight);
    assert_eq!(fits(need, s(30), s(130)), Fits::Tight);
    assert_eq!(fits(need, s(30), s(129)), Fits::No);
    assert_eq!(xapi(GIB), s(240));
    assert_eq!(xapi(64 * GIB).as_secs() / 60, 9);
}

#[test]
fn nothing_to_do_takes_no_time() {
    assert_eq!(forecast(&[], &knobs(), &[]), Forecast::default());
}

#[test]
fn what_does_not_move_is_stopped_in_the_end() {
    let stop = Some(Stop {
        begins: s(100),
        grace: s(60),
    });
    let stuck = Job {
        stop,
        ..job(5, Stage::Stays)
    };
    let quick = Job {
        stop,
        ..job(5, Stage::Queued)
    };
    let huge = Job {
        stop,
        ..job(500, Stage::Queued)
    };
    let seen = forecast(&[stuck, quick, huge], &knobs(), &[]);
    close(seen.vms[0].unwrap().likely, 110);
    close(seen.vms[0].unwrap().high, 160);
    close(seen.vms[1].unwrap().likely, 12);
    close(seen.vms[2].unwrap().likely, 110);
    assert_eq!(seen.unknown, 0);
}

#[test]
fn a_drain_that_nothing_ends_before_ends_at_its_deadline() {
    let knobs = Knobs {
        ends_in: Some(s(300)),
        ..knobs()
    };
    let blocked = forecast(&[job(5, Stage::Stays), job(5, Stage::Queued)], &knobs, &[]);
    close(blocked.whole.likely, 300);
    let moving = forecast(&[job(5, Stage::Queued)], &knobs, &[]);
    close(moving.whole.likely, 12);
}
