//! How does a drain look while one waits for it? Live lines for a terminal, changes for everything else.

use super::look::{Look, Tone, clock, cut, pad};
use super::table::{by_importance, face};
use crate::drain::status::{Status, VmPhase, VmStatus};
use std::collections::BTreeMap;

/// Columns of a phase.
const PHASE: usize = 15;
/// Columns of a name at most.
const NAME: usize = 40;
/// Lines of a terminal that the bar, the sentence and the prompt need.
const AROUND: usize = 5;

/// What stands beside the bar.
pub(super) fn summary(status: &Status) -> String {
    let Some(drain) = &status.drain else {
        return String::new();
    };
    let mut words = clock(drain.running_for);
    if let Some(left) = drain.deadline_in {
        let left = if left < 0.0 { 0.0 } else { left };
        words = format!("{words}, deadline in {}", clock(left));
    }
    words
}

/// One line per VM, those that need somebody first, and as many as the terminal has room for.
pub(super) fn lines(status: &Status, look: Look) -> Vec<String> {
    let vms = by_importance(status);
    let room = look.height.saturating_sub(AROUND).max(1);
    let name = vms
        .iter()
        .map(|vm| vm.vm().to_string().chars().count())
        .max()
        .unwrap_or(0)
        .min(NAME);
    let mut lines = vec![look.cut(&format!("{}: {}", status.state, status.says))];
    for warning in &status.warnings {
        let warning = look.cut(&format!("warning: {warning}"));
        lines.push(look.paint(Tone::Bad.style(), &warning));
    }
    let room = room.saturating_sub(status.warnings.len()).max(1);
    let shown = if vms.len() > room {
        room - 1
    } else {
        vms.len()
    };
    lines.extend(vms[..shown].iter().map(|vm| row(vm, name, look)));
    if shown < vms.len() {
        lines.push(look.paint(Tone::Faint.style(), &rest(&vms[shown..])));
    }
    lines
}

fn row(vm: &VmStatus, name_width: usize, look: Look) -> String {
    let (words, tone, _) = face(vm.phase);
    let seconds = clock(vm.took.unwrap_or(vm.since));
    let target = vm
        .target
        .as_ref()
        .map_or_else(String::new, |target| format!("→ {target}  "));
    let name = pad(&cut(&vm.vm().to_string(), name_width), name_width);
    let after = format!("  {name}  {seconds:>6}  {target}{}", vm.says);
    let after = match look.width {
        Some(width) => cut(&after, width.saturating_sub(PHASE + 1)),
        None => after,
    };
    let phase = look.paint(tone.style(), &pad(words, PHASE));
    format!("{phase}{}", after.trim_end())
}

/// The VMs that found no room, by phase.
fn rest(vms: &[&VmStatus]) -> String {
    let mut counts: BTreeMap<u8, (&str, usize)> = BTreeMap::new();
    for vm in vms {
        let (words, _, order) = face(vm.phase);
        counts.entry(order).or_insert((words, 0)).1 += 1;
    }
    let parts: Vec<String> = counts
        .values()
        .map(|(words, count)| {
            let words = words.split_once(' ').map_or(*words, |(_, words)| words);
            format!("{count} {words}")
        })
        .collect();
    format!("… and {}", parts.join(", "))
}

/// What is new since the last status, each line with the time since the drain began.
pub(super) fn changes(before: Option<&Status>, now: &Status) -> Vec<String> {
    let stamp = now.drain.as_ref().map_or(0.0, |drain| drain.running_for);
    let stamp = format!("[{:>6}]", clock(stamp));
    let mut lines = Vec::new();
    let state_changed = before.is_none_or(|before| before.state != now.state);
    if state_changed {
        lines.push(format!("{stamp} {}: {}", now.state, now.says));
    }
    for warning in &now.warnings {
        if !before.is_some_and(|before| before.warnings.contains(warning)) {
            lines.push(format!("{stamp} warning: {warning}"));
        }
    }
    let known: BTreeMap<_, _> = before
        .map(|before| before.vms.iter().map(|vm| (vm.vm(), vm)).collect())
        .unwrap_or_default();
    for vm in &now.vms {
        if known.get(&vm.vm()).is_none_or(|old| differs(old, vm)) {
            lines.push(format!("{stamp} {}", change(vm)));
        }
    }
    lines
}

/// A sentence without its numbers: they count down and up, and that alone is no news.
fn words(text: &str) -> String {
    text.replace(|c: char| c.is_ascii_digit() || c == '.', "")
}

/// Whether two statuses differ in nothing but times.
pub(super) fn same(before: &Status, now: &Status) -> bool {
    let timeless = |status: &Status| {
        let mut status = status.clone();
        status.says = words(&status.says);
        if let Some(drain) = &mut status.drain {
            drain.running_for = 0.0;
            drain.deadline_in = None;
        }
        for vm in &mut status.vms {
            vm.since = 0.0;
            vm.says = words(&vm.says);
        }
        status
    };
    timeless(before) == timeless(now)
}

fn differs(old: &VmStatus, new: &VmStatus) -> bool {
    old.phase != new.phase
        || (new.target.is_some() && old.target != new.target)
        || words(&old.says) != words(&new.says)
}

fn change(vm: &VmStatus) -> String {
    let (words, _, _) = face(vm.phase);
    let words = words.split_once(' ').map_or(words, |(_, words)| words);
    let target = vm
        .target
        .as_ref()
        .map_or_else(String::new, |target| format!(" to {target}"));
    let took = match (vm.phase, vm.took) {
        (VmPhase::Migrated | VmPhase::ShutDown | VmPhase::Gone, Some(took)) => {
            format!(" after {}", clock(took))
        }
        _ => String::new(),
    };
    let says = if vm.says.is_empty() {
        String::new()
    } else {
        format!(" ({})", vm.says)
    };
    format!("{}: {words}{target}{took}{says}", vm.vm())
}

/// The last lines: how it ended, and every VM that is left with its reason.
pub(super) fn ending(status: &Status) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", status.state, status.says)];
    lines.extend(
        by_importance(status)
            .into_iter()
            .filter(|vm| face(vm.phase).2 < face(VmPhase::Gone).2)
            .map(|vm| format!("  {}", change(vm))),
    );
    lines
}

#[cfg(test)]
mod tests;
