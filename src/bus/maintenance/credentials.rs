//! Is the sender of a signal root? The bus knows, as long as the sender is there.
//!
//! A `busctl emit` has gone before anybody can ask. What vouches for it then is the bus policy of the package, which lets
//! nobody but root send a signal of [`BRIDGE`]: where that file is in force, such a signal cannot come from anybody else.

use crate::config::maintenance::BRIDGE;
use crate::host::login1::within;
use std::time::Duration;
use zbus::Connection;
use zbus::names::{BusName, UniqueName};

/// Where the policy of the package is; the administrator's own comes later and wins.
const POLICIES: [&str; 2] = [
    "/usr/share/dbus-1/system.d/io.vmdrain.Agent1.conf",
    "/etc/dbus-1/system.d/io.vmdrain.Agent1.conf",
];

/// The answer.
pub(super) enum Root {
    /// It is.
    Yes,
    /// It is not, or nobody can say.
    No(String),
}

pub(super) async fn is_root(
    bus: &Connection,
    sender: &UniqueName<'_>,
    private: bool,
    limit: Duration,
) -> Root {
    let ask = async {
        let dbus = zbus::fdo::DBusProxy::new(bus).await?;
        let sender = BusName::from(sender.to_owned());
        Ok(dbus.get_connection_unix_user(sender).await?)
    };
    let uid = within(limit, "GetConnectionUnixUser", ask).await;
    let ours = nix::unistd::geteuid().as_raw();
    match uid {
        Ok(0) => Root::Yes,
        Ok(uid) if private && uid == ours => Root::Yes,
        Ok(uid) => Root::No(format!("it comes from user {uid}, not from root")),
        Err(_) if !private && policy_is_there() => Root::Yes,
        Err(error) => Root::No(format!(
            "its sender has gone already, and no bus policy vouches for it ({error}): install io.vmdrain.Agent1.conf, which lets root alone send {BRIDGE}"
        )),
    }
}

fn policy_is_there() -> bool {
    let denies = format!("<deny send_interface=\"{BRIDGE}\"/>");
    POLICIES
        .iter()
        .any(|file| std::fs::read_to_string(file).is_ok_and(|text| text.contains(&denies)))
}
