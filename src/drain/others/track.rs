//! What a drain remembers of one pod that is no VM's.

use crate::drain::action::EffectId;
use crate::drain::answer::{Answer, Pause};
use crate::drain::policy::Timing;
use crate::drain::status::PodState;
use crate::drain::time::Mono;
use crate::drain::track::doubled;
use crate::drain::world::{OtherPod, PdbView};
use std::time::Duration;

/// Memory of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtherTrack {
    /// The pod as it was seen last.
    pub pod: OtherPod,
    /// First seen.
    pub first_seen: Mono,
    /// The request that is on its way.
    pub in_flight: Option<EffectId>,
    /// Last answer and when.
    pub last: Option<(Answer, Mono)>,
    /// No request before this moment.
    pub not_before: Mono,
    /// Transient failures in a row.
    failures: u32,
    /// Refusals in a row.
    refusals: u32,
    /// When its eviction was granted.
    pub granted: Option<Mono>,
    /// Eviction POSTs sent.
    pub posts: u32,
    /// It is not on this node any more, or is over.
    pub gone: bool,
    /// Shown state, and since when.
    pub shown: PodState,
    /// Since when `shown`.
    pub shown_since: Mono,
    /// Shown sentence.
    pub says: String,
}

impl OtherTrack {
    /// A pod that is seen for the first time.
    pub fn new(pod: OtherPod, now: Mono) -> Self {
        Self {
            pod,
            first_seen: now,
            shown_since: now,
            ..Self::default()
        }
    }

    /// Takes note of an answer and sets the earliest next request. `jitter` is in 0..1.
    pub fn answered(
        &mut self,
        answer: Answer,
        retry_after: Option<u32>,
        now: Mono,
        timing: &Timing,
        jitter: f64,
    ) {
        self.in_flight = None;
        let pause = answer.pause();
        self.failures = match pause {
            Pause::Transient => self.failures.saturating_add(1),
            Pause::None | Pause::Refused | Pause::AskAgain => 0,
        };
        self.refusals = match pause {
            Pause::Refused => self.refusals.saturating_add(1),
            Pause::None | Pause::Transient | Pause::AskAgain => 0,
        };
        let length = match pause {
            // The server deletes the pod before it answers: a picture that does not show it is late.
            Pause::None => timing.mark_missing,
            Pause::Transient => doubled(timing.retry_first, timing.retry_most, self.failures),
            // A pod that replaces another is ready within seconds, a VM within minutes.
            Pause::Refused => doubled(timing.ask_again / 2, timing.refused_most, self.refusals),
            Pause::AskAgain => timing.ask_again,
        };
        let floor = Duration::from_secs(u64::from(retry_after.unwrap_or(0)));
        self.not_before = now + length.mul_f64(0.85 + 0.3 * jitter).max(floor);
        if answer == Answer::Granted {
            self.granted = Some(now);
        }
        self.last = Some((answer, now));
    }

    /// When it may be asked again: sooner when the budget that has refused it is seen to allow one.
    pub fn due(&self, pdbs: &[PdbView], timing: &Timing) -> Mono {
        let Some((Answer::Budget { .. }, at)) = &self.last else {
            return self.not_before;
        };
        let mut over = pdbs
            .iter()
            .filter(|pdb| pdb.selects.contains(&self.pod.pod.uid))
            .peekable();
        let allows = over.peek().is_some() && over.all(|pdb| pdb.disruptions_allowed > 0);
        if allows {
            self.not_before.min(*at + timing.retry_first * 4)
        } else {
            self.not_before
        }
    }

    /// It is on its way out, or will be: nothing more is to be asked.
    pub fn is_going(&self) -> bool {
        self.pod.deleting || self.granted.is_some()
    }

    /// Shows a state with its sentence.
    pub fn show(&mut self, state: PodState, says: String, now: Mono) {
        if self.shown != state {
            self.shown = state;
            self.shown_since = now;
        }
        self.says = says;
    }
}
