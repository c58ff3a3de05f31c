//! What this drain remembers of one VM on this node: requests, answers, how it ended.

use super::action::EffectId;
use super::answer::{Answer, Pause};
use super::fate::Lot;
use super::policy::Timing;
use super::status::VmPhase;
use super::stop::Stopping;
use super::time::Mono;
use super::world::{ObjectRef, VmName};
use std::collections::BTreeSet;
use std::time::Duration;

/// How a VM goes, as far as its time is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Going {
    /// Nobody can say when it goes.
    #[default]
    Unknown,
    /// Nothing will move it: it stays until the deadline, or until its guest is shut down.
    Stays,
    /// Its guest is shut down when the others are gone.
    Last,
    /// It waits for its turn.
    Queued,
    /// KubeVirt has accepted it and has not begun.
    Accepted,
    /// It is being migrated.
    Moving,
    /// It has moved, its old pod ends.
    Leaving,
    /// Its guest is being shut down.
    Ending,
}

/// Memory of one launcher pod (or of a VMI whose pod was not seen yet).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    /// The pod; `uid` is empty while only the VMI was seen.
    pub pod: ObjectRef,
    /// Its VM.
    pub vm: VmName,
    /// UID of its VMI, empty when unknown.
    pub vmi_uid: String,
    /// Memory in bytes, for the order.
    pub memory: u64,
    /// How long its pod may take to end.
    pub grace: Duration,
    /// Its group in the stop order; 0 without one.
    pub order: i64,
    /// First seen.
    pub first_seen: Mono,
    /// The request that is on its way, and whether it only asks.
    pub in_flight: Option<(EffectId, bool)>,
    /// Last answer (dry or not) and when.
    pub last: Option<(Answer, Mono)>,
    /// Last answer of a dry run: what an eviction would do.
    pub class: Option<Answer>,
    /// No request before this moment.
    pub not_before: Mono,
    /// Transient failures in a row.
    pub failures: u32,
    /// Refusals in a row.
    pub refusals: u32,
    /// When KubeVirt accepted the evacuation.
    pub accepted: Option<Mono>,
    /// When an eviction was granted.
    pub granted: Option<Mono>,
    /// The mark is ours.
    pub ours: bool,
    /// A request of ours may have written the mark, the answer was lost.
    pub maybe_ours: bool,
    /// The mark was seen after we asked.
    pub seen_mark: bool,
    /// The VMI was seen on this node.
    pub seen_here: bool,
    /// Since when its VMI is not on this node although its pod runs here.
    pub moved_since: Option<Mono>,
    /// The pod was seen being deleted.
    pub seen_deleting: bool,
    /// The pod was seen `Succeeded`, or its compute container ended.
    pub seen_ended: bool,
    /// Its VMI came to its end here: a guest that has ended did not move.
    pub seen_final: bool,
    /// Its VMI came to its end here as `Failed`: it was destroyed after its grace period, or its pod or launcher was taken
    /// from under it (kubevirt-semantics 5). A guest that shuts down leaves `Succeeded`.
    pub seen_failed: bool,
    /// Who ended it, where the pod tells; empty: nobody else.
    pub stopped_by: String,
    /// It was stopped, by whoever else, and not for this drain.
    pub by_others: bool,
    /// The VMIM that brought this pod here.
    pub made_by: Option<String>,
    /// It is an inbound migration that never was active here.
    pub inbound: bool,
    /// When it arrived here, where this drain saw it come.
    pub arrived: Option<Mono>,
    /// What is to become of it.
    pub lot: Lot,
    /// VMIMs that are to take this VM away, begun in this drain.
    pub attempts: BTreeSet<String>,
    /// A VMIM of this VM succeeded: its target node.
    pub moved_to: Option<String>,
    /// Eviction POSTs sent (without dry runs).
    pub posts: u32,
    /// First request.
    pub first_post: Option<Mono>,
    /// Since when its migration copies, as far as it was seen.
    pub copying_since: Option<Mono>,
    /// We have asked to abort its migration.
    pub abort: Option<Abort>,
    /// It was given up for the time being, so that others get its slot.
    pub benched: Option<Mono>,
    /// We have asked to stop its guest.
    pub stop: Option<Stopping>,
    /// How and when it ended.
    pub ended: Option<(VmPhase, Mono)>,
    /// Shown phase and since when.
    pub shown: VmPhase,
    /// Since when `shown`.
    pub shown_since: Mono,
    /// How it goes, for the estimate, and since when.
    pub going: Going,
    /// Since when `going`.
    pub going_since: Mono,
    /// When its migration (the newest attempt) was first seen to run.
    pub moving_since: Option<Mono>,
    /// Shown sentence.
    pub says: String,
    /// Shown target node.
    pub target: Option<String>,
}

/// An abort that was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Abort {
    /// UID of the VMIM.
    pub migration: String,
    /// When it was asked for.
    pub asked: Mono,
    /// It was refused: what stands in the way.
    pub refused: String,
}

impl Track {
    /// Its VMI.
    pub fn vmi(&self) -> ObjectRef {
        ObjectRef {
            namespace: self.vm.namespace.clone(),
            name: self.vm.name.clone(),
            uid: self.vmi_uid.clone(),
        }
    }

    /// Takes note of an answer and sets the earliest next request. `jitter` is in 0..1.
    pub fn answered(
        &mut self,
        answer: Answer,
        retry_after: Option<u32>,
        dry: bool,
        now: Mono,
        timing: &Timing,
        jitter: f64,
    ) {
        self.in_flight = None;
        let pause = answer.pause();
        self.failures = if pause == Pause::Transient {
            self.failures.saturating_add(1)
        } else {
            0
        };
        self.refusals = if pause == Pause::Refused {
            self.refusals.saturating_add(1)
        } else {
            0
        };
        let length = match pause {
            Pause::None => Duration::ZERO,
            Pause::Transient => doubled(timing.retry_first, timing.retry_most, self.failures),
            Pause::Refused => doubled(timing.refused_first, timing.refused_most, self.refusals),
            Pause::AskAgain => timing.ask_again,
        };
        let length = length.mul_f64(0.85 + 0.3 * jitter);
        let floor = Duration::from_secs(u64::from(retry_after.unwrap_or(0)));
        self.not_before = now + length.max(floor);
        if dry {
            self.class = Some(answer.clone());
        } else {
            match answer {
                Answer::Granted => self.granted = Some(now),
                Answer::Marked => {
                    self.ours = true;
                    self.accepted = Some(now);
                }
                Answer::InProgress => {
                    self.ours |= self.maybe_ours;
                    self.accepted = Some(now);
                }
                Answer::WebhookDown | Answer::Unexpected(_) | Answer::KubeVirtFailed(_) => {
                    self.maybe_ours = true;
                }
                Answer::NotTheActivePod
                | Answer::NotMigratable
                | Answer::HotplugPod
                | Answer::VmiGone
                | Answer::Budget { .. }
                | Answer::SeveralBudgets
                | Answer::Throttled
                | Answer::NamespaceTerminating
                | Answer::Gone
                | Answer::Unauthorized
                | Answer::Denied(_) => {}
            }
        }
        self.last = Some((answer, now));
    }

    /// A request that got no answer at all.
    pub fn unanswered(&mut self, why: String, dry: bool, now: Mono, timing: &Timing, jitter: f64) {
        self.answered(Answer::Unexpected(why), None, dry, now, timing, jitter);
    }

    /// A picture shows it after all: what had ended it was an older one that came late.
    pub fn revive_if(&mut self, here: bool) {
        if here && self.ended.is_some_and(|(phase, _)| phase != VmPhase::Left) {
            self.ended = None;
        }
    }

    /// This drain has marked its VM, or may have, and the mark has not gone with the VM.
    pub fn may_carry_our_mark(&self) -> bool {
        let asked = self.in_flight.is_some_and(|(_, dry)| !dry);
        let here = self.ended.is_none_or(|(phase, _)| phase == VmPhase::Left);
        here && !self.vmi_uid.is_empty() && (self.ours || self.maybe_ours || asked)
    }

    /// An eviction or a deletion of its pod was seen: that ends a guest.
    pub fn asked_to_end(&self) -> bool {
        self.granted.is_some() || self.seen_deleting || self.stopped_by_us()
    }

    /// An eviction or a stop of ours has ended it, or may have.
    pub fn evicted(&self) -> bool {
        self.granted.is_some() || self.maybe_ours || self.stop.is_some()
    }

    /// The API server has taken our request to stop its guest.
    pub fn stopped_by_us(&self) -> bool {
        self.stop.as_ref().is_some_and(|s| s.accepted.is_some())
    }

    /// It has come to its end here.
    pub fn end(&mut self, phase: VmPhase, now: Mono) {
        if self.ended.is_none() {
            self.ended = Some((phase, now));
        }
    }

    /// Takes note of how it goes.
    pub fn goes(&mut self, going: Going, now: Mono) {
        if self.going == going {
            return;
        }
        if going == Going::Moving {
            self.moving_since = Some(now);
        }
        self.going = going;
        self.going_since = now;
    }

    /// A migration was asked for or seen.
    pub fn was_migrating(&self) -> bool {
        self.accepted.is_some() || self.maybe_ours || !self.attempts.is_empty()
    }

    /// How it ended, judged from everything that was seen of it.
    pub fn outcome(&self) -> VmPhase {
        if self.moved_to.is_some() {
            VmPhase::Migrated
        } else if self.inbound && !self.seen_here {
            VmPhase::Gone
        } else if self.asked_to_end() || !self.stopped_by.is_empty() || self.seen_final {
            VmPhase::ShutDown
        } else if (self.moved_since.is_some() && self.was_migrating())
            || (self.accepted.is_some() && self.seen_ended)
        {
            // Base tier: Succeeded without a deletionTimestamp after an accepted evacuation means moved
            // (control-plane.md 9).
            VmPhase::Migrated
        } else if self.seen_ended {
            VmPhase::ShutDown
        } else {
            VmPhase::Gone
        }
    }
}

/// `first`, doubled with every further time, at most `most`.
pub fn doubled(first: Duration, most: Duration, times: u32) -> Duration {
    let factor = 2_u32.saturating_pow(times.saturating_sub(1).min(16));
    first.saturating_mul(factor).min(most)
}
