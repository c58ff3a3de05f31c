//! Which files does logind keep? `inhibit/N.ref` for the locks, `shutdown/scheduled` for a shutdown that is scheduled.

use super::facts::Kind;
use anyhow::Context;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What stands for `/run/systemd`.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    /// Removed at the end, where the folder is our own.
    _own: Option<TempDir>,
}

impl Files {
    /// In a folder of their own.
    pub(super) fn new() -> anyhow::Result<Self> {
        let own = tempfile::Builder::new().prefix("logind").tempdir()?;
        let root = own.path().to_owned();
        make(&root)?;
        Ok(Self {
            root,
            _own: Some(own),
        })
    }

    /// In this folder, which a boot has emptied; the folders themselves stay, as whoever watches them does.
    pub(super) fn within(root: &Path) -> anyhow::Result<Self> {
        make(root)?;
        let files = Self {
            root: root.to_owned(),
            _own: None,
        };
        for lock in std::fs::read_dir(files.locks())? {
            std::fs::remove_file(lock?.path())?;
        }
        files.unschedule();
        Ok(files)
    }

    /// The folder that stands for `/run/systemd`.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the locks.
    pub(super) fn locks(&self) -> PathBuf {
        self.root.join("inhibit")
    }

    /// Written under another name and renamed, as the real one does it.
    pub(super) fn schedule(&self, kind: Kind, usec: u64) -> std::io::Result<()> {
        let folder = self.root.join("shutdown");
        let temporary = folder.join(".#scheduledXXXXXX");
        let text = format!("USEC={usec}\nWARN_WALL=1\nMODE={}\nUID=0\n", kind.word());
        std::fs::write(&temporary, text)?;
        std::fs::rename(temporary, folder.join("scheduled"))
    }

    /// Called off, come and gone, or dropped by an immediate request.
    pub(super) fn unschedule(&self) {
        // Mostly there is none.
        let _ = std::fs::remove_file(self.root.join("shutdown/scheduled"));
    }
}

fn make(root: &Path) -> anyhow::Result<()> {
    for folder in ["inhibit", "shutdown"] {
        let folder = root.join(folder);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    Ok(())
}
