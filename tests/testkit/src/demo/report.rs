//! What happened in the demonstration, and how long did it take?

use std::fmt::Write as _;
use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::NOTHING;

use crate::host::Change;
use crate::scenario::expect::Fate;
use crate::scenario::run::Ending;
use crate::scenario::run::observer::Story;

/// The VMs, then the moments that matter.
pub(super) fn text(ending: &Ending) -> String {
    let mut text = String::from("\n");
    let _ = writeln!(text, "{}", vms(ending));
    for (when, what) in moments(ending) {
        let _ = writeln!(text, "{:>9.3}s  {what}", when.as_secs_f64());
    }
    let _ = writeln!(
        text,
        "\nThe agent made {} requests in all.",
        ending.asked.len()
    );
    text
}

fn vms(ending: &Ending) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header(["VM", "WHAT HAPPENED", "TOOK", "RUNS ON"]);
    for ((_, name), story) in &ending.vms {
        let status = ending.status.as_deref();
        let line = status.and_then(|status| status.vms.iter().find(|vm| vm.name == *name));
        let took = line
            .and_then(|vm| vm.took)
            .map_or_else(String::new, |took| format!("{took:.1} s"));
        let runs = if story.phase == "Running" {
            &story.node
        } else {
            ""
        };
        table.add_row([name, fate(story), &took, runs]);
    }
    table
}

fn fate(story: &Story) -> &'static str {
    match story.fate() {
        Some(Fate::Migrated) => "live-migrated",
        Some(Fate::ShutDown) => "shut down in order",
        Some(Fate::Restarted) => "shut down in order, restarted elsewhere",
        Some(Fate::Left) => "left behind",
        Some(Fate::Killed) => "killed",
        None => "is starting",
    }
}

/// Seen from the signal.
fn moments(ending: &Ending) -> Vec<(Duration, &'static str)> {
    let host = |wanted: fn(&Change) -> bool| {
        ending
            .history
            .iter()
            .find(|moment| wanted(&moment.change))
            .map(|moment| moment.at)
    };
    let Some(signal) = host(|change| matches!(change, Change::Announced { .. })) else {
        return Vec::new();
    };
    let asked = |verb: &str, resource: &str, sub: &str| {
        let found = ending.asked.iter().find(|entry| {
            entry.verb == verb && entry.resource == resource && entry.subresource == sub
        });
        found.map(|entry| entry.at)
    };
    let all = [
        (Some(signal), "logind announces the shutdown and waits"),
        (asked("patch", "nodes", ""), "the node is cordoned"),
        (asked("create", "pods", "eviction"), "the first eviction"),
        (
            host(|change| matches!(change, Change::LockGone(_))),
            "no VM is left: the hold is released",
        ),
        (
            host(|change| matches!(change, Change::Down(_))),
            "the host goes down",
        ),
    ];
    all.into_iter()
        .filter_map(|(at, what)| Some((at?.saturating_sub(signal), what)))
        .collect()
}
