//! Where is the lock's file descriptor, and what does *held* mean?
//!
//! The lock is the write end of a FIFO of logind's: it lasts as long as any copy is open. The descriptor
//! sits behind a plain mutex so that a release never has to wait for the bus.

use super::login1::{Inhibitor, USEC_INFINITY};
use super::notify;
use crate::drain::action::HoldView;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Our name in `ListInhibitors`.
pub const WHO: &str = "vmdrain-agent";
/// Our reason there.
pub const WHY: &str = "virtual machines are moved to other hosts first";

/// The descriptor, and whether we want one.
#[derive(Debug, Default)]
pub struct Hold {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    fd: Option<OwnedFd>,
    wanted: bool,
}

impl Hold {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // The data is a descriptor and a flag: valid whatever a panicking holder did.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the lock shall be taken (again) when it is missing.
    pub fn wanted(&self) -> bool {
        self.lock().wanted
    }

    /// From now on it shall be held.
    pub fn want(&self) {
        self.lock().wanted = true;
    }

    /// Whether we have a descriptor at all.
    pub fn has_fd(&self) -> bool {
        self.lock().fd.is_some()
    }

    /// Keeps a new descriptor and hands a copy to the service manager; the old one is closed. A
    /// descriptor that comes after a [`Hold::release`] is closed at once: `false`.
    pub fn keep(&self, fd: OwnedFd) -> bool {
        let mut inner = self.lock();
        if !inner.wanted {
            return false;
        }
        if inner.fd.is_some() {
            notify::forget_hold();
        }
        notify::store_hold(fd.as_fd());
        inner.fd = Some(fd);
        true
    }

    /// Closes our copy and the service manager's: the one line with which the host may go.
    pub fn release(&self) {
        let mut inner = self.lock();
        inner.wanted = false;
        notify::forget_hold();
        inner.fd = None;
    }

    /// Forgets a descriptor that logind no longer counts (it was thrown away together with its FIFO).
    pub fn drop_dead(&self) {
        let mut inner = self.lock();
        if inner.fd.take().is_some() {
            notify::forget_hold();
        }
    }
}

/// Whether a descriptor that was handed back is one of logind's locks: `N.ref` in its folder. `None`: in any
/// folder, for a stand-in on a private bus.
pub fn looks_like_a_lock(fd: &OwnedFd, folder: Option<&Path>) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).is_ok_and(|target| {
        folder.is_none_or(|folder| target.parent() == Some(folder))
            && target.extension().is_some_and(|ext| ext == "ref")
    })
}

/// Whether our lock is in the list: by name and user, never by process (see [`Inhibitor::pid`]).
pub fn listed(all: &[Inhibitor], uid: u32) -> bool {
    all.iter().any(|one| one.is_hold_of(WHO, uid))
}

/// The limit as logind tells it.
pub fn limit(usec: u64) -> Duration {
    Duration::from_micros(usec)
}

/// What is wrong with logind's limit, as a sentence; empty when nothing is. `saturates`: logind is 257 or
/// later. `least`: below this no VM can be moved.
pub fn limit_trouble(usec: u64, saturates: bool, least: Duration) -> String {
    const CURE: &str = "set it in /etc/systemd/logind.conf.d/zz-vmdrain-agent.conf (InhibitDelayMaxSec=45min) and reload systemd-logind";
    match usec {
        0 => format!(
            "InhibitDelayMaxSec is 0: logind waits for nobody, a shutdown kills the VMs; {CURE}"
        ),
        USEC_INFINITY if !saturates => format!(
            "InhibitDelayMaxSec is infinity, which this systemd (256 or older) cannot count: a shutdown does not wait for us at all; {CURE}"
        ),
        _ if limit(usec) < least => format!(
            "InhibitDelayMaxSec is {} s: too short to move VMs, they will be cut off; {CURE}",
            limit(usec).as_secs_f64()
        ),
        _ => String::new(),
    }
}

/// The view for the core.
pub fn view(held: bool, limit_usec: Option<u64>, trouble: impl Into<String>) -> HoldView {
    HoldView {
        held,
        limit: limit_usec.map(limit),
        trouble: trouble.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(who: &str, what: &str, mode: &str, uid: u32) -> Inhibitor {
        Inhibitor {
            what: what.into(),
            who: who.into(),
            why: String::new(),
            mode: mode.into(),
            uid,
            pid: 1,
        }
    }

    #[test]
    fn ours_is_found_by_name_user_and_kind() {
        assert!(listed(&[lock(WHO, "sleep:shutdown", "delay", 7)], 7));
        for other in [
            lock(WHO, "shutdown", "delay", 8),
            lock("kubelet", "shutdown", "delay", 7),
            lock(WHO, "sleep", "delay", 7),
            lock(WHO, "shutdown", "block", 7),
        ] {
            assert!(!listed(std::slice::from_ref(&other), 7), "{other:?}");
        }
    }

    #[test]
    fn limits_that_do_not_hold_are_told() {
        let least = Duration::from_secs(60);
        let says = |usec, saturates| limit_trouble(usec, saturates, least);
        assert_eq!(says(2_700_000_000, false), "");
        assert_eq!(says(USEC_INFINITY, true), "");
        assert!(says(USEC_INFINITY, false).contains("infinity"));
        assert!(says(0, true).contains("waits for nobody"));
        assert!(says(5_000_000, true).contains("is 5 s"));
    }

    #[test]
    fn a_lock_that_comes_after_the_release_is_closed() {
        let hold = Hold::default();
        let fd = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        hold.want();
        assert!(hold.keep(fd()) && hold.has_fd());
        hold.release();
        assert!(!hold.has_fd() && !hold.keep(fd()) && !hold.has_fd());
    }

    #[test]
    fn only_a_reference_in_logind_s_folder_is_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let path = dir.path().join(name);
            OwnedFd::from(std::fs::File::create(path).unwrap())
        };
        let here = Some(dir.path());
        assert!(looks_like_a_lock(&open("3.ref"), here));
        assert!(!looks_like_a_lock(&open("3"), here));
        assert!(!looks_like_a_lock(&open("3"), None));
        assert!(looks_like_a_lock(&open("3.ref"), None));
        let real = Some(Path::new("/run/systemd/inhibit"));
        assert!(!looks_like_a_lock(&open("3.ref"), real));
    }
}
