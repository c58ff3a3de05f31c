//! What does the host itself show of its launchers, and what does a signal to one of them do?

use std::time::Duration;

use vmdrain_agent::drain::local::{LocalGuest, LocalView, Process};
use vmdrain_agent::drain::world::VmName;

use super::fabric::Fabric;
use super::machine::Shared;
use crate::clock::SimClock;

/// One host from inside.
#[derive(Clone, Debug)]
pub struct Premises {
    /// Its node.
    pub node: String,
    /// What physically is on it.
    pub machine: Shared,
    /// Whether its virt-handler runs.
    pub fabric: Fabric,
    /// The clock.
    pub clock: SimClock,
}

impl Premises {
    /// What runs now. Process numbers are made up, the same for the same pod as long as it is there.
    pub fn look(&self) -> LocalView {
        let now = self.clock.elapsed();
        let guests = self.machine.with(|machine| {
            let runs = machine
                .launchers
                .iter()
                .filter(|(_, one)| one.ends.is_none_or(|(at, _)| at > now));
            let guest =
                |(pid, (uid, one)): (u32, (&String, &super::machine::Launcher))| LocalGuest {
                    pod_uid: uid.clone(),
                    vm: VmName {
                        namespace: one.namespace.clone(),
                        name: one.vmi.clone(),
                    },
                    vmi_uid: one.vmi_uid.clone(),
                    grace: Some(one.grace),
                    init: Process { pid, started: 1 },
                };
            (1000..).zip(runs).map(guest).collect()
        });
        LocalView {
            guests,
            handler: self.fabric.host(&self.node).handler,
        }
    }

    /// SIGTERM to the virt-launcher of a pod; false: it does not run any more.
    pub fn tell(&self, pod_uid: &str) -> bool {
        let now = self.clock.elapsed();
        self.machine.with(|machine| {
            let launcher = machine.launchers.get_mut(pod_uid);
            let runs = |at: Option<(Duration, i32)>| at.is_none_or(|(at, _)| at > now);
            let Some(launcher) = launcher.filter(|one| runs(one.ends)) else {
                return false;
            };
            launcher.terminated.get_or_insert(now);
            true
        })
    }
}
