//! Are we the only agent on this host?

use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// The lock of the one instance; the kernel frees it with the process, whatever happens to it.
#[derive(Debug)]
pub struct Instance {
    _lock: Flock<File>,
}

impl Instance {
    /// Takes the lock file, or says who has it.
    pub fn take(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|e| format!("cannot open the lock file {shown}: {e}"))?;
        let mut lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
            let holder = fs::read_to_string(path).unwrap_or_default();
            let holder = holder.trim();
            if errno == nix::errno::Errno::EWOULDBLOCK {
                let pid = if holder.is_empty() { "?" } else { holder };
                format!("another vmdrain-agent runs on this host already (pid {pid}, lock file {shown}); nothing was started")
            } else {
                format!("cannot lock {shown}: {errno}")
            }
        })?;
        // Only for the sentence above; the lock itself is what counts.
        let _ = lock.set_len(0);
        let _ = writeln!(lock, "{}", std::process::id());
        Ok(Self { _lock: lock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_is_told_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/lock");
        let first = Instance::take(&path).unwrap();
        let said = Instance::take(&path).unwrap_err();
        assert!(
            said.contains(&format!("pid {}", std::process::id())),
            "{said}"
        );
        drop(first);
        Instance::take(&path).unwrap();
    }
}
