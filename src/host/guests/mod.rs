//! Which guests run on this host, and how is one told to end without the API server (design section 5)?
//!
//! Everything comes from `/proc`: a process that is PID 1 of its own PID namespace, in the cgroup of a container of a pod,
//! under virt-launcher's name. So it is the same for both cgroup drivers of the kubelet, for cgroup v1 and v2, and for every
//! container runtime. The signal goes to that one process through a pidfd, never to the scope, which would take qemu with it.

mod cgroup;
mod process;
#[cfg(test)]
mod tests;

use crate::drain::local::{LocalGuest, LocalView, Process};
use process::{Arguments, Entry};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::path::{Path, PathBuf};

/// The init process of a `compute` container; before KubeVirt 0.54 virt-launcher itself.
const LAUNCHERS: [&str; 2] = ["virt-launcher-monitor", "virt-launcher"];
/// It shares the host's PID namespace.
const HANDLER: &str = "virt-handler";

const UNSEEN: &str = "this process does not look at the host's processes";

/// The processes of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guests {
    proc: PathBuf,
}

impl Guests {
    /// `proc`: `/proc`, or what stands for it.
    pub fn new(proc: impl Into<PathBuf>) -> Self {
        Self { proc: proc.into() }
    }

    /// Everything that runs now.
    ///
    /// # Errors
    /// A sentence when not all processes can be seen: then it is not known who is left.
    pub fn look(&self) -> Result<LocalView, String> {
        let shown = |path: &Path, why: &dyn std::fmt::Display| {
            format!("{} cannot be read: {why}", path.display())
        };
        let mut view = LocalView::default();
        let mut first = false;
        for entry in std::fs::read_dir(&self.proc).map_err(|why| shown(&self.proc, &why))? {
            let entry = entry.map_err(|why| shown(&self.proc, &why))?;
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            first |= pid == 1;
            let process = Entry::new(entry.path());
            match read(&process, pid) {
                Ok(Some(Found::Guest(guest))) => view.guests.push(guest),
                Ok(Some(Found::Handler)) => view.handler = true,
                // It has ended meanwhile.
                Err(why) if is_gone(&why) => {}
                Ok(None) => {}
                Err(why) => return Err(shown(&entry.path(), &why)),
            }
        }
        if !first {
            return Err(format!(
                "{} hides the processes of others (process 1 is not there): the service needs ProtectProc=default",
                self.proc.display()
            ));
        }
        view.guests
            .sort_by(|a, b| a.pod_uid.cmp(&b.pod_uid).then(a.init.cmp(&b.init)));
        Ok(view)
    }

    /// Tells one guest to end; a process that is not there any more has been told.
    ///
    /// # Errors
    /// A sentence: the signal was not sent.
    pub fn tell(&self, guest: &LocalGuest) -> Result<(), String> {
        let pid = guest.init.pid;
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(number) = number.filter(|_| pid > 1) else {
            return Err(format!("{pid} is no process that could be told"));
        };
        let held = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(held) => held,
            Err(Errno::SRCH) => return Ok(()),
            Err(why) => return Err(format!("process {pid} cannot be held: {why}")),
        };
        // From here on the number can belong to nobody else; before that it may have.
        let entry = Entry::new(self.proc.join(pid.to_string()));
        match read(&entry, pid) {
            Ok(Some(Found::Guest(now)))
                if now.init == guest.init && now.pod_uid == guest.pod_uid => {}
            Ok(_) => return Ok(()),
            Err(why) if is_gone(&why) => return Ok(()),
            Err(why) => return Err(format!("process {pid} cannot be looked at: {why}")),
        }
        match pidfd_send_signal(&held, Signal::TERM) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(Errno::PERM) => Err(format!(
                "process {pid} may not be signalled: the service needs CAP_KILL"
            )),
            Err(why) => Err(format!("process {pid} cannot be signalled: {why}")),
        }
    }
}

/// [`Guests::look`] beside the runtime's own thread: a big host has thousands of processes.
pub(super) async fn look(guests: Option<Guests>) -> Result<LocalView, String> {
    let guests = guests.ok_or(UNSEEN)?;
    beside(move || guests.look()).await
}

/// [`Guests::tell`], likewise.
pub(super) async fn tell(guests: Option<Guests>, guest: &LocalGuest) -> Result<(), String> {
    let (guests, guest) = (guests.ok_or(UNSEEN)?, guest.clone());
    beside(move || guests.tell(&guest)).await
}

async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|why| Err(format!("internal error: {why}")))
}

enum Found {
    Guest(LocalGuest),
    Handler,
}

/// What a process is; `None`: nothing of KubeVirt's.
fn read(entry: &Entry, pid: u32) -> io::Result<Option<Found>> {
    let Some(pod_uid) = cgroup::pod_uid(&entry.text("cgroup")?) else {
        return Ok(None);
    };
    let arguments = Arguments::of(&entry.bytes("cmdline")?);
    let program = arguments.program();
    if program == HANDLER {
        return Ok(Some(Found::Handler));
    }
    if !LAUNCHERS.contains(&program) || !process::is_init(&entry.text("status")?) {
        return Ok(None);
    }
    let Some(started) = process::started(&entry.text("stat")?) else {
        let why = format!("the stat of process {pid} has another form than expected");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    };
    Ok(Some(Found::Guest(LocalGuest {
        pod_uid,
        vm: arguments.vm(),
        vmi_uid: arguments.value("--uid").unwrap_or_default().to_owned(),
        grace: arguments.grace(),
        init: Process { pid, started },
    })))
}

fn is_gone(why: &io::Error) -> bool {
    // ESRCH: it ended between the opening and the reading.
    why.kind() == io::ErrorKind::NotFound || why.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}
