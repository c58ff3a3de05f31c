//! What the host itself shows of its launchers, and what a signal to one of them does.

use super::cluster::{Cluster, HERE, Pod, Tick};
use std::time::Duration;
use vmdrain_agent::drain::local::{LocalGuest, LocalView, Process};
use vmdrain_agent::drain::world::VmName;

impl Cluster {
    /// What the host itself shows: every launcher that runs.
    pub(super) fn look_here(&self) -> LocalView {
        let runs = |p: &&Pod| p.holds_guest() && !self.only_a_sidecar(p);
        let guest = |p: &Pod| LocalGuest {
            pod_uid: p.id.uid.clone(),
            vm: VmName {
                namespace: p.id.namespace.clone(),
                name: self.vms[p.vm].name.clone(),
            },
            vmi_uid: self.vms[p.vm].uid.clone(),
            grace: Some(Duration::from_millis(self.vms[p.vm].plan.grace)),
            init: Process::default(),
        };
        LocalView {
            guests: self.pods.iter().filter(runs).map(guest).collect(),
            handler: self.plan.handler,
        }
    }

    /// SIGTERM to a launcher: its guest ends within its grace period; without one it ends at once.
    pub(super) fn tell_guest(&mut self, uid: &str) {
        let found = |p: &Pod| p.id.uid == uid && p.holds_guest() && !p.told && !p.deleting;
        let Some(at) = self.pods.iter().position(found) else {
            return;
        };
        self.pods[at].told = true;
        let vm = self.pods[at].vm;
        if self.pods[at].label == HERE {
            let grace = self.vms[vm].plan.grace;
            return self.want(grace + 1, Tick::GuestDown(vm));
        }
        for m in 0..self.vmims.len() {
            if self.vmims[m].pod == Some(at) {
                self.fail(m);
            }
        }
        self.want(100, Tick::SourceEnds(at));
    }
}
