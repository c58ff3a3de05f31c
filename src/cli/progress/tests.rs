//! The live lines and the lines of a log.

use super::*;
use crate::cli::tests::{drain, vm};

fn look(width: usize, height: usize) -> Look {
    Look {
        width: Some(width),
        height,
        colour: false,
        terminal: true,
    }
}

#[test]
fn one_line_per_vm_cut_to_the_terminal() {
    let mut migrating = vm("a-long-name", VmPhase::Migrating, "memory is being copied");
    migrating.target = Some("n2".into());
    migrating.since = 75.0;
    let vms = vec![vm("b", VmPhase::Queued, "waits for a free slot"), migrating];
    let status = drain("evacuating", 80.0, None, vms);
    assert_eq!(
        lines(&status, look(60, 24)),
        [
            "evacuating: 2 VM(s) still here",
            "● migrating      default/a-long-name   1m15s  → n2  memory…",
            "○ queued         default/b                0s  waits for a …",
        ]
    );
    assert_eq!(summary(&status), "1m20s");
}

#[test]
fn warnings_stand_above_the_vms_and_take_their_room() {
    let vms: Vec<_> = (0..9)
        .map(|n| vm(&format!("q{n}"), VmPhase::Queued, ""))
        .collect();
    let mut status = drain("evacuating", 1.0, None, vms);
    status.warnings = vec!["the hold was lost".into()];
    let shown = lines(&status, look(80, 10));
    assert_eq!(shown[1], "warning: the hold was lost");
    assert_eq!(shown.last().map(String::as_str), Some("… and 6 queued"));
    assert_eq!(shown.len(), 6);
}

#[test]
fn a_small_terminal_counts_the_rest_by_phase() {
    let mut vms: Vec<_> = (0..50)
        .map(|n| vm(&format!("q{n:02}"), VmPhase::Queued, ""))
        .collect();
    vms.extend((0..30).map(|n| vm(&format!("m{n:02}"), VmPhase::Migrated, "")));
    vms.push(vm("bad", VmPhase::Blocked, "why"));
    let shown = lines(&drain("evacuating", 1.0, None, vms), look(80, 12));
    assert_eq!(shown.len(), 8, "{shown:#?}");
    assert!(shown[1].starts_with("✗ blocked"), "{shown:#?}");
    assert_eq!(shown[7], "… and 45 queued, 30 migrated");
}

#[test]
fn colours_change_nothing_but_colours() {
    let status = drain(
        "evacuating",
        1.0,
        None,
        vec![vm("a", VmPhase::Blocked, "why")],
    );
    let plain = look(60, 24);
    let colour = Look {
        colour: true,
        ..plain
    };
    let stripped: Vec<String> = lines(&status, colour)
        .iter()
        .map(|line| anstream::adapter::strip_str(line).to_string())
        .collect();
    assert_eq!(stripped, lines(&status, plain));
    assert_ne!(lines(&status, colour), lines(&status, plain));
}

#[test]
fn only_news_is_told() {
    let before = drain(
        "evacuating",
        1.0,
        None,
        vec![vm("a", VmPhase::Queued, "12 s to go")],
    );
    let mut now = drain(
        "evacuating",
        9.0,
        None,
        vec![vm("a", VmPhase::Queued, "4 s to go")],
    );
    assert!(changes(Some(&before), &now).is_empty());
    assert!(same(&before, &now));
    now.warnings.push("the hold is lost".into());
    assert_eq!(
        changes(Some(&before), &now),
        ["[    9s] warning: the hold is lost"]
    );
    assert!(!same(&before, &now));
    let again = now.clone();
    assert!(changes(Some(&now), &again).is_empty());
    now.vms[0].target = Some("n2".into());
    now.vms.push(vm("new", VmPhase::Arriving, ""));
    assert_eq!(
        changes(Some(&again), &now),
        [
            "[    9s] default/a: queued to n2 (4 s to go)",
            "[    9s] default/new: arriving",
        ]
    );
}
