//! Each host in a cgroup of its own, in every hierarchy of the machine.
//!
//! Without systemd outside all containers would share one cgroup, and PID 1 of one would signal processes of another.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How often and how long leftovers are killed.
const ROUNDS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// The cgroups of one host.
#[derive(Debug)]
pub(crate) struct Cgroups {
    dirs: Vec<PathBuf>,
}

impl Cgroups {
    /// Makes one named `name` below this process' own, in every hierarchy.
    pub(crate) fn make(name: &str) -> anyhow::Result<Self> {
        let mounts = fs::read_to_string("/proc/mounts").context("cannot read /proc/mounts")?;
        let own = fs::read_to_string("/proc/self/cgroup").context("cannot read our cgroups")?;
        let mut made = Self { dirs: Vec::new() };
        for base in bases(&mounts, &own) {
            let dir = base.join(name);
            fs::create_dir_all(&dir)
                .with_context(|| format!("cannot make the cgroup {}", dir.display()))?;
            // Version 1 of cpuset begins empty and then takes no process.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if dir.join(file).exists() && base.join(file).exists() {
                    // Version 2 inherits and may refuse; then there is nothing to do.
                    let _ =
                        fs::read(base.join(file)).and_then(|all| fs::write(dir.join(file), all));
                }
            }
            made.dirs.push(dir);
        }
        anyhow::ensure!(
            !made.dirs.is_empty(),
            "this machine has no cgroup hierarchy"
        );
        Ok(made)
    }

    /// The files through which a process enters all of them.
    pub(crate) fn doors(&self) -> impl Iterator<Item = PathBuf> {
        self.dirs.iter().map(|dir| dir.join("cgroup.procs"))
    }

    /// Where they are, one for each hierarchy.
    pub(crate) fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Everybody in them.
    pub(crate) fn members(&self) -> Vec<i32> {
        let mut all = Vec::new();
        for dir in &self.dirs {
            members(dir, &mut all);
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Kills everybody in them and removes them.
    pub(crate) fn clear(&self) -> anyhow::Result<()> {
        for _ in 0..ROUNDS {
            let all = self.members();
            for pid in &all {
                // It may have ended in this moment.
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            if all.is_empty() && self.dirs.iter().all(|dir| remove(dir)) {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        anyhow::bail!(
            "these processes do not end: {:?}, or cgroups stay: {:?}",
            self.members(),
            self.dirs
        )
    }

    /// The cgroups of a run that was killed, by the name that it gave them.
    pub(crate) fn left_by(prefix: &str) -> Vec<Self> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let named = |dir: &PathBuf| {
            let name = dir.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| name.starts_with(prefix))
        };
        bases(&mounts, &own)
            .iter()
            .flat_map(|base| folders(base))
            .filter(named)
            .map(|dir| Self { dirs: vec![dir] })
            .collect()
    }
}

/// This process' own place in every hierarchy.
fn bases(mounts: &str, own: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for line in mounts.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let [_, mountpoint, kind @ ("cgroup" | "cgroup2"), options, ..] = fields[..] else {
            continue;
        };
        let ours = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (id, names, path) = (parts.next()?, parts.next()?, parts.next()?);
            let this = if kind == "cgroup2" {
                id == "0"
            } else {
                !names.is_empty()
                    && names
                        .split(',')
                        .all(|name| options.split(',').any(|o| o == name))
            };
            this.then_some(path)
        });
        let Some(ours) = ours else { continue };
        let whole = PathBuf::from(format!("{mountpoint}{ours}"));
        let base = if whole.is_dir() {
            whole
        } else {
            mountpoint.into()
        };
        if !all.contains(&base) {
            all.push(base);
        }
    }
    all
}

fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn members(dir: &Path, all: &mut Vec<i32>) {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    // 0 stands for a process of another PID namespace, which is not ours to end.
    all.extend(
        text.lines()
            .filter_map(|line| line.parse::<i32>().ok())
            .filter(|pid| *pid > 0),
    );
    for below in folders(dir) {
        members(&below, all);
    }
}

fn remove(dir: &Path) -> bool {
    let empty = folders(dir).iter().all(|below| remove(below));
    !dir.exists() || (empty && fs::remove_dir(dir).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hierarchy_has_one_base() {
        let mounts = "tmpfs /none tmpfs rw 0 0\n\
            cgroup /none/cpu cgroup rw,cpu,cpuacct 0 0\n\
            cgroup /none/systemd cgroup rw,name=systemd 0 0\n\
            cgroup2 /none/unified cgroup2 rw 0 0\n\
            cgroup /none/foreign cgroup rw,rdma 0 0\n";
        let own = "3:cpu,cpuacct:/a\n2:name=systemd:/\n0::/b\n";
        let all = bases(mounts, own);
        let all: Vec<_> = all.iter().map(|base| base.to_str().unwrap()).collect();
        assert_eq!(all, ["/none/cpu", "/none/systemd", "/none/unified"]);
    }
}
