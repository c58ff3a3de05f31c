//! How the API server and KubeVirt's webhook answer the agent's requests (control-plane.md 6.d, 6.e).

use super::cluster::{Cluster, Guest, HERE, Tick};
use vmdrain_agent::drain::action::{Fault, FaultClass};
use vmdrain_agent::drain::answer::Reply;
use vmdrain_agent::drain::world::{CordonMark, CordonNote, NodeView, ObjectRef, Strategy};

const WEBHOOK: &str =
    "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: ";

fn reply(code: u16, message: &str) -> Reply {
    Reply {
        code,
        message: message.into(),
        ..Reply::default()
    }
}

fn denied(text: &str) -> Reply {
    reply(429, &format!("{WEBHOOK}{text}"))
}

fn budget(says: &str) -> Reply {
    Reply {
        causes: vec![("DisruptionBudget".into(), says.into())],
        ..reply(
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.",
        )
    }
}

/// What an eviction did, for the invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    /// The mark was written by this request.
    Marked,
    /// A running guest is shut down.
    GuestStopped,
}

fn fault(class: FaultClass, text: &str) -> Fault {
    Fault {
        class,
        text: text.into(),
    }
}

impl Cluster {
    pub(super) fn webhook_is_down(&self) -> bool {
        let down = |(from, to): &(u64, u64)| (*from..*to).contains(&self.now);
        self.plan.webhook_down.iter().any(down)
    }

    pub(super) fn api_is_down(&self) -> bool {
        let down = |(from, to): &(u64, u64)| (*from..*to).contains(&self.now);
        self.plan.api_down.iter().any(down)
    }

    pub(super) fn node_view(&self) -> NodeView {
        NodeView {
            name: HERE.into(),
            uid: "node-uid".into(),
            resource_version: self.node_version.to_string(),
            unschedulable: self.unschedulable,
            cordon: self.note.clone(),
            ready: self.front.ready,
            boot_id: self.front.boot_id.clone(),
            reported: Some(self.front.reported),
            heartbeat: Some(self.heartbeat()),
            schedulable: self.front.schedulable,
            kvm: self.front.kvm,
            machine_id: if self.plan.another_machine {
                "f00".into()
            } else {
                "abc".into()
            },
            ..NodeView::default()
        }
    }

    /// In the first start of the host it goes on reporting; after a boot only what it has said then counts.
    fn heartbeat(&self) -> i64 {
        if self.front.start == 1 && self.plan.handler {
            i64::MAX
        } else {
            self.front.heartbeat
        }
    }

    pub(super) fn cordon(
        &mut self,
        version: &str,
        note: Option<CordonNote>,
    ) -> Result<NodeView, Fault> {
        self.writable(version)?;
        self.unschedulable = true;
        self.note = note.map_or(CordonMark::Absent, CordonMark::Note);
        self.touch_node();
        Ok(self.node_view())
    }

    pub(super) fn uncordon(&mut self, version: &str) -> Result<NodeView, Fault> {
        self.writable(version)?;
        self.unschedulable = false;
        self.note = CordonMark::Absent;
        self.touch_node();
        Ok(self.node_view())
    }

    pub(super) fn unmark(&mut self, version: &str) -> Result<NodeView, Fault> {
        self.writable(version)?;
        self.note = CordonMark::Absent;
        self.touch_node();
        Ok(self.node_view())
    }

    fn writable(&self, version: &str) -> Result<(), Fault> {
        if !self.plan.cordon_right {
            return Err(fault(FaultClass::Denied, "may not patch nodes"));
        }
        if version != self.node_version.to_string() {
            return Err(fault(FaultClass::Conflict, "the object has been modified"));
        }
        Ok(())
    }

    /// POST pods/eviction.
    pub(super) fn evict(&mut self, id: &ObjectRef, dry: bool) -> (Reply, Effect) {
        let found = self
            .pods
            .iter()
            .position(|p| p.id.name == id.name && !p.gone);
        let Some(at) = found else {
            return (reply(404, "pods not found"), Effect::Nothing);
        };
        let vm = self.pods[at].vm;
        if self.vms[vm].terminating {
            let refused = Reply {
                causes: vec![("NamespaceTerminating".into(), String::new())],
                ..reply(403, "unable to create new content in namespace")
            };
            return (refused, Effect::Nothing);
        }
        match self.webhook(at, vm, dry) {
            Some(answer) => answer,
            None => self.granted(at, vm, id, dry),
        }
    }

    fn webhook(&mut self, at: usize, vm: usize, dry: bool) -> Option<(Reply, Effect)> {
        let strategy = self.strategy(vm);
        let migrates = match strategy {
            Strategy::LiveMigrate | Strategy::External => true,
            Strategy::LiveMigrateIfPossible => self.vms[vm].live == Some(true),
            Strategy::None => false,
        };
        let active = self.vms[vm].node == HERE && self.pods[at].holds_guest();
        if self.webhook_is_down() {
            if self.plan.version >= (1, 5) {
                let text = "Internal error occurred: failed calling webhook \"virt-launcher-eviction-interceptor.kubevirt.io\"";
                return Some((reply(500, text), Effect::Nothing));
            }
            let says = "The disruption budget kubevirt-disruption-budget-x needs 1 healthy pods and has 1 currently";
            return (migrates && active).then(|| (budget(says), Effect::Nothing));
        }
        let v = &mut self.vms[vm];
        if !self.pods[at].holds_guest() {
            return None;
        }
        if v.guest == Guest::Gone {
            let text = "kubevirt failed getting the vmi: virtualmachineinstances.kubevirt.io \"x\" not found";
            return Some((denied(text), Effect::Nothing));
        }
        if !migrates {
            return None;
        }
        if v.mark.is_some() {
            let text = "Evacuation in progress: Eviction triggered evacuation of VMI \"x\"";
            return Some((denied(text), Effect::Nothing));
        }
        if v.node != HERE {
            return Some((denied("Eviction request for target Pod"), Effect::Nothing));
        }
        if strategy == Strategy::LiveMigrate && v.live != Some(true) {
            let text = "VMI x is configured with an eviction strategy but is not live-migratable";
            return Some((denied(text), Effect::Nothing));
        }
        let mut effect = Effect::Nothing;
        if !dry {
            v.mark = Some((HERE, true));
            effect = Effect::Marked;
            if let (Strategy::External, Some(after)) = (strategy, v.plan.external) {
                self.wants.push((self.now + after, Tick::TakenAway(vm)));
            }
            self.touch();
            self.kick(300);
        }
        let text = "Eviction triggered evacuation of VMI \"x\"";
        Some((denied(text), effect))
    }

    fn granted(&mut self, at: usize, vm: usize, id: &ObjectRef, dry: bool) -> (Reply, Effect) {
        let plan = &self.vms[vm].plan;
        if self.now < plan.two_budgets_until {
            let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return (reply(500, text), Effect::Nothing);
        }
        if self.now < plan.budget_until {
            let says = "The disruption budget b1 needs 3 healthy pods and has 3 currently";
            return (budget(says), Effect::Nothing);
        }
        if id.uid != self.pods[at].id.uid {
            return (
                reply(409, "the UID in the precondition does not match"),
                Effect::Nothing,
            );
        }
        let mut effect = Effect::Nothing;
        if !dry && !self.pods[at].holds_guest() {
            self.pods[at].gone = true;
            self.touch();
        } else if !dry && !self.pods[at].deleting {
            effect = Effect::GuestStopped;
            self.shut_down(vm);
        }
        (reply(201, ""), effect)
    }

    /// PUT evacuate/cancel; true when a mark was cleared that is not ours.
    pub(super) fn cancel_evacuation(&mut self, vmi: &ObjectRef) -> (Reply, bool) {
        if self.plan.version < (1, 7) {
            return (reply(404, "404: Page Not Found"), false);
        }
        if !self.plan.cancel_right {
            return (reply(403, "cannot update resource"), false);
        }
        if self.webhook_is_down() {
            return (reply(503, "error trying to reach service"), false);
        }
        let Some(vm) = self
            .vms
            .iter_mut()
            .find(|v| v.name == vmi.name && v.uid == vmi.uid && !matches!(v.guest, Guest::Gone))
        else {
            return (reply(404, "not found"), false);
        };
        match vm.mark {
            Some((node, _)) if node != HERE => {
                let text = "Internal error occurred: the server rejected our request due to an error in our request";
                (reply(500, text), false)
            }
            mark => {
                let foreign = mark.is_some_and(|(_, ours)| !ours);
                vm.mark = None;
                self.touch();
                (reply(200, ""), foreign)
            }
        }
    }

    /// DELETE of a pod by UID: its guest is shut down, unless it is migrating just now; then it is when that has failed
    /// (kubevirt-semantics 5).
    pub(super) fn stop_guest(&mut self, id: &ObjectRef) -> Reply {
        let found = self
            .pods
            .iter()
            .position(|p| p.id.name == id.name && !p.gone);
        let Some(at) = found else {
            return reply(404, "pods not found");
        };
        if id.uid != self.pods[at].id.uid {
            return reply(409, "the UID in the precondition does not match");
        }
        if !self.pods[at].holds_guest() {
            self.pods[at].gone = true;
            self.touch();
        } else if !self.pods[at].deleting {
            let vm = self.pods[at].vm;
            let grace = self.vms[vm].plan.grace;
            self.pods[at].deleting = true;
            self.want(grace + 1, Tick::GuestDown(vm));
            self.touch();
        }
        reply(200, "")
    }

    pub(super) fn delete_migration(&mut self, id: &ObjectRef) -> Reply {
        let Some(m) = self.vmims.iter().position(|m| m.uid == id.uid) else {
            return reply(404, "not found");
        };
        self.vmims[m].aborted = true;
        self.fail(m);
        reply(200, "")
    }
}
