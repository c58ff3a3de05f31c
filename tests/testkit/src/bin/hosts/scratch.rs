//! Where everything of a run lies: one folder in memory, which the next run finds by its name when this one was killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::cgroups::Cgroups;
use crate::whole::network::Network;

/// Begins the names of folders and cgroups; the process id follows.
const PREFIX: &str = "vmdrain-hosts-";

/// Where nspawn keeps a folder for each machine.
pub(crate) const PROPAGATE: &str = "/run/systemd/nspawn/propagate";

/// The folder of this run. Dropping it unmounts and removes it.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The folder.
    pub(crate) dir: PathBuf,
    /// Begins the names of this run's cgroups.
    pub(crate) name: String,
}

impl Scratch {
    /// Makes it: an own tmpfs, because hosts write into overlays, which not every file system carries.
    pub(crate) fn make() -> anyhow::Result<Self> {
        let name = format!("{PREFIX}{}", std::process::id());
        let dir = std::env::temp_dir().join(&name);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let made = Self { dir, name };
        tool(
            Command::new("mount")
                .args(["-t", "tmpfs", "-o", "mode=0755", "vmdrain-hosts"])
                .arg(&made.dir),
        )?;
        Ok(made)
    }

    /// Ends what earlier runs left that were killed themselves. Answers what was found.
    pub(crate) fn clear_old() -> Vec<String> {
        let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        let old: Vec<_> = names.filter(|name| is_left_over(name)).collect();
        for name in &old {
            for group in Cgroups::left_by(&format!("{name}-")) {
                // What cannot be ended is told by the unmount below, which then fails.
                let _ = group.clear();
            }
            Network::clear_old(name);
            remove(&std::env::temp_dir().join(name));
        }
        let folders = fs::read_dir(PROPAGATE).into_iter().flatten().flatten();
        for folder in folders.filter(|folder| {
            let name = folder.file_name().to_string_lossy().into_owned();
            old.iter().any(|old| name.starts_with(&format!("{old}-")))
        }) {
            // nspawn's own, empty; whoever cannot be removed is in use.
            let _ = fs::remove_dir(folder.path());
        }
        old
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// Its process is gone.
fn is_left_over(name: &str) -> bool {
    let pid = name
        .strip_prefix(PREFIX)
        .and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

fn remove(dir: &Path) {
    let gone = tool(Command::new("umount").arg("--recursive").arg(dir));
    if gone.is_err() {
        // Somebody still has a file open; the mount goes when that one does.
        let _ = tool(
            Command::new("umount")
                .args(["--recursive", "--lazy"])
                .arg(dir),
        );
    }
    // Only ever empty: nothing is deleted through a mount that stayed.
    let _ = fs::remove_dir(dir);
}

/// Runs one of the machine's tools.
pub(crate) fn tool(command: &mut Command) -> anyhow::Result<()> {
    let what = format!("{command:?}");
    let output = command
        .output()
        .with_context(|| format!("cannot start {what}"))?;
    anyhow::ensure!(
        output.status.success(),
        "{what} failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
