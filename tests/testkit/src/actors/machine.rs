//! What physically is on a host: which launcher processes run, and with which guests?

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// A guest, as the launcher process that holds it knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Guest {
    /// The launcher runs and has no guest (yet): a fresh pod, or the target of a migration.
    Empty,
    /// The process was there before its kubelet was; its VMI tells whether it has a guest.
    Found,
    /// It runs here.
    Running,
    /// It got its ACPI signal at this time.
    ShuttingDown {
        /// Since when.
        since: Duration,
    },
    /// It has ended here: moved away, shut down or killed.
    Gone {
        /// It moved or was shut down.
        clean: bool,
    },
}

/// One launcher process, which lives as long as its pod's containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Namespace of pod and VMI.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the VMI.
    pub vmi: String,
    /// uid of the VMI.
    pub vmi_uid: String,
    /// Its guest.
    pub guest: Guest,
    /// When it got SIGTERM.
    pub terminated: Option<Duration>,
    /// When it ends by itself, and with which exit code.
    pub ends: Option<(Duration, i32)>,
    /// The guest's own grace period.
    pub grace: Duration,
    /// It has been prepared for an incoming guest.
    pub receiving: bool,
    /// Its guest moved away and a sidecar keeps the pod alive.
    pub lingers: bool,
}

impl Launcher {
    /// Changes whenever anything that can change does.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        (
            &self.guest,
            self.terminated,
            self.ends,
            self.receiving,
            self.lingers,
        )
            .hash(&mut hash);
        hash.finish()
    }

    /// Whether a guest would lose its memory if this process were killed now.
    pub fn holds_guest(&self) -> bool {
        matches!(self.guest, Guest::Running | Guest::ShuttingDown { .. })
    }
}

/// Everything on one host, by pod uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The launcher processes.
    pub launchers: BTreeMap<String, Launcher>,
    /// The kubelet has looked at the pods that it found when it started.
    pub adopted: bool,
    /// virt-handler's device plugins are registered.
    pub plugins: bool,
}

/// A machine that the kubelet and the virt-handler of one node share, and a bell that wakes the other one.
#[derive(Clone, Debug)]
pub struct Shared {
    machine: Arc<Mutex<Machine>>,
    bell: Arc<watch::Sender<u64>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            machine: Arc::default(),
            bell: Arc::new(watch::channel(0).0),
        }
    }
}

impl Shared {
    /// Works on the machine; rings when it was changed.
    pub fn with<T>(&self, work: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let before = machine.fingerprint();
        let result = work(&mut machine);
        let same = machine.fingerprint() == before;
        drop(machine);
        if !same {
            self.bell.send_modify(|count| *count += 1);
        }
        result
    }

    /// Tells whenever the machine changed.
    pub fn rung(&self) -> watch::Receiver<u64> {
        self.bell.subscribe()
    }
}

impl Machine {
    /// Changes whenever anything on the machine does.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        (self.adopted, self.plugins, self.launchers.len()).hash(&mut hash);
        for (pod, launcher) in &self.launchers {
            (pod, launcher.fingerprint()).hash(&mut hash);
        }
        hash.finish()
    }

    /// Changes whenever a launcher of this VMI does.
    pub fn fingerprint_of_vmi(&self, vmi_uid: &str) -> u64 {
        let mut hash = DefaultHasher::new();
        for (pod, launcher) in self
            .launchers
            .iter()
            .filter(|(_, one)| one.vmi_uid == vmi_uid)
        {
            (pod, launcher.fingerprint()).hash(&mut hash);
        }
        hash.finish()
    }

    /// The launcher of a pod by name.
    pub fn of_pod(&mut self, namespace: &str, pod: &str) -> Option<&mut Launcher> {
        self.launchers
            .values_mut()
            .find(|one| one.namespace == namespace && one.pod == pod)
    }

    /// The launcher that holds the guest of a VMI.
    pub fn holding(&mut self, vmi_uid: &str) -> Option<&mut Launcher> {
        self.launchers
            .values_mut()
            .find(|one| one.vmi_uid == vmi_uid && one.holds_guest())
    }

    /// Any launcher of a VMI, one with a guest first.
    pub fn of_vmi(&mut self, vmi_uid: &str) -> Option<&mut Launcher> {
        self.launchers
            .values_mut()
            .filter(|one| one.vmi_uid == vmi_uid)
            .max_by_key(|one| {
                (
                    one.holds_guest(),
                    matches!(one.guest, Guest::Empty | Guest::Found),
                )
            })
    }
}
