//! KubeVirt's controllers in the model: marks become migrations, migrations move VMs or fail, guests end.

use super::cluster::{Cluster, Guest, HERE, THERE, Tick};
use super::plan::Attempt;
use vmdrain_agent::drain::world::{Compute, MigrationPhase, PodKind, PodPhase, Strategy};

impl Cluster {
    pub(super) fn marked_by_other(&mut self, vm: usize) {
        let v = &mut self.vms[vm];
        if v.guest == Guest::Running && v.node == HERE && v.mark.is_none() {
            v.mark = Some((HERE, false));
            self.touch();
            self.kick(300);
        }
    }

    pub(super) fn slots_used(&self) -> (u32, u32) {
        let at_flip = self.plan.version < (1, 7);
        let (mut node, mut cluster) = (0, 0);
        for m in self.vmims.iter().filter(|m| m.holds_slot()) {
            if m.hidden && m.created > self.now {
                continue;
            }
            cluster += 1;
            node += u32::from(m.from == HERE && !(at_flip && m.flipped));
        }
        (node, cluster)
    }

    pub(super) fn queue(&mut self) {
        if self.queue_at.is_some_and(|at| at > self.now) {
            return;
        }
        self.queue_at = None;
        let mut waiting = false;
        for vm in 0..self.vms.len() {
            let v = &self.vms[vm];
            let marked = v.mark.is_some_and(|(node, _)| node == v.node) && v.node == HERE;
            let able = v.guest == Guest::Running && v.live == Some(true) && !v.deleting;
            let pods = self.pods.iter().filter(|p| p.vm == vm && p.holds_guest());
            let wanted = marked && able && self.strategy(vm) != Strategy::External;
            if wanted && !self.unfinished(vm) && pods.count() <= 1 {
                self.start_migration(vm, HERE, THERE, Some(HERE));
            }
            waiting |= wanted;
        }
        for m in 0..self.vmims.len() {
            let vmim = &self.vmims[m];
            let (Some(vm), MigrationPhase::Pending) = (vmim.vm, vmim.phase) else {
                continue;
            };
            waiting = true;
            let (node, cluster) = self.slots_used();
            let outbound_full = vmim.from == HERE && node >= self.plan.per_node;
            let backoff = vmim.evacuates.is_some() && self.now < self.vms[vm].backoff_until;
            if outbound_full || cluster >= self.plan.per_cluster || backoff {
                continue;
            }
            self.schedule(m, vm);
        }
        if waiting {
            self.kick(5000);
        }
    }

    pub(super) fn schedule(&mut self, m: usize, vm: usize) {
        self.vmims[m].phase = MigrationPhase::Scheduling;
        if self.vmims[m].to == HERE {
            let job = self.vmims[m].uid.clone();
            let pod = self.add_pod(vm, Some(job), PodKind::Launcher);
            self.vmims[m].pod = Some(pod);
        }
        self.want(600, Tick::Placed(m));
        self.touch();
    }

    pub(super) fn placed(&mut self, m: usize) {
        let vmim = &mut self.vmims[m];
        let Some(vm) = vmim.vm.filter(|_| !vmim.is_final()) else {
            return;
        };
        let inbound = vmim.to == HERE;
        let next = if inbound {
            let (span, fails) = self.vms[vm].plan.inbound.unwrap_or((2000, false));
            if fails {
                Attempt::Fails(span)
            } else {
                Attempt::Moves(span)
            }
        } else {
            let moves = Attempt::Moves(self.vms[vm].plan.moves_in);
            self.vms[vm].attempts.pop_front().unwrap_or(moves)
        };
        if next == Attempt::Unschedulable {
            self.want(300_000, Tick::Failed(m));
            return;
        }
        let vmim = &mut self.vmims[m];
        vmim.phase = MigrationPhase::Running;
        self.vms[vm].target = Some(vmim.to);
        if let Some(pod) = vmim.pod {
            self.pods[pod].phase = PodPhase::Running;
            self.pods[pod].compute = Compute::Running;
        }
        match next {
            Attempt::Moves(span) => self.want(span, Tick::Flip(m)),
            Attempt::Fails(span) => self.want(span, Tick::Failed(m)),
            Attempt::Unschedulable => {}
        }
        self.touch();
    }

    pub(super) fn flip(&mut self, m: usize) {
        let (Some(vm), false) = (self.vmims[m].vm, self.vmims[m].is_final()) else {
            return;
        };
        let to = self.vmims[m].to;
        self.vmims[m].flipped = true;
        let v = &mut self.vms[vm];
        v.node = to;
        v.mark = None;
        for at in 0..self.pods.len() {
            if self.pods[at].vm != vm || self.pods[at].gone {
                continue;
            }
            if Some(at) == self.vmims[m].pod {
                self.pods[at].label = HERE;
            } else if self.pods[at].holds_guest() && !self.vms[vm].plan.sidecar {
                let after = self.rng.between(500, 8000);
                self.want(after, Tick::SourceEnds(at));
            }
        }
        self.touch();
        let after = self.rng.between(100, 900);
        self.want(after, Tick::Succeeded(m));
    }

    pub(super) fn succeeded(&mut self, m: usize) {
        if self.vmims[m].is_final() {
            return;
        }
        self.vmims[m].phase = MigrationPhase::Succeeded;
        if let Some(vm) = self.vmims[m].vm {
            self.vms[vm].target = None;
            self.vms[vm].failures = 0;
        }
        self.touch();
        self.kick(1000);
    }

    pub(super) fn fail(&mut self, m: usize) {
        let vmim = &mut self.vmims[m];
        if vmim.is_final() || vmim.flipped {
            return;
        }
        vmim.phase = MigrationPhase::Failed;
        let (vm, pod, aborted) = (vmim.vm, vmim.pod, vmim.aborted);
        if let Some(pod) = pod {
            self.pods[pod].phase = PodPhase::Failed;
            self.pods[pod].compute = Compute::Terminated;
        }
        if let Some(vm) = vm {
            let v = &mut self.vms[vm];
            v.target = None;
            if !aborted {
                v.failures += 1;
                v.backoff_until = self.now + 20_000 * (1 << (v.failures - 1).min(4));
            }
        }
        self.touch();
        self.kick(2000);
    }

    pub(super) fn pod_ends(&mut self, pod: usize) {
        self.pods[pod].phase = PodPhase::Succeeded;
        self.pods[pod].compute = Compute::Terminated;
        self.touch();
    }

    /// The launcher pods of this VM here are told to end.
    pub(super) fn shut_down(&mut self, vm: usize) {
        for pod in self.pods.iter_mut().filter(|p| p.vm == vm && !p.gone) {
            pod.deleting = true;
        }
        let grace = self.vms[vm].plan.grace;
        self.want(grace + 1, Tick::GuestDown(vm));
        self.touch();
    }

    pub(super) fn guest_down(&mut self, vm: usize) {
        if self.vms[vm].guest == Guest::Gone || self.vms[vm].node != HERE {
            return;
        }
        self.vms[vm].guest = Guest::Final;
        self.vms[vm].mark = None;
        for m in 0..self.vmims.len() {
            if self.vmims[m].vm == Some(vm) {
                self.fail(m);
            }
        }
        for at in 0..self.pods.len() {
            if self.pods[at].vm == vm && !self.pods[at].gone {
                self.pods[at].phase = PodPhase::Succeeded;
                self.pods[at].compute = Compute::Terminated;
                self.want(200, Tick::PodGone(at));
            }
        }
        self.touch();
        self.vms[vm].guest = if self.vms[vm].deleting {
            Guest::Gone
        } else {
            Guest::Final
        };
        let back = self.vms[vm].plan.deleted_at.is_some_and(|(_, back)| back);
        if self.vms[vm].deleting && back {
            self.comes_back(vm);
        }
    }

    /// The same name and the same pod name, another UID (T01); here, because it tolerates the cordon.
    pub(super) fn comes_back(&mut self, vm: usize) {
        let uid = self.serial("vmi");
        let v = &mut self.vms[vm];
        v.plan.deleted_at = None;
        v.uid = uid;
        v.deleting = false;
        v.terminating = false;
        v.live = None;
        v.failures = 0;
        v.backoff_until = 0;
        self.want(3000, Tick::Appear(vm));
    }
}
