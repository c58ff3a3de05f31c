//! A host's disk, whether the host runs or not: files, and programs that are run on it from outside.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::host::{COMMAND, Host};
use crate::patience::Answer;

/// Runs one of the host's programs without the host; newer ones need a `/proc`.
const OFFLINE: &str = r#"mount -t proc proc "$1/proc" && exec chroot "$@""#;

impl Host {
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Writes a file on its disk, with its folders; mode 0644.
    pub(crate) fn write(&self, path: &str, content: &str) -> anyhow::Result<()> {
        self.write_mode(path, content.as_bytes(), 0o644)
    }

    /// Writes a file on its disk with a mode.
    pub(crate) fn write_mode(&self, path: &str, content: &[u8], mode: u32) -> anyhow::Result<()> {
        use std::io::Write as _;
        let place = self.at(path);
        fs::create_dir_all(place.parent().unwrap_or(&self.root))?;
        // Not into a file that a lower layer or a unit may share: a new one, moved into place.
        let beside = place.with_extension("new-file");
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&beside)
            .with_context(|| format!("cannot write {path} on the host"))?;
        file.write_all(content)?;
        fs::rename(&beside, &place)?;
        Ok(())
    }

    /// A symlink on its disk.
    pub(crate) fn link(&self, path: &str, target: &str) -> anyhow::Result<()> {
        let place = self.at(path);
        fs::create_dir_all(place.parent().unwrap_or(&self.root))?;
        // Replaces what is there.
        let _ = fs::remove_file(&place);
        std::os::unix::fs::symlink(target, &place).with_context(|| format!("cannot link {path}"))
    }

    /// Reads a file on its disk, running or not.
    pub(crate) fn read(&self, path: &str) -> anyhow::Result<String> {
        fs::read_to_string(self.at(path)).with_context(|| format!("cannot read {path} on the host"))
    }

    /// Runs one of its programs on its disk, without the system running: as an installer does.
    pub(crate) fn offline(&self, words: &[&str]) -> anyhow::Result<Answer> {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", OFFLINE, "offline"])
            .arg(&self.root)
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C");
        self.patience.run(&mut command, COMMAND)?.good()
    }

    /// Its journal, running or not: text lines with Unix times, of one unit or of all.
    pub(crate) fn journal(&self, filter: &[&str]) -> anyhow::Result<String> {
        let mut words = vec![
            "journalctl",
            "--directory=/var/log/journal",
            "--no-pager",
            "--output=short-unix",
        ];
        words.extend(filter);
        Ok(self.offline(&words)?.out)
    }
}
