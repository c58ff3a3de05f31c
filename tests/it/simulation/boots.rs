//! The host goes off and comes up again, and the rules of giving the node back afterwards.

use super::plan::Boot;
use super::run::{Broken, Event, Run};
use vmdrain_agent::drain::machine::Machine;
use vmdrain_agent::drain::phase::Phase;
use vmdrain_agent::drain::status::Status;
use vmdrain_agent::drain::world::{CordonMark, CordonNote, Picture};

impl Run {
    pub(super) fn host_goes_off(&mut self) -> Result<(), Broken> {
        self.check_off()?;
        let Some(boot) = self.boots.pop() else {
            self.host_off = true;
            return Ok(());
        };
        self.note(|| format!("the host is off: {boot:?}"));
        self.machine = None;
        self.process += 1;
        self.watching = false;
        self.watcher.crashed();
        (self.host.off, self.host.pending, self.host.held) = (true, false, false);
        self.host.schedule = None;
        self.cluster.power_off(boot.noticed && !boot.soft);
        self.publish();
        self.at(self.now + boot.off, Event::HostUp(boot));
        Ok(())
    }

    pub(super) fn host_comes_up(&mut self, boot: Boot) -> Result<(), Broken> {
        let first = self.host.starts == 1;
        self.host.comes_up(boot, self.now);
        self.cluster.power_on(
            self.host.starts,
            self.host.boot_id(),
            boot.kubelet,
            boot.handler,
        );
        self.publish();
        if first {
            for (at, order) in self.plan.later.clone() {
                self.at(self.now + at, Event::Order(order));
            }
        }
        self.start_agent()
    }

    /// What the agent's watches show.
    pub(super) fn picture(&self) -> Picture {
        let all = self.cluster.picture();
        if self.node_only {
            return Picture {
                node: all.node,
                ..Picture::default()
            };
        }
        all
    }

    /// After a boot a node is given back only when the host was down, the cordon is ours and not to be kept, and
    /// everything that a VM needs was shown to be there.
    pub(super) fn check_uncordon(&self) -> Result<(), Broken> {
        let phase = self.machine.as_ref().map(Machine::phase);
        if phase != Some(Phase::Restoring) || self.watcher.by_hand {
            return Ok(());
        }
        if !self.plan.restore {
            return Err("the node is given back although that is switched off".into());
        }
        let Some(node) = &self.watcher.seen_node else {
            return Err("the node is given back unseen".into());
        };
        let CordonMark::Note(note) = &node.cordon else {
            return Err("the node is given back without our marker".into());
        };
        let same = note.boot == self.host.boot_id() && note.userspace == self.host.userspace();
        if same || note.keep || self.watcher.seen_uncordoned {
            return Err(format!(
                "the node is given back although it is not to be: {note:?}"
            ));
        }
        let up = i64::try_from(self.host.up_since).unwrap_or(i64::MAX);
        let newer = |moment: Option<i64>| moment.is_some_and(|at| at > up);
        let kubelet = node.boot_id == self.host.boot_id() && newer(node.reported);
        let handler = newer(node.heartbeat) && node.schedulable && node.kvm > 0;
        if !(kubelet && node.ready && handler) {
            return Err(format!(
                "the node is given back before it can receive VMs: {node:?}"
            ));
        }
        Ok(())
    }

    /// The host has been down since this note was written.
    pub(super) fn is_of_an_earlier_start(&self, note: &CordonNote) -> bool {
        let here = self.host.userspace();
        let soft = note.userspace.soft_reboots.zip(here.soft_reboots);
        note.boot != self.host.boot_id() || soft.is_some_and(|(a, b)| a != b)
    }

    /// What the node is at the end of a run with boots.
    pub(super) fn check_restored(&self, machine: &Machine, status: &Status) -> Result<(), Broken> {
        let front = &self.cluster.front;
        let up = i64::try_from(self.host.up_since).unwrap_or(i64::MAX);
        let well = front.heartbeat > up && front.reported > up && front.ready;
        let possible = self.plan.restore
            && self.plan.cordon_right
            && !self.plan.another_machine
            && self.cluster.unschedulable
            && !self.watcher.foreign_cordon;
        let CordonMark::Note(note) = &self.cluster.note else {
            return Ok(());
        };
        let down = self.is_of_an_earlier_start(note);
        // `--keep-cordoned` may have come with a trigger that took a drain over: then only the record tells.
        let kept = note.keep
            || self
                .stored()
                .is_some_and(|record| record.drain == note.drain && record.keeps_cordon());
        // A drain that an operator asked for since has ended without the API server: its cordon could not be written.
        let drained = machine.phase() == Phase::Drained;
        if down && !kept && !drained && possible && well {
            return Err(format!(
                "the node can receive VMs and was not given back: {}",
                status.says
            ));
        }
        if machine.phase() == Phase::Restoring && possible && !well {
            let waits = status.restore.as_ref().map_or(0, |r| r.waits.len());
            if waits == 0 {
                return Err("it waits, and does not say for what".into());
            }
        }
        Ok(())
    }
}
