//! Who may call what? Reading is free; what changes something is for root, and on a private bus for our own user too.
//!
//! Finer rules (polkit) are a later step; until then an unprivileged caller on the system bus is told so.

use super::error::BusError;
use crate::host::login1::within;
use std::time::Duration;
use zbus::Connection;
use zbus::message::Header;
use zbus::names::BusName;

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
    pub async fn pass(&self, bus: &Connection, call: &Header<'_>) -> Result<(), BusError> {
        let Some(sender) = call.sender() else {
            return Err(BusError::denied("the caller has no name on the bus"));
        };
        let ask = async {
            let dbus = zbus::fdo::DBusProxy::new(bus).await?;
            let sender = BusName::from(sender.to_owned());
            Ok(dbus.get_connection_unix_user(sender).await?)
        };
        let uid = within(self.limit, "GetConnectionUnixUser", ask)
            .await
            .map_err(|e| BusError::denied(format!("cannot find out who calls: {e}")))?;
        self.judge(uid, nix::unistd::geteuid().as_raw())
    }

    fn judge(self, caller: u32, ours: u32) -> Result<(), BusError> {
        if caller == 0 || (self.private && caller == ours) {
            return Ok(());
        }
        let whom = if self.private {
            format!("root and user {ours}, as which the agent runs")
        } else {
            "root; polkit rules for others are not there yet".to_owned()
        };
        Err(BusError::denied(format!(
            "user {caller} may not do this: it is for {whom}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_always_and_ourselves_on_a_private_bus() {
        let gate = |private| Gate::new(private, Duration::from_secs(1));
        assert!(gate(false).judge(0, 990).is_ok());
        assert!(gate(true).judge(990, 990).is_ok());
        for (private, says) in [(false, "polkit"), (true, "user 990")] {
            let said = gate(private).judge(1000, 990).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
        assert!(gate(false).judge(990, 990).is_err());
    }
}
