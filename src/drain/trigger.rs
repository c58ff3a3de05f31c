//! What starts a drain, and what may be asked with it.

use super::others::Scope;
use super::policy::OnDeadline;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// What logind is asked for after a drain of net 1, and what a shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Then {
    /// `PowerOff`.
    Poweroff,
    /// `Reboot`.
    Reboot,
    /// `Halt`.
    Halt,
    /// `Reboot` into the loaded kernel.
    Kexec,
    /// `Reboot` of user space only (systemd 254 and later).
    SoftReboot,
}

impl Then {
    /// The word on logind's wire and on our command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Poweroff => "poweroff",
            Self::Reboot => "reboot",
            Self::Halt => "halt",
            Self::Kexec => "kexec",
            Self::SoftReboot => "soft-reboot",
        }
    }
}

impl fmt::Display for Then {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// An operator's or a program's request to drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trigger {
    /// What to do with the host afterwards; `None`: nothing, the node stays drained and cordoned.
    pub then: Option<Then>,
    /// Why, for people; empty: none given.
    pub reason: String,
    /// How long the drain may take; `None`: the configuration decides.
    #[serde(with = "super::policy::opt_seconds")]
    pub deadline: Option<Duration>,
    /// What happens at the deadline; `None`: the configuration decides.
    pub on_deadline: Option<OnDeadline>,
    /// Guests may be shut down although the host stays up.
    pub allow_guest_shutdown: bool,
    /// The cordon stays after the boot.
    pub keep_cordoned: bool,
    /// What is drained; `None`: the configuration decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// The power goes for the whole rack: nobody is migrated, every guest is told at once. Joins a drain that is
    /// under way.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shutdown_vms: bool,
    /// Asked by the stop job of a system that is going down (net 3): nothing can take that back, a drain that is
    /// under way is joined, and what may be done when the host goes down may be done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stop_job: bool,
    /// Name of the maintenance signal that asks; empty: a person or a program. Such a one joins a drain that is under
    /// way: the earlier deadline counts, and what is asked for on top.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub signal: String,
}

/// A shutdown that logind has announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// What kind, where logind tells (255 and later).
    pub kind: Option<Then>,
    /// How long logind will wait for us, counted from the signal.
    pub limit: Option<Duration>,
    /// Whether our delay lock is in effect for it. Without it logind does not wait (late start).
    pub held: bool,
}

/// A shutdown for later (`shutdown +10`) that has not come yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// What kind; `None`: a word that is not known.
    pub kind: Option<Then>,
    /// How long from now.
    pub within: Duration,
}

/// How a running hold is ended by a person's word (`release`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// As the policy of this drain says, but now.
    #[default]
    Policy,
    /// The guests that are left are shut down now.
    ShutdownVms,
    /// The host is let go as it is.
    Proceed,
}

/// Why a command was not carried out. Every variant is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A drain is already running.
    #[error(
        "a drain is already running (id {id}, {phase}); it goes on unchanged. Follow it with `vmdrain-agent status -w`, or call it off with `vmdrain-agent cancel`"
    )]
    AlreadyDraining {
        /// Its id.
        id: String,
        /// Its phase.
        phase: &'static str,
    },
    /// There is nothing to call off.
    #[error("no drain is running, so there is nothing to cancel")]
    NothingToCancel,
    /// A signal calls off what no signal began.
    #[error(
        "the drain that is running (id {id}) was not begun by a maintenance signal, so a signal does not call it off; `vmdrain-agent cancel` does"
    )]
    NotASignalsDrain {
        /// Its id.
        id: String,
    },
    /// logind is already waiting for us.
    #[error(
        "the host is already going down and logind cannot take that back: the drain goes on so that no VM is killed. On systemd 257 and later `shutdown -c` calls the shutdown off, and the drain with it"
    )]
    ShutdownPending,
    /// The drain is over and the host is on its way down: nothing can be begun.
    #[error(
        "the host is going down; try again when it is up, or when the shutdown has been called off"
    )]
    GoingDown,
    /// A drain is running, the node cannot be given back now.
    #[error("a drain is running (id {id}); cancel it first: `vmdrain-agent cancel`")]
    RestoreWhileDraining {
        /// Its id.
        id: String,
    },
    /// The cordon is not ours.
    #[error(
        "the cordon of node {node} is not ours ({who}); if you are sure, `kubectl uncordon {node}` removes it"
    )]
    CordonNotOurs {
        /// The node.
        node: String,
        /// What is known about it.
        who: String,
    },
    /// The node is not cordoned at all.
    #[error("node {node} is not cordoned, so there is nothing to restore")]
    NotCordoned {
        /// The node.
        node: String,
    },
    /// The Node object belongs to another machine.
    #[error(
        "node {node} is another machine: it reports machine id {theirs}, this host has {ours}. Nothing was changed. Check `cluster.node_name` and the kubeconfig"
    )]
    AnotherMachine {
        /// The node.
        node: String,
        /// Ids of the Node object.
        theirs: String,
        /// Ids of this host.
        ours: String,
    },
    /// There is no deadline that could be moved, and no hold that could be ended.
    #[error("no drain is running, so there is nothing to {what}")]
    NoDrain {
        /// What was asked for.
        what: &'static str,
    },
    /// logind does not wait any longer.
    #[error(
        "logind waits at most {limit} for us and cannot be asked for more: the deadline can be moved by {most} at most. `InhibitDelayMaxSec=` (in zz-vmdrain-agent.conf) sets that limit for the next shutdown"
    )]
    PastLimit {
        /// logind's limit.
        limit: String,
        /// How much is left.
        most: String,
    },
    /// The configuration forbids to shut guests down.
    #[error(
        "drain.allow_guest_shutdown is \"never\", so no guest is shut down; `vmdrain-agent release --proceed` lets the host go as it is"
    )]
    ConsentNever,
    /// A value that makes no sense.
    #[error("{0}")]
    BadRequest(String),
}
