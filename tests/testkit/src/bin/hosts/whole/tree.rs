//! When did every service and every container of a host begin and end, seen from outside in its cgroups?
//!
//! Looks at the cgroup tree every few milliseconds. Nothing inside has to work for it: neither the journal nor the kubelet, which both
//! end before the last containers do.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use testkit::clock::SimClock;

const LOOK: Duration = Duration::from_millis(10);
/// Containers lie so deep below the host's own cgroup.
const DEPTH: usize = 6;

/// One service or container, by times of the case's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// When its first process was seen.
    pub(crate) began: Duration,
    /// When its last process was no longer seen.
    pub(crate) ended: Option<Duration>,
}

/// The newest life of each unit, by the unit's name.
pub(crate) type Lives = BTreeMap<String, Life>;

/// Looks until it is dropped; clones of the sight may stay.
#[derive(Debug)]
pub(crate) struct Tree {
    lives: Sight,
    stop: Arc<AtomicBool>,
    looker: Option<JoinHandle<()>>,
}

/// What a tree has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight(Arc<Mutex<Lives>>);

impl Sight {
    /// Everything until now.
    pub(crate) fn lives(&self) -> Lives {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// One unit.
    pub(crate) fn life(&self, unit: &str) -> Option<Life> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(unit)
            .copied()
    }
}

impl Tree {
    /// Begins to look at the host with these cgroups.
    pub(crate) fn watch(dirs: &[PathBuf], clock: &SimClock) -> Self {
        let lives = Sight::default();
        let stop = Arc::<AtomicBool>::default();
        let (shared, ended) = (lives.clone(), stop.clone());
        let (dirs, clock) = (dirs.to_vec(), clock.clone());
        let looker = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let alive = alive(&dirs);
                note(
                    &mut shared.0.lock().unwrap_or_else(PoisonError::into_inner),
                    &alive,
                    clock.elapsed(),
                );
                std::thread::sleep(LOOK);
            }
        });
        Self {
            lives,
            stop,
            looker: Some(looker),
        }
    }

    /// What it sees.
    pub(crate) fn sight(&self) -> Sight {
        self.lives.clone()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(looker) = self.looker.take() {
            // A panic in it has lost nothing but the looks.
            let _ = looker.join();
        }
    }
}

/// Names of the units that have a process.
fn alive(dirs: &[PathBuf]) -> Vec<String> {
    let mut all = Vec::new();
    // systemd keeps its tree in one hierarchy; in the others it only makes what it needs.
    if let Some(dir) = dirs.iter().find(|dir| dir.join("init.scope").exists()) {
        walk(dir, DEPTH, &mut all);
    }
    all
}

fn walk(dir: &Path, depth: usize, all: &mut Vec<String>) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_unit(&name) {
            if has_process(&entry.path(), depth) {
                all.push(name);
            }
        } else if depth > 0 {
            walk(&entry.path(), depth - 1, all);
        }
    }
}

fn is_unit(name: &str) -> bool {
    [".service", ".scope"].iter().any(|end| name.ends_with(end))
}

/// In it or below it: a service may delegate.
fn has_process(dir: &Path, depth: usize) -> bool {
    let here = fs::read(dir.join("cgroup.procs")).is_ok_and(|text| !text.is_empty());
    here || depth > 0
        && fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .any(|entry| has_process(&entry.path(), depth - 1))
}

fn note(lives: &mut Lives, alive: &[String], now: Duration) {
    for (name, life) in lives.iter_mut() {
        if life.ended.is_none() && !alive.contains(name) {
            life.ended = Some(now);
        }
    }
    for name in alive {
        let known = lives.get(name);
        if known.is_none_or(|life| life.ended.is_some()) {
            let fresh = Life {
                began: now,
                ended: None,
            };
            lives.insert(name.clone(), fresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_begins_ends_and_begins_again() {
        let mut lives = Lives::new();
        let at = Duration::from_secs;
        let there = ["a.scope".to_owned()];
        note(&mut lives, &there, at(1));
        note(&mut lives, &there, at(2));
        let first = Life {
            began: at(1),
            ended: None,
        };
        assert_eq!(lives["a.scope"], first);
        note(&mut lives, &[], at(3));
        assert_eq!(lives["a.scope"].ended, Some(at(3)));
        note(&mut lives, &there, at(4));
        assert_eq!(lives["a.scope"].began, at(4));
    }
}
