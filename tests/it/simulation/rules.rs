//! The rules: checked at every action, after every input, and at the end of a run (KubeVirt notes 11.11).

use super::cluster::{Guest, HERE};
use super::plan::{Attempt, Eye, Order, VmPlan};
use super::run::{Broken, Run};
use super::stops::holds;
use vmdrain_agent::drain::action::Action;
use vmdrain_agent::drain::machine::Machine;
use vmdrain_agent::drain::phase::Phase;
use vmdrain_agent::drain::policy::{Consent, OnForeignUncordon};
use vmdrain_agent::drain::status::{Status, VmPhase};
use vmdrain_agent::drain::time::Mono;
use vmdrain_agent::drain::world::{CordonMark, ObjectRef, Strategy, VmiView};

impl Run {
    pub(super) fn check_action(&mut self, action: &Action) -> Result<(), Broken> {
        if let Action::Evict { id, pod, dry_run } = action {
            self.check_evict(pod, *dry_run)?;
            let sent = (pod.uid.clone(), self.now());
            self.watcher.in_flight.insert(id.0, sent);
        }
        if let Action::StopGuest { pod, .. } = action {
            self.check_stop(pod)?;
        }
        if let Action::TellGuest { guest, .. } = action {
            self.check_consent(&guest.pod_uid)?;
        }
        if let Action::Release(_) = action {
            self.check_release()?;
        }
        if let Action::Uncordon { .. } = action {
            self.check_uncordon()?;
        }
        Ok(())
    }

    fn check_evict(&mut self, pod: &ObjectRef, dry: bool) -> Result<(), Broken> {
        if !self.watcher.cordon_known {
            return Err(format!("{pod} is evicted before the cordon is confirmed"));
        }
        let Some(view) = self.watcher.guest_pod(&pod.uid) else {
            return Err(format!(
                "{pod} is evicted and the newest picture shows no guest in it"
            ));
        };
        // A request whose task has died counts as lost after a minute.
        let lost = self.now().saturating_sub(60_000);
        let mut in_flight = self.watcher.in_flight.values();
        if in_flight.any(|(uid, at)| *uid == pod.uid && *at > lost) {
            return Err(format!("{pod} is asked twice at the same time"));
        }
        if dry {
            return Ok(());
        }
        let (vmi_uid, vm) = (view.vmi_uid.clone(), view.vm.clone());
        let vmi = self.watcher.vmis.iter().flatten();
        // KubeVirt passes over a mark on a VM that cannot migrate: that one is still to be evicted.
        let marked = |v: &&VmiView| {
            let passed_over =
                v.live_migratable == Some(false) || v.strategy == Some(Strategy::None);
            v.mark.is_some() && !passed_over
        };
        if vmi
            .clone()
            .any(|v| v.vmi.uid == vmi_uid && (marked(&v) || v.node != HERE))
        {
            return Err(format!(
                "{pod} is evicted although its VM is marked or elsewhere"
            ));
        }
        let moves = self.watcher.migrations.iter().flatten();
        if vmi.clone().any(|v| v.vmi.uid == vmi_uid)
            && moves.clone().any(|m| m.vm == vm && !m.is_final())
        {
            return Err(format!("{pod} is evicted although its VM is migrating"));
        }
        self.check_post(pod, &vmi_uid)
    }

    fn check_post(&mut self, pod: &ObjectRef, vmi: &str) -> Result<(), Broken> {
        let Some(record) = self.stored() else {
            return Err(format!("{pod} is evicted and nothing was written down"));
        };
        if !record.marks.iter().any(|m| m.uid == vmi) {
            return Err(format!("{pod} is evicted and its mark is not written down"));
        }
        let consent = super::stops::somebody_asked(record);
        let now = self.now();
        let (count, first) = self.watcher.posted(&pod.uid, vmi, consent, now);
        let minutes = (now - first) / 60_000 + 1;
        if count > 8 + 5 * minutes {
            return Err(format!("{pod} was evicted {count} times in {minutes} min"));
        }
        Ok(())
    }

    fn check_release(&self) -> Result<(), Broken> {
        if !self.host.pending {
            return Err("the hold is released and no shutdown is pending".into());
        }
        if self.watcher.released {
            return Err("the hold is released a second time".into());
        }
        let late = self.stored().is_some_and(|r| r.deadline.0 <= self.now());
        let refused = self
            .machine
            .as_ref()
            .is_some_and(|m| m.phase() == Phase::Refused);
        if late {
            return self.check_grace();
        }
        if refused || self.watcher.confirmed_empty() {
            return Ok(());
        }
        Err(format!(
            "the hold is released while {:?} are here",
            self.cluster.guests_here()
        ))
    }

    /// After every input.
    pub(super) fn check_rest(&mut self) -> Result<(), Broken> {
        let now = self.now();
        let Some(machine) = &self.machine else {
            return Ok(());
        };
        if let Some((wake, why)) = machine.poll_timeout()
            && wake.0 <= now
        {
            return Err(format!("a wake-up in the past: {why}"));
        }
        let every = self.count();
        if every.is_multiple_of(16) {
            check_status(&machine.status(Mono(now)), machine.phase())?;
        }
        if every.is_multiple_of(256) {
            left_alone(machine.clone(), now)?;
        }
        Ok(())
    }

    /// When nothing more will happen.
    pub(super) fn finally(&mut self) -> Result<(), Broken> {
        let now = Mono(self.now());
        let Some(machine) = &self.machine else {
            return Ok(());
        };
        let status = machine.status(now);
        if self.is_off() {
            return Ok(());
        }
        self.check_restored(machine, &status)?;
        if self.host.starts > 1 && matches!(machine.phase(), Phase::Idle | Phase::Restoring) {
            return Ok(());
        }
        match machine.phase() {
            Phase::Cancelled => self.check_undone(&status)?,
            Phase::Deadline => {
                check_left(&status)?;
                if !self.host.pending {
                    self.check_undone(&status)?;
                }
            }
            Phase::Drained => {
                let here = self.cluster.guests_here();
                let later = self.cluster.vms.iter().any(|v| v.plan.appears > 0);
                let comes = |v: &VmPlan| v.inbound.is_some() || v.deleted_at.is_some();
                let comes = self.plan.vms.iter().any(comes);
                if !here.is_empty() && !later && !comes {
                    return Err(format!("drained, but {here:?} are here"));
                }
            }
            // A hold by policy goes on for as long as it takes.
            Phase::Idle | Phase::Refused | Phase::Restoring | Phase::Holding => {}
            Phase::Preparing if status.says.contains("by policy the drain goes on") => {}
            phase @ (Phase::Preparing
            | Phase::Evacuating
            | Phase::FallingBack
            | Phase::Confirming
            | Phase::OtherPods
            | Phase::Gates
            | Phase::Cancelling) => {
                return Err(format!("stuck in {}: {}", phase.name(), status.says));
            }
        }
        // A finished drain leaves nothing to remember: after a restart the agent is idle.
        let forgotten = self.watcher.crashes > 0 && machine.phase() == Phase::Idle;
        if self.host.starts == 1
            && self.is_friendly()
            && machine.phase() != Phase::Drained
            && !forgotten
        {
            return Err(format!(
                "nothing stood in the way, and it ended {}: {}",
                machine.phase().name(),
                status.says
            ));
        }
        Ok(())
    }

    pub(super) fn check_off(&self) -> Result<(), Broken> {
        let Some(machine) = &self.machine else {
            return Ok(());
        };
        let status = machine.status(Mono(self.now()));
        if self.host.starts > 1 {
            return Ok(());
        }
        if self.host.held && self.watcher.crashes == 0 {
            return Err(format!("the host waited to its limit: {}", status.says));
        }
        // In the last moments of the host a new process, or one that hears the signal again, looks once more.
        let let_go = !self.host.held;
        if self.is_friendly() && status.state != "drained" && !let_go {
            return Err(format!(
                "nothing stood in the way, and the host went down {}: {}",
                status.state, status.says
            ));
        }
        Ok(())
    }

    fn check_undone(&self, status: &Status) -> Result<(), Broken> {
        if !status.warnings.is_empty() {
            return Ok(());
        }
        // What an earlier drain was to keep is not this one's to take away, and what waited to be given back waits on.
        if matches!(&self.cluster.note, CordonMark::Note(note) if !note.keep && !self.is_of_an_earlier_start(note))
        {
            return Err("undone, and our cordon is still there".into());
        }
        if self.watcher.vanishes > 0 && !self.host.held {
            return Err("the shutdown vanished and the hold was not taken again".into());
        }
        if self.plan.version < (1, 7) || !self.plan.cancel_right {
            return Ok(());
        }
        let marked = |v: &&super::cluster::Vm| {
            v.guest == Guest::Running && v.node == HERE && v.mark == Some((HERE, true))
        };
        if let Some(vm) = self.cluster.vms.iter().find(marked) {
            return Err(format!(
                "undone, and our mark on {} is still there",
                vm.name
            ));
        }
        Ok(())
    }

    /// Nothing in this plan keeps a drain from its end in good time.
    fn is_friendly(&self) -> bool {
        let plan = &self.plan;
        let quiet = plan.orders.iter().all(|(_, order)| match order {
            Order::Trigger(t) => t.deadline.is_none() && !t.shutdown_vms,
            Order::Shutdown => plan.limit >= 2_700_000,
            Order::ForeignUncordon => plan.on_foreign_uncordon == OnForeignUncordon::Recordon,
            Order::Crash { .. } | Order::ForeignCordon | Order::Extend { .. } => true,
            Order::Vanish
            | Order::Schedule { .. }
            | Order::CallOff
            | Order::Cancel { .. }
            | Order::Release(_)
            | Order::Restore => false,
        });
        let shutdown = plan.orders.iter().any(|(at, order)| match order {
            Order::Shutdown => *at == 1000,
            Order::Trigger(t) => t.then.is_some() && !plan.logind_blocks,
            Order::Vanish
            | Order::Schedule { .. }
            | Order::CallOff
            | Order::Cancel { .. }
            | Order::Restore
            | Order::Extend { .. }
            | Order::Release(_)
            | Order::ForeignCordon
            | Order::ForeignUncordon
            | Order::Crash { .. } => false,
        });
        let consent = match plan.consent {
            Consent::Always => true,
            Consent::OnShutdown => shutdown,
            Consent::Never => false,
        };
        let sees_moves = plan.vmis == Eye::Open && plan.migrations == Eye::Open;
        quiet
            && plan.cordon_right
            && !plan.another_machine
            && plan.vms.iter().all(|v| goes(v, consent, sees_moves))
    }
}

/// This VM will leave in good time.
fn goes(vm: &VmPlan, consent: bool, sees_moves: bool) -> bool {
    let strategy = vm.strategy.unwrap_or(Strategy::LiveMigrate);
    let free = consent && vm.budget_until < 1_000_000 && vm.two_budgets_until < 1_000_000;
    let moves = match strategy {
        Strategy::LiveMigrate => vm.migratable,
        Strategy::LiveMigrateIfPossible => vm.migratable || free,
        Strategy::None => free,
        // Its own controller tries once.
        Strategy::External => {
            let taken = vm.external.is_some() && vm.attempts.is_empty();
            taken && vm.migratable && vm.marked_at.is_none() && vm.user_migration.is_none()
        }
    };
    let hopeless = vm.attempts.contains(&Attempt::Unschedulable)
        || vm.pod_broken_until > 1_000_000
        || (vm.sidecar && !sees_moves)
        || (vm.terminating.is_some() && (vm.inbound.is_some() || vm.deleted_at.is_some()))
        || vm.unmarked_at.is_some();
    moves && !hopeless
}

fn check_status(status: &Status, phase: Phase) -> Result<(), Broken> {
    if status.says.is_empty() {
        return Err(format!("nothing is said in phase {}", phase.name()));
    }
    if phase.is_draining() && status.drain.as_ref().is_some_and(|d| d.exit == Some(0)) {
        return Err("an exit code while the drain runs".into());
    }
    if phase != Phase::Evacuating {
        return Ok(());
    }
    let silent = status.vms.iter().find(|v| v.says.is_empty());
    match silent {
        Some(vm) => Err(format!("nothing is said about {}: {:?}", vm.name, vm.phase)),
        None => Ok(()),
    }
}

fn check_left(status: &Status) -> Result<(), Broken> {
    if !matches!(status.drain.as_ref().and_then(|d| d.exit), Some(3 | 7)) {
        return Err("the deadline passed and the exit code is neither 3 nor 7".into());
    }
    let silent =
        |v: &&vmdrain_agent::drain::status::VmStatus| v.phase == VmPhase::Left && v.says.is_empty();
    match status.vms.iter().find(silent) {
        Some(vm) => Err(format!("{} was left, and no reason is told", vm.name)),
        None => Ok(()),
    }
}

/// From any state, with only time going by, a machine comes to rest soon after its deadline.
fn left_alone(mut machine: Machine, now: u64) -> Result<(), Broken> {
    let deadline = machine
        .status(Mono(now))
        .drain
        .and_then(|d| d.deadline_in)
        .unwrap_or(0.0)
        .max(0.0);
    let mut at = now;
    for _ in 0..5000 {
        // A hold by policy has no end of its own.
        if machine.phase().is_at_rest() || holds(&machine, at) {
            return Ok(());
        }
        let Some((wake, why)) = machine.poll_timeout() else {
            return Err(format!(
                "left alone in {}, it would wait for ever",
                machine.phase().name()
            ));
        };
        at = wake.0;
        let late = Mono(at).since(Mono(now)).as_secs_f64() - deadline;
        // A process that begins in the middle of a drain hears logind out first, for as long as a request may take.
        let asks = why == "is the shutdown still pending";
        let patience = if asks { 10.0 } else { 1.0 };
        if late > patience && machine.phase().is_draining() {
            return Err(format!("left alone, it drains past its deadline ({why})"));
        }
        if late > 3600.0 {
            return Err(format!("left alone, it takes too long to undo ({why})"));
        }
        machine.handle_timeout(wake);
        while machine.poll_action().is_some() {}
    }
    Err(format!("left alone, it never rests (at {at})"))
}
