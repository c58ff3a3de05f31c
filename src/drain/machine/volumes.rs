//! The gate `gates.volume_attachments`: is a volume still attached to this node after the last pod has gone, and for how long
//! is that waited for?
//!
//! Never longer than half of what is left to the deadline: a volume is no reason to miss it.

use super::Machine;
use super::pending::Pending;
use crate::drain::action::{Action, Fault, FaultClass, Level};
use crate::drain::phase::Phase;
use crate::drain::time::Mono;
use crate::drain::world::AttachedVolume;
use std::time::Duration;

/// Between two looks. A list of all attachments of the cluster: there is no selector for a node.
const PAUSE: Duration = Duration::from_secs(3);

/// Where the gate stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Volumes {
    /// Waited for until then at the latest.
    until: Option<Mono>,
    /// Next look.
    next: Mono,
    /// Still attached, as seen last.
    left: Vec<AttachedVolume>,
    /// Why the last look has failed; empty: it has not.
    trouble: String,
    /// It is open.
    done: bool,
}

impl Machine {
    /// Whether the drain may pass; begins to wait when it may not yet.
    pub(super) fn volumes_gone(&mut self, now: Mono) -> bool {
        let most = self.policy.volume_wait;
        let Some(drain) = &mut self.drain else {
            return true;
        };
        if most.is_zero() || drain.gates.volumes.done {
            return true;
        }
        if drain.gates.volumes.until.is_none() {
            let most = most.min(drain.deadline.left(now) / 2);
            drain.gates.volumes.until = Some(now + most);
            drain.gates.volumes.next = now;
        }
        false
    }

    /// While the gate is closed.
    pub(super) fn volumes_step(&mut self, now: Mono) {
        let Some(volumes) = self.drain.as_ref().map(|d| &d.gates.volumes) else {
            return;
        };
        let Some(until) = volumes.until.filter(|_| !volumes.done) else {
            return;
        };
        let next = volumes.next.min(until);
        if self.waits_for(|p| matches!(p, Pending::Volumes)) {
            return;
        }
        if now >= until {
            return self.volumes_late();
        }
        if now < next {
            return self.wake_at(next, "are the volumes detached");
        }
        let id = self.effect(Pending::Volumes);
        self.actions.push_back(Action::ReadVolumes(id));
    }

    pub(super) fn volumes_read(&mut self, result: Result<Vec<AttachedVolume>, Fault>, now: Mono) {
        let pause = PAUSE.min(self.policy.volume_wait / 5);
        let Some(volumes) = self.drain.as_mut().map(|d| &mut d.gates.volumes) else {
            return;
        };
        volumes.next = now + pause;
        volumes.trouble.clear();
        match result {
            Ok(left) => volumes.left = left,
            Err(fault) => {
                volumes.trouble.clone_from(&fault.text);
                if matches!(fault.class, FaultClass::Denied | FaultClass::Gone) {
                    let text = format!(
                        "whether volumes are still attached to this node is not known, so nobody waits for them: {}",
                        fault.text
                    );
                    self.loud(Level::Warn, "VolumesUnseen", text);
                    return self.open_volumes();
                }
                return;
            }
        }
        if volumes.left.is_empty() {
            self.open_volumes();
        } else if volumes.until.is_some_and(|until| now >= until) {
            self.volumes_late();
        }
    }

    fn volumes_late(&mut self) {
        let node = &self.policy.node_name;
        let Some(volumes) = self.drain.as_ref().map(|d| &d.gates.volumes) else {
            return;
        };
        let text = if volumes.left.is_empty() {
            let why = if volumes.trouble.is_empty() {
                "the API server has not answered"
            } else {
                &volumes.trouble
            };
            format!("whether volumes are still attached to node {node} is not known: {why}")
        } else {
            format!(
                "{} volume(s) are still attached to node {node}: {}; the drain goes on without waiting longer (gates.volume_attachments)",
                volumes.left.len(),
                names(&volumes.left)
            )
        };
        self.loud(Level::Warn, "VolumesAttached", text);
        self.open_volumes();
    }

    fn open_volumes(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.gates.volumes.done = true;
        }
        if self.phase == Phase::Gates {
            // Nothing was looked at meanwhile: only fresh lists say that the node is still empty.
            self.phase = Phase::Confirming;
            self.retry_done();
        }
    }

    /// Each as people name it; empty while the gate is open.
    pub(super) fn volumes_waited_for(&self) -> Vec<String> {
        let volumes = self.drain.as_ref().map(|d| &d.gates.volumes);
        let closed = volumes.filter(|v| v.until.is_some() && !v.done);
        let left = closed.into_iter().flat_map(|v| &v.left);
        left.map(ToString::to_string).collect()
    }

    /// What the status says while volumes are waited for; `None`: they are not.
    pub(super) fn volumes_say(&self, now: Mono) -> Option<String> {
        let volumes = &self.drain.as_ref()?.gates.volumes;
        let until = volumes.until.filter(|_| !volumes.done)?;
        let left = super::show::span(until.left(now));
        Some(if volumes.left.is_empty() {
            format!("looking for volumes that are still attached, for {left} at most")
        } else {
            format!(
                "{} volume(s) still attached ({}), waited for {left} at most",
                volumes.left.len(),
                names(&volumes.left)
            )
        })
    }
}

fn names(volumes: &[AttachedVolume]) -> String {
    const NAMED: usize = 5;
    let mut all: Vec<String> = volumes
        .iter()
        .take(NAMED)
        .map(ToString::to_string)
        .collect();
    if volumes.len() > NAMED {
        all.push(format!("and {} more", volumes.len() - NAMED));
    }
    all.join(", ")
}
