//! Rules about guests that the agent stops: by consent, in order, and never before their time.

use super::plan::{Eye, Order, VmPlan};
use super::run::{Broken, Run};
use std::time::Duration;
use vmdrain_agent::drain::machine::Machine;
use vmdrain_agent::drain::policy::{Consent, OnDeadline};
use vmdrain_agent::drain::record::Record;
use vmdrain_agent::drain::stop::handler_alive;
use vmdrain_agent::drain::time::Mono;
use vmdrain_agent::drain::world::ObjectRef;

impl Run {
    /// A guest is stopped only under our cordon, by consent, through a living virt-handler, and not in silence.
    pub(super) fn check_stop(&mut self, pod: &ObjectRef) -> Result<(), Broken> {
        // Where the cordon is refused and the host goes down, its guests get their clean end all the same.
        let without_cordon = !self.plan.cordon_right && self.host.pending;
        if !self.watcher.cordon_known && !without_cordon {
            return Err(format!("{pod} is stopped before the cordon is confirmed"));
        }
        if self.watcher.guest_pod(&pod.uid).is_none() {
            return Err(format!(
                "{pod} is stopped and the newest picture shows no guest in it"
            ));
        }
        let now = self.now();
        let patience = Duration::from_secs(300);
        let node = self.watcher.seen_node.as_ref();
        if let Err(doubt) = handler_alive(node, patience, Mono(now)) {
            return Err(format!("{pod} is stopped without virt-handler: {doubt}"));
        }
        self.check_consent(&pod.uid)?;
        self.watcher.stops.entry(pod.uid.clone()).or_insert(now);
        Ok(())
    }

    /// Whoever stops a guest, somebody has allowed it, and it was written down before.
    pub(super) fn check_consent(&self, pod: &str) -> Result<(), Broken> {
        let Some(record) = self.stored() else {
            return Err(format!("{pod} is stopped and nothing was written down"));
        };
        if !record.stops.iter().any(|stop| stop.pod.uid == pod) {
            return Err(format!("{pod} is stopped and that is not written down"));
        }
        let allowed = match self.plan.consent {
            Consent::Never => false,
            Consent::Always => true,
            Consent::OnShutdown => somebody_asked(record),
        };
        if !allowed {
            return Err(format!("{pod} is stopped and nobody allowed that"));
        }
        Ok(())
    }

    /// With nothing in the way, no guest is cut off in its grace period.
    pub(super) fn check_grace(&self) -> Result<(), Broken> {
        let Some(record) = self.stored().filter(|_| self.is_calm()) else {
            return Ok(());
        };
        let slack = 10_000;
        let needs: u64 = self.plan.vms.iter().map(|vm| vm.grace + slack).sum();
        if record.deadline.0 < record.started.0 + needs + 30_000 {
            return Ok(());
        }
        for pod in self.cluster.pods.iter().filter(|p| p.holds_guest()) {
            let grace = self.cluster.vms[pod.vm].plan.grace;
            let told = self.watcher.stops.get(&pod.id.uid);
            if told.is_none_or(|at| at + grace > record.deadline.0) {
                return Err(format!(
                    "{} was told at {told:?} and needs {grace}, and the deadline was {}",
                    pod.id, record.deadline
                ));
            }
        }
        Ok(())
    }

    /// A shutdown that nobody disturbs, of VMs that are just there.
    fn is_calm(&self) -> bool {
        let plan = &self.plan;
        let quiet = |vm: &VmPlan| {
            vm.appears == 0
                && vm.inbound.is_none()
                && vm.terminating.is_none()
                && vm.deleted_at.is_none()
                && vm.user_migration.is_none()
                && vm.vmi_broken_until == 0
                && vm.pod_broken_until == 0
        };
        let seen = |eye: Eye| matches!(eye, Eye::Open | Eye::Forbidden);
        plan.storm_until == 0
            && plan.api_down.is_empty()
            && plan.handler
            && plan.cordon_right
            && !plan.another_machine
            && plan.on_deadline == OnDeadline::ShutdownVms
            && plan.consent != Consent::Never
            && seen(plan.vmis)
            && seen(plan.migrations)
            && matches!(plan.orders[..], [(_, Order::Shutdown)])
            && self.host.starts == 1
            && plan.vms.iter().all(quiet)
    }
}

/// Its deadline has passed, and its policy is to go on.
pub(super) fn holds(machine: &Machine, at: u64) -> bool {
    let drain = machine.status(Mono(at)).drain;
    drain.is_some_and(|d| d.on_deadline == "hold" && d.deadline_in.is_some_and(|left| left <= 0.0))
}

/// Guests may be stopped for this drain: the host goes down, or a person said so with the trigger or with `release`.
pub(super) fn somebody_asked(record: &Record) -> bool {
    let trigger = record.trigger.as_ref();
    let with_trigger =
        trigger.is_some_and(|t| t.allow_guest_shutdown || t.then.is_some() || t.shutdown_vms);
    with_trigger || record.shutting_down || record.released
}
