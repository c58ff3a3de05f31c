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

/// Why there is no lock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAlone {
    /// Another agent has it.
    #[error("{0}")]
    Another(String),
    /// The folder or the file cannot be used, so that nothing is known about others.
    #[error("{0}")]
    Unusable(String),
}

impl Instance {
    /// Takes the lock file, or says who has it.
    pub fn take(path: &Path) -> Result<Self, NotAlone> {
        let shown = path.display();
        let file = open(path)
            .map_err(|e| NotAlone::Unusable(format!("cannot open the lock file {shown}: {e}")))?;
        let mut lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
            let holder = fs::read_to_string(path).unwrap_or_default();
            let holder = holder.trim();
            if errno == nix::errno::Errno::EWOULDBLOCK {
                let pid = if holder.is_empty() { "?" } else { holder };
                NotAlone::Another(format!("another vmdrain-agent runs on this host already (pid {pid}, lock file {shown}); nothing was started"))
            } else {
                NotAlone::Unusable(format!("cannot lock {shown}: {errno}"))
            }
        })?;
        // Only for the sentence above; the lock itself is what counts.
        let _ = lock.set_len(0);
        let _ = writeln!(lock, "{}", std::process::id());
        Ok(Self { _lock: lock })
    }
}

/// On a disk that has become read-only the file of before can still be locked.
fn open(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent()
        && let Err(error) = fs::create_dir_all(folder)
        && !folder.is_dir()
    {
        return Err(error);
    }
    let made = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path);
    made.or_else(|error| File::open(path).map_err(|_| error))
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
        let NotAlone::Another(said) = said else {
            panic!("{said}");
        };
        assert!(
            said.contains(&format!("pid {}", std::process::id())),
            "{said}"
        );
        drop(first);
        Instance::take(&path).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_not_another_agent() {
        for path in ["/dev/null/x/lock", "/proc/nope/lock"] {
            let said = Instance::take(Path::new(path)).unwrap_err();
            assert!(matches!(said, NotAlone::Unusable(_)), "{said}");
            assert!(said.to_string().contains(path), "{said}");
        }
    }
}
