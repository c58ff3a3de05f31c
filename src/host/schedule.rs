//! Is a shutdown scheduled (`shutdown +10`), and when does it come?
//!
//! systemd 257 and later tell it by a signal. Older ones tell nobody, but every version writes
//! `/run/systemd/shutdown/scheduled` under another name and renames it: a watch on the folder hears of both.
//! What counts is logind's property; the file only says when to look.

use super::login1::{CallError, ManagerProxy, USEC_INFINITY, within};
use super::session;
use crate::drain::trigger::Schedule;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// The folder below logind's.
const FOLDER: &str = "shutdown";
/// The file in it.
const FILE: &str = "scheduled";

/// tokio wants a number, nix gives a descriptor.
#[derive(Debug)]
struct Watch(Inotify);

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Hears of changes in logind's folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: Option<PathBuf>,
    watch: Option<AsyncFd<Watch>>,
    complained: bool,
}

impl Folder {
    /// The folder below `logind`'s, not watched yet; `None`: nothing is known of one.
    pub(super) fn new(logind: Option<&Path>) -> Self {
        Self {
            path: logind.map(|all| all.join(FOLDER)),
            watch: None,
            complained: false,
        }
    }

    /// Watches it, if it does not yet; without it the schedule is only looked at now and then.
    pub(super) fn listen(&mut self) {
        let Some(path) = self.path.as_ref().filter(|_| self.watch.is_none()) else {
            return;
        };
        match open(path) {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => {
                if !std::mem::replace(&mut self.complained, true) {
                    tracing::warn!(
                        %error,
                        "cannot watch {}: a scheduled shutdown is noticed up to a minute late",
                        path.display()
                    );
                }
            }
        }
    }

    /// Returns when something may have been scheduled or called off.
    pub(super) async fn changed(&mut self) {
        loop {
            let Some(watch) = &self.watch else {
                return std::future::pending().await;
            };
            let Ok(mut ready) = watch.readable().await else {
                self.watch = None;
                return;
            };
            match ready.try_io(|inotify| Ok(inotify.get_ref().0.read_events()?)) {
                Ok(Ok(events)) => {
                    let gone = AddWatchFlags::IN_IGNORED | AddWatchFlags::IN_MOVE_SELF;
                    if events.iter().any(|event| event.mask.intersects(gone)) {
                        // The folder itself went away: the next look finds the new one.
                        self.watch = None;
                        return;
                    }
                    let ours = |name: &std::ffi::OsString| name == FILE;
                    if events.iter().any(|event| {
                        event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW)
                            || event.name.as_ref().is_some_and(ours)
                    }) {
                        return;
                    }
                }
                Ok(Err(_)) => {
                    self.watch = None;
                    return;
                }
                // Not readable after all.
                Err(_) => {}
            }
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe to call; what that asks for holds here: `Watch` gives one number as long as it lives"
)]
fn open(path: &Path) -> std::io::Result<AsyncFd<Watch>> {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    let what = AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_ONLYDIR;
    inotify.add_watch(path, what)?;
    AsyncFd::new(Watch(inotify))
}

/// What logind has scheduled, on its wire: kind and `CLOCK_REALTIME` in microseconds.
pub(super) type Wire = (String, u64);

/// What a look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// This.
    Scheduled(Wire),
    /// A shutdown is pending: that one is told by its own signal, and what is shown is its own time.
    Pending,
}

/// Asks logind. The schedule first: if its time comes between the two questions, the second one tells.
pub(super) async fn look(manager: &ManagerProxy<'_>, probe: Duration) -> Result<Found, CallError> {
    let wire = within(probe, "ScheduledShutdown", manager.scheduled_shutdown()).await?;
    let call = manager.preparing_for_shutdown();
    let preparing = within(probe, "PreparingForShutdown", call).await?;
    Ok(judge(wire, preparing))
}

fn judge(wire: Wire, preparing: bool) -> Found {
    match (preparing, wire.0.as_str(), wire.1) {
        (true, ..) => Found::Pending,
        // `shutdown -k` only warns those who are logged in: it is never carried out.
        (false, kind, _) if kind.starts_with("dry-") => Found::Nothing,
        (false, "", _) | (false, _, 0 | USEC_INFINITY) => Found::Nothing,
        (false, ..) => Found::Scheduled(wire),
    }
}

/// For the core, at this moment of `CLOCK_REALTIME`.
pub(super) fn schedule(wire: &Wire, now: Duration) -> Schedule {
    Schedule {
        kind: session::kind(&wire.0),
        within: Duration::from_micros(wire.1).saturating_sub(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::trigger::Then;

    #[test]
    fn what_is_pending_is_not_scheduled_any_more() {
        let wire = |kind: &str, usec| (kind.to_owned(), usec);
        assert_eq!(judge(wire("", USEC_INFINITY), false), Found::Nothing);
        assert_eq!(judge(wire("", 0), false), Found::Nothing);
        assert_eq!(judge(wire("reboot", 0), false), Found::Nothing);
        let warning = wire("dry-poweroff", 1_800_000_000_000_000);
        assert_eq!(judge(warning, false), Found::Nothing);
        let real = wire("reboot", 1_800_000_000_000_000);
        assert_eq!(judge(real.clone(), false), Found::Scheduled(real.clone()));
        assert_eq!(judge(real, true), Found::Pending);
        assert_eq!(judge(wire("poweroff", 77_000_000), true), Found::Pending);
    }

    #[test]
    fn the_time_is_relative_to_now() {
        let now = Duration::from_secs(1_700_000_000);
        let at = |usec| schedule(&("halt".into(), usec), now);
        assert_eq!(at(1_700_000_600_000_000).within, Duration::from_secs(600));
        assert_eq!(
            at(1_600_000_000_000_000).within,
            Duration::ZERO,
            "its time has come"
        );
        assert_eq!(at(1).kind, Some(Then::Halt));
        assert_eq!(schedule(&("dance".into(), 1), now).kind, None);
    }

    #[tokio::test]
    async fn a_renamed_file_is_heard_of_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(FOLDER);
        let mut watch = Folder::new(Some(dir.path()));
        watch.listen();
        assert!(watch.watch.is_none(), "there is no such folder yet");
        std::fs::create_dir(&folder).unwrap();
        watch.listen();
        let soon = Duration::from_secs(10);
        let write = |name: &str| std::fs::write(folder.join(name), "USEC=1\n").unwrap();

        write(".#scheduledXYZ");
        std::fs::rename(folder.join(".#scheduledXYZ"), folder.join(FILE)).unwrap();
        tokio::time::timeout(soon, watch.changed()).await.unwrap();
        std::fs::remove_file(folder.join(FILE)).unwrap();
        tokio::time::timeout(soon, watch.changed()).await.unwrap();
        // What does not concern us is passed over: only the last one wakes.
        write("nologin");
        write(FILE);
        tokio::time::timeout(soon, watch.changed()).await.unwrap();
        std::fs::remove_file(folder.join(FILE)).unwrap();
        tokio::time::timeout(soon, watch.changed()).await.unwrap();
        // The folder goes and comes back.
        std::fs::remove_dir_all(&folder).unwrap();
        while watch.watch.is_some() {
            tokio::time::timeout(soon, watch.changed()).await.unwrap();
        }
        std::fs::create_dir(&folder).unwrap();
        watch.listen();
        write(FILE);
        tokio::time::timeout(soon, watch.changed()).await.unwrap();
    }
}
