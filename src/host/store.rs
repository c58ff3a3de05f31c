//! Where is the record kept, and what happens when it cannot be read?

use crate::agent::ports::RecordStore;
use crate::drain::record::{FORMAT, Record};
use serde::Deserialize;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name of the state file.
pub const FILE: &str = "state.json";
/// How many damaged files are kept before the oldest name is used again.
const KEPT: u32 = 5;

/// The state file in a folder, usually `/var/lib/vmdrain-agent`.
#[derive(Clone, Debug)]
pub struct FileStore {
    folder: PathBuf,
}

impl FileStore {
    /// The store in `folder`, which is made when it is missing.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Moves a file that cannot be used out of the way and says so.
    fn set_aside(&self, why: &str) -> String {
        let path = self.path();
        let aside = (1..KEPT)
            .map(|n| self.folder.join(format!("{FILE}.damaged-{n}")))
            .find(|name| !name.exists())
            .unwrap_or_else(|| self.folder.join(format!("{FILE}.damaged-{KEPT}")));
        let fate = match fs::rename(&path, &aside) {
            Ok(()) => format!("it was kept as {}", aside.display()),
            Err(e) => format!("it could not be renamed: {e}"),
        };
        format!(
            "the state file {} cannot be used: {why}; {fate}. A drain of before is not remembered: look at the node's cordon and at marked VMs",
            path.display()
        )
    }
}

impl RecordStore for FileStore {
    fn load(&self) -> Result<Option<Record>, String> {
        let path = self.path();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => {
                return Err(format!(
                    "cannot read the state file {}: {e}",
                    path.display()
                ));
            }
        };
        decode(&bytes).map(Some).map_err(|why| self.set_aside(&why))
    }

    async fn save(&self, record: Record) -> Result<(), String> {
        let store = self.clone();
        off_the_loop(move || store.write(&record)).await
    }

    async fn forget(&self) -> Result<(), String> {
        let store = self.clone();
        off_the_loop(move || store.remove()).await
    }

    async fn sync(&self) -> Result<(), String> {
        let store = self.clone();
        off_the_loop(move || store.flush()).await
    }
}

/// A disk may stand still for seconds; nothing else must.
async fn off_the_loop(
    work: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| {
            Err(format!(
                "internal error while writing the state file: {error}"
            ))
        })
}

impl FileStore {
    fn write(&self, record: &Record) -> Result<(), String> {
        let failed = |what: &str, e: std::io::Error| {
            format!(
                "cannot {what} the state file {}: {e}; a restart of the agent would not know this drain",
                self.path().display()
            )
        };
        let bytes = serde_json::to_vec_pretty(record)
            .map_err(|e| format!("cannot write the record as JSON: {e}"))?;
        fs::create_dir_all(&self.folder).map_err(|e| failed("make the folder of", e))?;
        let temporary = self.folder.join(format!(".{FILE}.new"));
        let written =
            write_new(&temporary, &bytes).and_then(|()| fs::rename(&temporary, self.path()));
        if let Err(e) = written {
            // Best effort: a half-written temporary file is overwritten by the next save anyway.
            let _ = fs::remove_file(&temporary);
            return Err(failed("write", e));
        }
        Ok(())
    }

    fn remove(&self) -> Result<(), String> {
        match fs::remove_file(self.path()) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(format!(
                "cannot remove the state file {}: {e}",
                self.path().display()
            )),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn flush(&self) -> Result<(), String> {
        let synced = match File::open(self.path()) {
            Ok(file) => file.sync_all(),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        };
        synced
            .and_then(|()| File::open(&self.folder)?.sync_all())
            .map_err(|e| {
                format!(
                    "the state file {} may not outlive a power failure: {e}",
                    self.path().display()
                )
            })
    }
}

fn decode(bytes: &[u8]) -> Result<Record, String> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("it is empty".into());
    }
    let version: Version =
        serde_json::from_slice(bytes).map_err(|e| format!("it is damaged ({e})"))?;
    if version.format != FORMAT {
        return Err(format!(
            "it has format {}, this version knows format {FORMAT}",
            version.format
        ));
    }
    serde_json::from_slice(bytes).map_err(|e| format!("it is damaged ({e})"))
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            format: FORMAT,
            drain: "d-1".into(),
            boot: "b".into(),
            phase: "evacuating".into(),
            ..Record::default()
        }
    }

    #[test]
    fn what_is_saved_is_loaded_and_can_be_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::new(dir.path().join("state"));
        assert_eq!(store.load(), Ok(None));
        store.remove().unwrap();
        store.write(&record()).unwrap();
        store.flush().unwrap();
        let second = Record {
            phase: "confirming".into(),
            ..record()
        };
        store.write(&second).unwrap();
        assert_eq!(store.load(), Ok(Some(second)));
        assert_eq!(fs::read_dir(dir.path().join("state")).unwrap().count(), 1);
        store.remove().unwrap();
        assert_eq!(store.load(), Ok(None));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_set_aside_once() {
        let good = serde_json::to_string(&record()).unwrap();
        let cases = [
            (String::new(), "empty"),
            ("{\"format\":1,".into(), "damaged"),
            (good[..good.len() / 2].into(), "damaged"),
            (good.replace("\"format\":1", "\"format\":7"), "format 7"),
            (good.replace("\"drain\"", "\"drian\""), "drian"),
            ("\u{0}\u{0}\u{0}".into(), "damaged"),
        ];
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::new(dir.path());
        for (text, why) in cases {
            fs::write(dir.path().join(FILE), &text).unwrap();
            let said = store.load().unwrap_err();
            assert!(said.contains(why) && said.contains("damaged-"), "{said}");
            assert_eq!(
                store.load(),
                Ok(None),
                "set aside, so the next start is clean"
            );
        }
        store.write(&record()).unwrap();
        assert_eq!(store.load(), Ok(Some(record())));
    }

    #[test]
    fn a_full_disk_is_a_sentence_and_keeps_the_old_record() {
        let full = Path::new("/dev/full");
        assert!(full.exists());
        let said = write_new(full, b"x").unwrap_err();
        assert_eq!(said.kind(), ErrorKind::StorageFull);

        // A folder that cannot be made stands for any failure on the way.
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let said = FileStore::new(dir.path().join("file/state"))
            .write(&record())
            .unwrap_err();
        assert!(said.starts_with("cannot make the folder of"), "{said}");
    }
}
