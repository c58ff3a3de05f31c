//! What came out: a line for each case as it ends, and one table at the end.

use std::fmt::Write as _;

use comfy_table::{ContentArrangement, Table, presets};

use crate::suite::Outcome;

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
            if outcome.result.is_ok() { "ok" } else { "FAILED" }.to_owned(),
            format!("{:.1}", outcome.took.as_secs_f64()),
            measured.to_owned(),
        ]);
    }
    table.to_string()
}
