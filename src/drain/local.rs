//! What does this host itself know of the guests that run on it, when the API server cannot be asked (design section 5)?
//!
//! The init process of a launcher pod's `compute` container, virt-launcher, may be told to end by SIGTERM: then it asks virt-handler for
//! a clean shutdown of its guest, as it does when the kubelet ends its pod (kubevirt-semantics 5). A second process of that
//! container is qemu, which must not get the signal.

use super::world::VmName;
use std::time::Duration;

/// virt-launcher gets so much more time than its guest (kubevirt-semantics 5).
pub const LAUNCHER_EXTRA: Duration = Duration::from_secs(15);

/// What a guest may take of which nobody knows its grace period: KubeVirt's default.
pub const UNKNOWN_GRACE: Duration = Duration::from_secs(30);

/// One process, so that a later one of the same number is not taken for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number in the host's PID namespace.
    pub pid: u32,
    /// When it began, in ticks since the boot (field 22 of `/proc/<pid>/stat`).
    pub started: u64,
}

/// A `compute` container that runs on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalGuest {
    /// UID of its launcher pod.
    pub pod_uid: String,
    /// Its VM, as virt-launcher's own arguments name it; both parts are empty where they do not.
    pub vm: VmName,
    /// UID of its VMI, likewise.
    pub vmi_uid: String,
    /// The guest's own grace period, likewise.
    pub grace: Option<Duration>,
    /// The container's init process.
    pub init: Process,
}

/// One look at the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalView {
    /// Every `compute` container of a launcher pod that runs.
    pub guests: Vec<LocalGuest>,
    /// A virt-handler runs here.
    pub handler: bool,
}

/// How long the API server may be silent: never more than a quarter of the time that was left when it was reached last.
pub fn patience(most: Duration, left: Duration) -> Duration {
    most.min(left / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_never_takes_more_than_a_quarter_of_the_time() {
        let s = Duration::from_secs;
        assert_eq!(patience(s(120), s(2670)), s(120));
        assert_eq!(patience(s(120), s(150)), Duration::from_millis(37_500));
        assert_eq!(patience(s(120), s(0)), s(0));
    }
}
