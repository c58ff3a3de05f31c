//! What do the containers of a pod do: start, stop in time, or get killed?

use std::time::Duration;

use serde_json::Value;

use super::super::fabric::Host;
use super::super::knobs::{Outcome, outcome_of, seconds_or_never};
use super::super::machine::{Guest, Launcher, Machine};
use super::super::status::Containers;
use super::{Kubelet, kill};
use crate::kubevirt::fields::{at, deleting, has, is_launcher, namespace, owner, phase, text, uid};
use crate::kubevirt::names::knob;

/// virt-launcher kills its guest so long after the guest's own grace period.
const LAUNCHER_EXTRA: Duration = Duration::from_secs(15);
/// What an ordinary pod takes to start and to stop, unless a knob says otherwise.
const USUAL_START: Duration = Duration::from_secs(1);
const USUAL_STOP: Duration = Duration::from_millis(500);

impl Kubelet {
    /// What the containers of a pod do; `None` while they have not started.
    pub(super) fn containers(
        &mut self,
        machine: &mut Machine,
        pod: &Value,
        host: &Host,
    ) -> Option<Containers> {
        let launcher = is_launcher(pod) && owner(pod).is_some();
        if launcher {
            self.launcher(machine, pod, host)
        } else {
            self.ordinary(pod, host)
        }
    }

    pub(super) fn ordinary(&mut self, pod: &Value, host: &Host) -> Option<Containers> {
        if deleting(pod) {
            let usual =
                seconds_or_never(pod, knob::TERMINATES, USUAL_STOP).unwrap_or(Duration::MAX);
            let stopped = self
                .timers
                .due(&format!("stop/{}", uid(pod)), usual.min(grace(pod)));
            return if stopped {
                Some(Containers::Ended(0))
            } else {
                Some(Containers::Running).filter(|_| phase(pod) == "Running")
            };
        }
        if let Some((since, period)) = host.shutting_down
            && self.timers.reached(since + period.min(USUAL_STOP))
        {
            return Some(Containers::Terminated(1));
        }
        let usual = seconds_or_never(pod, knob::START_UP, USUAL_START)?;
        (phase(pod) == "Running" || self.timers.due(&format!("start/{}", uid(pod)), usual))
            .then_some(Containers::Running)
    }

    pub(super) fn launcher(
        &mut self,
        machine: &mut Machine,
        pod: &Value,
        host: &Host,
    ) -> Option<Containers> {
        if !machine.launchers.contains_key(uid(pod)) {
            if self.lost.contains(uid(pod)) {
                // Its containers are from before the boot.
                return Some(Containers::Ended(255));
            }
            let found = phase(pod) == "Running";
            if !found && !self.may_start(pod, host) {
                return None;
            }
            let guest = if found { Guest::Found } else { Guest::Empty };
            machine
                .launchers
                .insert(uid(pod).to_owned(), fresh(pod, guest));
        }
        let launcher = machine.launchers.get_mut(uid(pod))?;
        self.terminate(launcher, pod, host);
        match launcher.ends {
            Some((at, code)) if self.timers.reached(at) => Some(if host.shutting_down.is_some() {
                Containers::Terminated(code)
            } else {
                Containers::Ended(code)
            }),
            Some(_) | None => Some(Containers::Running),
        }
    }

    pub(super) fn may_start(&mut self, pod: &Value, host: &Host) -> bool {
        if deleting(pod)
            || host.shutting_down.is_some()
            || outcome_of(pod) == Some(Outcome::Pending)
        {
            return false;
        }
        let Some(usual) = seconds_or_never(pod, knob::START_UP, USUAL_START) else {
            return false;
        };
        self.timers.due(&format!("start/{}", uid(pod)), usual)
    }

    /// SIGTERM, and what follows when the guest takes too long.
    pub(super) fn terminate(&mut self, launcher: &mut Launcher, pod: &Value, host: &Host) {
        let now = self.timers.now();
        if launcher.terminated.is_none() && (deleting(pod) || host.shutting_down.is_some()) {
            launcher.terminated = Some(now);
        }
        if launcher.ends.is_none()
            && !launcher.holds_guest()
            && (launcher.terminated.is_some()
                || matches!(launcher.guest, Guest::Gone { .. }) && !launcher.lingers)
        {
            let code = i32::from(launcher.guest == Guest::Gone { clean: false });
            launcher.ends = Some((now + USUAL_STOP, code));
        }
        let Some(since) = launcher.terminated.filter(|_| launcher.holds_guest()) else {
            return;
        };
        let mut limit = grace(pod);
        if let Some((_, period)) = host.shutting_down {
            limit = limit.min(period);
        }
        let own = launcher.grace + LAUNCHER_EXTRA;
        if self.timers.reached(since + limit.min(own)) {
            let why = if own < limit {
                "virt-launcher gave up waiting for it"
            } else {
                "the kubelet killed its pod"
            };
            self.ledger.record(kill(launcher, &self.node, now, why));
            launcher.guest = Guest::Gone { clean: false };
            launcher.ends = Some((now, 137));
        }
    }

    /// Launchers whose pod object is gone are killed.
    pub(super) fn reap(&mut self, machine: &mut Machine, lives: impl Fn(&str) -> bool) {
        let gone: Vec<String> = machine
            .launchers
            .keys()
            .filter(|pod| !lives(pod))
            .cloned()
            .collect();
        for pod in gone {
            if let Some(launcher) = machine.launchers.remove(&pod).filter(Launcher::holds_guest) {
                self.ledger.record(kill(
                    &launcher,
                    &self.node,
                    self.timers.now(),
                    "its pod was removed by force",
                ));
            }
        }
    }
}

/// The grace period of a pod's deletion, else its own.
pub(super) fn grace(pod: &Value) -> Duration {
    let path = if has(pod, "metadata.deletionGracePeriodSeconds") {
        "metadata.deletionGracePeriodSeconds"
    } else {
        "spec.terminationGracePeriodSeconds"
    };
    Duration::from_secs(at(pod, path).and_then(Value::as_u64).unwrap_or(30))
}

/// The launcher process of a pod, as it begins.
pub fn fresh(pod: &Value, guest: Guest) -> Launcher {
    let (_, vmi, vmi_uid) = owner(pod).unwrap_or_default();
    let own = at(pod, "spec.terminationGracePeriodSeconds")
        .and_then(Value::as_u64)
        .unwrap_or(60);
    Launcher {
        namespace: namespace(pod).to_owned(),
        pod: text(pod, "metadata.name").to_owned(),
        vmi: vmi.to_owned(),
        vmi_uid: vmi_uid.to_owned(),
        guest,
        terminated: None,
        ends: None,
        grace: Duration::from_secs(own.saturating_sub(30)),
        receiving: false,
        lingers: false,
    }
}
