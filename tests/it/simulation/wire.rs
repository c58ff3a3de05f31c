//! The way of a request to the model and of its answer back, with everything that may go wrong between.

use super::cluster::Tick;
use super::run::{Broken, Event, Run};
use super::server::Effect;
use vmdrain_agent::drain::action::{Action, EffectId, Fault, FaultClass, LogindAnswer, Outcome};
use vmdrain_agent::drain::hooks::Report;
use vmdrain_agent::drain::world::CordonMark;

impl Run {
    fn storm(&self) -> bool {
        self.now < self.plan.storm_until
    }

    pub(super) fn send(&mut self, effect: Action) {
        let Some(id) = id_of(&effect) else { return };
        let local = matches!(
            effect,
            Action::Release(_)
                | Action::TakeHold(_)
                | Action::AskLogind { .. }
                | Action::RunHooks { .. }
                | Action::LookHere(_)
                | Action::TellGuest { .. }
        );
        let most = if self.storm() { self.plan.latency } else { 50 };
        let arrives = self.now + 1 + self.rng.below(most);
        let loss = if self.storm() { self.plan.loss } else { 0 };
        let process = self.process;
        if self.storm() && self.rng.per_mille(2) {
            // The effect's task has panicked after the request was sent: no result ever.
            self.at(arrives, Event::Request(u32::MAX, Box::new(effect), true));
        } else if !local && (self.cluster.api_is_down() || self.rng.per_mille(loss)) {
            // Never reaches the server.
            let after = self.rng.pick(&[5, 1000, 10_000]);
            let failure = Box::new(failure(&effect, "connection refused"));
            self.at(self.now + after, Event::Result(process, id, failure));
        } else {
            let lost = !local && self.rng.per_mille(loss);
            self.at(arrives, Event::Request(process, Box::new(effect), lost));
        }
    }

    /// The server does what it is asked, and answers.
    pub(super) fn serve(
        &mut self,
        process: u32,
        action: &Action,
        lost: bool,
    ) -> Result<(), Broken> {
        let Some(id) = id_of(action) else {
            return Ok(());
        };
        let outcome = self.carry_out(action)?;
        self.note(|| format!("served {action:?}: {outcome:?}"));
        self.publish();
        let back = self.now + 1 + self.rng.below(20);
        let outcome = if lost {
            failure(action, "timed out")
        } else {
            outcome
        };
        let at = if lost { self.now + 9000 } else { back };
        if self.storm() && self.rng.percent(1) {
            self.at(
                at + 50,
                Event::Result(process, id, Box::new(outcome.clone())),
            );
        }
        self.at(at, Event::Result(process, id, Box::new(outcome)));
        Ok(())
    }

    fn carry_out(&mut self, action: &Action) -> Result<Outcome, Broken> {
        let cluster = &mut self.cluster;
        Ok(match action {
            Action::Cordon {
                resource_version,
                note,
                ..
            } => Outcome::Node(cluster.cordon(resource_version, note.clone())),
            Action::Uncordon {
                resource_version, ..
            } => {
                let note = cluster.note.clone();
                let result = cluster.uncordon(resource_version);
                match (&note, result.is_ok()) {
                    (_, false) => {}
                    (CordonMark::Note(note), true) => self.watcher.uncordoned(note)?,
                    (CordonMark::Absent | CordonMark::Damaged(_), true) => {
                        return Err("a cordon that is not ours was undone".into());
                    }
                }
                Outcome::Node(result)
            }
            Action::Unmark {
                resource_version, ..
            } => Outcome::Node(cluster.unmark(resource_version)),
            Action::Evict { pod, dry_run, .. } => {
                let (reply, effect) = cluster.evict(pod, *dry_run);
                self.check_effect(effect, *dry_run)?;
                Outcome::Reply(Ok(reply))
            }
            Action::ReadVolumes(_) => Outcome::Volumes(Ok(Vec::new())),
            // Its words change from one question to the next, as the cluster does.
            Action::ReadTarget { id, .. } => Outcome::Target(Ok(
                (id.0 % 2 == 0).then(|| "0/2 nodes are available: 2 Insufficient cpu.".into())
            )),
            Action::Confirm { .. } => {
                let fresh = cluster.fresh();
                let left = cluster.guests_here().len();
                self.watcher.confirmed(left == 0, self.now);
                Outcome::Fresh(Ok(fresh))
            }
            Action::CancelEvacuation { vmi, .. } => {
                let (reply, foreign) = cluster.cancel_evacuation(vmi);
                if foreign && !self.watcher.asked_for(&vmi.uid) {
                    return Err(format!("the mark of somebody else on {vmi} was cleared"));
                }
                Outcome::Reply(Ok(reply))
            }
            Action::StopGuest { pod, .. } => Outcome::Reply(Ok(cluster.stop_guest(pod))),
            Action::DeleteMigration { migration, .. } => {
                Outcome::Reply(Ok(cluster.delete_migration(migration)))
            }
            // All VMs of the model have owners that start them by themselves.
            Action::StartVm { vm, .. } => {
                return Err(format!("a start of {vm}, which nobody owes"));
            }
            Action::Release(_)
            | Action::TakeHold(_)
            | Action::AskLogind { .. }
            | Action::RunHooks { .. }
            | Action::LookHere(_)
            | Action::TellGuest { .. } => self.on_the_host(action),
            // Requests are off in these plans.
            Action::ReadNode(_) | Action::Acknowledge { .. } => {
                Outcome::Node(Ok(cluster.node_view()))
            }
            Action::Watch
            | Action::WatchAll
            | Action::WatchNode
            | Action::Unwatch
            | Action::Persist(_)
            | Action::ForgetRecord
            | Action::Answer(..)
            | Action::Tell(_) => Outcome::Hold(Err("no request".into())),
        })
    }

    /// What the host itself does.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the caller has picked them")]
    fn on_the_host(&mut self, action: &Action) -> Outcome {
        match action {
            Action::Release(_) => {
                self.host.held = false;
                if self.host.pending && !self.host.off {
                    let since = self.host.since;
                    self.at(self.now + 200, Event::HostOff(since));
                }
                Outcome::Hold(Ok(self.host.view()))
            }
            Action::TakeHold(_) => {
                self.host.held = true;
                Outcome::Hold(Ok(self.host.view()))
            }
            Action::AskLogind { .. } if self.plan.logind_blocks => {
                Outcome::Logind(LogindAnswer::Blocked("held by a test".into()))
            }
            Action::AskLogind { .. } => {
                self.at(self.now + 100, Event::Signal);
                Outcome::Logind(LogindAnswer::Accepted)
            }
            Action::RunHooks { .. } => Outcome::Hooks(Ok(Report::default())),
            Action::LookHere(_) => {
                let view = self.cluster.look_here();
                self.watcher.confirmed(view.guests.is_empty(), self.now);
                Outcome::Local(Ok(view))
            }
            Action::TellGuest { guest, .. } => {
                self.cluster.tell_guest(&guest.pod_uid);
                Outcome::Told(Ok(()))
            }
            other => unreachable!("not of the host: {other:?}"),
        }
    }

    fn check_effect(&mut self, effect: Effect, dry: bool) -> Result<(), Broken> {
        match effect {
            Effect::GuestStopped if dry => Err("a dry run stopped a guest".into()),
            Effect::GuestStopped => self.watcher.guest_stopped(&self.plan),
            Effect::Marked | Effect::Nothing => Ok(()),
        }
    }

    /// Schedules what the model wants, and pictures of what has changed.
    pub(super) fn publish(&mut self) {
        for (when, tick) in std::mem::take(&mut self.cluster.wants) {
            self.at(when, Event::Tick(tick));
        }
        if !self.cluster.changed {
            return;
        }
        let down = self.cluster.api_is_down();
        if !self.watching || down {
            // What changes while the API server is away is seen when it is back.
            if down && self.watching {
                self.at(self.now + 5000, Event::Tick(Tick::Healed));
            }
            return;
        }
        let (lag, lost) = if self.storm() {
            (self.plan.lag, self.rng.per_mille(self.plan.loss))
        } else {
            (20, false)
        };
        let after = 1 + self.rng.below(lag);
        let watch = self.watch;
        if lost {
            // This one never comes; the next relist tells all the same.
            self.at(self.now + 20_000, Event::Tick(Tick::Healed));
        } else {
            let picture = Box::new(self.picture());
            let mut at = self.now + after;
            if !(self.storm() && after > 20) {
                // One watch keeps its order; only the late ones of a storm are overtaken.
                at = at.max(self.last_picture);
                self.last_picture = at;
            }
            self.at(at, Event::Picture(watch, picture));
            if self.storm() && after > 20 {
                // Pictures overtake each other; a late one is followed by a right one.
                self.at(self.plan.storm_until + 1, Event::Tick(Tick::Healed));
            }
        }
        self.cluster.changed = false;
    }
}

fn id_of(action: &Action) -> Option<EffectId> {
    match action {
        Action::ReadNode(id)
        | Action::ReadVolumes(id)
        | Action::ReadTarget { id, .. }
        | Action::Confirm { id, .. }
        | Action::Release(id)
        | Action::TakeHold(id)
        | Action::Cordon { id, .. }
        | Action::Uncordon { id, .. }
        | Action::Unmark { id, .. }
        | Action::Evict { id, .. }
        | Action::CancelEvacuation { id, .. }
        | Action::DeleteMigration { id, .. }
        | Action::StartVm { id, .. }
        | Action::StopGuest { id, .. }
        | Action::RunHooks { id, .. }
        | Action::LookHere(id)
        | Action::TellGuest { id, .. }
        | Action::Acknowledge { id, .. }
        | Action::AskLogind { id, .. } => Some(*id),
        Action::Watch
        | Action::WatchAll
        | Action::WatchNode
        | Action::Unwatch
        | Action::Persist(_)
        | Action::ForgetRecord
        | Action::Answer(..)
        | Action::Tell(_) => None,
    }
}

fn failure(action: &Action, text: &str) -> Outcome {
    let fault = Fault {
        class: FaultClass::Transient,
        text: text.into(),
    };
    match action {
        Action::ReadNode(_)
        | Action::Cordon { .. }
        | Action::Uncordon { .. }
        | Action::Acknowledge { .. }
        | Action::Unmark { .. } => Outcome::Node(Err(fault)),
        Action::Confirm { .. } => Outcome::Fresh(Err(fault)),
        Action::ReadVolumes(_) => Outcome::Volumes(Err(fault)),
        Action::ReadTarget { .. } => Outcome::Target(Err(fault)),
        Action::Release(_) | Action::TakeHold(_) => Outcome::Hold(Err(text.into())),
        Action::AskLogind { .. } => Outcome::Logind(LogindAnswer::Failed(text.into())),
        Action::RunHooks { .. } => Outcome::Hooks(Err(text.into())),
        Action::LookHere(_) => Outcome::Local(Err(text.into())),
        Action::TellGuest { .. } => Outcome::Told(Err(text.into())),
        Action::Evict { .. }
        | Action::CancelEvacuation { .. }
        | Action::DeleteMigration { .. }
        | Action::StartVm { .. }
        | Action::StopGuest { .. }
        | Action::Watch
        | Action::WatchAll
        | Action::WatchNode
        | Action::Unwatch
        | Action::Persist(_)
        | Action::ForgetRecord
        | Action::Answer(..)
        | Action::Tell(_) => Outcome::Reply(Err(fault)),
    }
}
