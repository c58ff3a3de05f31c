//! The hold between drains: what is wrong with it, and who else acts on a shutdown. Told once, not every minute.

use super::Machine;
use crate::drain::action::{HoldView, Holder, Level, UNIT_MODE};
use crate::drain::time::Mono;
use crate::drain::world::NodeView;

/// What has been told of the hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HoldTold {
    trouble: String,
    /// Since when logind cannot be asked.
    silent_since: Option<Mono>,
    /// Notes about other holders that stand.
    notes: Vec<String>,
}

impl Machine {
    pub(super) fn hold_seen(&mut self, hold: HoldView, now: Mono) {
        if hold.limit.is_some() {
            self.hold_told.silent_since = None;
        } else {
            self.hold_told.silent_since.get_or_insert(now);
        }
        self.hold = hold;
        // While logind cannot be asked, nothing is known about the others.
        if self.hold.limit.is_some() {
            self.holders_seen();
        }
        let stopper = self.guest_stopper_now();
        if let Some(drain) = self.drain.as_mut().filter(|_| !stopper.is_empty()) {
            drain.guest_stopper = stopper;
        }
    }

    /// Who stops guests at a shutdown, now or earlier in this drain; empty when none is known.
    pub(super) fn stops_guests(&self) -> String {
        let earlier = || self.drain.as_ref().map(|d| d.guest_stopper.clone());
        let now = Some(self.guest_stopper_now()).filter(|who| !who.is_empty());
        now.or_else(earlier).unwrap_or_default()
    }

    /// The one that has a lock now.
    pub(super) fn guest_stopper_now(&self) -> String {
        let stops = |holder: &&Holder| stops_guests(&holder.who);
        let found = self.hold.others.iter().find(stops);
        found.map(|holder| holder.who.clone()).unwrap_or_default()
    }

    /// kubelet takes its own part in a shutdown back only at `PrepareForShutdown(false)`, which a cancel does not send
    /// (real-host.md 2d).
    pub(super) fn tell_of_kubelet(&mut self) {
        let stuck = |node: &NodeView| node.not_ready.contains("node is shutting down");
        if self.node.as_ref().is_some_and(stuck) {
            self.remains(
                "kubelet still takes the host for one that is shutting down and starts no pod: `systemctl restart kubelet` cures it (k3s and rke2: restart their service)".into(),
            );
        }
    }

    fn holders_seen(&mut self) {
        let notes: Vec<String> = self.hold.others.iter().filter_map(note).collect();
        let before = std::mem::replace(&mut self.hold_told.notes, notes.clone());
        for text in notes.into_iter().filter(|text| !before.contains(text)) {
            self.loud(Level::Warn, "OtherHolder", text);
        }
    }

    /// Tells what is wrong with the hold. A logind that is only being restarted is not worth a word, and one that ends
    /// with the host is none.
    pub(super) fn hold_step(&mut self, now: Mono) {
        if self.drain.as_ref().is_some_and(|d| d.shutting_down)
            || self.hold.trouble == self.hold_told.trouble
        {
            return;
        }
        let trouble = self.hold.trouble.clone();
        if trouble.is_empty() {
            self.hold_told.trouble.clear();
            return self.loud(
                Level::Info,
                "ProtectionBack",
                "all is well with the hold again: a shutdown waits for the VMs".into(),
            );
        }
        if let Some(since) = self.hold_told.silent_since {
            let patience = since + self.policy.timing.hold_patience;
            if now < patience {
                return self.wake_at(patience, "is logind back");
            }
            self.loud(
                Level::Error,
                "ProtectionLost",
                format!("shutdown protection lost: {trouble}"),
            );
        } else {
            self.loud(Level::Warn, "HoldTrouble", trouble.clone());
        }
        self.hold_told.trouble = trouble;
    }
}

/// Red Hat's hook (`vm-shutdown-hook`, unit `vm-drain-shutdown-inhibitor`), by its name in logind's list.
fn stops_guests(who: &str) -> bool {
    let who = who.to_ascii_lowercase();
    ["vm-shutdown", "vm-drain"]
        .iter()
        .any(|part| who.contains(part))
}

/// What another holder of a shutdown does to our VMs, and the cure; `None`: nothing that is known of.
pub fn note(holder: &Holder) -> Option<String> {
    let who = holder.who.as_str();
    // "Libvirt" and "Deckhouse node-manager" call themselves so; their units and older versions write it small.
    let plain = who.to_ascii_lowercase();
    let is = |parts: &[&str]| parts.iter().any(|part| plain.contains(part));
    let delays = holder.mode == "delay";
    if who == "kubelet" && delays {
        return Some(
            "kubelet's graceful node shutdown is on: at a shutdown it ends the pods of the VMs at once, while they should migrate. Set shutdownGracePeriod (and shutdownGracePeriodByPodPriority) of this node's kubelet to 0, or always go down by `vmdrain-agent reboot` or `poweroff`, which drain first".into(),
        );
    }
    if stops_guests(who) {
        return Some(format!(
            "{who} powers every guest off as soon as a shutdown is announced, while they should migrate. Turn it off on this node (the annotation platform.kubevirt.io/enable-vm-drain-shutdown-inhibitor of Red Hat's autopilot), or always go down by `vmdrain-agent reboot` or `poweroff`, which drain first"
        ));
    }
    if is(&["d8-", "deckhouse", "node-shutdown-inhibitor"]) {
        return Some(format!(
            "{who} keeps the host up until no pod with the label pod.deckhouse.io/inhibit-node-shutdown runs here, whatever we decide at our deadline. It moves no VM; one of the two is enough"
        ));
    }
    if holder.mode == UNIT_MODE && is(&["libvirt-guests"]) {
        return Some(format!(
            "{who} suspends or stops the guests of this host's own libvirt while the system ends, beside the stop job, 5 minutes for each by default, and the host waits for it. VMs of KubeVirt are not among them. On a host that has no others: `systemctl disable {who}` (without --now: its stop is what stops guests)"
        ));
    }
    if plain.starts_with("libvirt") || is(&["virtqemud"]) {
        return Some(format!(
            "{who} saves or stops the guests of this host's own libvirt at a shutdown. VMs of KubeVirt are not among them; the host waits for both"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(who: &str, mode: &str) -> Holder {
        Holder {
            who: who.into(),
            mode: mode.into(),
            ..Holder::default()
        }
    }

    #[test]
    fn those_who_touch_vms_are_known_by_name() {
        for (who, says) in [
            ("kubelet", "shutdownGracePeriod"),
            ("vm-shutdown-hook", "powers every guest off"),
            ("vm-drain-shutdown-inhibitor", "powers every guest off"),
            ("d8-shutdown-inhibitor", "deckhouse.io"),
            ("Deckhouse node-manager", "deckhouse.io"),
            ("Libvirt", "own libvirt"),
            ("virtqemud", "own libvirt"),
        ] {
            let told = note(&holder(who, "delay")).unwrap();
            assert!(told.contains(says), "{told}");
        }
        assert_eq!(note(&holder("unattended-upgrades", "delay")), None);
        assert_eq!(note(&holder("kubelet", "block")), None);
    }

    #[test]
    fn a_unit_that_stops_guests_is_explained_without_a_cure_that_stops_them() {
        let told = note(&holder("libvirt-guests.service", UNIT_MODE)).unwrap();
        for says in [
            "own libvirt",
            "not among them",
            "systemctl disable",
            "without --now",
        ] {
            assert!(told.contains(says), "{told}");
        }
    }
}
