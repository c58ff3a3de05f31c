//! `agent.*`: what an operator does with the agent, and what is done to its process.

use serde::Deserialize;

use crate::scenario::values::Span;

/// `agent.*`.
#[derive(Clone, Debug)]
pub enum AgentDo {
    /// `vmdrain-agent trigger`.
    Trigger(Trigger),
    /// `vmdrain-agent cancel`.
    Cancel(Cancel),
    /// `vmdrain-agent extend`.
    Extend(Extend),
    /// `vmdrain-agent release`.
    Release(Release),
    /// `vmdrain-agent restore`.
    Restore(Plain),
    /// `vmdrain-agent plan`.
    Plan(Plain),
    /// `vmdrain-agent doctor`.
    Doctor(Plain),
    /// SIGHUP.
    Reload(Plain),
    /// SIGKILL.
    Kill(Away),
    /// `systemctl stop`.
    Stop(Away),
    /// `systemctl restart`.
    Restart(Away),
    /// `systemctl start`.
    Start(Away),
    /// A file is written.
    File(File),
}

keys! {
    /// Keys of `agent.trigger`: the options of the command.
    Trigger {
        /// What follows.
        then: Option<vmdrain_agent::drain::trigger::Then>,
        /// Why.
        #[serde(default)] reason: String,
        /// How long it may take.
        deadline: Option<Span>,
        /// What happens then.
        on_deadline: Option<String>,
        /// Which pods.
        scope: Option<String>,
        /// Guests may be stopped.
        #[serde(default)] allow_guest_shutdown: bool,
        /// The cordon stays.
        #[serde(default)] keep_cordoned: bool,
        /// Do not wait for the end.
        #[serde(default)] no_wait: bool,
        /// The whole rack goes down: nobody is migrated (`action = "shutdown-vms"` of a maintenance signal).
        #[serde(default)] shutdown_vms: bool,
        /// Past checks.
        #[serde(default)] force: bool,
        /// Keep exit code and output under this name.
        save: Option<String>,
    }
    /// Keys of `agent.cancel`.
    Cancel {
        /// Also delete our VMIMs.
        #[serde(default)] abort_migrations: bool,
        /// Keep exit code and output under this name.
        save: Option<String>,
    }
    /// Keys of `agent.extend`.
    Extend {
        /// By how much.
        by: Span,
        /// Keep exit code and output under this name.
        save: Option<String>,
    }
    /// Keys of `agent.release`.
    Release {
        /// Stop the guests first.
        #[serde(default)] shutdown_vms: bool,
        /// Go now.
        #[serde(default)] proceed: bool,
        /// Keep exit code and output under this name.
        save: Option<String>,
    }
    /// Keys of commands without options.
    Plain {
        /// Keep exit code and output under this name.
        save: Option<String>,
    }
    /// Keys of what is done to the process.
    Away {
        /// When it comes back; absent: a SIGKILL is answered after 1 s as systemd would, a stop lasts.
        back_after: Option<Span>,
    }
    /// Keys of `agent.file`.
    File {
        /// Where.
        path: String,
        /// What.
        content: String,
    }
}
