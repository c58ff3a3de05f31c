//! When may a node that has been down be given back, and what is still missing (design section 3.10)?

use super::boot::Since;
use super::time::Mono;
use super::world::{CordonNote, NodeView};
use std::fmt;

/// What keeps a node from receiving VMs; `status` prints these sentences as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// What the Node object says is older than this start of the host.
    KubeletSilent,
    /// Condition `Ready` is not true; the condition's own words.
    NotReady(String),
    /// No heartbeat of virt-handler was ever seen on this Node.
    HandlerUnseen,
    /// Its last heartbeat is older than this start of the host: a hard power-off leaves the label on `true`.
    HandlerSilent,
    /// The label is not `true`.
    NotSchedulable,
    /// No device plugin offers `/dev/kvm`: allocatable is 0 until it has registered again.
    NoKvm,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KubeletSilent => f.write_str("kubelet has not reported since the host came up"),
            Self::NotReady(why) if why.is_empty() => f.write_str("the Node is not Ready"),
            Self::NotReady(why) => write!(f, "the Node is not Ready ({why})"),
            Self::HandlerUnseen => f.write_str(
                "virt-handler has never reported on this Node (no annotation kubevirt.io/heartbeat)",
            ),
            Self::HandlerSilent => f.write_str(
                "virt-handler has not reported since the host came up (annotation kubevirt.io/heartbeat is older)",
            ),
            Self::NotSchedulable => f.write_str(
                "KubeVirt takes no VMs here yet (label kubevirt.io/schedulable is not \"true\")",
            ),
            Self::NoKvm => f.write_str(
                "no VM could start here (allocatable devices.kubevirt.io/kvm is 0)",
            ),
        }
    }
}

/// What a node still lacks that has been down, in the order in which it comes up. `up_since`: when this start of
/// the host began; `note`: what the node had when it was cordoned.
pub fn unmet(
    node: &NodeView,
    note: &CordonNote,
    since: Since,
    boot: &str,
    up_since: Mono,
) -> Vec<Unmet> {
    let mut unmet = Vec::new();
    let newer = |moment: Option<i64>| {
        let start = i64::try_from(up_since.0).unwrap_or(i64::MAX);
        moment.is_some_and(|at| at > start)
    };
    if !kubelet_has_reported(node, since, boot, newer(node.reported)) {
        unmet.push(Unmet::KubeletSilent);
    }
    if !node.ready {
        unmet.push(Unmet::NotReady(node.not_ready.clone()));
    }
    if note.handler {
        match node.heartbeat {
            None => unmet.push(Unmet::HandlerUnseen),
            Some(_) if !newer(node.heartbeat) => unmet.push(Unmet::HandlerSilent),
            Some(_) => {}
        }
        if !node.schedulable {
            unmet.push(Unmet::NotSchedulable);
        }
        if note.kvm && node.kvm == 0 {
            unmet.push(Unmet::NoKvm);
        }
    }
    unmet
}

/// A reboot of some seconds never turns `Ready` false (real-host.md 4b): the boot id in the Node's status tells that
/// kubelet has reported. After a soft-reboot it is the same one, and the time of its last report has to tell.
fn kubelet_has_reported(node: &NodeView, since: Since, boot: &str, newer: bool) -> bool {
    let plain = |id: &str| id.trim().replace('-', "").to_ascii_lowercase();
    let (theirs, ours) = (plain(&node.boot_id), plain(boot));
    match since {
        Since::Rebooted if !theirs.is_empty() && !ours.is_empty() => theirs == ours,
        Since::Rebooted | Since::SoftRebooted => newer,
        Since::Same | Since::Unknown => theirs == ours || newer,
    }
}

/// What the Node had of KubeVirt when it was cordoned: only what was there then is waited for after the boot.
///
/// A Node on which virt-handler has never reported is no KubeVirt node. One on which KubeVirt takes VMs without any
/// KVM device runs them in emulation (`useEmulation`), and will not have the device after the boot either.
pub fn offered(node: &NodeView, up_since: Mono) -> (bool, bool) {
    let start = i64::try_from(up_since.0).unwrap_or(i64::MAX);
    let alive = node.schedulable && node.heartbeat.is_some_and(|at| at > start);
    (node.heartbeat.is_some(), node.kvm > 0 || !alive)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    const UP: Mono = Mono(50_000);

    /// Everything is as it should be.
    fn fine() -> NodeView {
        NodeView {
            name: "n1".into(),
            ready: true,
            boot_id: BOOT.into(),
            reported: Some(60_000),
            heartbeat: Some(61_000),
            schedulable: true,
            kvm: 1000,
            ..NodeView::default()
        }
    }

    #[test]
    fn each_condition_by_itself() {
        type Change = fn(&mut NodeView);
        let cases: [(&str, Change, Vec<Unmet>); 9] = [
            ("fine", |_| {}, vec![]),
            (
                "boot id of before",
                |n| n.boot_id = "b0".into(),
                vec![Unmet::KubeletSilent],
            ),
            (
                "not ready",
                |n| {
                    n.ready = false;
                    n.not_ready = "KubeletNotReady: no CNI".into();
                },
                vec![Unmet::NotReady("KubeletNotReady: no CNI".into())],
            ),
            (
                "no heartbeat",
                |n| n.heartbeat = None,
                vec![Unmet::HandlerUnseen],
            ),
            (
                "heartbeat of before the boot",
                |n| n.heartbeat = Some(-7),
                vec![Unmet::HandlerSilent],
            ),
            (
                "heartbeat of before user space",
                |n| n.heartbeat = Some(50_000),
                vec![Unmet::HandlerSilent],
            ),
            (
                "unreadable heartbeat",
                |n| n.heartbeat = Some(i64::MIN),
                vec![Unmet::HandlerSilent],
            ),
            (
                "label",
                |n| n.schedulable = false,
                vec![Unmet::NotSchedulable],
            ),
            ("kvm", |n| n.kvm = 0, vec![Unmet::NoKvm]),
        ];
        for (case, change, wanted) in cases {
            let mut node = fine();
            change(&mut node);
            let note = CordonNote::default();
            let found = unmet(&node, &note, Since::Rebooted, BOOT, UP);
            assert_eq!(found, wanted, "{case}");
            for one in &found {
                let says = one.to_string();
                assert!(!says.is_empty() && !says.ends_with('.'), "{says}");
            }
        }
    }

    #[test]
    fn all_of_them_are_told_in_the_order_in_which_they_come_up() {
        let found = unmet(
            &NodeView::default(),
            &CordonNote::default(),
            Since::Rebooted,
            BOOT,
            UP,
        );
        let wanted = [
            Unmet::KubeletSilent,
            Unmet::NotReady(String::new()),
            Unmet::HandlerUnseen,
            Unmet::NotSchedulable,
            Unmet::NoKvm,
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn has_kubelet_reported() {
        // What happened, boot id on the Node, its last report, our boot id → reported.
        let cases = [
            (Since::Rebooted, BOOT, None, BOOT, true),
            (
                Since::Rebooted,
                "0F1E2D3C4B5A69788796A5B4C3D2E1F0",
                None,
                BOOT,
                true,
            ),
            (Since::Rebooted, "b0", Some(60_000), BOOT, false),
            // Without ids the time decides.
            (Since::Rebooted, "", Some(60_000), BOOT, true),
            (Since::Rebooted, "", Some(-1), BOOT, false),
            // A soft-reboot keeps the id: a report of before says nothing.
            (Since::SoftRebooted, BOOT, Some(49_000), BOOT, false),
            (Since::SoftRebooted, BOOT, None, BOOT, false),
            (Since::SoftRebooted, BOOT, Some(50_001), BOOT, true),
        ];
        for (since, theirs, reported, ours, wanted) in cases {
            let node = NodeView {
                boot_id: theirs.into(),
                reported,
                ..fine()
            };
            let found = unmet(&node, &CordonNote::default(), since, ours, UP);
            assert_eq!(found.is_empty(), wanted, "{since:?} {theirs} {reported:?}");
        }
    }

    #[test]
    fn what_was_never_there_is_not_waited_for() {
        let note = |handler, kvm| CordonNote {
            handler,
            kvm,
            ..CordonNote::default()
        };
        let bare = NodeView {
            heartbeat: None,
            schedulable: false,
            kvm: 0,
            ..fine()
        };
        assert_eq!(offered(&bare, UP), (false, true));
        assert_eq!(
            unmet(&bare, &note(false, true), Since::Rebooted, BOOT, UP),
            []
        );
        let emulated = NodeView { kvm: 0, ..fine() };
        assert_eq!(offered(&emulated, UP), (true, false));
        assert_eq!(
            unmet(&emulated, &note(true, false), Since::Rebooted, BOOT, UP),
            []
        );
        assert_eq!(offered(&fine(), UP), (true, true));
        // Cordoned while it was still coming up: that says nothing about what it will have.
        let early = NodeView {
            heartbeat: Some(-1),
            ..emulated
        };
        assert_eq!(offered(&early, UP), (true, true));
    }
}
