//! How does a lock live and die? As the write end of a FIFO, whose last copy ends it.

use anyhow::Context;
use nix::sys::stat::Mode;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tokio::net::unix::pipe::Receiver;
use vmdrain_agent::host::login1::Inhibitor;

/// `O_NONBLOCK` on Linux.
const NONBLOCK: i32 = nix::fcntl::OFlag::O_NONBLOCK.bits();

/// A lock that logind keeps.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) entry: Inhibitor,
    pub(super) fifo: PathBuf,
    /// Waits for the end; ends itself with the lock.
    pub(super) watch: Option<tokio::task::AbortHandle>,
}

impl Lock {
    /// It makes a shutdown wait.
    pub(super) fn delays(&self) -> bool {
        self.entry.on_shutdown() && self.entry.mode == "delay"
    }

    /// It forbids one.
    pub(super) fn blocks(&self) -> bool {
        self.entry.on_shutdown() && self.entry.mode == "block"
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
        let _ = std::fs::remove_file(&self.fifo);
    }
}

/// Somebody else's lock in a test; dropping it releases it.
#[derive(Debug)]
pub struct Foreign {
    fd: OwnedFd,
}

impl Foreign {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// The descriptor, to hand it to a process.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// Makes the FIFO of lock `number`: logind's end and the holder's.
pub(super) fn make(folder: &Path, number: u64) -> anyhow::Result<(PathBuf, Receiver, OwnedFd)> {
    let fifo = folder.join(format!("{number}.ref"));
    nix::unistd::mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR)
        .with_context(|| format!("cannot make the FIFO {}", fifo.display()))?;
    let reader = Receiver::from_file(open_reader(&fifo)?)?;
    let writer = OpenOptions::new()
        .write(true)
        .custom_flags(NONBLOCK)
        .open(&fifo)?;
    Ok((fifo, reader, writer.into()))
}

/// Opens logind's end again after a restart; `None`: nobody holds the other one any more.
pub(super) fn reopen(fifo: &Path) -> anyhow::Result<Option<Receiver>> {
    let mut reader = open_reader(fifo)?;
    match reader.read(&mut [0]) {
        Ok(0) => Ok(None),
        Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e.into()),
        _ => Ok(Some(Receiver::from_file(reader)?)),
    }
}

fn open_reader(fifo: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(NONBLOCK)
        .open(fifo)
}

/// Returns when the last copy of the holder's end is closed, also by its death.
pub(super) async fn ended(reader: Receiver) {
    let mut scrap = [0; 16];
    while reader.readable().await.is_ok() {
        match reader.try_read(&mut scrap) {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
