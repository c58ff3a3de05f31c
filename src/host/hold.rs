//! Where is the lock's file descriptor, and what does *held* mean?
//!
//! The lock is the write end of a FIFO of logind's: it lasts as long as any copy is open. The descriptor
//! sits behind a plain mutex so that a release never has to wait for the bus.

use super::limits::Said;
use super::login1::{Inhibitor, USEC_INFINITY};
use super::notify;
use crate::drain::action::{HoldView, Holder};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
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

/// Whether a descriptor that was handed back is one of logind's locks: a FIFO that has an entry in its folder. What its
/// link in `/proc` reads is no guide: after a restart of logind that is a path in a mount that is gone (measured on 252,
/// 257 and 262). `None`: the folder is not known, as for a stand-in on a private bus. The last word has `ListInhibitors`.
pub fn looks_like_a_lock(fd: &OwnedFd, folder: Option<&Path>) -> bool {
    let Ok(ours) = fd.try_clone().map(File::from).and_then(|f| f.metadata()) else {
        return false;
    };
    if !ours.file_type().is_fifo() {
        return false;
    }
    let Some(Ok(entries)) = folder.map(std::fs::read_dir) else {
        return true;
    };
    let metadata = entries.flatten().filter_map(|entry| entry.metadata().ok());
    let same = |other: std::fs::Metadata| (other.dev(), other.ino()) == (ours.dev(), ours.ino());
    metadata.into_iter().any(same)
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
/// later. `least`: below this no VM can be moved. `said`: what the files say, where they are known.
pub fn limit_trouble(usec: u64, saturates: bool, least: Duration, said: Option<&Said>) -> String {
    const CURE: &str = "set it in /etc/systemd/logind.conf.d/zz-vmdrain-agent.conf (InhibitDelayMaxSec=45min) and reload systemd-logind";
    const RELOAD: &str =
        "`systemctl reload systemd-logind` (on systemd 252 `systemctl kill -s HUP systemd-logind`)";
    let bad = |usec| {
        match usec {
        0 => Some("0: logind waits for nobody, a shutdown kills the VMs".to_owned()),
        USEC_INFINITY if !saturates => Some(
            "infinity, which this systemd (256 or older) cannot count: a shutdown does not wait for us at all".to_owned(),
        ),
        _ if limit(usec) < least => Some(format!(
            "{} s: too short to move VMs, they will be cut off",
            limit(usec).as_secs_f64()
        )),
        _ => None,
    }
    };
    let by = |said: &Said| match &said.by {
        Some(file) => format!("{} sets it", file.display()),
        None => DEFAULT_SETS.to_owned(),
    };
    match (bad(usec), said) {
        (None, Some(said)) if said.usec != usec => match bad(said.usec) {
            Some(what) => format!(
                "with its next reload logind will have InhibitDelayMaxSec {what}; {}; {CURE}",
                by(said)
            ),
            None => String::new(),
        },
        (None, _) => String::new(),
        (Some(what), Some(said)) if said.usec != usec => format!(
            "InhibitDelayMaxSec is {what}; the files say otherwise ({}), but logind has not read them: {RELOAD}",
            by(said)
        ),
        (Some(what), Some(said)) => {
            format!("InhibitDelayMaxSec is {what}; {}; {CURE}", by(said))
        }
        (Some(what), None) => format!("InhibitDelayMaxSec is {what}; {CURE}"),
    }
}

/// When no file does.
const DEFAULT_SETS: &str = "no file sets it, this is logind's own default";

/// Who sets the limit, for `status`; empty when that is not known.
pub fn limit_by(usec: u64, said: Option<&Said>) -> String {
    match said {
        Some(said) if said.usec == usec => match &said.by {
            Some(file) => file.display().to_string(),
            None => "logind's own default".to_owned(),
        },
        Some(_) | None => String::new(),
    }
}

/// Everybody but us who holds a shutdown.
pub fn others(all: &[Inhibitor], uid: u32) -> Vec<Holder> {
    let foreign = all
        .iter()
        .filter(|one| one.on_shutdown() && !one.is_hold_of(WHO, uid));
    let holder = |one: &Inhibitor| Holder {
        who: one.who.clone(),
        why: one.why.clone(),
        mode: one.mode.clone(),
        uid: one.uid,
    };
    foreign.map(holder).collect()
}

/// The view for the core.
pub fn view(held: bool, limit_usec: Option<u64>, trouble: impl Into<String>) -> HoldView {
    HoldView {
        held,
        limit: limit_usec.map(limit),
        trouble: trouble.into(),
        ..HoldView::default()
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
        let says = |usec, saturates| limit_trouble(usec, saturates, least, None);
        assert_eq!(says(2_700_000_000, false), "");
        assert_eq!(says(USEC_INFINITY, true), "");
        assert!(says(USEC_INFINITY, false).contains("infinity"));
        assert!(says(0, true).contains("waits for nobody"));
        assert!(says(5_000_000, true).contains("is 5 s"));
    }

    #[test]
    fn the_file_that_sets_a_limit_is_named() {
        let least = Duration::from_secs(60);
        let said = |usec: u64, by: Option<&str>| Said {
            usec,
            by: by.map(Into::into),
        };
        let says = |usec, said: &Said| limit_trouble(usec, true, least, Some(said));
        let upgrades = said(30_000_000, Some("/usr/lib/x/unattended-upgrades.conf"));
        let ours = said(2_700_000_000, Some("/usr/lib/x/zz-vmdrain-agent.conf"));
        let text = says(30_000_000, &upgrades);
        assert!(
            text.contains("is 30 s") && text.contains("unattended-upgrades.conf sets it"),
            "{text}"
        );
        let text = says(5_000_000, &said(5_000_000, None));
        assert!(text.contains("no file sets it"), "{text}");
        let text = says(5_000_000, &ours);
        assert!(
            text.contains("has not read them") && text.contains("zz-vmdrain"),
            "{text}"
        );
        let text = says(2_700_000_000, &upgrades);
        assert!(
            text.contains("next reload") && text.contains("unattended"),
            "{text}"
        );
        assert_eq!(says(2_700_000_000, &ours), "");
        assert_eq!(
            limit_by(2_700_000_000, Some(&ours)),
            "/usr/lib/x/zz-vmdrain-agent.conf"
        );
        assert_eq!(
            limit_by(5_000_000, Some(&said(5_000_000, None))),
            "logind's own default"
        );
        assert_eq!(limit_by(5_000_000, Some(&ours)), "");
    }

    #[test]
    fn others_are_all_but_us() {
        let all = [
            lock(WHO, "shutdown", "delay", 7),
            lock("kubelet", "shutdown", "delay", 0),
            lock("gnome", "sleep", "block", 7),
            lock("fwupd", "sleep:shutdown", "block", 0),
        ];
        let who: Vec<_> = others(&all, 7).into_iter().map(|one| one.who).collect();
        assert_eq!(who, ["kubelet", "fwupd"]);
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
    fn only_a_fifo_of_logind_s_is_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let fifo = |folder: &Path, name: &str| {
            let path = folder.join(name);
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
            // For reading and writing: nobody is waited for.
            let open = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(path);
            OwnedFd::from(open.unwrap())
        };
        let here = Some(dir.path());
        let lock = fifo(dir.path(), "3.ref");
        assert!(looks_like_a_lock(&lock, here));
        assert!(!looks_like_a_lock(&fifo(elsewhere.path(), "3.ref"), here));
        let file = OwnedFd::from(File::create(dir.path().join("4.ref")).unwrap());
        assert!(!looks_like_a_lock(&file, here) && !looks_like_a_lock(&file, None));
        // The folder is seen under another name now, as after a restart of logind.
        let moved = elsewhere.path().join("inhibit");
        std::fs::rename(dir.path(), &moved).unwrap();
        assert!(looks_like_a_lock(&lock, Some(&moved)));
        assert!(looks_like_a_lock(&lock, None));
        std::fs::create_dir(dir.path()).unwrap();
        assert!(!looks_like_a_lock(&lock, here), "logind does not know it");
    }
}
