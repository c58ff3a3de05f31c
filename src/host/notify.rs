//! What is the service manager told (`sd_notify`), and how does the hold survive a crash of ours?
//!
//! Everything here does nothing when there is no service manager (`NOTIFY_SOCKET` unset).

//!
//! One thread does the telling: the socket of a service manager that is busy (a daemon-reload takes seconds) or
//! that nobody reads is full at some time, and no drain may stand still for it.

use sd_notify::NotifyState;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{Mutex, OnceLock, PoisonError};
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
    let text = text.replace('\n', " ");
    let mut newest = NEWEST_STATUS.lock().unwrap_or_else(PoisonError::into_inner);
    // One that is not told yet is replaced: only the newest is of interest.
    if newest.replace(text).is_none() {
        pass_on(Message::Status);
    }
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
    match fd.try_clone_to_owned() {
        Ok(copy) => pass_on(Message::Store(lines(&state), copy)),
        Err(error) => not_stored(&error),
    }
}

fn not_stored(error: &std::io::Error) {
    tracing::warn!(%error, "cannot store the hold with the service manager: a crash would drop it");
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

/// Waits until everything is told, but not for a service manager that does not listen.
pub fn flush(patience: Duration) {
    let (done, wait) = mpsc::sync_channel(1);
    pass_on(Message::Flush(done));
    let _ = wait.recv_timeout(patience);
}

enum Message {
    Tell(String),
    /// What is in [`NEWEST_STATUS`].
    Status,
    Store(String, OwnedFd),
    Flush(SyncSender<()>),
}

static NEWEST_STATUS: Mutex<Option<String>> = Mutex::new(None);

fn send(state: &[NotifyState<'_>]) {
    pass_on(Message::Tell(lines(state)));
}

fn lines(state: &[NotifyState<'_>]) -> String {
    let lines: Vec<String> = state.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Hands it to the thread; without a service manager there is none.
fn pass_on(message: Message) {
    static THREAD: OnceLock<Option<Sender<Message>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        std::env::var_os("NOTIFY_SOCKET")?;
        let (sender, messages) = mpsc::channel();
        let thread = std::thread::Builder::new().name("sd-notify".into());
        let started = thread.spawn(move || {
            for message in messages {
                tell(message);
            }
        });
        match started {
            Ok(_) => Some(sender),
            Err(error) => {
                tracing::error!(%error, "the service manager cannot be told anything");
                None
            }
        }
    });
    if let Some(thread) = thread {
        // The thread ends with the process.
        let _ = thread.send(message);
    }
}

fn tell(message: Message) {
    let told = match message {
        Message::Tell(text) => sd_notify::notify(&[NotifyState::Custom(&text)]),
        Message::Status => {
            let text = NEWEST_STATUS
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            sd_notify::notify(&[NotifyState::Status(&text.unwrap_or_default())])
        }
        Message::Store(text, fd) => {
            let stored = sd_notify::notify_with_fds(&[NotifyState::Custom(&text)], &[fd.as_fd()]);
            if let Err(error) = stored {
                not_stored(&error);
            }
            Ok(())
        }
        Message::Flush(done) => {
            let _ = done.send(());
            Ok(())
        }
    };
    if let Err(error) = told {
        tracing::debug!(%error, "cannot notify the service manager");
    }
}

#[cfg(test)]
mod tests {
    //! The environment belongs to the whole process, so each case runs in a process of its own: this test
    //! binary once more, with [`CHILD`] set and the service manager's variables around it.

    use super::*;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use std::process::{Command, Stdio};

    const CHILD: &str = "VMDRAIN_TEST_CHILD";

    /// Runs `case` in a child behind `shell`, which sets what only the child can know.
    fn run_child(case: &str, shell: &str, socket: &Path) -> String {
        let me = std::env::current_exe().unwrap();
        let out = Command::new("sh")
            .arg("-c")
            .arg(format!("{shell} exec \"$0\" \"$@\""))
            .arg(me)
            .args([case, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .env("NOTIFY_SOCKET", socket)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            out.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&out.stderr)
        );
        assert!(text.contains("1 passed"), "{text}");
        text
    }

    #[test]
    fn the_service_manager_is_told_in_its_own_words() {
        if std::env::var_os(CHILD).is_some() {
            let fd = std::fs::File::open("/dev/null").unwrap();
            store_hold(fd.as_fd());
            ready();
            status("two\nlines");
            reloading();
            extend_timeout(Duration::from_secs(30));
            watchdog();
            forget_hold();
            stopping();
            flush(Duration::from_secs(10));
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("notify");
        let manager = UnixDatagram::bind(&socket).unwrap();
        let case = "host::notify::tests::the_service_manager_is_told_in_its_own_words";
        run_child(case, "", &socket);
        manager.set_nonblocking(true).unwrap();
        let mut told = Vec::new();
        let mut buffer = [0; 1024];
        while let Ok(length) = manager.recv(&mut buffer) {
            told.push(String::from_utf8_lossy(&buffer[..length]).trim().to_owned());
        }
        assert_eq!(told[0], "FDSTORE=1\nFDNAME=vmdrain-hold\nFDPOLL=0");
        assert_eq!(told[1..3], ["READY=1", "STATUS=two lines"]);
        assert!(
            told[3].starts_with("RELOADING=1\nMONOTONIC_USEC="),
            "{}",
            told[3]
        );
        let rest = [
            "EXTEND_TIMEOUT_USEC=30000000",
            "WATCHDOG=1",
            "FDSTOREREMOVE=1\nFDNAME=vmdrain-hold",
            "STOPPING=1",
        ];
        assert_eq!(told[4..], rest);
    }

    #[test]
    fn nobody_stands_still_for_a_service_manager_that_does_not_read() {
        if std::env::var_os(CHILD).is_some() {
            // Far more than any socket takes.
            for n in 0..5000 {
                status(&format!("line {n}"));
                watchdog();
            }
            flush(Duration::from_millis(10));
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("notify");
        let manager = UnixDatagram::bind(&socket).unwrap();
        let case =
            "host::notify::tests::nobody_stands_still_for_a_service_manager_that_does_not_read";
        run_child(case, "", &socket);
        drop(manager);
    }

    #[test]
    fn the_hold_is_handed_back_once() {
        if std::env::var_os(CHILD).is_some() {
            let fd = inherited_hold().unwrap();
            let target = std::fs::read_link(format!("/proc/self/fd/{}", {
                use std::os::fd::AsRawFd;
                fd.as_raw_fd()
            }));
            assert!(target.unwrap().ends_with("7.ref"));
            assert!(inherited_hold().is_none());
            return;
        }
        assert!(
            inherited_hold().is_none(),
            "nothing was handed to this process"
        );
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("7.ref");
        let case = "host::notify::tests::the_hold_is_handed_back_once";
        let shell = format!(
            "exec 3</dev/null 4<>{}; export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=other:vmdrain-hold;",
            lock.display()
        );
        run_child(case, &shell, &dir.path().join("nobody"));
    }
}
