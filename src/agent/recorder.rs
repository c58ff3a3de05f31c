//! Who writes the record, and who waits for it?
//!
//! A disk may take its time (an fsync of a second is nothing unusual), and the driver must not stand still
//! meanwhile: the deadline, the answers and the release go on. What must not overtake the record (a write to
//! the cluster that a restarted agent has to know as its own) waits for [`Recorder::written`]. That is when
//! the next process finds it; the fsync follows behind. A power failure between the two costs nothing: the
//! marked VMs are gone with it, and whose the cordon is stands on the Node as well.

use super::ports::RecordStore;
use crate::drain::record::Record;
use crate::telemetry::catalog::message_id;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Notify, mpsc};

/// The way to the task that writes.
#[derive(Debug)]
pub(super) struct Recorder {
    wanted: mpsc::UnboundedSender<(u64, Write)>,
    last: u64,
    progress: Arc<Progress>,
}

/// How far the task is. Wakes in the order of waiting, so that the same simulation is the same on every run.
#[derive(Debug, Default)]
struct Progress {
    done: AtomicU64,
    news: Notify,
}

#[derive(Debug)]
enum Write {
    Save(Box<Record>),
    Forget,
}

impl Recorder {
    /// The recorder, and the task that writes until the recorder is dropped and everything is written.
    pub(super) fn new<S: RecordStore>(
        store: Arc<S>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (wanted, inbox) = mpsc::unbounded_channel();
        let progress = Arc::<Progress>::default();
        let recorder = Self {
            wanted,
            last: 0,
            progress: Arc::clone(&progress),
        };
        (recorder, write_all(store, inbox, progress))
    }

    /// Wants this record on the disk; an older one that is not written yet need not be any more.
    pub(super) fn save(&mut self, record: Box<Record>) {
        self.want(Write::Save(record));
    }

    /// Wants the record gone.
    pub(super) fn forget(&mut self) {
        self.want(Write::Forget);
    }

    fn want(&mut self, write: Write) {
        self.last += 1;
        // Without the task nobody writes; who waits for it does so for a bounded time.
        let _ = self.wanted.send((self.last, write));
    }

    /// Ends when the next process would find everything that was wanted so far, or writing it has failed and was told.
    pub(super) fn written(&self) -> impl Future<Output = ()> + Send + 'static {
        let (progress, last) = (Arc::clone(&self.progress), self.last);
        async move {
            loop {
                let news = progress.news.notified();
                if progress.done.load(Ordering::SeqCst) >= last {
                    return;
                }
                news.await;
            }
        }
    }
}

async fn write_all<S: RecordStore>(
    store: Arc<S>,
    mut inbox: mpsc::UnboundedReceiver<(u64, Write)>,
    progress: Arc<Progress>,
) {
    while let Some((mut number, mut write)) = inbox.recv().await {
        while let Ok(newer) = inbox.try_recv() {
            (number, write) = newer;
        }
        let result = match write {
            Write::Save(record) => store.save(*record).await,
            Write::Forget => store.forget().await,
        };
        progress.done.store(number, Ordering::SeqCst);
        progress.news.notify_waiters();
        // A state file that cannot be written does not stop a drain, but somebody has to know.
        let result = match result {
            Ok(()) => store.sync().await,
            Err(why) => Err(why),
        };
        if let Err(why) = result {
            tracing::error!(
                vmdrain_reason = "StateFileNotWritten",
                message_id = message_id("StateFileNotWritten"),
                "{why}; after a crash the agent could not tell its own marks"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;
    use tokio::sync::Semaphore;

    /// A disk that writes only when it is let.
    #[derive(Debug)]
    struct SlowDisk {
        let_go: Semaphore,
        written: Mutex<Vec<String>>,
        syncs: AtomicUsize,
    }

    impl SlowDisk {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                let_go: Semaphore::new(0),
                written: Mutex::new(Vec::new()),
                syncs: AtomicUsize::new(0),
            })
        }

        fn written(&self) -> Vec<String> {
            self.written.lock().unwrap().clone()
        }

        async fn write(&self, what: String) -> Result<(), String> {
            self.let_go.acquire().await.unwrap().forget();
            self.written.lock().unwrap().push(what);
            Ok(())
        }
    }

    impl RecordStore for SlowDisk {
        fn load(&self) -> Result<Option<Record>, String> {
            Ok(None)
        }

        async fn save(&self, record: Record) -> Result<(), String> {
            self.write(record.drain).await
        }

        async fn forget(&self) -> Result<(), String> {
            self.write("gone".into()).await
        }

        async fn sync(&self) -> Result<(), String> {
            self.syncs.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    fn record(drain: &str) -> Box<Record> {
        Box::new(Record {
            drain: drain.into(),
            ..Record::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_must_not_overtake_the_record_waits_for_it_and_the_newest_wins() {
        let disk = SlowDisk::new();
        let (mut recorder, task) = Recorder::new(Arc::clone(&disk));
        let task = tokio::spawn(task);
        recorder.written().await;
        recorder.save(record("1"));
        tokio::task::yield_now().await;
        recorder.save(record("2"));
        recorder.save(record("3"));
        let last = recorder.written();
        assert!(
            tokio::time::timeout(Duration::from_secs(60), recorder.written())
                .await
                .is_err(),
            "nothing is written yet"
        );
        disk.let_go.add_permits(2);
        last.await;
        assert_eq!(disk.written(), ["1", "3"]);
        recorder.forget();
        drop(recorder);
        disk.let_go.add_permits(1);
        task.await.unwrap();
        assert_eq!(
            disk.written(),
            ["1", "3", "gone"],
            "nothing is lost at the end"
        );
    }
}
