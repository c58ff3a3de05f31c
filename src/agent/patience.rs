//! How is a way to the cluster waited for, and what becomes of the lock of the process before meanwhile?

use crate::host::clock::timer;
use crate::host::notify;
use crate::telemetry::catalog::message_id;
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long to wait before the credentials are looked for again.
const CREDENTIALS_AGAIN: Duration = Duration::from_secs(10);

/// How long a lock of the process before is kept although there are no credentials. Files are replaced within
/// moments; after that nobody could drain under this lock, and a shutdown would wait for nothing until logind's limit.
const KEPT_FOR_NOBODY: Duration = Duration::from_secs(60);

/// Tries to connect until it works. `None`: `ends` said that the process is to end; it answers `false` when it is only
/// worth to try at once. `kept`, the lock of the process before, is closed after a minute of failures.
pub(super) async fn wait_for<T, E: Display, F: Future<Output = Result<T, E>>>(
    connect: impl Fn() -> F,
    mut ends: impl AsyncFnMut() -> bool,
    kept: &mut Option<OwnedFd>,
) -> Option<T> {
    let begun = timer();
    let mut told = String::new();
    loop {
        match connect().await {
            Ok(connected) => return Some(connected),
            Err(why) => tell(&why, &mut told),
        }
        if timer() - begun >= KEPT_FOR_NOBODY && kept.take().is_some() {
            notify::forget_hold();
            tracing::error!(
                vmdrain_reason = "HoldGivenUp",
                "without credentials nobody can drain this host: the lock of the agent before is given up, a shutdown does not wait any more"
            );
        }
        // Waiting is no hanging: whoever watches over us has to hear that.
        notify::watchdog();
        let watched = notify::watchdog_interval().unwrap_or(CREDENTIALS_AGAIN);
        tokio::select! {
            () = tokio::time::sleep(CREDENTIALS_AGAIN.min(watched)) => {}
            ends = ends() => if ends { return None },
        }
    }
}

/// The same thing only once.
fn tell(why: &impl Display, told: &mut String) {
    let text = format!("no way to the cluster yet, nothing protects the VMs of this host: {why}");
    if *told == text {
        return;
    }
    tracing::warn!(
        vmdrain_reason = "NoCredentials",
        message_id = message_id("NoCredentials"),
        "{text}"
    );
    notify::status(&text);
    notify::ready();
    *told = text;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::{ErrorKind, Read as _};

    /// A lock as systemd has kept it, and the end at which logind listens.
    fn stored() -> (Option<OwnedFd>, std::io::PipeReader) {
        let (listens, lock) = std::io::pipe().unwrap();
        let flags = nix::fcntl::OFlag::O_NONBLOCK;
        nix::fcntl::fcntl(&listens, nix::fcntl::FcntlArg::F_SETFL(flags)).unwrap();
        (Some(OwnedFd::from(lock)), listens)
    }

    /// Whether logind would still count it.
    fn is_held(listens: &mut std::io::PipeReader) -> bool {
        match listens.read(&mut [0]) {
            Ok(0) => false,
            Err(why) if why.kind() == ErrorKind::WouldBlock => true,
            other => panic!("{other:?}"),
        }
    }

    async fn for_ever() -> bool {
        std::future::pending().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_is_kept_a_minute_for_nobody_and_not_longer() {
        let (mut kept, mut listens) = stored();
        let begun = timer();
        let tries = Cell::new(0);
        let seen = Cell::new(Vec::new());
        let listens = std::cell::RefCell::new(&mut listens);
        let connect = || {
            tries.set(tries.get() + 1);
            let held = is_held(&mut listens.borrow_mut());
            let mut all = seen.take();
            all.push(((timer() - begun).as_secs(), held));
            seen.set(all);
            let joined = tries.get() == 9;
            async move { if joined { Ok(()) } else { Err("no file") } }
        };
        assert_eq!(wait_for(connect, for_ever, &mut kept).await, Some(()));
        let seen = seen.take();
        let held: Vec<u64> = seen
            .iter()
            .filter(|(_, held)| *held)
            .map(|(at, _)| *at)
            .collect();
        assert_eq!(held, [0, 10, 20, 30, 40, 50, 60], "{seen:?}");
        assert_eq!(seen[7..], [(70, false), (80, false)]);
        assert!(kept.is_none(), "and nobody adopts it later");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_somebody_can_use_in_time_is_kept() {
        let (mut kept, mut listens) = stored();
        let tries = Cell::new(0);
        let connect = || {
            tries.set(tries.get() + 1);
            let joined = tries.get() == 6;
            async move {
                if joined {
                    Ok("cluster")
                } else {
                    Err("no file")
                }
            }
        };
        let found = wait_for(connect, for_ever, &mut kept).await;
        assert_eq!(found, Some("cluster"));
        assert!(kept.is_some() && is_held(&mut listens));
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_ends_it_or_makes_it_try_at_once() {
        let (mut kept, mut listens) = stored();
        let signals = Cell::new(0);
        let ends = async || {
            signals.set(signals.get() + 1);
            signals.get() == 3
        };
        let begun = timer();
        let tries = Cell::new(0);
        let connect = || {
            tries.set(tries.get() + 1);
            async { Err::<(), _>("no file") }
        };
        assert_eq!(wait_for(connect, ends, &mut kept).await, None);
        assert_eq!((tries.get(), timer() - begun), (3, Duration::ZERO));
        assert!(is_held(&mut listens), "it goes on in the next process");
    }
}
