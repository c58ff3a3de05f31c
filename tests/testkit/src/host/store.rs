//! The state file of the simulated host: survives the agent, and the host's boots.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmdrain_agent::agent::ports::RecordStore;
use vmdrain_agent::drain::record::Record;

/// A disk with one file. Cheap to clone; all clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Default)]
struct Disk {
    /// The file as JSON, so that whatever cannot be written and read again shows.
    file: Option<String>,
    broken: Option<String>,
}

impl MemoryStore {
    /// The file's text, if there is one.
    pub fn text(&self) -> Option<String> {
        self.lock().file.clone()
    }

    /// Puts any text there.
    pub fn put(&self, text: &str) {
        self.lock().file = Some(text.to_owned());
    }

    /// Writing fails with this reason, or works again.
    pub fn set_broken(&self, why: Option<&str>) {
        self.lock().broken = why.map(str::to_owned);
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordStore for MemoryStore {
    fn load(&self) -> Result<Option<Record>, String> {
        let mut disk = self.lock();
        let Some(text) = &disk.file else {
            return Ok(None);
        };
        match serde_json::from_str(text) {
            Ok(record) => Ok(Some(record)),
            Err(error) => {
                disk.file = None;
                Err(format!(
                    "the state file is damaged and was set aside: {error}"
                ))
            }
        }
    }

    async fn save(&self, record: Record) -> Result<(), String> {
        let text = serde_json::to_string(&record).map_err(|error| error.to_string())?;
        let mut disk = self.lock();
        if let Some(why) = &disk.broken {
            return Err(format!("the state file cannot be written: {why}"));
        }
        disk.file = Some(text);
        Ok(())
    }

    async fn forget(&self) -> Result<(), String> {
        self.lock().file = None;
        Ok(())
    }

    async fn sync(&self) -> Result<(), String> {
        Ok(())
    }
}
