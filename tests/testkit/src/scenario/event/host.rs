//! `host.*`: what happens to the machine on which the agent runs.

use serde::Deserialize;

use crate::scenario::values::{Jump, Span};

/// `host.*`.
#[derive(Clone, Debug)]
pub enum HostDo {
    /// Somebody shuts the host down.
    Down(DownKind, Via),
    /// `shutdown -r +10`.
    Schedule(Schedule),
    /// `shutdown -c`.
    CancelSchedule,
    /// logind cannot start the job.
    ShutdownFails(After),
    /// It comes up again.
    Boot(Boot),
    /// `systemctl restart systemd-logind`.
    RestartLogind(BackAfter),
    /// The bus goes away and comes back.
    RestartDbus(BackAfter),
    /// Settings change while running.
    Set(HostSet),
    /// A D-Bus signal.
    Signal(Signal),
    /// Somebody else's lock.
    Inhibitor(Inhibitor),
    /// The wall clock jumps.
    ClockJump(ClockJump),
    /// A path is full, fine again, or read-only.
    Disk(DiskState, DiskPath),
}

/// How a host goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DownKind {
    /// Off.
    Poweroff,
    /// Off and on again.
    Reboot,
    /// Stopped.
    Halt,
    /// Into the loaded kernel.
    Kexec,
    /// User space only.
    SoftReboot,
}

/// Which way a shutdown takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Through logind.
    #[default]
    Logind,
    /// Past logind: the stop job.
    Target,
}

/// Who sends a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The owner of `org.freedesktop.login1`.
    Logind,
    /// Anybody else.
    Stranger,
    /// A program of root's that owns no name.
    Root,
    /// The owner of this name.
    Owner(String),
}

impl Sender {
    /// Whether a configuration that names `wanted` means it.
    pub fn is(&self, wanted: &str) -> bool {
        match self {
            Self::Logind => wanted == "org.freedesktop.login1",
            Self::Stranger => false,
            Self::Root => wanted == "root",
            Self::Owner(name) => wanted == name,
        }
    }
}

impl<'de> Deserialize<'de> for Sender {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = String::deserialize(from)?;
        Ok(match word.as_str() {
            "logind" => Self::Logind,
            "stranger" => Self::Stranger,
            "root" => Self::Root,
            name if name.contains('.') => Self::Owner(word),
            _ => {
                return Err(serde::de::Error::custom(format!(
                    "'{word}' is neither logind, stranger nor root, nor a name on the bus"
                )));
            }
        })
    }
}

/// Mode of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockMode {
    /// Delays.
    #[default]
    Delay,
    /// Forbids.
    Block,
    /// Forbids to others.
    BlockWeak,
}

/// How a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskState {
    /// No space.
    Full,
    /// As it should be.
    Ok,
    /// Not writable.
    ReadOnly,
}

keys! {
    /// Keys of `host.poweroff` and its kin.
    Via {
        /// Which way.
        #[serde(default)] with: Way,
    }
    /// Keys of `host.schedule`.
    Schedule {
        /// Which kind.
        #[serde(rename = "type")] kind: DownKind,
        /// When, from now.
        #[serde(rename = "in")] within: Span,
    }
    /// Keys of `host.shutdown_fails`.
    After {
        /// How long after the delay is over.
        #[serde(default)] after: Span,
    }
    /// Keys of `host.boot`.
    Boot {
        /// How long from now; absent: the host's `boot_time`.
        after: Option<Span>,
        /// User space only: the boot id stays.
        #[serde(default)] same_boot_id: bool,
    }
    /// Keys of restarts.
    BackAfter {
        /// How long it is away.
        #[serde(default)] back_after: Span,
    }
    /// Keys of `host.set`.
    HostSet {
        /// New `InhibitDelayMaxSec`.
        inhibit_delay_max: Option<Span>,
        /// New setting of the kubelet.
        kubelet_graceful_shutdown: Option<Span>,
    }
    /// Keys of `host.signal`.
    Signal {
        /// Who sends it.
        sender: Sender,
        /// D-Bus signature of the body.
        #[serde(default)] signature: String,
        /// The body, one value for each type.
        #[serde(default)] body: Vec<toml::Value>,
        /// Object path.
        #[serde(default = "login1_path")] path: String,
        /// Interface.
        #[serde(default = "login1_manager")] interface: String,
        /// Member.
        #[serde(default = "prepare")] member: String,
    }
    /// Keys of `host.inhibitor`.
    Inhibitor {
        /// Whose.
        who: String,
        /// For what, e.g. `shutdown`.
        #[serde(default = "shutdown")] what: String,
        /// How.
        #[serde(default)] mode: LockMode,
        /// How long; absent: to the end.
        #[serde(rename = "for")] held: Option<Span>,
    }
    /// Keys of `host.clock_jump`.
    ClockJump {
        /// How far.
        by: Jump,
    }
    /// Keys of `host.disk_full` and its kin.
    DiskPath {
        /// Where.
        path: String,
    }
}

fn login1_path() -> String {
    "/org/freedesktop/login1".into()
}
fn login1_manager() -> String {
    "org.freedesktop.login1.Manager".into()
}
fn prepare() -> String {
    "PrepareForShutdown".into()
}
fn shutdown() -> String {
    "shutdown".into()
}
