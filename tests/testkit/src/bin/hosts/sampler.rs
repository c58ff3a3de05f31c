//! What does a host look like from outside, every few milliseconds?
//!
//! Looks through `/proc/<PID 1>/root`, so nothing that happens inside can stop it from looking.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use testkit::clock::SimClock;

const LOOK: Duration = Duration::from_millis(5);

/// What was seen of one boot, on the case's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// When our lock came and went: the first entry is its first sight.
    pub(crate) lock: Vec<(Duration, bool)>,
    /// When PID 1 had ended all units and became `systemd-shutdown`.
    pub(crate) units_done: Option<Duration>,
    /// How often was looked.
    pub(crate) looks: u64,
    /// The longest time between two looks: how sharp all of this is.
    pub(crate) blur: Duration,
}

impl Seen {
    /// Whether the lock is there.
    pub(crate) fn is_locked(&self) -> bool {
        self.lock.last().is_some_and(|(_, there)| *there)
    }

    /// When it went for good (until now).
    pub(crate) fn unlocked_at(&self) -> Option<Duration> {
        self.lock
            .last()
            .filter(|(_, there)| !there)
            .map(|(at, _)| *at)
    }

    /// How often it went.
    pub(crate) fn losses(&self) -> usize {
        self.lock.iter().filter(|(_, there)| !there).count()
    }
}

/// Looks until it is dropped.
#[derive(Debug)]
pub(crate) struct Sampler {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    looker: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Begins to look at the system whose PID 1 is `leader`.
    pub(crate) fn start(leader: i32, clock: SimClock) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let stop = Arc::<AtomicBool>::default();
        let (shared, ended) = (seen.clone(), stop.clone());
        let looker = std::thread::spawn(move || {
            let locks = PathBuf::from(format!("/proc/{leader}/root/run/systemd/inhibit"));
            let comm = format!("/proc/{leader}/comm");
            let mut last = clock.elapsed();
            while !ended.load(Ordering::Relaxed) {
                let there = is_listed(&locks);
                let name = fs::read_to_string(&comm);
                let now = clock.elapsed();
                let mut seen = hold(&shared);
                seen.looks += 1;
                seen.blur = seen.blur.max(now.saturating_sub(last));
                last = now;
                let done = name
                    .as_ref()
                    .map_or(true, |name| name.starts_with("systemd-shut"));
                if done && seen.units_done.is_none() {
                    seen.units_done = Some(now);
                }
                if seen.units_done.is_none() && seen.is_locked() != there {
                    seen.lock.push((now, there));
                }
                drop(seen);
                if name.is_err() {
                    return;
                }
                std::thread::sleep(LOOK);
            }
        });
        Self {
            seen,
            stop,
            looker: Some(looker),
        }
    }

    /// What was seen until now.
    pub(crate) fn seen(&self) -> Seen {
        hold(&self.seen).clone()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(looker) = self.looker.take() {
            // A panic in it has lost nothing but the looks.
            let _ = looker.join();
        }
    }
}

fn hold(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether logind's folder holds a lock of ours.
fn is_listed(locks: &std::path::Path) -> bool {
    let entries = fs::read_dir(locks).into_iter().flatten().flatten();
    entries
        .filter(|entry| !entry.file_name().to_string_lossy().contains('.'))
        .any(|entry| {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let has = |line: &str| text.lines().any(|one| one == line);
            has("WHO=vmdrain-agent") && has("MODE=delay")
        })
}
