//! The Node as kubelet and virt-handler write it, and what a loss of power does to what runs here.

use super::cluster::{Cluster, Guest, HERE, Tick};
use vmdrain_agent::drain::world::MigrationPhase;

/// What kubelet and virt-handler have written on the Node.
#[derive(Clone, Debug)]
pub(super) struct Front {
    /// Start of the host that runs now; 0: off.
    pub(super) start: u32,
    pub(super) boot_id: String,
    /// Boot id of the host that runs now.
    pub(super) host_boot: String,
    pub(super) ready: bool,
    pub(super) reported: i64,
    pub(super) heartbeat: i64,
    pub(super) schedulable: bool,
    pub(super) kvm: u64,
}

impl Default for Front {
    fn default() -> Self {
        Self {
            start: 1,
            boot_id: "boot-1".into(),
            host_boot: "boot-1".into(),
            ready: true,
            reported: 1,
            heartbeat: 1,
            schedulable: true,
            kvm: 1000,
        }
    }
}

impl Cluster {
    pub(super) fn kubelet_reports(&mut self, start: u32) {
        if start != self.front.start {
            return;
        }
        let now = self.moment();
        let front = &mut self.front;
        front.boot_id.clone_from(&front.host_boot);
        (front.ready, front.reported) = (true, now);
        self.touch_node();
    }

    pub(super) fn handler_reports(&mut self, start: u32) {
        if start != self.front.start {
            return;
        }
        let now = self.moment();
        let front = &mut self.front;
        (front.heartbeat, front.schedulable, front.kvm) = (now, true, 1000);
        self.touch_node();
    }

    pub(super) fn moment(&self) -> i64 {
        i64::try_from(self.now).unwrap_or(i64::MAX)
    }

    /// The host goes off, and every guest and pod on it with it.
    pub(super) fn power_off(&mut self, noticed: bool) {
        self.front.start = 0;
        self.front.ready &= !noticed;
        for vm in 0..self.vms.len() {
            let doomed = self.vms[vm].node == HERE || self.vms[vm].target == Some(HERE);
            if doomed {
                self.vms[vm].guest = Guest::Gone;
                self.vms[vm].mark = None;
            }
        }
        for pod in self.pods.iter_mut().filter(|p| p.label == HERE) {
            pod.gone = true;
        }
        for m in self
            .vmims
            .iter_mut()
            .filter(|m| m.from == HERE || m.to == HERE)
        {
            if !m.is_final() {
                m.phase = MigrationPhase::Failed;
            }
        }
        self.touch_node();
    }

    /// It is up; who reports when is said.
    pub(super) fn power_on(
        &mut self,
        start: u32,
        boot_id: String,
        kubelet: u64,
        handler: Option<u64>,
    ) {
        self.front.start = start;
        self.front.host_boot = boot_id;
        self.want(kubelet + 1, Tick::Kubelet(start));
        if let Some(handler) = handler {
            self.want(kubelet + 1 + handler, Tick::Handler(start));
        }
    }
}
