//! Who may call what? Reading is free. What changes something is for root, for whom polkit lets, and on a private bus for
//! our own user.

use super::error::BusError;
use super::polkit::{self, Answer};
use crate::drain::trigger::Trigger;
use crate::host::login1::within;
use std::collections::HashMap;
use std::time::Duration;
use zbus::Connection;
use zbus::message::{Flags, Header};
use zbus::names::BusName;

/// What a caller wants to do; each is an action of polkit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Start a drain.
    Trigger,
    /// Call one off.
    Cancel,
    /// Move its deadline.
    Extend,
    /// End it now.
    Release,
    /// Give the node back.
    Restore,
}

impl Act {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Trigger,
        Self::Cancel,
        Self::Extend,
        Self::Release,
        Self::Restore,
    ];

    /// polkit's name for it.
    pub fn id(self) -> &'static str {
        match self {
            Self::Trigger => "io.vmdrain.trigger",
            Self::Cancel => "io.vmdrain.cancel",
            Self::Extend => "io.vmdrain.extend",
            Self::Release => "io.vmdrain.release",
            Self::Restore => "io.vmdrain.restore",
        }
    }
}

/// The rule for one bus.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    private: bool,
    limit: Duration,
}

impl Gate {
    /// `private`: the address of the bus was given, so it is not the system's.
    pub fn new(private: bool, limit: Duration) -> Self {
        Self { private, limit }
    }

    /// Lets the caller of a changing method through, or says why not. The bus itself vouches for the user.
    pub async fn pass(
        &self,
        bus: &Connection,
        call: &Header<'_>,
        act: Act,
    ) -> Result<(), BusError> {
        self.ask(bus, call, act, &HashMap::new()).await
    }

    /// The same for a drain: rules of polkit see what is to follow (`then`), and the stop job is root's alone.
    pub async fn pass_trigger(
        &self,
        bus: &Connection,
        call: &Header<'_>,
        trigger: &Trigger,
    ) -> Result<(), BusError> {
        if trigger.stop_job {
            let (uid, ours) = (self.uid(bus, call).await?, nix::unistd::geteuid().as_raw());
            return if self.trusts(uid, ours) {
                Ok(())
            } else {
                Err(BusError::denied(format!(
                    "user {uid} may not speak for the stop job: that is for root"
                )))
            };
        }
        let then = trigger.then.map_or("", |then| then.word());
        self.ask(bus, call, Act::Trigger, &HashMap::from([("then", then)]))
            .await
    }

    async fn ask(
        &self,
        bus: &Connection,
        call: &Header<'_>,
        act: Act,
        details: &HashMap<&str, &str>,
    ) -> Result<(), BusError> {
        let (uid, ours) = (self.uid(bus, call).await?, nix::unistd::geteuid().as_raw());
        if self.trusts(uid, ours) {
            return Ok(());
        }
        if self.private {
            return Err(BusError::denied(format!(
                "user {uid} may not do this: it is for root and user {ours}, as which the agent runs"
            )));
        }
        let Some(caller) = call.sender() else {
            return Err(nameless());
        };
        let interactive = call
            .primary()
            .flags()
            .contains(Flags::ALLOW_INTERACTIVE_AUTH);
        let answer = polkit::check(bus, caller, act.id(), details, interactive, self.limit).await;
        judge(uid, act, &answer)
    }

    async fn uid(&self, bus: &Connection, call: &Header<'_>) -> Result<u32, BusError> {
        let sender = call.sender().ok_or_else(nameless)?;
        let ask = async {
            let dbus = zbus::fdo::DBusProxy::new(bus).await?;
            let sender = BusName::from(sender.to_owned());
            Ok(dbus.get_connection_unix_user(sender).await?)
        };
        within(self.limit, "GetConnectionUnixUser", ask)
            .await
            .map_err(|e| BusError::denied(format!("cannot find out who calls: {e}")))
    }

    /// Nobody has to be asked about root; on a private bus not about ourselves either.
    fn trusts(self, caller: u32, ours: u32) -> bool {
        caller == 0 || (self.private && caller == ours)
    }
}

fn nameless() -> BusError {
    BusError::denied("the caller has no name on the bus")
}

fn judge(uid: u32, act: Act, answer: &Answer) -> Result<(), BusError> {
    let id = act.id();
    let why = match answer {
        Answer::Allowed => return Ok(()),
        Answer::NeedsPassword => format!(
            "polkit wants an administrator's password for {id}, and there was nobody to ask; run it with sudo"
        ),
        Answer::Refused => format!(
            "polkit does not allow {id}; a rule in /etc/polkit-1/rules.d can, root always may"
        ),
        Answer::Unasked(why) => format!("it is for root, and {why} (action {id})"),
    };
    Err(BusError::denied(format!(
        "user {uid} may not do this: {why}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_always_and_ourselves_on_a_private_bus() {
        let gate = |private| Gate::new(private, Duration::from_secs(1));
        assert!(gate(false).trusts(0, 990));
        assert!(gate(true).trusts(990, 990));
        assert!(!gate(true).trusts(1000, 990));
        assert!(!gate(false).trusts(990, 990));
    }

    #[test]
    fn what_polkit_does_not_allow_is_denied_with_the_action() {
        assert!(judge(1000, Act::Cancel, &Answer::Allowed).is_ok());
        for (answer, words) in [
            (Answer::NeedsPassword, "password"),
            (Answer::Refused, "rules.d"),
            (Answer::Unasked("polkit is not there".into()), "not there"),
        ] {
            let said = judge(1000, Act::Cancel, &answer).unwrap_err().to_string();
            assert!(said.contains("io.vmdrain.cancel"), "{said}");
            assert!(said.contains("user 1000") && said.contains(words), "{said}");
        }
    }

    #[test]
    fn every_action_is_in_the_policy_file() {
        let file =
            include_str!("../../systemd/usr/share/polkit-1/actions/io.vmdrain.Agent1.policy");
        for act in Act::ALL {
            assert!(
                file.contains(&format!("<action id=\"{}\">", act.id())),
                "{act:?}"
            );
        }
        assert_eq!(file.matches("<action id=").count(), Act::ALL.len());
    }
}
