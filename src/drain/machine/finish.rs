//! How a drain ends: fresh lists, release, logind, the deadline, a refusal.

use super::Machine;
use super::pending::Pending;
use super::show::span;
use crate::drain::action::{Action, Fault, HoldView, Level, LogindAnswer};
use crate::drain::hooks::Gate;
use crate::drain::judge::left_here;
use crate::drain::phase::Phase;
use crate::drain::policy::OnDeadline;
use crate::drain::status::VmPhase;
use crate::drain::time::Mono;
use crate::drain::track::{Track, doubled};
use crate::drain::trigger::Refusal;
use crate::drain::verdict::{Wait, left_sentence};
use crate::drain::world::{Fresh, ObjectRef, PodView, Sight};

impl Machine {
    pub(super) fn confirmed(&mut self, since: Mono, result: Result<Fresh, Fault>, now: Mono) {
        let fresh = match result {
            Ok(fresh) => fresh,
            Err(fault) => {
                self.retry_later(&fault, now);
                return self.tell_unconfirmed(&fault.text);
            }
        };
        if self.phase != Phase::Confirming {
            return;
        }
        self.see_fresh(&fresh, now);
        if !self.does_without(&fresh.unread, now) {
            return;
        }
        let stale = self.drain.as_ref().is_some_and(|d| d.last_accepted > since);
        let node = self.policy.node_name.clone();
        let alone = self.left_alone();
        let lingers = |pod: &PodView| self.lingers(pod, now);
        let left = !left_here(&self.picture, &node, lingers, &alone).is_empty();
        let unread: Vec<_> = fresh
            .malformed
            .iter()
            .filter(|m| m.resource == "pods")
            .collect();
        if let Some(first) = unread.first() {
            let text = format!(
                "pod {} cannot be read ({}): whether a VM runs in it is not known, so the node does not count as empty",
                first.object, first.why
            );
            self.tell_once("malformed", Level::Warn, "MalformedObject", text);
        }
        if stale || left || !unread.is_empty() {
            self.phase = self.working();
            return self.confirm_later(now);
        }
        self.retry_done();
        if self.others_can_go() {
            self.phase = Phase::OtherPods;
            return;
        }
        self.drained(now);
    }

    /// Kinds that cannot be listed are waited for, not for ever: with the node's own rights pods are enough, too.
    fn does_without(&mut self, unread: &[String], now: Mono) -> bool {
        let patience = self.policy.timing.unread;
        let Some(drain) = &mut self.drain else {
            return false;
        };
        let Some(why) = unread.first() else {
            drain.unread_since = None;
            return true;
        };
        let since = *drain.unread_since.get_or_insert(now);
        if now.since(since) >= patience {
            let text = format!(
                "{why}; that lasts for {}: this node's pods alone tell whether a VM is left",
                span(now.since(since))
            );
            self.tell_once("unread", Level::Warn, "ConfirmedByPods", text);
            return true;
        }
        self.confirm_later(now);
        self.tell_unconfirmed(why);
        false
    }

    /// Fresh lists are asked for again after a pause that grows.
    fn confirm_later(&mut self, now: Mono) {
        self.retries += 1;
        let timing = self.policy.timing;
        self.retry_at = now + doubled(timing.retry_first, timing.retry_most, self.retries);
    }

    fn tell_unconfirmed(&mut self, why: &str) {
        let text = format!("cannot confirm that the node is empty: {why}");
        if let Some(drain) = &mut self.drain {
            drain.trouble.clone_from(&text);
        }
        self.tell_once("confirm", Level::Warn, "ConfirmFailed", text);
    }

    pub(super) fn drained(&mut self, now: Mono) {
        if !self.volumes_gone(now) || !self.passes(Gate::PostDrain, now) {
            self.phase = Phase::Gates;
            return;
        }
        self.phase = Phase::Drained;
        self.warn_of_lingering(now);
        let (left, given_up) = self.end_left_alone(now);
        let alone = match (left - given_up, given_up) {
            (0, 0) => String::new(),
            (n, 0) => format!(" but for {n} that their policy leaves alone"),
            (0, n) => format!(" but for {n} whose own deadline has passed"),
            (n, m) => format!(
                " but for {n} that their policy leaves alone and {m} whose own deadline has passed"
            ),
        };
        self.others_wait(now);
        let stay = self.others_left_text();
        self.leave_others(now);
        let by_others = |t: &&Track| t.ended.is_some() && t.by_others;
        let stopped = self.tracks.values().filter(by_others).count();
        let by = self.empty_by();
        let Some(drain) = &mut self.drain else { return };
        drain.trouble.clear();
        drain.exit = if drain.shutting_down || drain.then.is_none() {
            Some(if given_up > 0 || !stay.is_empty() {
                3
            } else {
                0
            })
        } else {
            None
        };
        let by_others = match stopped {
            0 => String::new(),
            n => format!("; {n} of them were stopped by others, not moved"),
        };
        let stay = match stay.as_str() {
            "" => String::new(),
            pods => format!(", but {pods}"),
        };
        drain.end = format!("no VM is left on the node{alone}{by_others}{by}{stay}");
        let took = super::show::span(now.since(drain.started));
        let text = format!(
            "node {} is empty of VMs{alone} after {took}{by_others}{by}{stay}",
            self.policy.node_name
        );
        self.tell_once("end", Level::Info, "Drained", text);
        self.actions.push_back(Action::Unwatch);
        if stay.is_empty() || !self.stays_up_for_pods() {
            self.leave(now);
        }
    }

    /// Pods are left that nobody has agreed to lose. The host goes down over them only when somebody else has decided that
    /// already, or the policy lets it go whatever is left; true when it stays up, and the node is given back (T40).
    fn stays_up_for_pods(&mut self) -> bool {
        let goes = self.ending() == OnDeadline::Proceed;
        let Some(drain) = &mut self.drain else {
            return false;
        };
        let rack = drain.is_of_the_rack();
        if goes || rack || drain.falling.asked || drain.shutting_down || drain.then.is_none() {
            return false;
        }
        drain.then = None;
        drain.exit = Some(3);
        drain.end.push_str("; logind was not asked to go down");
        let text = drain.end.clone();
        self.tell(Level::Warn, "PodsLeft", text.clone());
        self.start_cancel(&text);
        true
    }

    fn warn_of_lingering(&mut self, now: Mono) {
        let pods = self.picture.pods.seen().into_iter().flatten();
        let lingering: Vec<_> = pods
            .filter(|p| !p.is_empty_of_guest() && self.lingers(p, now))
            .cloned()
            .collect();
        for pod in lingering {
            let text = format!(
                "{} has moved, but its old pod {} still runs here; the drain goes on without it",
                pod.vm, pod.pod
            );
            let key = pod.pod.uid.clone();
            self.tell_vm(Level::Warn, "OldPodLingers", text, pod.pod);
            if let Some(track) = self.tracks.get_mut(&key) {
                track.end(VmPhase::Migrated, now);
            }
            self.tell_end(&key, VmPhase::Migrated);
        }
    }

    /// What follows when a drain is over: release, logind, or nothing.
    fn leave(&mut self, now: Mono) {
        let Some(drain) = &self.drain else { return };
        if drain.shutting_down {
            self.persist();
            self.want_release(now);
        } else if drain.then.is_some() {
            self.persist();
            self.want_logind(now);
        } else if drain.scheduled {
            // A later process has to know what to take back when the shutdown is called off.
            self.persist();
        } else {
            self.forget();
        }
    }

    /// Asks logind to go down, once.
    fn want_logind(&mut self, now: Mono) {
        let Some(drain) = &self.drain else { return };
        let Some(then) = drain.then.filter(|_| !drain.gates.asked) else {
            return;
        };
        if !self.passes(Gate::PreRelease, now) {
            return;
        }
        if let Some(drain) = &mut self.drain {
            drain.gates.asked = true;
        }
        let id = self.effect(Pending::AskLogind);
        self.actions.push_back(Action::AskLogind { id, then });
    }

    fn want_release(&mut self, now: Mono) {
        let asked = self.waits_for(|p| matches!(p, Pending::Release));
        let released = self.drain.as_ref().is_some_and(|d| d.released);
        if asked || released || !self.hold.held {
            return;
        }
        if now < self.retry_at {
            self.wake_at(self.retry_at, "release again");
            return;
        }
        if !self.passes(Gate::PreRelease, now) {
            return;
        }
        let id = self.effect(Pending::Release);
        self.actions.push_back(Action::Release(id));
    }

    pub(super) fn released(&mut self, result: Result<HoldView, String>, now: Mono) {
        match result {
            Ok(hold) if !hold.held => {
                self.hold = hold;
                self.retry_done();
                let mut vanished = false;
                if let Some(drain) = &mut self.drain {
                    drain.released = true;
                    vanished = !drain.shutting_down;
                }
                // It was called off while we were letting go.
                if vanished {
                    return self.want_hold();
                }
                self.tell(
                    Level::Info,
                    "HoldReleased",
                    "the hold is released, the host may go down".into(),
                );
            }
            Ok(hold) => {
                self.hold = hold;
                self.release_failed("logind still lists our lock", now);
            }
            Err(why) => self.release_failed(&why, now),
        }
    }

    fn release_failed(&mut self, why: &str, now: Mono) {
        self.retry_at = now + self.policy.timing.retry_first;
        self.tell_once(
            "release",
            Level::Error,
            "ReleaseFailed",
            format!("cannot release the hold: {why}"),
        );
    }

    /// Drained, past the deadline or refused, and the host still has to be let go.
    pub(super) fn end_step(&mut self, now: Mono) {
        if self.drain.as_ref().is_some_and(|d| d.shutting_down) {
            self.want_release(now);
        } else if self.phase != Phase::Refused {
            self.want_logind(now);
        }
    }

    pub(super) fn logind_answered(&mut self, answer: LogindAnswer) {
        // The shutdown's own signal was quicker and has taken the drain over, or it is being undone.
        let late = self.phase == Phase::Deadline;
        if self.phase != Phase::Drained && !late {
            return;
        }
        let Some(drain) = &mut self.drain else { return };
        if drain.shutting_down {
            return;
        }
        let text = match answer {
            LogindAnswer::Accepted => {
                if !late {
                    drain.exit = Some(0);
                }
                // Written down: a later process must not ask a second time.
                self.persist();
                return;
            }
            LogindAnswer::Blocked(why) | LogindAnswer::Failed(why) => why,
        };
        let then = drain
            .then
            .take()
            .map_or("shutdown", super::super::trigger::Then::word);
        if late {
            let text = format!("{}, and logind refused the {then}: {text}", drain.end);
            self.tell(Level::Error, "LogindRefused", text.clone());
            return self.start_cancel(&text);
        }
        drain.exit = Some(1);
        drain.end = format!("the node is drained, but logind refused the {then}: {text}");
        let text = format!(
            "{}; it stays cordoned (`vmdrain-agent restore` gives it back)",
            drain.end
        );
        self.forget();
        self.tell(Level::Error, "LogindRefused", text);
    }

    /// The deadline has passed: whether the drain goes on all the same.
    pub(super) fn goes_on(&mut self) -> bool {
        if self.ending() != OnDeadline::Hold {
            return false;
        }
        let left = self.tracks.values().filter(|t| t.ended.is_none()).count();
        let pods = match self.others_left_text().as_str() {
            "" => String::new(),
            pods => format!(" and {pods}"),
        };
        let Some(drain) = &mut self.drain else {
            return false;
        };
        if !drain.falling.holding {
            drain.falling.holding = true;
            let text = format!(
                "the deadline passed with {left} VM(s){pods} left on node {}; by policy the drain goes on until they are gone (`vmdrain-agent release` or `cancel` ends it, `extend` moves the deadline)",
                self.policy.node_name
            );
            self.tell_once("holding", Level::Warn, "Holding", text);
        }
        true
    }

    pub(super) fn deadline_reached(&mut self, now: Mono) {
        let ending = self.ending();
        self.warn_of_lingering(now);
        let left = self.leave_the_rest(now);
        // Those that are left are on their way down.
        let pods = self.others_left_text();
        let pods_go = self.others_left().iter().all(|(.., going)| *going);
        self.leave_others(now);
        let some = !left.is_empty() || !pods.is_empty();
        let told_all = some && pods_go && left.iter().all(|(_, stopped)| *stopped);
        let blind = self.picture.pods.seen().is_none() && !self.knows_itself();
        self.phase = Phase::Deadline;
        self.actions.push_back(Action::Unwatch);
        let text = self.deadline_text(blind, left.len(), &pods);
        let alone = self.acts_alone();
        let Some(drain) = &mut self.drain else { return };
        // Nobody knows what is left where the API server was never reached (design section 7).
        let blind_to_all = blind && !matches!(self.picture.pods, Sight::Forbidden { .. });
        let unreachable = blind_to_all || alone;
        drain.exit = Some(if unreachable { 7 } else { 3 });
        drain.end = text;
        let down = drain.shutting_down;
        let rack = drain.is_of_the_rack();
        // A host that nobody holds down stays up rather than kill a guest that was not even told; unless going down
        // is what was asked for.
        let goes = match ending {
            OnDeadline::Proceed => true,
            OnDeadline::ShutdownVms => rack || drain.falling.asked || (!blind && told_all),
            OnDeadline::Hold | OnDeadline::Abort => false,
        };
        let then = drain.then.filter(|_| goes && !down);
        if then.is_none() && drain.then.take().is_some() && !down {
            drain.end.push_str("; logind was not asked to go down");
        }
        let text = drain.end.clone();
        self.tell_once("end", Level::Warn, "DeadlinePassed", text.clone());
        self.retry_done();
        if down {
            self.persist();
            self.want_release(now);
        } else if then.is_some() {
            self.persist();
            self.want_logind(now);
        } else {
            // The host stays up: a node that was not drained is not left cordoned (T40).
            self.start_cancel(&text);
        }
    }

    /// Whatever is still here is left. Answers with each VM, and whether its guest is on its way down.
    fn leave_the_rest(&mut self, now: Mono) -> Vec<(ObjectRef, bool)> {
        let not_begun = self.not_begun();
        let mut left = Vec::new();
        for track in self.tracks.values_mut().filter(|t| t.ended.is_none()) {
            if track.says.is_empty() {
                track.says.clone_from(&not_begun);
            }
            let stopped = track.asked_to_end();
            track.end(VmPhase::Left, now);
            track.shown = VmPhase::Left;
            track.shown_since = now;
            let text = left_sentence(&track.vm, &track.says);
            left.push((track.vmi(), stopped, text));
        }
        self.owe_what_ends();
        for (vm, _, text) in &left {
            self.tell_vm(Level::Warn, "VmLeft", text.clone(), vm.clone());
        }
        left.into_iter()
            .map(|(vm, stopped, _)| (vm, stopped))
            .collect()
    }

    fn deadline_text(&self, blind: bool, left: usize, pods: &str) -> String {
        let node = &self.policy.node_name;
        let trouble = self.drain.as_ref().map(|d| d.trouble.as_str());
        let trouble = trouble.filter(|text| !text.is_empty());
        match (blind, left) {
            (true, _) => format!(
                "the deadline passed before the VMs of node {node} could be seen: {}",
                match &self.picture.pods {
                    Sight::Broken { why, .. } | Sight::Forbidden { why } => why,
                    Sight::Seen { .. } | Sight::Pending | Sight::Missing => {
                        trouble.unwrap_or("the API server did not answer")
                    }
                }
            ),
            (false, 0) if !pods.is_empty() => {
                format!("the deadline passed with no VM, but {pods} left on node {node}")
            }
            (false, n) if !pods.is_empty() => {
                format!("the deadline passed with {n} VM(s) and {pods} left on node {node}")
            }
            (false, 0) => "the deadline passed before the node could be confirmed empty".into(),
            (false, n) => {
                let drain = self.drain.as_ref();
                let refused = drain.is_some_and(|d| d.cordon_refused && !d.cordoned);
                let why = match trouble.filter(|_| refused) {
                    Some(trouble) => format!(", which is not cordoned: {trouble}"),
                    None => String::new(),
                };
                format!("the deadline passed with {n} VM(s) left on node {node}{why}")
            }
        }
    }

    /// Why a VM was not even looked at: the node has to be cordoned first.
    pub(super) fn not_begun(&self) -> String {
        let why = self.drain.as_ref().map(|d| d.trouble.clone());
        Wait::Cordon {
            why: why.unwrap_or_default(),
        }
        .to_string()
    }

    pub(super) fn refuse(&mut self, refusal: &Refusal, now: Mono) {
        self.phase = Phase::Refused;
        self.actions.push_back(Action::Unwatch);
        let text = refusal.to_string();
        if let Some(drain) = &mut self.drain {
            drain.exit = Some(4);
            drain.end.clone_from(&text);
        }
        self.forget();
        self.tell(Level::Warn, "DrainRefused", text);
        self.retry_done();
        self.end_step(now);
    }
}
