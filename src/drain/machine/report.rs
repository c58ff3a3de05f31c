//! The snapshot for people and programs.

use super::Machine;
use super::holding::note;
use super::observe::is_still_here;
use crate::drain::eta::Forecast;
use crate::drain::fate::Fate;
use crate::drain::phase::Phase;
use crate::drain::status::{
    CordonStatus, DrainStatus, HoldStatus, HolderStatus, PodState, ScheduledStatus, Status,
    VmPhase, VmStatus,
};
use crate::drain::time::Mono;
use crate::drain::track::Track;
use crate::drain::verdict::Wait;
use crate::drain::world::{CordonMark, NodeView};
use std::collections::BTreeMap;

/// A forecast, and which place in it belongs to which track.
type Placed<'a> = (Forecast, BTreeMap<&'a str, usize>);

impl Machine {
    /// The snapshot of now.
    pub fn status(&self, now: Mono) -> Status {
        let forecast = self.phase.is_draining().then(|| self.forecast(now));
        let vms = self.vm_rows(forecast.as_ref(), now);
        let remaining = vms.iter().filter(|v| is_still_here(v.phase)).count();
        let pods = self.other_rows(now);
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            node: self.policy.node_name.clone(),
            state: self.phase.name().into(),
            says: match self.alone_says(now) {
                Some(alone) => format!("{}; {alone}", self.says(remaining, vms.len(), now)),
                None => self.says(remaining, vms.len(), now),
            },
            drain: self.drain.as_ref().map(|_| DrainStatus {
                eta: forecast
                    .filter(|(f, _)| f.vms.len() > f.unknown)
                    .map(|(f, _)| f.whole),
                ..self.drain_row(now)
            }),
            hold: self.hold_row(),
            cordon: self.cordon_row(),
            restore: self.restore_row(now),
            vms_total: vms.len(),
            vms_remaining: remaining,
            pods_remaining: pods.iter().filter(|p| p.phase != PodState::Gone).count(),
            pods,
            vms,
            volumes: self.volumes_waited_for(),
            blind: if self.phase.is_draining() {
                self.blind()
            } else {
                Vec::new()
            },
            to_start: self.owed.keys().map(ToString::to_string).collect(),
            scheduled: self.schedule.map(|due| ScheduledStatus {
                kind: due.kind,
                due_in: seconds_until(due.at, now),
            }),
            malformed: self.picture.malformed.iter().map(Into::into).collect(),
            warnings: self.warnings(now),
            maintenance: self.maintenance_rows(),
        }
    }

    fn drain_row(&self, now: Mono) -> DrainStatus {
        let Some(d) = &self.drain else {
            return DrainStatus::default();
        };
        let ended = self.phase.is_at_rest();
        DrainStatus {
            id: d.id.clone(),
            reason: d.reason.clone(),
            running_for: now.since(d.started).as_secs_f64(),
            deadline_in: (!ended).then_some(seconds_until(d.deadline, now)),
            on_deadline: self.ending().word().into(),
            shutting_down: d.shutting_down,
            then: d.then,
            exit: d.exit,
            eta: None,
        }
    }

    fn hold_row(&self) -> HoldStatus {
        let others = self.hold.others.iter().map(|holder| HolderStatus {
            who: holder.who.clone(),
            why: holder.why.clone(),
            mode: holder.mode.clone(),
            says: note(holder).unwrap_or_default(),
        });
        HoldStatus {
            held: self.hold.held,
            limit: self.hold.limit.map(|l| l.as_secs_f64()),
            trouble: self.hold.trouble.clone(),
            limit_by: self.hold.limit_by.clone(),
            others: others.collect(),
        }
    }

    fn cordon_row(&self) -> CordonStatus {
        let Some(node) = &self.node else {
            return CordonStatus::default();
        };
        let ours = matches!(node.cordon, CordonMark::Note(_)) && node.unschedulable;
        let who = match (node.unschedulable, &node.cordon) {
            (false, _) => "not cordoned".into(),
            (true, CordonMark::Note(note)) if note.keep => format!(
                "set by vmdrain-agent (drain {}), kept over the boot until `vmdrain-agent restore`",
                note.drain
            ),
            (true, CordonMark::Note(note)) => {
                format!("set by vmdrain-agent (drain {})", note.drain)
            }
            (true, CordonMark::Absent) => {
                "cordon not ours: it was set by somebody else and stays".into()
            }
            (true, CordonMark::Damaged(why)) => {
                format!("cordon not ours: its marker cannot be read ({why})")
            }
        };
        CordonStatus {
            unschedulable: Some(node.unschedulable),
            ours,
            who,
        }
    }

    fn warnings(&self, now: Mono) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(drain) = &self.drain {
            out.extend((!drain.trouble.is_empty()).then(|| drain.trouble.clone()));
            out.extend(drain.undo.remains.iter().cloned());
            out.extend(self.node_gone());
        }
        out.extend(self.restore_warning(now));
        out.extend(self.not_started.values().cloned());
        // In the stop jobs the lock holds nothing any more, so nothing about it can matter.
        let matters = !self.drain.as_ref().is_some_and(|d| d.stopping);
        let trouble = Some(&self.hold.trouble).filter(|text| matters && !text.is_empty());
        out.extend(trouble.cloned());
        out.extend(self.hold.others.iter().filter_map(note));
        out.extend(self.maintenance_warnings());
        out
    }

    fn says(&self, remaining: usize, total: usize, now: Mono) -> String {
        let end = self
            .drain
            .as_ref()
            .map(|d| d.end.clone())
            .unwrap_or_default();
        let left = super::show::span(self.time_left(now));
        let soon = self.soon(now);
        let hooks = self.hooks_say();
        match self.phase {
            Phase::Preparing | Phase::Gates | Phase::Drained | Phase::Deadline
                if hooks.is_some() =>
            {
                let left = format!("{remaining} of {total} VM(s) still here");
                format!("{}; {left}", hooks.unwrap_or_default())
            }
            Phase::Restoring => self.restore_says(),
            Phase::Idle if !soon.is_empty() => {
                format!("{soon}; by configuration the drain begins when its time has come")
            }
            Phase::Idle if !self.hold.trouble.is_empty() => {
                format!(
                    "the VMs of this host are not protected as they should be: {}",
                    self.hold.trouble
                )
            }
            Phase::Idle => self.at_rest(),
            Phase::Preparing if self.only_cordons() => {
                format!("the node is cordoned; its VMs stay until the time has come ({soon})")
            }
            Phase::Preparing if self.drain.as_ref().is_some_and(|d| d.falling.holding) => format!(
                "the deadline has passed and the node is not cordoned yet; by policy the drain goes on: {remaining} of {total} VM(s) still here"
            ),
            Phase::Preparing => "cordoning the node and looking at its VMs".into(),
            Phase::Evacuating => {
                format!("{remaining} of {total} VM(s) still here, {left} until the deadline")
            }
            Phase::FallingBack => format!(
                "shutting down the guests that are left: {remaining} of {total} VM(s) still here, {left} until the deadline"
            ),
            Phase::Holding => format!(
                "{remaining} of {total} VM(s) still here; the deadline has passed, and by policy the drain goes on"
            ),
            Phase::Confirming => "no VM seems to be left, asking the API server once more".into(),
            Phase::OtherPods => {
                let here = self.others.values().filter(|t| !t.gone).count();
                let all = self.others.len();
                format!(
                    "no VM is left; {here} of {all} other pod(s) still here, {left} until the deadline"
                )
            }
            Phase::Gates => match self.volumes_say(now) {
                Some(volumes) => format!("no VM is left; {volumes}"),
                None => "no VM is left".into(),
            },
            Phase::Drained
                if self.drain.as_ref().is_some_and(|d| d.shutting_down) && self.hold.held =>
            {
                "the node is empty, releasing the hold".into()
            }
            Phase::Cancelling => "undoing the drain".into(),
            Phase::Drained if !soon.is_empty() => format!("{end}; {soon}"),
            Phase::Drained | Phase::Deadline | Phase::Cancelled | Phase::Refused => end,
        }
    }

    fn at_rest(&self) -> String {
        let hold = if self.hold.held {
            "nothing to do; the hold is set, a shutdown will wait for the drain"
        } else {
            "nothing to do; no hold is set"
        };
        let stays =
            |node: &NodeView| node.unschedulable && matches!(node.cordon, CordonMark::Note(_));
        if self.node.as_ref().is_some_and(stays) {
            return format!("{hold}; the node stays cordoned until `vmdrain-agent restore`");
        }
        hold.into()
    }

    /// What is scheduled, as a sentence; empty: nothing.
    fn soon(&self, now: Mono) -> String {
        let Some(due) = self.schedule else {
            return String::new();
        };
        let what = due.what();
        format!(
            "a {what} is scheduled in {}",
            super::show::span(due.at.left(now))
        )
    }

    /// One row per VM: where a VM had several pods here, the one that still counts, else the newest.
    fn vm_rows(&self, forecast: Option<&Placed<'_>>, now: Mono) -> Vec<VmStatus> {
        let mut rows: BTreeMap<String, (&Track, VmStatus)> = BTreeMap::new();
        let not_begun = self.not_begun();
        for (key, track) in &self.tracks {
            let mut row = vm_row(track, now);
            row.eta = forecast.and_then(|(forecast, places)| {
                let place = places.get(key.as_str())?;
                forecast.vms.get(*place).copied().flatten()
            });
            if row.says.is_empty() {
                row.says.clone_from(&not_begun);
            }
            let key = track.vm.to_string();
            let better = rows.get(&key).is_none_or(|(other, _)| {
                (track.ended.is_none(), track.first_seen)
                    > (other.ended.is_none(), other.first_seen)
            });
            if better {
                rows.insert(key, (track, row));
            }
        }
        rows.into_values().map(|(_, row)| row).collect()
    }
}

/// Negative when it has passed.
#[allow(clippy::cast_precision_loss, reason = "milliseconds of a drain fit")]
fn seconds_until(when: Mono, now: Mono) -> f64 {
    (when.0 as f64 - now.0 as f64) / 1000.0
}

fn vm_row(track: &Track, now: Mono) -> VmStatus {
    let (fate, choice) = (track.lot.fate.as_ref(), &track.lot.choice);
    let asking = track.in_flight.is_some() && track.shown == VmPhase::Queued;
    let took = track.ended.map(|(_, at)| {
        at.since(track.first_post.unwrap_or(track.first_seen))
            .as_secs_f64()
    });
    VmStatus {
        namespace: track.vm.namespace.clone(),
        name: track.vm.name.clone(),
        pod: track.pod.name.clone(),
        phase: track.ended.map_or(track.shown, |(phase, _)| phase),
        says: if asking {
            Wait::Asking.to_string()
        } else {
            track.says.clone()
        },
        target: track.target.clone(),
        attempts: u32::try_from(track.attempts.len()).unwrap_or(u32::MAX),
        posts: track.posts,
        memory: (track.memory > 0).then_some(track.memory),
        since: now.since(track.shown_since).as_secs_f64(),
        took,
        marked_by_us: track.ours && track.ended.is_none(),
        eta: None,
        fate: fate.map_or("unknown", Fate::word).into(),
        fate_says: fate.map(ToString::to_string).unwrap_or_default(),
        policy: choice.way.word().into(),
        policy_from: choice.source.to_string(),
        policy_trouble: choice.troubles.join("; "),
        owner: track.lot.owner.to_string(),
    }
}
