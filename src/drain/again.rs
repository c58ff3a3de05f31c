//! VMs that a drain has shut down and that KubeVirt leaves stopped: what is kept of them, and how they are started.

use super::action::{Fault, FaultClass};
use super::answer::Reply;
use super::time::Mono;
use super::world::{ObjectRef, RunStrategy, VmName};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A VM to be started again, in the record: written down before its guest is asked to stop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartNote {
    /// The VM.
    pub vm: VmName,
    /// UID of the VMI that was shut down, for Events.
    pub vmi_uid: String,
    /// Its run strategy.
    pub run: RunStrategy,
    /// On another node as soon as it has stopped (policy `restart`), not only when the node is given back.
    pub at_once: bool,
    /// How long its pod may take to end, in seconds: its end may come after the drain's own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub grace: u64,
    /// Its end was seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// The node was given back before it could be started: nothing is waited for any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub due: bool,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands a reference over"
)]
fn is_zero(seconds: &u64) -> bool {
    *seconds == 0
}

impl StartNote {
    /// The VMI that was shut down.
    pub fn vmi(&self) -> ObjectRef {
        ObjectRef {
            namespace: self.vm.namespace.clone(),
            name: self.vm.name.clone(),
            uid: self.vmi_uid.clone(),
        }
    }

    /// What a person can do instead.
    pub fn by_hand(&self) -> String {
        format!("virtctl start {} -n {}", self.vm.name, self.vm.namespace)
    }
}

/// How long a start is tried quickly before a person hears of it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A start that is owed, and how far it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Owed {
    /// What is kept of it.
    pub note: StartNote,
    /// It may be started now.
    pub due: bool,
    /// A request is on its way.
    pub in_flight: bool,
    /// Failed requests.
    pub tries: u32,
    /// No request before this moment.
    pub not_before: Mono,
    /// Until when "it runs" may mean that its end is still to come; from the first such answer.
    pub runs_until: Option<Mono>,
    /// It was told that it could not be started so far.
    pub told: bool,
}

impl Owed {
    /// How long "it runs already" is not believed: KubeVirt may not have noticed its end, or that is still to come.
    pub fn patience(&self) -> Duration {
        let grace = if self.note.ended { 0 } else { self.note.grace };
        Duration::from_secs(grace) + PATIENCE
    }

    /// A request may be sent at once, and the patience begins anew.
    pub fn is_due(&mut self) {
        self.due = true;
        self.not_before = Mono::default();
        self.runs_until = None;
    }

    /// Its end was seen: from here on "it runs" has another meaning.
    pub fn has_ended(&mut self) {
        self.note.ended = true;
        self.runs_until = None;
        self.not_before = Mono::default();
    }

    /// Not asked for yet.
    pub fn new(note: StartNote) -> Self {
        Self {
            due: note.at_once || note.due,
            note,
            in_flight: false,
            tries: 0,
            not_before: Mono::default(),
            runs_until: None,
            told: false,
        }
    }
}

/// What the answer to a start means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// KubeVirt starts it.
    Yes,
    /// It runs already, or KubeVirt has not noticed yet that its guest has ended.
    Runs,
    /// It is no more.
    Gone,
    /// Our right is missing.
    Denied,
    /// It did not work now.
    Later(String),
}

/// Judges the answer to PUT `virtualmachines/<name>/start` (202 on success, 409 with a sentence otherwise).
pub fn judge(result: Result<Reply, Fault>) -> Started {
    match result {
        Ok(reply) => match reply.code {
            200..300 => Started::Yes,
            403 => Started::Denied,
            404 if !reply.message.contains("Page Not Found") => Started::Gone,
            409 if reply.message.contains("already running") => Started::Runs,
            code => Started::Later(format!("HTTP {code}: {}", reply.message)),
        },
        Err(fault) if fault.class == FaultClass::Denied => Started::Denied,
        Err(fault) => Started::Later(fault.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_a_start() {
        let reply = |code: u16, message: &str| {
            Ok(Reply {
                code,
                message: message.into(),
                ..Reply::default()
            })
        };
        for (code, text, wanted) in [
            (202, "", Started::Yes),
            (403, "forbidden", Started::Denied),
            (404, "virtualmachines \"x\" not found", Started::Gone),
            (409, "VM is already running", Started::Runs),
        ] {
            assert_eq!(judge(reply(code, text)), wanted, "{code}");
        }
        let later = [
            (
                409,
                "RerunOnFailure does not support starting VM from failed state",
            ),
            (404, "404: Page Not Found"),
            (503, "error trying to reach service"),
        ];
        for (code, text) in later {
            assert!(
                matches!(judge(reply(code, text)), Started::Later(_)),
                "{code}"
            );
        }
    }
}
