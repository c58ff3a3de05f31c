//! What came out: a line for each case as it ends, and one table at the end.

use std::fmt::Write as _;

use comfy_table::{ContentArrangement, Table, presets};

use std::collections::BTreeMap;
use std::time::Duration;

use crate::suite::{Figures, Outcome};

/// One line, and what did not hold.
pub(crate) fn line(outcome: &Outcome) -> String {
    let mut text = format!(
        "{:4} {:>5.1} s  systemd {:3}  {:>3} {:32} ",
        if outcome.result.is_ok() { "ok" } else { "FAIL" },
        outcome.took.as_secs_f64(),
        outcome.systemd,
        outcome.number,
        outcome.name,
    );
    match &outcome.result {
        Ok(measured) => text.push_str(measured),
        Err(why) => {
            for line in why.lines() {
                // Writing to a String cannot fail.
                let _ = write!(text, "\n      {line}");
            }
        }
    }
    text
}

/// The table: one row for each case and version.
pub(crate) fn table(outcomes: &[Outcome]) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["systemd", "scenario", "", "result", "s", "measured"]);
    for outcome in outcomes {
        let measured = outcome.result.as_deref().unwrap_or_default();
        table.add_row([
            outcome.systemd.to_string(),
            outcome.number.to_owned(),
            outcome.name.replace('_', " "),
            if outcome.result.is_ok() {
                "ok"
            } else {
                "FAILED"
            }
            .to_owned(),
            format!("{:.1}", outcome.took.as_secs_f64()),
            measured.to_owned(),
        ]);
    }
    table.to_string()
}

/// Over all shutdowns through logind: how fast, by version.
pub(crate) fn statistics(outcomes: &[Outcome]) -> String {
    let mut by_version: BTreeMap<u32, Vec<Figures>> = BTreeMap::new();
    for outcome in outcomes {
        by_version
            .entry(outcome.systemd)
            .or_default()
            .extend(&outcome.figures);
    }
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header([
            "systemd",
            "shutdowns",
            "command → cordon",
            "last VM gone → lock gone",
            "last VM gone → units stopped",
        ]);
    for (version, all) in by_version.iter().filter(|(_, all)| !all.is_empty()) {
        table.add_row([
            version.to_string(),
            all.len().to_string(),
            spread(all.iter().map(|one| one.prepare).collect()),
            spread(all.iter().map(|one| one.release).collect()),
            spread(all.iter().map(|one| one.stopped).collect()),
        ]);
    }
    format!(
        "{table}\n(minimum, median, maximum in milliseconds; last VM gone: its process has ended and its migration is final)"
    )
}

fn spread(mut all: Vec<Duration>) -> String {
    all.sort_unstable();
    let at = |index: usize| all.get(index).map_or(0, Duration::as_millis);
    format!(
        "{} / {} / {}",
        at(0),
        at(all.len() / 2),
        at(all.len().saturating_sub(1))
    )
}
