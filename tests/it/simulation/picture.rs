//! What an agent may see of the model: watches' pictures and fresh lists.

use super::cluster::{Cluster, Guest, HERE, Pod, THERE, Vm, Vmim};
use super::plan::Eye;
use std::time::Duration;
use vmdrain_agent::drain::time::Mono;
use vmdrain_agent::drain::world::{
    Fresh, KubeVirtView, Malformed, MigrationPhase, MigrationState, MigrationView, ObjectRef,
    Picture, PodView, RunStrategy, Sight, Strategy, VmName, VmView, VmiPhase, VmiView,
};

fn name_of(vm: &Vm) -> VmName {
    VmName {
        namespace: "vms".into(),
        name: vm.name.clone(),
    }
}

impl Cluster {
    fn sight<T>(&self, eye: Eye, value: T) -> Sight<T> {
        let why = || "not allowed in this run".to_owned();
        match eye {
            Eye::Forbidden => Sight::Forbidden { why: why() },
            Eye::Missing => Sight::Missing,
            Eye::Hanging => Sight::Pending,
            Eye::Flaky if (self.now / 7000).is_multiple_of(3) => Sight::Broken {
                why: why(),
                since: Mono(self.now),
            },
            Eye::Open | Eye::Flaky => Sight::Seen {
                value,
                fresh: Mono(self.now),
            },
        }
    }

    pub(super) fn picture(&self) -> Picture {
        Picture {
            node: Sight::Seen {
                value: self.node_view(),
                fresh: Mono(self.now),
            },
            pods: Sight::Seen {
                value: self.pod_views(),
                fresh: Mono(self.now),
            },
            vmis: self.sight(self.plan.vmis, self.vmi_views()),
            vms: self.sight(self.plan.vmis, self.machine_views()),
            migrations: self.sight(self.plan.migrations, self.migration_views()),
            pdbs: self.sight(self.plan.pdbs, Vec::new()),
            kubevirt: self.sight(self.plan.kubevirt, self.kubevirt()),
            others: Sight::Pending,
            malformed: self.malformed(),
        }
    }

    pub(super) fn fresh(&self) -> Fresh {
        Fresh {
            pods: self.pod_views(),
            others: None,
            vmis: (self.plan.vmis == Eye::Open).then(|| self.vmi_views()),
            migrations: (self.plan.migrations == Eye::Open).then(|| self.migration_views()),
            malformed: self.malformed(),
            unread: Vec::new(),
        }
    }

    fn kubevirt(&self) -> KubeVirtView {
        KubeVirtView {
            version: Some(self.plan.version),
            per_cluster: self.plan.per_cluster,
            per_node: self.plan.per_node,
            strategy: Strategy::LiveMigrate,
            ..KubeVirtView::default()
        }
    }

    fn pod_is_broken(&self, pod: &Pod) -> bool {
        self.now < self.vms[pod.vm].plan.pod_broken_until
    }

    fn malformed(&self) -> Vec<Malformed> {
        let note = |resource: &str, object: String| Malformed {
            resource: resource.into(),
            object,
            why: "spec is no object".into(),
        };
        let pods = self
            .pods
            .iter()
            .filter(|p| !p.gone && self.pod_is_broken(p))
            .map(|p| note("pods", p.id.to_string()));
        let vmis = self
            .vms
            .iter()
            .filter(|v| v.guest != Guest::Gone && self.now < v.plan.vmi_broken_until)
            .map(|v| note("virtualmachineinstances", name_of(v).to_string()));
        pods.chain(vmis).collect()
    }

    pub(super) fn pod_views(&self) -> Vec<PodView> {
        let here = self
            .pods
            .iter()
            .filter(|p| !p.gone && !self.pod_is_broken(p));
        here.map(|p| self.pod_view(p)).collect()
    }

    fn pod_view(&self, pod: &Pod) -> PodView {
        let vm = &self.vms[pod.vm];
        let marked = vm.mark.is_some_and(|(node, _)| node == HERE) && vm.node == HERE;
        let shown = self.plan.version >= (1, 7) || self.unfinished(pod.vm);
        PodView {
            pod: pod.id.clone(),
            kind: pod.kind,
            vm: name_of(vm),
            vmi_uid: vm.uid.clone(),
            phase: pod.phase,
            compute: pod.compute,
            deleting: pod.deleting,
            migration_job: pod.job.clone(),
            vmi_node_label: Some(pod.label.into()),
            eviction_in_progress: marked && shown && pod.holds_guest(),
            memory: Some(vm.plan.memory),
            grace: Duration::from_millis(vm.plan.grace + 30_000),
            stop_order: vm.plan.stop_order.map(|order| order.to_string()),
            ..PodView::default()
        }
    }

    fn vmi_views(&self) -> Vec<VmiView> {
        let ours = |v: &&Vm| {
            v.guest != Guest::Gone
                && self.now >= v.plan.vmi_broken_until
                && (v.node == HERE || v.target == Some(HERE))
        };
        self.vms
            .iter()
            .filter(ours)
            .map(|v| self.vmi_view(v))
            .collect()
    }

    fn vmi_view(&self, v: &Vm) -> VmiView {
        let handed_over = |m: &&Vmim| m.phase >= MigrationPhase::Running;
        let last = v.last_migration.map(|m| &self.vmims[m]);
        let state = last.filter(handed_over).map(|m| MigrationState {
            migration_uid: m.uid.clone(),
            source_node: m.from.into(),
            target_node: m.to.into(),
            started: true,
            ended: m.is_final() || m.flipped,
            completed: m.phase == MigrationPhase::Succeeded,
            failed: m.phase == MigrationPhase::Failed,
            ..MigrationState::default()
        });
        VmiView {
            vmi: ObjectRef {
                namespace: "vms".into(),
                name: v.name.clone(),
                uid: v.uid.clone(),
            },
            phase: match v.guest {
                Guest::Starting => VmiPhase::Starting,
                Guest::Running => VmiPhase::Running,
                Guest::Final | Guest::Gone => VmiPhase::Succeeded,
            },
            node: v.node.into(),
            mark: v.mark.map(|(node, _)| node.to_owned()),
            live_migratable: v.live,
            not_migratable: "DisksNotLiveMigratable".into(),
            strategy: v.plan.strategy,
            migration: state,
            target_node_label: v.target.map(Into::into),
            deleting: v.deleting,
            memory: Some(v.plan.memory),
            grace: Duration::from_millis(v.plan.grace),
            owner_kind: "VirtualMachine".into(),
        }
    }

    fn machine_views(&self) -> Vec<VmView> {
        let seen = self.vmi_views();
        let view = |vmi: VmiView| VmView {
            vm: vmi.vm(),
            run: Some(RunStrategy::Always),
            ..VmView::default()
        };
        seen.into_iter().map(view).collect()
    }

    fn migration_views(&self) -> Vec<MigrationView> {
        let seen = |m: &&Vmim| !m.hidden || m.created <= self.now;
        self.vmims
            .iter()
            .filter(seen)
            .filter(|m| !(m.aborted && m.is_final()))
            .map(|m| self.migration_view(m))
            .collect()
    }

    fn migration_view(&self, m: &Vmim) -> MigrationView {
        let over = m.is_final();
        MigrationView {
            migration: ObjectRef {
                namespace: "vms".into(),
                name: m.uid.clone(),
                uid: m.uid.clone(),
            },
            vm: m.vm.map_or(
                VmName {
                    namespace: "others".into(),
                    name: m.uid.clone(),
                },
                |vm| name_of(&self.vms[vm]),
            ),
            phase: m.phase,
            evacuates: m.evacuates.map(Into::into),
            source_node: if over { m.from.into() } else { String::new() },
            target_node: if over { m.to.into() } else { String::new() },
            failure_reason: if m.phase == MigrationPhase::Failed {
                "qemu said no".into()
            } else {
                String::new()
            },
            held_back: String::new(),
            created: i64::try_from(m.created / 1000).unwrap_or(0),
            deleting: m.aborted,
        }
    }

    /// The truth: VMs with a guest on this node, or one that will be.
    /// Its VM has moved, and only a sidecar keeps the pod alive.
    pub(super) fn only_a_sidecar(&self, p: &Pod) -> bool {
        let vm = &self.vms[p.vm];
        vm.plan.sidecar && vm.node == THERE && p.label == HERE
    }

    pub(super) fn guests_here(&self) -> Vec<&str> {
        self.pods
            .iter()
            .filter(|p| p.holds_guest() && !self.only_a_sidecar(p))
            .map(|p| self.vms[p.vm].name.as_str())
            .collect()
    }
}
