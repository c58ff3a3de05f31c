//! The service manager's end of `sd_notify`: the fd store in which the hold survives the agent.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::task::JoinHandle;

/// What the agent has told its service manager.
#[derive(Debug, Default)]
struct Told {
    stored: Option<File>,
    status: String,
    ready: bool,
}

/// A socket that takes notifications.
#[derive(Debug)]
pub(super) struct Notify {
    path: PathBuf,
    told: Arc<Mutex<Told>>,
    task: JoinHandle<()>,
}

impl Notify {
    /// Listens in a folder.
    pub(super) fn listen(folder: &Path) -> io::Result<Self> {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path)?;
        let told = Arc::new(Mutex::new(Told::default()));
        let task = tokio::spawn(listen(socket, told.clone()));
        Ok(Self { path, told, task })
    }

    /// For `NOTIFY_SOCKET`.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A copy of the stored descriptor for a new process.
    pub(super) fn stored(&self) -> Option<OwnedFd> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = told.stored.as_ref()?.try_clone().ok()?;
        Some(copy.into())
    }

    /// Empties the store, as a stop of the unit does.
    pub(super) fn forget(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.stored = None;
        told.ready = false;
    }
}

impl Drop for Notify {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(socket: UnixDatagram, told: Arc<Mutex<Told>>) {
    while socket.readable().await.is_ok() {
        let taken = socket.try_io(Interest::READABLE, || take(socket.as_raw_fd()));
        match taken {
            Ok((text, fd)) => understand(&text, fd, &told),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// One message and the descriptor that came with it.
fn take(socket: RawFd) -> io::Result<(String, Option<File>)> {
    let mut bytes = [0_u8; 4096];
    let mut space = nix::cmsg_space!([RawFd; 4]);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket, &mut slices, Some(&mut space), flags)?;
    let mut kept = None;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = control {
            for fd in fds {
                // The write end of a FIFO, opened once more under a descriptor that is ours by its type.
                kept = OpenOptions::new()
                    .write(true)
                    .open(format!("/proc/self/fd/{fd}"))
                    .ok();
                let _ = nix::unistd::close(fd);
            }
        }
    }
    let length = message.bytes;
    Ok((String::from_utf8_lossy(&bytes[..length]).into_owned(), kept))
}

fn understand(text: &str, fd: Option<File>, told: &Mutex<Told>) {
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    let has = |wanted: &str| text.lines().any(|line| line == wanted);
    if has("FDSTORE=1") && fd.is_some() {
        told.stored = fd;
    }
    if has("FDSTOREREMOVE=1") {
        told.stored = None;
    }
    told.ready |= has("READY=1");
    if let Some(status) = text.lines().find_map(|line| line.strip_prefix("STATUS=")) {
        status.clone_into(&mut told.status);
    }
}
