//! The machine: one drain after the other, from inputs and time to actions.
//!
//! Call [`Machine::handle`] for every input and [`Machine::handle_timeout`] when the moment of
//! [`Machine::poll_timeout`] has come (calling it early or twice is harmless), then take every
//! [`Machine::poll_action`]. Nothing is remembered of single events that the newest picture does not show
//! again, so lost, doubled or late events cannot hurt.

mod advance;
mod again;
mod beyond;
mod contact;
mod cordon;
mod ending;
mod estimate;
mod fallback;
mod finish;
mod gates;
mod guests;
mod holding;
mod index;
mod known;
mod local;
mod lots;
mod observe;
mod orders;
mod others;
mod pending;
mod report;
mod requests;
mod restoring;
mod schedule;
mod show;
mod signalled;
mod sparing;
mod targets;
mod uncordoned;
mod undo;
mod volumes;

use super::action::{
    Action, EffectId, Fault, FaultClass, HoldView, Input, Level, Notice, Source, Token,
};
use super::again::Owed;
use super::hooks::Gate;
use super::judge::Consentless;
use super::others::OtherTrack;
use super::pacing::Slots;
use super::phase::Phase;
use super::policy::{Consent, Policy};
use super::record::{FORMAT, Record};
use super::stop::StopNote;
use super::time::Mono;
use super::track::{Track, doubled};
use super::trigger::{Refusal, Then, Trigger};
use super::world::{NodeView, ObjectRef, Picture, VmName};
use contact::Contact;
use fallback::Falling;
use gates::Gates;
use holding::HoldTold;
pub use holding::note as holder_note;
use local::Local;
pub(in crate::drain) use lots::{chosen, owner_of};
use pending::Sent;
use requests::{REQUEST, Requests, watches};
use restoring::Restore;
use schedule::Due;
pub(in crate::drain) use show::span;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use targets::Targets;
use undo::Undo;

/// One drain.
#[derive(Clone, Debug, PartialEq)]
struct Drain {
    id: String,
    trigger: Option<Trigger>,
    reason: String,
    started: Mono,
    deadline: Mono,
    /// When this process began to look.
    looking_since: Mono,
    /// The host is known to be going down.
    shutting_down: bool,
    /// Begun early: the shutdown is only scheduled.
    scheduled: bool,
    /// Resumed from a record; the pending shutdown has not been seen by this process yet.
    unconfirmed: bool,
    /// The stop jobs of the system are running (net 3): it goes down whatever logind says.
    stopping: bool,
    then: Option<Then>,
    exit: Option<u8>,
    cordoned: bool,
    cordon_ours: bool,
    /// A cordon that the process before has sent may still arrive until then.
    cordon_may_land: Option<Mono>,
    /// Resource version of the Node after our patch: older pictures do not show it.
    cordon_version: u64,
    last_accepted: Mono,
    /// Since when only the cluster's slots are full.
    cluster_full: Option<Mono>,
    /// VMIMs that were over when this drain looked first; `None` until then.
    old_migrations: Option<BTreeSet<String>>,
    /// Marks from a record, until their VMIs are seen: VMI UID → VMI.
    inherited: BTreeMap<String, ObjectRef>,
    /// Stops from a record, until their pods are seen: pod UID → stop.
    inherited_stops: BTreeMap<String, StopNote>,
    abort_migrations: bool,
    /// How it ends, as far as the clock or a person has decided that.
    falling: Falling,
    /// Whether the API server is there.
    contact: Contact,
    /// What this host does by itself while it is not.
    local: Local,
    /// logind does not wait longer than until then.
    latest: Option<Mono>,
    /// Which gates are open.
    gates: Gates,
    /// What is known of target pods.
    targets: Targets,
    /// The hold was given up for this drain.
    released: bool,
    /// What has to be undone, and how far that is.
    undo: Undo,
    /// Who stops guests at a shutdown, as far as this drain has seen: such a one lets go as soon as it has done it.
    guest_stopper: String,
    /// Outcome as a sentence.
    end: String,
    /// The last problem of the drain as a whole.
    trouble: String,
    /// What a signal has changed in an operator's drain.
    joined: Option<signalled::Joined>,
    /// Since when fresh lists lack a kind that there is a right to.
    unread_since: Option<Mono>,
    /// The cordon was refused for want of a right.
    cordon_refused: bool,
}

/// The machine. See the module page.
#[derive(Clone, Debug)]
pub struct Machine {
    policy: Policy,
    phase: Phase,
    drain: Option<Drain>,
    node: Option<NodeView>,
    picture: Picture,
    tracks: BTreeMap<String, Track>,
    /// Pods that are no VM's, by UID; only in a drain of all pods.
    others: BTreeMap<String, OtherTrack>,
    /// The slots as counted last, for the estimate.
    slots: Slots,
    hold: HoldView,
    hold_told: HoldTold,
    /// The shutdown that is scheduled, if any.
    schedule: Option<Due>,
    /// Requests on the own Node.
    requests: Requests,
    /// Gates that have hooks.
    hooks: BTreeSet<Gate>,
    /// Who sends maintenance signals.
    sources: Vec<Source>,
    actions: VecDeque<Action>,
    pending: BTreeMap<EffectId, Sent>,
    next_effect: u64,
    /// The moment of the step that is being taken.
    now: Mono,
    /// Not before: per kind of whole-drain retry.
    retry_at: Mono,
    retries: u32,
    wake: Option<(Mono, &'static str)>,
    persisted: Option<Record>,
    told: BTreeMap<String, String>,
    /// Giving the node back after a boot; never while a drain is under way.
    restore: Option<Restore>,
    /// VMs that were shut down for a drain and that nobody else starts again.
    owed: BTreeMap<VmName, Owed>,
    /// Those that could not be started, each as a sentence.
    not_started: BTreeMap<VmName, String>,
    seed: u64,
    ids: u64,
}

impl Machine {
    /// A machine at rest that has nothing to look for. `seed` drives the jitter and the drain ids.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            phase: Phase::Idle,
            drain: None,
            node: None,
            picture: Picture::default(),
            tracks: BTreeMap::new(),
            others: BTreeMap::new(),
            slots: Slots::default(),
            hold: HoldView::default(),
            hold_told: HoldTold::default(),
            schedule: None,
            requests: Requests::default(),
            hooks: BTreeSet::new(),
            sources: Vec::new(),
            actions: VecDeque::new(),
            pending: BTreeMap::new(),
            next_effect: 0,
            now: Mono::default(),
            retry_at: Mono::default(),
            retries: 0,
            wake: None,
            persisted: None,
            told: BTreeMap::new(),
            restore: None,
            owed: BTreeMap::new(),
            not_started: BTreeMap::new(),
            seed: seed | 1,
            ids: 0,
        }
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Id of the current or last drain.
    pub fn drain_id(&self) -> Option<&str> {
        self.drain.as_ref().map(|d| d.id.as_str())
    }

    /// New knobs after a reload. A running drain keeps its deadline.
    pub fn set_policy(&mut self, policy: Policy) {
        let was = std::mem::replace(&mut self.policy, policy);
        self.restore_switched(was.restore);
        self.advance(self.now);
    }

    /// Takes one input.
    pub fn handle(&mut self, input: Input, now: Mono) {
        self.now = now;
        match input {
            Input::Trigger(token, trigger) => self.order_drain(token, trigger, now),
            Input::Shutdown(shutdown) => self.shutdown(&shutdown, now),
            Input::ShutdownVanished { why } => self.shutdown_vanished(&why),
            Input::Scheduled(schedule) => self.scheduled(schedule, now),
            Input::Cancel {
                token,
                abort_migrations,
                signal,
            } => self.order_cancel(token, abort_migrations, &signal),
            Input::Extend { token, by } => self.order_extend(token, by, now),
            Input::Release { token, ending } => self.order_release(token, ending, now),
            Input::Restore(token) => self.order_restore(token),
            Input::Sources(sources) => self.sources_seen(sources),
            Input::HostReady => self.host_ready(),
            Input::Picture(mut picture) => {
                self.policy.timing.hasten(&mut picture);
                self.see(*picture, now);
            }
            Input::Hold(hold) => self.hold_seen(hold, now),
            Input::Done(id, outcome) => self.done(id, outcome, now),
        }
        self.advance(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        self.now = now;
        self.advance(now);
    }

    /// The next thing to do, in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front()?;
        self.requests.watching = watches(&action).unwrap_or(self.requests.watching);
        Some(action)
    }

    /// When [`Machine::handle_timeout`] is wanted next, and why.
    pub fn poll_timeout(&self) -> Option<(Mono, &'static str)> {
        self.wake
    }

    /// Uniform in 0..1, from the seed (xorshift64*).
    fn jitter(&mut self) -> f64 {
        self.seed ^= self.seed >> 12;
        self.seed ^= self.seed << 25;
        self.seed ^= self.seed >> 27;
        let bits = self.seed.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40;
        f64::from(u32::try_from(bits).unwrap_or(0)) / f64::from(1_u32 << 24)
    }

    /// A whole-drain request failed: pause before the next, longer each time.
    fn retry_later(&mut self, fault: &Fault, now: Mono) {
        self.retries = self.retries.saturating_add(1);
        let timing = self.policy.timing;
        let pause = match fault.class {
            FaultClass::Conflict => timing.retry_first / 10,
            FaultClass::Denied | FaultClass::Fatal => timing.retry_most,
            FaultClass::Transient | FaultClass::Gone | FaultClass::Unauthorized => {
                doubled(timing.retry_first, timing.retry_most, self.retries)
            }
        };
        self.retry_at = now + pause.mul_f64(0.85 + 0.3 * self.jitter());
    }

    fn retry_done(&mut self) {
        self.retries = 0;
        self.retry_at = Mono::default();
    }

    fn wake_at(&mut self, when: Mono, why: &'static str) {
        if self.wake.is_none_or(|(at, _)| when < at) {
            self.wake = Some((when, why));
        }
    }

    /// To the journal.
    fn tell(&mut self, level: Level, reason: &'static str, text: String) {
        self.notice(level, reason, text, false);
    }

    /// To the journal and as an Event on the Node.
    fn loud(&mut self, level: Level, reason: &'static str, text: String) {
        self.notice(level, reason, text, true);
    }

    fn notice(&mut self, level: Level, reason: &'static str, text: String, event: bool) {
        self.actions.push_back(Action::Tell(Notice {
            level,
            reason,
            text,
            vm: None,
            event,
        }));
    }

    /// As [`Machine::loud`], but the same thing only once per drain.
    fn tell_once(&mut self, key: &str, level: Level, reason: &'static str, text: String) {
        if self.told.get(key) != Some(&text) {
            self.told.insert(key.to_owned(), text.clone());
            self.loud(level, reason, text);
        }
    }

    fn answer(&mut self, token: Token, answer: Result<String, Refusal>) {
        if token == REQUEST {
            return self.request_answered(answer);
        }
        self.actions.push_back(Action::Answer(token, answer));
    }

    /// Whether guests may be shut down in this drain.
    fn consent(&self) -> Result<(), Consentless> {
        let Some(drain) = &self.drain else {
            return Err(Consentless::NotAsked);
        };
        let asked = drain
            .trigger
            .as_ref()
            .is_some_and(|t| t.allow_guest_shutdown || t.shutdown_vms);
        let asked = asked || drain.falling.asked;
        match self.policy.consent {
            Consent::Never => Err(Consentless::Never),
            Consent::Always => Ok(()),
            Consent::OnShutdown if drain.shutting_down || drain.then.is_some() || asked => Ok(()),
            Consent::OnShutdown if drain.scheduled => Err(Consentless::Scheduled),
            Consent::OnShutdown => Err(Consentless::NotAsked),
        }
    }

    /// Writes the record when it has changed.
    fn persist(&mut self) {
        let Some(drain) = &self.drain else { return };
        let marks = self.marks_ours();
        let record = Record {
            format: FORMAT,
            drain: drain.id.clone(),
            boot: self.policy.boot_id.clone(),
            userspace: self.policy.userspace,
            phase: self.phase.name().into(),
            trigger: drain.trigger.clone(),
            shutting_down: drain.shutting_down,
            scheduled: drain.scheduled,
            started: drain.started,
            deadline: drain.deadline,
            cordon_ours: drain.cordon_ours,
            abort_migrations: drain.abort_migrations,
            exit: drain.exit,
            marks,
            starts: self.starts_noted(),
            released: drain.falling.asked,
            stops: self.stops_ours(),
        };
        self.write(record);
    }

    /// The drain is over and nothing of it is left to be known, but for the VMs that it still has to start.
    fn forget(&mut self) {
        if self.owed.is_empty() {
            if self.persisted.take().is_some() {
                self.actions.push_back(Action::ForgetRecord);
            }
            return;
        }
        let record = Record {
            format: FORMAT,
            drain: self.drain_id().unwrap_or_default().to_owned(),
            boot: self.policy.boot_id.clone(),
            userspace: self.policy.userspace,
            phase: again::ENDED.into(),
            starts: self.starts_noted(),
            ..Record::default()
        };
        self.write(record);
    }

    fn write(&mut self, record: Record) {
        if self.persisted.as_ref() != Some(&record) {
            self.persisted = Some(record.clone());
            self.actions.push_back(Action::Persist(Box::new(record)));
        }
    }
}

/// Deadline for a hold of `limit`: the margin never eats more than a fifth of it.
pub fn hold_deadline(signal: Mono, limit: Duration, margin: Duration) -> Mono {
    signal + limit.saturating_sub(margin.min(limit / 5))
}

/// Latest deadline that a person can have within a hold of `limit`: what is left of it, `release` at most, is for the
/// release itself.
pub fn latest_deadline(signal: Mono, limit: Duration, release: Duration) -> Mono {
    signal + limit.saturating_sub(release.min(limit / 10))
}

#[cfg(test)]
mod tests;
