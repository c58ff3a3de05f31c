//! The launchers of the host as the shipped binary sees them: a made-up `/proc` over real processes.
//!
//! For each played virt-launcher there is a process of this machine that does nothing but wait for SIGTERM. When it gets one, the played
//! launcher has got it. Only stories in which the API server goes away have them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use vmdrain_agent::drain::local::{LAUNCHER_EXTRA, LocalGuest};

use crate::actors::premises::Premises;
use crate::scenario::Scenario;
use crate::scenario::event::Do;
use crate::scenario::event::api::ApiDo;

/// How often the tree is brought up to date, in real time.
const RHYTHM: Duration = Duration::from_millis(5);
/// virt-handler's number: one that the kernel never gives.
const HANDLER: u32 = 5_000_000;

/// Keeps the tree until it is dropped.
#[derive(Debug)]
pub(super) struct Processes {
    task: JoinHandle<()>,
}

impl Processes {
    /// Begins in `folder`, which becomes `/proc`.
    pub(super) fn play(folder: &Path, premises: Premises) -> std::io::Result<Self> {
        let tree = Tree {
            proc: folder.to_owned(),
            aside: folder.with_extension("aside"),
            premises,
            children: BTreeMap::new(),
            handler: false,
        };
        std::fs::create_dir_all(&tree.proc)?;
        std::fs::create_dir_all(&tree.aside)?;
        tree.write(1, "0::/init.scope", "/sbin/init", "1", &stat(1, 1))?;
        Ok(Self {
            task: tokio::spawn(tree.run()),
        })
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // Its children are killed with it.
        self.task.abort();
    }
}

/// Whether the API server goes away in this story.
pub(super) fn needed(scenario: &Scenario) -> bool {
    let away = |what: &Do| {
        matches!(
            what,
            Do::Api(ApiDo::Down(_) | ApiDo::Hang(_) | ApiDo::Drop(_))
        )
    };
    scenario.timeline.iter().any(|event| away(&event.what))
}

struct Tree {
    proc: PathBuf,
    /// Where a process is written before it appears.
    aside: PathBuf,
    premises: Premises,
    /// By pod UID: the number, and the process until it was told.
    children: BTreeMap<String, (u32, Option<Child>)>,
    handler: bool,
}

impl Tree {
    async fn run(mut self) {
        loop {
            if let Err(why) = self.step() {
                tracing::error!("the made-up /proc cannot be kept: {why}");
            }
            tokio::time::sleep(RHYTHM).await;
        }
    }

    fn step(&mut self) -> std::io::Result<()> {
        let view = self.premises.look();
        for guest in &view.guests {
            if !self.children.contains_key(&guest.pod_uid) {
                self.begin(guest)?;
            }
        }
        let gone: Vec<String> = self
            .children
            .keys()
            .filter(|uid| !view.guests.iter().any(|guest| guest.pod_uid == **uid))
            .cloned()
            .collect();
        for uid in gone {
            if let Some((pid, _child)) = self.children.remove(&uid) {
                self.remove(pid)?;
            }
        }
        for (uid, (_, child)) in &mut self.children {
            let ended = match child {
                Some(one) => one.try_wait()?.is_some(),
                None => false,
            };
            if ended {
                *child = None;
                self.premises.tell(uid);
            }
        }
        if view.handler != self.handler {
            self.handler = view.handler;
            if view.handler {
                let cgroup = "0::/kubepods/pod00000000-0000-4000-8000-000000000000/handler";
                let line = "/usr/bin/virt-handler";
                self.write(HANDLER, cgroup, line, "1", &stat(HANDLER, 1))?;
            } else {
                self.remove(HANDLER)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, guest: &LocalGuest) -> std::io::Result<()> {
        let child = Command::new("sleep")
            .arg("86400")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let Some(pid) = child.id() else {
            return Ok(());
        };
        let grace = guest.grace.unwrap_or_default() + LAUNCHER_EXTRA;
        let line = format!(
            "/usr/bin/virt-launcher-monitor --name {} --uid {} --namespace {} --grace-period-seconds {}",
            guest.vm.name,
            guest.vmi_uid,
            guest.vm.namespace,
            grace.as_secs()
        );
        // Like the kubelet with the cgroupfs driver, and like systemd's, by turns.
        let uid = &guest.pod_uid;
        let cgroup = if pid % 2 == 0 {
            format!("0::/kubepods/burstable/pod{uid}/compute")
        } else {
            let uid = uid.replace('-', "_");
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-compute.scope"
            )
        };
        let real = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        self.write(pid, &cgroup, &line, &format!("{pid} 1"), &real)?;
        self.children.insert(uid.clone(), (pid, Some(child)));
        Ok(())
    }

    fn write(
        &self,
        pid: u32,
        cgroup: &str,
        line: &str,
        nspid: &str,
        stat: &str,
    ) -> std::io::Result<()> {
        let name = pid.to_string();
        let folder = self.aside.join(&name);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("cgroup"), format!("{cgroup}\n"))?;
        std::fs::write(folder.join("cmdline"), line.replace(' ', "\0"))?;
        std::fs::write(folder.join("status"), format!("NSpid:\t{nspid}\n"))?;
        std::fs::write(folder.join("stat"), stat)?;
        std::fs::rename(folder, self.proc.join(name))
    }

    fn remove(&self, pid: u32) -> std::io::Result<()> {
        let name = pid.to_string();
        let folder = self.aside.join(&name);
        std::fs::rename(self.proc.join(name), &folder)?;
        std::fs::remove_dir_all(folder)
    }
}

fn stat(pid: u32, started: u64) -> String {
    let zeros = ["0"; 18].join(" ");
    format!("{pid} (x) S {zeros} {started} 0\n")
}
