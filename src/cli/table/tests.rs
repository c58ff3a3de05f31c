//! How a status looks, wide, narrow and in colours.

use super::*;
use crate::cli::tests::{drain, vm};
use crate::drain::status::{CordonStatus, HoldStatus};
use crate::drain::trigger::Then;
use std::time::Duration;

fn look(width: usize) -> Look {
    Look {
        width: Some(width),
        ..Look::plain()
    }
}

fn example() -> Status {
    let mut migrating = vm("web-1", VmPhase::Migrating, "memory is being copied");
    migrating.target = Some("n2".into());
    migrating.memory = Some(8 << 30);
    migrating.since = 12.0;
    migrating.attempts = 1;
    let mut moved = vm("db", VmPhase::Migrated, "");
    moved.target = Some("n3".into());
    moved.took = Some(65.0);
    moved.attempts = 2;
    let blocked = vm(
        "pet",
        VmPhase::Blocked,
        "the disruption budget default/pet-pdb allows no eviction now (1 of 1 healthy)",
    );
    let mut status = drain("evacuating", 65.0, None, vec![moved, blocked, migrating]);
    if let Some(drain) = &mut status.drain {
        drain.reason = "new kernel".into();
        drain.then = Some(Then::Reboot);
        drain.deadline_in = Some(1735.0);
    }
    status.hold = HoldStatus {
        held: true,
        limit: Some(2700.0),
        trouble: String::new(),
        ..HoldStatus::default()
    };
    status.cordon = CordonStatus {
        unschedulable: Some(true),
        ours: true,
        who: "set by vmdrain-agent (drain d1)".into(),
    };
    status.blind = vec!["VMIs cannot be listed".into()];
    status
}

const HEAD: &str = "\
n1: evacuating - 2 VM(s) still here
  drain     d1, for 1m05s, \"new kernel\", then reboot
  deadline  in 28m55s, then proceed
  hold      set, a shutdown waits up to 45m00s
  cordon    set by vmdrain-agent (drain d1)
  VMs       1 of 3 gone
  not seen  VMIs cannot be listed
";

#[test]
fn a_file_gets_whole_lines_with_what_needs_somebody_first() {
    let expected = format!(
        "{HEAD}
VM             PHASE        TARGET  MEMORY  TIME   TRIES  WHY
default/pet    ✗ blocked    -       -       0s     0      the disruption budget default/pet-pdb allows no eviction now (1 of 1 healthy)
default/web-1  ● migrating  n2      8Gi     12s    1      memory is being copied
default/db     ✓ migrated   n3      -       1m05s  2
"
    );
    assert_eq!(super::status(&example(), Look::plain()), expected);
}

#[test]
fn a_window_wraps_the_sentence_alone() {
    let text = super::status(&example(), look(100));
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    assert!(text.contains("default/pet    ✗ blocked    -"), "{text}");
    let rows: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("VM "))
        .collect();
    assert_eq!(rows.len(), 5, "one sentence on two lines: {text}");
    assert!(rows[2].starts_with("         "), "{text}");
}

#[test]
fn a_narrow_window_puts_the_sentence_below() {
    let text = super::status(&example(), look(60));
    let rows: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("VM "))
        .collect();
    assert!(rows.iter().all(|row| row.chars().count() <= 60), "{text}");
    assert_eq!(
        rows,
        [
            "VM             PHASE        TARGET  MEMORY  TIME   TRIES",
            "default/pet    ✗ blocked    -       -       0s     0",
            "     the disruption budget default/pet-pdb allows no evict…",
            "default/web-1  ● migrating  n2      8Gi     12s    1",
            "     memory is being copied",
            "default/db     ✓ migrated   n3      -       1m05s  2",
        ]
    );
}

#[test]
fn colours_change_nothing_but_colours() {
    for width in [None, Some(60), Some(100)] {
        let plain = Look {
            width,
            ..Look::plain()
        };
        let colour = Look {
            colour: true,
            ..plain
        };
        let painted = super::status(&example(), colour);
        assert!(painted.contains("\u{1b}["));
        let stripped = anstream::adapter::strip_str(&painted).to_string();
        assert_eq!(stripped, super::status(&example(), plain));
    }
}

#[test]
fn what_can_be_foretold_is_a_range_above_and_a_guess_in_the_row() {
    let mut status = example();
    let span = Span {
        low: Duration::from_secs(30),
        likely: Duration::from_secs(62),
        high: Duration::from_secs(120),
    };
    let moving = status.vms.iter_mut().find(|vm| vm.name == "web-1");
    moving.expect("it is there").eta = Some(span);
    status.drain.as_mut().expect("it runs").eta = Some(span);
    let text = super::status(&status, Look::plain());
    assert!(
        text.contains("  estimate  done in about 1m (30s to 2m)"),
        "{text}"
    );
    assert!(text.contains("TIME   GONE IN  TRIES"), "{text}");
    assert!(text.contains("12s    ~1m00s"), "{text}");
}

#[test]
fn an_idle_host_without_a_hold_says_so() {
    let status = Status {
        node: "n1".into(),
        state: "idle".into(),
        says: "nothing to do; no hold is set".into(),
        warnings: vec!["logind cannot be reached".into()],
        ..Status::default()
    };
    assert_eq!(
        super::status(&status, Look::plain()),
        "\
n1: idle - nothing to do; no hold is set
  hold      not set, a shutdown would not wait
  cordon    not looked at yet
  warning   logind cannot be reached
"
    );
}

#[test]
fn a_finished_drain_has_no_deadline_and_tells_how_long_it_took() {
    let text = super::status(
        &drain("drained", 133.0, Some(crate::cli::exit::Exit::Done), vec![]),
        Look::plain(),
    );
    assert!(text.contains("  drain     d1, took 2m13s\n"), "{text}");
    assert!(!text.contains("deadline"), "{text}");
}
