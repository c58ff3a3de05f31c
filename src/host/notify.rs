//! What is the service manager told (`sd_notify`), and how does the hold survive a crash of ours?
//!
//! Everything here does nothing when there is no service manager (`NOTIFY_SOCKET` unset).

use sd_notify::NotifyState;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Name of the hold in the fd store.
pub const HOLD: &str = "vmdrain-hold";

/// Start-up is complete. The caller says so when the hold is listed by logind, not before.
pub fn ready() {
    send(&[NotifyState::Ready]);
}

/// The line of `systemctl status`.
pub fn status(text: &str) {
    // A line feed would end the assignment and start a new one.
    send(&[NotifyState::Status(&text.replace('\n', " "))]);
}

/// We are alive.
pub fn watchdog() {
    send(&[NotifyState::Watchdog]);
}

/// How often [`watchdog`] has to be called (half of what the unit allows), if at all.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

/// A reload begins; [`ready`] ends it. Right under `Type=notify` and `Type=notify-reload`.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot tell the service manager about the reload"),
    }
}

/// We are going to end.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// Start, reload or stop needs this much longer, from now.
pub fn extend_timeout(by: Duration) {
    let usec = u32::try_from(by.as_micros()).unwrap_or(u32::MAX);
    send(&[NotifyState::ExtendTimeoutUsec(usec)]);
}

/// Puts a copy of the hold into the fd store. Without `FDPOLL=0` a restart of logind would empty it.
pub fn store_hold(fd: BorrowedFd<'_>) {
    let state = [
        NotifyState::FdStore,
        NotifyState::FdName(HOLD),
        NotifyState::Custom("FDPOLL=0"),
    ];
    if let Err(error) = sd_notify::notify_with_fds(&state, &[fd]) {
        tracing::warn!(%error, "cannot store the hold with the service manager: a crash would drop it");
    }
}

/// Takes every copy of the hold out of the fd store.
pub fn forget_hold() {
    send(&[NotifyState::FdStoreRemove, NotifyState::FdName(HOLD)]);
}

/// The hold that the service manager kept for us, at most once per process. Further copies are closed.
pub fn inherited_hold() -> Option<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::SeqCst) {
        return None;
    }
    let listed = match sd_notify::listen_fds_with_names() {
        Ok(listed) => listed,
        Err(error) => {
            tracing::warn!(%error, "cannot read which file descriptors were handed back");
            return None;
        }
    };
    let mut ours: Vec<OwnedFd> = listed
        .filter(|(_, name)| name == HOLD)
        .map(|(fd, _)| own(fd))
        .collect();
    ours.pop()
}

/// The one place where a number becomes a file descriptor.
#[expect(
    unsafe_code,
    reason = "sd_notify hands out raw numbers and no safe call turns one into an OwnedFd"
)]
fn own(fd: std::os::fd::RawFd) -> OwnedFd {
    // SAFETY: the service manager passed this descriptor to this very process (LISTEN_PID was checked),
    // nothing else in the process uses it, and `inherited_hold` runs at most once.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "cannot notify the service manager");
    }
}
