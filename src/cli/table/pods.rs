//! The pods that are no VM's, those that need somebody first.

use super::line;
use crate::cli::look::{Look, Tone, cut};
use crate::drain::status::{PodState, PodStatus, Status};

/// Those that are still here are named, the others are only counted in the head.
const NAMED: usize = 20;

fn face(phase: PodState) -> (&'static str, Tone, u8) {
    match phase {
        PodState::Left => ("✗ left", Tone::Bad, 0),
        PodState::Blocked => ("✗ blocked", Tone::Bad, 1),
        PodState::Waiting => ("○ waiting", Tone::Faint, 2),
        PodState::Going => ("● going", Tone::Busy, 3),
        PodState::Queued => ("○ queued", Tone::Faint, 4),
        PodState::Gone => ("✓ gone", Tone::Good, 5),
    }
}

/// One line each; empty where there is none.
pub(super) fn rows(status: &Status, look: Look) -> String {
    let here = status.pods.iter().filter(|p| p.phase != PodState::Gone);
    let mut pods: Vec<&PodStatus> = here.collect();
    pods.sort_by_key(|pod| face(pod.phase).2);
    let mut text = String::new();
    for (at, pod) in pods.iter().take(NAMED).enumerate() {
        if at == 0 {
            text.push('\n');
        }
        let (words, tone, _) = face(pod.phase);
        let row = format!(
            "{words:<9}  pod {}/{} ({})  {}",
            pod.namespace, pod.name, pod.owner, pod.says
        );
        let row = cut(&row, look.width.unwrap_or(usize::MAX));
        line(
            &mut text,
            &row.replacen(words, &look.paint(tone.style(), words), 1),
        );
    }
    if pods.len() > NAMED {
        line(&mut text, &format!("and {} more pods", pods.len() - NAMED));
    }
    text
}
