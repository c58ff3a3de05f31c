//! How is a status shown to a person? Head lines, then one row per VM, those that need somebody first.

mod pods;

use super::look::{Look, Tone, clock, cut, size};
use crate::drain::action::UNIT_MODE;
use crate::drain::eta::{Span, words};
use crate::drain::status::{Status, VmPhase, VmStatus};
use crate::drain::trigger::Then;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use std::fmt::Write as _;

/// Below this many columns the sentences get lines of their own.
const NARROW: usize = 90;

/// How a phase is shown: words, tone, and how much it needs a reader (small first).
pub(super) fn face(phase: VmPhase) -> (&'static str, Tone, u8) {
    match phase {
        VmPhase::Left => ("✗ left", Tone::Bad, 0),
        VmPhase::Blocked => ("✗ blocked", Tone::Bad, 1),
        VmPhase::ShuttingDown => ("● shutting down", Tone::Busy, 2),
        VmPhase::Migrating => ("● migrating", Tone::Busy, 3),
        VmPhase::Scheduling => ("● scheduling", Tone::Busy, 4),
        VmPhase::Arriving => ("● arriving", Tone::Busy, 5),
        VmPhase::Marked => ("● marked", Tone::Busy, 6),
        VmPhase::Waiting => ("○ waiting", Tone::Faint, 7),
        VmPhase::Queued => ("○ queued", Tone::Faint, 8),
        VmPhase::Gone => ("✓ gone", Tone::Good, 9),
        VmPhase::ShutDown => ("✓ shut down", Tone::Good, 10),
        VmPhase::Migrated => ("✓ migrated", Tone::Good, 11),
    }
}

/// The VMs, those that need a reader first; equal ones keep the order of their names.
pub(super) fn by_importance(status: &Status) -> Vec<&VmStatus> {
    let mut vms: Vec<&VmStatus> = status.vms.iter().collect();
    vms.sort_by_key(|vm| face(vm.phase).2);
    vms
}

/// The whole status.
pub fn status(status: &Status, look: Look) -> String {
    let mut text = head(status, look);
    if !status.vms.is_empty() {
        text.push('\n');
        text.push_str(&rows(status, look));
    }
    text.push_str(&pods::rows(status, look));
    text
}

/// The lines above the table.
pub fn head(status: &Status, look: Look) -> String {
    let mut text = String::new();
    let title = format!("{}: {}", status.node, status.state);
    let title = look.paint(state_tone(&status.state).style(), &title);
    line(&mut text, &format!("{title} - {}", status.says));
    let mut fact = |name: &str, tone: Option<Tone>, what: &str| {
        let what = match tone {
            Some(tone) => look.paint(tone.style(), what),
            None => what.to_owned(),
        };
        line(&mut text, &format!("  {name:<9} {what}"));
    };
    if let Some(drain) = drain_words(status) {
        fact("drain", None, &drain);
    }
    if let Some(eta) = eta_words(status) {
        fact("estimate", None, &eta);
    }
    if let Some(deadline) = deadline_words(status) {
        fact("deadline", None, &deadline);
    }
    let (hold, well) = hold_words(status);
    fact("hold", (!well).then_some(Tone::Bad), &hold);
    for other in &status.hold.others {
        let does = match other.mode.as_str() {
            "delay" => "delays a shutdown as well",
            UNIT_MODE => "acts on a shutdown as well",
            _ => "forbids a shutdown",
        };
        let what = format!("{} {does} ({})", other.who, other.why);
        fact("holder", None, &what);
    }
    if let Some(soon) = schedule_words(status) {
        fact("schedule", Some(Tone::Busy), &soon);
    }
    fact("cordon", None, &cordon_words(status));
    if status.vms_total > 0 {
        let gone = status.vms_total.saturating_sub(status.vms_remaining);
        let vms = format!("{gone} of {} gone", status.vms_total);
        fact("VMs", None, &vms);
    }
    if !status.pods.is_empty() {
        let gone = status.pods.len().saturating_sub(status.pods_remaining);
        let pods = format!("{gone} of {} gone", status.pods.len());
        fact("pods", None, &pods);
    }
    for warning in &status.warnings {
        fact("warning", Some(Tone::Bad), warning);
    }
    for blind in &status.blind {
        fact("not seen", Some(Tone::Faint), blind);
    }
    for odd in &status.malformed {
        let what = format!("{} {}: {}", odd.resource, odd.object, odd.why);
        fact("malformed", Some(Tone::Bad), &what);
    }
    text
}

fn line(text: &mut String, what: &str) {
    text.push_str(what.trim_end());
    text.push('\n');
}

fn state_tone(state: &str) -> Tone {
    match state {
        "drained" => Tone::Good,
        "deadline" | "refused" => Tone::Bad,
        "idle" => Tone::Strong,
        _ => Tone::Busy,
    }
}

fn drain_words(status: &Status) -> Option<String> {
    let drain = status.drain.as_ref()?;
    let verb = if drain.exit.is_some() { "took" } else { "for" };
    let mut words = format!("{}, {verb} {}", drain.id, clock(drain.running_for));
    if !drain.reason.is_empty() {
        let _ = write!(words, ", \"{}\"", drain.reason);
    }
    if drain.shutting_down {
        words.push_str(", the host is going down");
    } else if let Some(then) = drain.then {
        let _ = write!(words, ", then {then}");
    }
    Some(words)
}

fn deadline_words(status: &Status) -> Option<String> {
    let drain = status.drain.as_ref()?;
    let left = drain.deadline_in?;
    let when = if left < 0.0 {
        format!("{} ago", clock(left))
    } else {
        format!("in {}", clock(left))
    };
    Some(format!("{when}, then {}", drain.on_deadline))
}

fn schedule_words(status: &Status) -> Option<String> {
    let due = status.scheduled.as_ref()?;
    let what = due.kind.map_or("shutdown", Then::word);
    Some(format!("{what} in {}", clock(due.due_in.max(0.0))))
}

/// The sentence, and whether all is well. The trouble itself is among the warnings.
fn hold_words(status: &Status) -> (String, bool) {
    let hold = &status.hold;
    let well = hold.trouble.is_empty();
    match (hold.held, hold.limit) {
        (true, Some(limit)) => {
            let by = match hold.limit_by.as_str() {
                "" => String::new(),
                by => format!(" ({by})"),
            };
            let words = format!("set, a shutdown waits up to {}{by}", clock(limit));
            (words, well)
        }
        (true, None) => ("set".into(), well),
        (false, _) => ("not set, a shutdown would not wait".into(), well),
    }
}

fn cordon_words(status: &Status) -> String {
    match (status.cordon.unschedulable, status.cordon.who.as_str()) {
        (None, _) => "not looked at yet".into(),
        (Some(true), "") => "cordoned".into(),
        (Some(false), "") => "not cordoned".into(),
        (Some(_), who) => who.to_owned(),
    }
}

/// The best guess alone: the row has no room for the range, which the head and the JSON have.
fn eta(span: Span) -> String {
    format!("~{}", clock(span.rounded().likely.as_secs_f64().max(5.0)))
}

fn eta_words(status: &Status) -> Option<String> {
    let span = status.drain.as_ref()?.eta?;
    let unknown = status
        .vms
        .iter()
        .filter(|vm| vm.eta.is_none() && vm.took.is_none())
        .count();
    let rest = match unknown {
        0 => String::new(),
        n => format!(", without {n} VM(s) about which nobody can say"),
    };
    Some(format!("done in {}{rest}", words(span)))
}

/// The table. In a narrow window each sentence stands below its row.
fn rows(status: &Status, look: Look) -> String {
    let narrow = look.width.is_some_and(|width| width < NARROW);
    let vms = by_importance(status);
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    // A narrow window has no room for it; nothing is said when nobody can say.
    let foretold = !narrow && vms.iter().any(|vm| vm.eta.is_some());
    let mut header = vec!["VM", "PHASE", "TARGET", "MEMORY", "TIME"];
    if foretold {
        header.push("GONE IN");
    }
    header.push("TRIES");
    if !narrow {
        header.push("WHY");
    }
    table.set_header(header.clone());
    for vm in &vms {
        let mut cells = vec![
            vm.vm().to_string(),
            face(vm.phase).0.into(),
            vm.target.clone().unwrap_or_else(|| "-".into()),
            vm.memory.map_or_else(|| "-".into(), size),
            clock(vm.took.unwrap_or(vm.since)),
        ];
        if foretold {
            cells.push(vm.eta.map_or_else(|| "-".into(), eta));
        }
        cells.push(vm.attempts.to_string());
        if !narrow {
            cells.push(vm.says.clone());
        }
        table.add_row(cells);
    }
    arrange(&mut table, header.len(), narrow, look);
    let mut text = String::new();
    let mut left = vms.iter();
    for (at, row) in table.lines().enumerate() {
        let row = row.trim_end();
        // A row begins where its first column is not empty; what follows is its wrapped sentence.
        let vm = if at > 0 && !row.starts_with("   ") {
            left.next()
        } else {
            None
        };
        let painted = match vm {
            None if at == 0 => look.paint(Tone::Strong.style(), row),
            None => row.to_owned(),
            Some(vm) => {
                let (words, tone, _) = face(vm.phase);
                row.replacen(words, &look.paint(tone.style(), words), 1)
            }
        };
        line(&mut text, &painted);
        if let (Some(vm), true) = (vm, narrow)
            && !vm.says.is_empty()
        {
            let room = look
                .width
                .map_or(usize::MAX, |width| width.saturating_sub(6));
            let says = look.paint(Tone::Faint.style(), &cut(&vm.says, room));
            line(&mut text, &format!("     {says}"));
        }
    }
    text
}

/// Only the last column gives way: names and phases are what one looks for.
pub(super) fn arrange(table: &mut Table, columns: usize, narrow: bool, look: Look) {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    if let Some(width) = look.width.and_then(|width| u16::try_from(width).ok()) {
        if narrow {
            return;
        }
        table.set_width(width);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        let mut constraints = vec![ColumnConstraint::ContentWidth; columns - 1];
        constraints.push(ColumnConstraint::LowerBoundary(Width::Fixed(24)));
        table.set_constraints(constraints);
    }
}

#[cfg(test)]
mod tests;
