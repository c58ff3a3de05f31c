//! The model: one node, its VMs, and KubeVirt's controllers around them, on a virtual clock.
//!
//! Coarser than the testkit's model (no watch history, no scheduler), but with the same order of what an
//! agent can see: mark, VMIM, target pod, flip, VMIM final, source pod final.

use super::front::Front;
use super::plan::{Attempt, Plan, VmPlan};
use super::rng::Rng;
use std::collections::VecDeque;
use vmdrain_agent::drain::world::{
    Compute, CordonMark, MigrationPhase, ObjectRef, PodKind, PodPhase, Strategy,
};

pub(super) const HERE: &str = "n1";
pub(super) const THERE: &str = "n2";

/// What happens inside the cluster by itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tick {
    /// The controllers look at their queues.
    Queue,
    Appear(usize),
    Started(usize),
    Migratable(usize),
    /// The target pod of a VMIM runs, or cannot be placed.
    Placed(usize),
    Flip(usize),
    Failed(usize),
    Succeeded(usize),
    SourceEnds(usize),
    GuestDown(usize),
    PodGone(usize),
    MarkedByOther(usize),
    UnmarkedByOther(usize),
    UserMigrates(usize),
    UserDeletes(usize),
    NamespaceTerminates(usize),
    TakenAway(usize),
    Healed,
    /// kubelet, or virt-handler, of this start of the host reports.
    Kubelet(u32),
    Handler(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guest {
    Starting,
    Running,
    Final,
    Gone,
}

#[derive(Clone, Debug)]
pub(super) struct Vm {
    pub(super) plan: VmPlan,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) guest: Guest,
    pub(super) node: &'static str,
    pub(super) live: Option<bool>,
    /// The mark: node, and whether our eviction wrote it.
    pub(super) mark: Option<(&'static str, bool)>,
    pub(super) target: Option<&'static str>,
    pub(super) attempts: VecDeque<Attempt>,
    pub(super) failures: u32,
    pub(super) backoff_until: u64,
    pub(super) terminating: bool,
    pub(super) deleting: bool,
    pub(super) last_migration: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) vm: usize,
    pub(super) id: ObjectRef,
    pub(super) kind: PodKind,
    pub(super) phase: PodPhase,
    pub(super) compute: Compute,
    pub(super) deleting: bool,
    pub(super) job: Option<String>,
    pub(super) label: &'static str,
    pub(super) gone: bool,
    /// Its launcher got SIGTERM from the host.
    pub(super) told: bool,
}

impl Pod {
    /// A guest runs or will run here.
    pub(super) fn holds_guest(&self) -> bool {
        let over = matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
            || self.compute == Compute::Terminated;
        !self.gone && self.kind == PodKind::Launcher && !over
    }
}

#[derive(Clone, Debug)]
pub(super) struct Vmim {
    pub(super) vm: Option<usize>,
    pub(super) uid: String,
    pub(super) phase: MigrationPhase,
    pub(super) evacuates: Option<&'static str>,
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) pod: Option<usize>,
    pub(super) created: u64,
    pub(super) aborted: bool,
    pub(super) flipped: bool,
    pub(super) hidden: bool,
}

impl Vmim {
    pub(super) fn is_final(&self) -> bool {
        matches!(
            self.phase,
            MigrationPhase::Succeeded | MigrationPhase::Failed
        )
    }

    pub(super) fn holds_slot(&self) -> bool {
        !self.is_final() && self.phase >= MigrationPhase::Scheduling
    }
}

#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) plan: Plan,
    pub(super) now: u64,
    pub(super) version: u64,
    pub(super) node_version: u64,
    pub(super) unschedulable: bool,
    pub(super) note: CordonMark,
    pub(super) front: Front,
    pub(super) vms: Vec<Vm>,
    pub(super) pods: Vec<Pod>,
    pub(super) vmims: Vec<Vmim>,
    /// Ticks for the harness to schedule: (moment, tick).
    pub(super) wants: Vec<(u64, Tick)>,
    pub(super) changed: bool,
    pub(super) queue_at: Option<u64>,
    pub(super) rng: Rng,
    serial: u64,
}

impl Cluster {
    pub(super) fn new(plan: Plan, rng: Rng) -> Self {
        let mut cluster = Self {
            now: 0,
            version: 100,
            node_version: 100,
            unschedulable: false,
            note: CordonMark::Absent,
            front: Front::default(),
            vms: Vec::new(),
            pods: Vec::new(),
            vmims: Vec::new(),
            wants: Vec::new(),
            changed: false,
            queue_at: None,
            rng,
            serial: 0,
            plan,
        };
        for vm in cluster.plan.vms.clone() {
            cluster.add(&vm);
        }
        for (from, span) in cluster.plan.foreign_slots.clone() {
            cluster.foreign(from, span);
        }
        cluster
    }

    pub(super) fn serial(&mut self, what: &str) -> String {
        self.serial += 1;
        format!("{what}{}", self.serial)
    }

    pub(super) fn want(&mut self, after: u64, tick: Tick) {
        self.wants.push((self.now + after, tick));
    }

    pub(super) fn touch(&mut self) {
        self.version += 1;
        self.changed = true;
    }

    pub(super) fn touch_node(&mut self) {
        self.touch();
        self.node_version = self.version;
    }

    fn add(&mut self, plan: &VmPlan) {
        let uid = self.serial("vmi");
        let at = self.vms.len();
        let inbound = plan.inbound.is_some();
        let vm = Vm {
            name: format!("vm{at}"),
            uid,
            guest: Guest::Gone,
            node: if inbound { THERE } else { HERE },
            live: None,
            mark: None,
            target: None,
            attempts: plan.attempts.iter().copied().collect(),
            failures: 0,
            backoff_until: 0,
            terminating: false,
            deleting: false,
            last_migration: None,
            plan: plan.clone(),
        };
        self.vms.push(vm);
        for (when, tick) in [
            (plan.marked_at, Tick::MarkedByOther(at)),
            (plan.unmarked_at, Tick::UnmarkedByOther(at)),
            (plan.user_migration, Tick::UserMigrates(at)),
            (plan.deleted_at.map(|d| d.0), Tick::UserDeletes(at)),
            (plan.terminating, Tick::NamespaceTerminates(at)),
        ] {
            if let Some(when) = when {
                self.want(when + 1, tick);
            }
        }
        for heals in [plan.vmi_broken_until, plan.pod_broken_until] {
            if heals > 0 {
                self.want(heals, Tick::Healed);
            }
        }
        if plan.appears == 0 {
            self.appear(at);
            if !inbound {
                self.tick(Tick::Started(at));
                self.tick(Tick::Migratable(at));
            }
        } else {
            self.want(plan.appears, Tick::Appear(at));
        }
    }

    /// A migration between other nodes that takes a slot of the cluster.
    fn foreign(&mut self, from: u64, span: u64) {
        let uid = self.serial("vmim");
        self.vmims.push(Vmim {
            vm: None,
            uid,
            phase: MigrationPhase::Running,
            evacuates: None,
            from: THERE,
            to: "n3",
            pod: None,
            created: from,
            aborted: false,
            flipped: false,
            hidden: from > 0,
        });
        let at = self.vmims.len() - 1;
        self.want(from + span, Tick::Succeeded(at));
        if from > 0 {
            self.want(from, Tick::Healed);
        }
    }

    pub(super) fn add_pod(&mut self, vm: usize, job: Option<String>, kind: PodKind) -> usize {
        let uid = self.serial("pod");
        let name = match (kind, &job) {
            (PodKind::Hotplug, _) => format!("hp-volume-{}", self.vms[vm].name),
            (_, None) => format!("virt-launcher-{}", self.vms[vm].name),
            (_, Some(job)) => format!("virt-launcher-{}-{job}", self.vms[vm].name),
        };
        self.pods.push(Pod {
            vm,
            id: ObjectRef {
                namespace: "vms".into(),
                name,
                uid,
            },
            kind,
            phase: PodPhase::Pending,
            compute: Compute::Waiting,
            deleting: false,
            job,
            label: self.vms[vm].node,
            gone: false,
            told: false,
        });
        self.pods.len() - 1
    }

    fn appear(&mut self, at: usize) {
        let vm = &mut self.vms[at];
        if vm.node == THERE {
            vm.guest = Guest::Running;
            vm.live = Some(true);
            self.start_migration(at, THERE, HERE, None);
        } else {
            vm.guest = Guest::Starting;
            self.add_pod(at, None, PodKind::Launcher);
            if self.vms[at].plan.hotplug {
                let pod = self.add_pod(at, None, PodKind::Hotplug);
                self.pods[pod].phase = PodPhase::Running;
            }
            self.want(2000, Tick::Started(at));
            self.want(4000, Tick::Migratable(at));
        }
        self.touch();
    }

    pub(super) fn start_migration(
        &mut self,
        vm: usize,
        from: &'static str,
        to: &'static str,
        evacuates: Option<&'static str>,
    ) {
        let uid = self.serial("vmim");
        let created = self.now;
        self.vmims.push(Vmim {
            vm: Some(vm),
            uid,
            phase: MigrationPhase::Pending,
            evacuates,
            from,
            to,
            pod: None,
            created,
            aborted: false,
            flipped: false,
            hidden: false,
        });
        self.vms[vm].last_migration = Some(self.vmims.len() - 1);
        self.touch();
        self.kick(10);
    }

    /// The controllers will look.
    pub(super) fn kick(&mut self, after: u64) {
        let at = self.now + after;
        if self.queue_at.is_none_or(|q| at < q) {
            self.queue_at = Some(at);
            self.want(after, Tick::Queue);
        }
    }

    pub(super) fn unfinished(&self, vm: usize) -> bool {
        self.vmims
            .iter()
            .any(|m| m.vm == Some(vm) && !m.is_final() && !m.hidden)
    }

    /// The strategy in effect; the cluster's default is LiveMigrate here.
    pub(super) fn strategy(&self, vm: usize) -> Strategy {
        self.vms[vm].plan.strategy.unwrap_or(Strategy::LiveMigrate)
    }

    pub(super) fn tick(&mut self, tick: Tick) {
        match tick {
            Tick::Queue => self.queue(),
            Tick::Appear(vm) => self.appear(vm),
            Tick::Started(vm) => self.started(vm),
            Tick::Migratable(vm) => {
                self.vms[vm].live = Some(self.vms[vm].plan.migratable);
                self.touch();
            }
            Tick::Placed(m) => self.placed(m),
            Tick::Flip(m) => self.flip(m),
            Tick::Failed(m) => self.fail(m),
            Tick::Succeeded(m) => self.succeeded(m),
            Tick::SourceEnds(pod) => self.pod_ends(pod),
            Tick::GuestDown(vm) => self.guest_down(vm),
            Tick::PodGone(pod) => {
                self.pods[pod].gone = true;
                self.touch();
            }
            Tick::MarkedByOther(vm) => self.marked_by_other(vm),
            Tick::UnmarkedByOther(vm) => {
                self.vms[vm].mark = None;
                self.touch();
            }
            Tick::UserMigrates(vm) => {
                let v = &self.vms[vm];
                let able = v.guest == Guest::Running && v.node == HERE && v.live == Some(true);
                if able && !v.deleting && !self.unfinished(vm) {
                    self.start_migration(vm, HERE, THERE, None);
                }
            }
            Tick::UserDeletes(vm) => {
                if self.vms[vm].node == HERE && self.vms[vm].guest != Guest::Gone {
                    self.vms[vm].deleting = true;
                    self.shut_down(vm);
                }
            }
            Tick::NamespaceTerminates(vm) => {
                self.vms[vm].terminating = true;
                // Its VMI follows some time later.
                self.want(40_000, Tick::UserDeletes(vm));
            }
            Tick::TakenAway(vm) => {
                let v = &self.vms[vm];
                let able = v.guest == Guest::Running && v.node == HERE && !v.deleting;
                if able && !self.unfinished(vm) {
                    self.start_migration(vm, HERE, THERE, None);
                }
            }
            Tick::Healed => self.touch(),
            Tick::Kubelet(start) => self.kubelet_reports(start),
            Tick::Handler(start) => self.handler_reports(start),
        }
    }

    fn started(&mut self, vm: usize) {
        if self.vms[vm].guest != Guest::Starting {
            return;
        }
        self.vms[vm].guest = Guest::Running;
        for pod in self.pods.iter_mut().filter(|p| p.vm == vm && !p.deleting) {
            pod.phase = PodPhase::Running;
            pod.compute = Compute::Running;
        }
        self.touch();
    }
}
