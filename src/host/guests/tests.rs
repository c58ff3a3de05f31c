use super::*;
use crate::drain::world::VmName;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const UID: &str = "1f5c0c2e-9d0b-4c56-8a7e-0d6b2f3a4b5c";
const OTHER: &str = "2f5c0c2e-9d0b-4c56-8a7e-0d6b2f3a4b5c";

/// A made-up `/proc`.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.process(1, "0::/init.scope", "systemd", "1", 1);
        std::fs::write(tree.0.path().join("uptime"), "1").unwrap();
        tree
    }

    fn process(&self, pid: u32, cgroup: &str, cmdline: &str, nspid: &str, started: u64) {
        let folder = self.0.path().join(pid.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let write = |file: &str, text: String| std::fs::write(folder.join(file), text).unwrap();
        write("cgroup", format!("{cgroup}\n"));
        write("cmdline", cmdline.replace(' ', "\0"));
        write("status", format!("Name:\tx\nNSpid:\t{nspid}\n"));
        let zeros = vec!["0"; 18].join(" ");
        write("stat", format!("{pid} (x) S {zeros} {started} 0"));
    }

    fn launcher(&self, pid: u32, uid: &str, started: u64) {
        let cgroup = format!("0::/kubepods/burstable/pod{uid}/abc");
        let line = "/usr/bin/virt-launcher-monitor --name db --uid vmi-1 --namespace vms --grace-period-seconds 75";
        self.process(pid, &cgroup, line, &format!("{pid} 1"), started);
    }

    fn guests(&self) -> Guests {
        Guests::new(self.0.path())
    }
}

/// A real process, which the tree then names.
struct Real(Child);

impl Real {
    fn start() -> Self {
        let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn();
        Self(child.unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    fn signal(&mut self) -> Option<i32> {
        self.0.wait().unwrap().signal()
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_guest_is_found_among_everything_else_of_its_pod() {
    let tree = Tree::new();
    tree.launcher(4711, UID, 99);
    let cgroup = format!("0::/kubepods/burstable/pod{UID}/abc");
    // virt-launcher below its monitor, qemu, a sidecar, the pause container, and a shell with such an argument.
    tree.process(
        4712,
        &cgroup,
        "/usr/bin/virt-launcher --name db",
        "4712 17",
        100,
    );
    tree.process(
        4713,
        &cgroup,
        "/usr/libexec/qemu-kvm -name guest=db",
        "4713 40",
        100,
    );
    let sidecar = format!("0::/kubepods/burstable/pod{UID}/def");
    tree.process(
        4714,
        &sidecar,
        "/usr/bin/virt-tail --logfile x",
        "4714 1",
        100,
    );
    tree.process(4715, &sidecar, "/pause", "4715 1", 100);
    tree.process(
        4716,
        "0::/user.slice",
        "virt-launcher-monitor --name x",
        "4716 1",
        100,
    );
    let view = tree.guests().look().unwrap();
    let found = LocalGuest {
        pod_uid: UID.into(),
        vm: VmName {
            namespace: "vms".into(),
            name: "db".into(),
        },
        vmi_uid: "vmi-1".into(),
        grace: Some(Duration::from_secs(60)),
        init: Process {
            pid: 4711,
            started: 99,
        },
    };
    assert_eq!(view.guests, [found]);
    assert!(!view.handler);
    let handler = format!("0::/kubepods/pod{OTHER}/abc");
    tree.process(50, &handler, "/usr/bin/virt-handler --port 8443", "50", 3);
    assert!(tree.guests().look().unwrap().handler);
}

#[test]
fn a_host_that_cannot_be_seen_is_not_taken_for_an_empty_one() {
    let nowhere = Guests::new("/nowhere/at/all").look().unwrap_err();
    assert!(nowhere.contains("/nowhere/at/all"), "{nowhere}");
    let tree = Tree::new();
    std::fs::remove_dir_all(tree.0.path().join("1")).unwrap();
    let hidden = tree.guests().look().unwrap_err();
    assert!(hidden.contains("ProtectProc"), "{hidden}");
    // One whose beginning cannot be read is there all the same.
    let tree = Tree::new();
    tree.launcher(4711, UID, 99);
    std::fs::write(tree.0.path().join("4711/stat"), "nonsense").unwrap();
    assert!(tree.guests().look().unwrap_err().contains("4711"));
}

#[test]
fn a_process_that_ends_while_it_is_looked_at_is_gone() {
    let tree = Tree::new();
    tree.launcher(4711, UID, 99);
    std::fs::remove_file(tree.0.path().join("4711/cmdline")).unwrap();
    assert_eq!(tree.guests().look().unwrap().guests, []);
}

#[test]
fn the_signal_ends_that_one_process() {
    let tree = Tree::new();
    let (mut one, mut other) = (Real::start(), Real::start());
    tree.launcher(one.pid(), UID, 99);
    tree.launcher(other.pid(), OTHER, 99);
    let guests = tree.guests();
    let view = guests.look().unwrap();
    let guest = view.guests.iter().find(|g| g.pod_uid == UID).unwrap();
    guests.tell(guest).unwrap();
    assert_eq!(one.signal(), Some(15));
    assert!(other.runs());
    // It is gone: nobody is told, and that is no fault.
    guests.tell(guest).unwrap();
    assert!(other.runs());
}

#[test]
fn a_later_process_of_the_same_number_is_not_told() {
    let tree = Tree::new();
    let mut real = Real::start();
    tree.launcher(real.pid(), UID, 99);
    let guest = tree.guests().look().unwrap().guests.remove(0);
    // The number now belongs to a process that began later, or to another pod, or to something else.
    tree.launcher(real.pid(), UID, 100);
    tree.guests().tell(&guest).unwrap();
    tree.launcher(real.pid(), OTHER, 99);
    tree.guests().tell(&guest).unwrap();
    tree.process(real.pid(), "0::/user.slice", "sleep 60", "1", 99);
    tree.guests().tell(&guest).unwrap();
    assert!(real.runs());
    let first = LocalGuest {
        init: Process { pid: 1, started: 1 },
        ..guest
    };
    assert!(tree.guests().tell(&first).is_err());
}

#[test]
fn the_real_proc_can_be_read() {
    let mut real = Real::start();
    let entry = Entry::new(Path::new("/proc").join(real.pid().to_string()));
    assert!(process::started(&entry.text("stat").unwrap()).is_some());
    assert!(!process::is_init(&entry.text("status").unwrap()));
    assert!(read(&entry, real.pid()).unwrap().is_none());
    assert!(real.runs());
}
