//! What does a client see? `org.freedesktop.login1.Manager`, as far as holders and callers of shutdowns use it.

use super::engine::{Asked, Engine};
use super::facts::{Kind, Refused};
use std::collections::HashMap;
use std::sync::Arc;
use vmdrain_agent::host::login1::{Inhibitor, REBOOT_VIA_KEXEC, SOFT_REBOOT};
use zbus::message::Header;
use zbus::names::BusName;
use zbus::{Connection, OwnedFd, OwnedVariant, Variant};

/// The object.
pub(super) struct Manager {
    pub(super) engine: Arc<Engine>,
}

async fn caller(bus: &Connection, call: &Header<'_>) -> Result<(u32, u32), Refused> {
    let failed = |e: String| Refused::new("org.freedesktop.DBus.Error.Failed", e);
    let sender = call
        .sender()
        .ok_or_else(|| failed("no sender".into()))?
        .to_owned();
    let sender = BusName::from(sender);
    let dbus = zbus::fdo::DBusProxy::new(bus)
        .await
        .map_err(|e| failed(e.to_string()))?;
    let uid = dbus.get_connection_unix_user(sender.clone()).await;
    let pid = dbus.get_connection_unix_process_id(sender).await;
    Ok((
        uid.map_err(|e| failed(e.to_string()))?,
        pid.map_err(|e| failed(e.to_string()))?,
    ))
}

impl Manager {
    async fn go(
        &self,
        bus: &Connection,
        call: &Header<'_>,
        plain: Kind,
        flags: u64,
    ) -> Result<(), Refused> {
        let (uid, _) = caller(bus, call).await?;
        let kind = match flags {
            REBOOT_VIA_KEXEC if plain == Kind::Reboot => Kind::Kexec,
            SOFT_REBOOT if plain == Kind::Reboot && self.engine.version.soft_reboots() => {
                Kind::SoftReboot
            }
            0 => plain,
            _ => return Err(Refused::invalid("Invalid flags parameter")),
        };
        self.engine.request(kind, Asked::by_user(uid)).await
    }
}

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl Manager {
    async fn inhibit(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] call: Header<'_>,
        what: &str,
        who: &str,
        why: &str,
        mode: &str,
    ) -> Result<OwnedFd, Refused> {
        let (uid, pid) = caller(bus, &call).await?;
        let entry = Inhibitor {
            what: what.into(),
            who: who.into(),
            why: why.into(),
            mode: mode.into(),
            uid,
            pid,
        };
        let _turn = self.engine.turn.lock().await;
        self.engine.inhibit(entry).map(OwnedFd::from)
    }

    async fn list_inhibitors(&self) -> Vec<Inhibitor> {
        let _turn = self.engine.turn.lock().await;
        self.engine.inhibitors()
    }

    async fn power_off(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] call: Header<'_>,
        interactive: bool,
    ) -> Result<(), Refused> {
        // Nobody is there to be asked for a password.
        let _ = interactive;
        self.go(bus, &call, Kind::Poweroff, 0).await
    }

    async fn reboot(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] call: Header<'_>,
        interactive: bool,
    ) -> Result<(), Refused> {
        // Nobody is there to be asked for a password.
        let _ = interactive;
        self.go(bus, &call, Kind::Reboot, 0).await
    }

    async fn halt(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] call: Header<'_>,
        interactive: bool,
    ) -> Result<(), Refused> {
        // Nobody is there to be asked for a password.
        let _ = interactive;
        self.go(bus, &call, Kind::Halt, 0).await
    }

    async fn power_off_with_flags(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] call: Header<'_>,
        flags: u64,
    ) -> Result<(), Refused> {
        self.go(bus, &call, Kind::Poweroff, flags).await
    }

    async fn reboot_with_flags(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] call: Header<'_>,
        flags: u64,
    ) -> Result<(), Refused> {
        self.go(bus, &call, Kind::Reboot, flags).await
    }

    async fn halt_with_flags(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] call: Header<'_>,
        flags: u64,
    ) -> Result<(), Refused> {
        self.go(bus, &call, Kind::Halt, flags).await
    }

    async fn schedule_shutdown(&self, kind: &str, usec: u64) -> Result<(), Refused> {
        let kind = Kind::of(kind).ok_or_else(|| Refused::invalid("Unsupported shutdown type"))?;
        self.engine.schedule(kind, usec).await
    }

    async fn cancel_scheduled_shutdown(&self) -> bool {
        self.engine.cancel().await
    }

    #[zbus(property(emits_changed_signal = "const"), name = "InhibitDelayMaxUSec")]
    async fn inhibit_delay_max_usec(&self) -> u64 {
        let _turn = self.engine.turn.lock().await;
        self.engine.limit_usec()
    }

    #[zbus(property(emits_changed_signal = "false"))]
    async fn preparing_for_shutdown(&self) -> bool {
        let _turn = self.engine.turn.lock().await;
        self.engine.state().preparing
    }

    #[zbus(property(emits_changed_signal = "false"))]
    async fn preparing_for_shutdown_with_metadata(
        &self,
    ) -> Result<HashMap<&'static str, OwnedVariant>, Refused> {
        let _turn = self.engine.turn.lock().await;
        if !self.engine.version.tells_schedule() {
            return Err(Refused::new(
                "org.freedesktop.DBus.Error.UnknownProperty",
                "Unknown property 'PreparingForShutdownWithMetadata'",
            ));
        }
        let kind = self.engine.preparing();
        let mut about = HashMap::new();
        let mut put = |key, value: Variant<'_>| {
            if let Ok(value) = OwnedVariant::try_from(value) {
                about.insert(key, value);
            }
        };
        put("preparing", Variant::new(kind.is_some()));
        if let Some(kind) = kind {
            put("type", Variant::new(kind.word()));
        }
        Ok(about)
    }

    #[zbus(property(emits_changed_signal = "false"))]
    async fn scheduled_shutdown(&self) -> (String, u64) {
        let _turn = self.engine.turn.lock().await;
        self.engine.scheduled()
    }
}
