//! What does logind's D-Bus interface look like? Only what we use, nothing cached, every call limited.
//!
//! All properties carry `emits_changed_signal = "false"`: zbus's cache was measured to lie for every one of
//! them, because logind changes them without a signal.

use std::fmt;
use std::future::Future;
use std::time::Duration;
use zbus::names::{BusName, WellKnownName};
use zbus::{Connection, OwnedFd, OwnedVariant};

/// logind's bus name.
pub const NAME: &str = "org.freedesktop.login1";
/// logind's object.
pub const PATH: &str = "/org/freedesktop/login1";
/// logind's interface.
pub const INTERFACE: &str = "org.freedesktop.login1.Manager";
/// `flags` of the `…WithFlags` calls: into the loaded kernel.
pub const REBOOT_VIA_KEXEC: u64 = 1 << 1;
/// `flags`: user space only.
pub const SOFT_REBOOT: u64 = 1 << 2;
/// Wire value of "no limit" and of "nothing scheduled".
pub const USEC_INFINITY: u64 = u64::MAX;

/// The manager object.
#[zbus::proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1"
)]
pub trait Manager {
    /// Takes a lock; it lasts until every copy of the file descriptor is closed.
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> zbus::Result<OwnedFd>;
    /// Everybody's locks.
    fn list_inhibitors(&self) -> zbus::Result<Vec<Inhibitor>>;
    /// Powers off; `interactive`: may ask for a password.
    fn power_off(&self, interactive: bool) -> zbus::Result<()>;
    /// Reboots.
    fn reboot(&self, interactive: bool) -> zbus::Result<()>;
    /// Halts.
    fn halt(&self, interactive: bool) -> zbus::Result<()>;
    /// Powers off (246 and later).
    fn power_off_with_flags(&self, flags: u64) -> zbus::Result<()>;
    /// Reboots (246 and later).
    fn reboot_with_flags(&self, flags: u64) -> zbus::Result<()>;
    /// Halts (246 and later).
    fn halt_with_flags(&self, flags: u64) -> zbus::Result<()>;
    /// How long delay locks are waited for.
    #[zbus(property(emits_changed_signal = "false"), name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> zbus::Result<u64>;
    /// A shutdown is announced or under way.
    #[zbus(property(emits_changed_signal = "false"))]
    fn preparing_for_shutdown(&self) -> zbus::Result<bool>;
    /// The same with its type (257 and later).
    #[zbus(property(emits_changed_signal = "false"))]
    fn preparing_for_shutdown_with_metadata(
        &self,
    ) -> zbus::Result<std::collections::HashMap<String, OwnedVariant>>;
    /// Type and time. During a delay on 257 and later the time is its end on `CLOCK_MONOTONIC`.
    #[zbus(property(emits_changed_signal = "false"))]
    fn scheduled_shutdown(&self) -> zbus::Result<(String, u64)>;
}

/// One entry of `ListInhibitors`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, zbus::Type)]
pub struct Inhibitor {
    /// Colon-separated: `shutdown`, `sleep`, …
    pub what: String,
    /// The program's own name for itself.
    pub who: String,
    /// Its reason.
    pub why: String,
    /// `delay`, `block`, `block-weak`.
    pub mode: String,
    /// User of the holder.
    pub uid: u32,
    /// Process of the holder: after a restart with the fd store it is the dead one, so never compared.
    pub pid: u32,
}

impl Inhibitor {
    /// It concerns shutdowns.
    pub fn on_shutdown(&self) -> bool {
        self.what.split(':').any(|what| what == "shutdown")
    }

    /// It is a delay lock on shutdown of this holder.
    pub fn is_hold_of(&self, who: &str, uid: u32) -> bool {
        self.on_shutdown() && self.mode == "delay" && self.who == who && self.uid == uid
    }
}

/// A call to logind that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// D-Bus error name; empty when the call got no answer. Branch on this, never on the text.
    pub name: String,
    /// For people.
    pub text: String,
}

impl CallError {
    /// logind does not know the call or property: it is older.
    pub fn unknown(&self) -> bool {
        matches!(
            self.name.rsplit('.').next(),
            Some("UnknownMethod" | "UnknownProperty" | "UnknownInterface" | "UnknownObject")
        )
    }

    /// Something like it is under way already.
    pub fn in_progress(&self) -> bool {
        self.name == "org.freedesktop.login1.OperationInProgress"
    }

    /// No answer came at all.
    pub fn silent(&self) -> bool {
        self.name.is_empty()
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<zbus::Error> for CallError {
    fn from(error: zbus::Error) -> Self {
        use zbus::DBusError;
        if let zbus::Error::MethodError(name, text, _) = &error {
            return Self {
                name: name.to_string(),
                text: text.clone().unwrap_or_else(|| name.to_string()),
            };
        }
        if let zbus::Error::FDO(inner) = &error
            && !matches!(**inner, zbus::fdo::Error::ZBus(_))
        {
            return Self {
                name: inner.name().to_string(),
                text: inner.description().unwrap_or_default().to_owned(),
            };
        }
        Self {
            name: String::new(),
            text: error.to_string(),
        }
    }
}

/// Carries out one call with a time limit; `what` names it in the error.
pub async fn within<T>(
    limit: Duration,
    what: &str,
    call: impl Future<Output = zbus::Result<T>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(CallError::from),
        Err(_) => Err(CallError {
            name: String::new(),
            text: format!("no answer to {what} in {} s", limit.as_secs_f64()),
        }),
    }
}

/// Connects to the bus at `address`, or to the system bus.
pub async fn connect(address: Option<&str>, limit: Duration) -> Result<Connection, CallError> {
    let builder = match address {
        Some(address) => zbus::connection::Builder::address(address),
        None => zbus::connection::Builder::system(),
    };
    within(limit, "the connection to the bus", builder.build())
        .await
        .map_err(|e| CallError {
            text: format!(
                "cannot reach {}: {}",
                address.map_or("the system bus".into(), |a| format!("the bus at {a}")),
                e.text
            ),
            ..e
        })
}

/// A proxy without any cache. Makes no call.
pub async fn manager(bus: &Connection) -> zbus::Result<ManagerProxy<'static>> {
    ManagerProxy::builder(bus)
        .cache_properties(zbus::proxy::CacheProperties::No)
        .build()
        .await
}

/// The unique name of logind now.
pub async fn owner(bus: &Connection, limit: Duration) -> Result<String, CallError> {
    owner_of(bus, NAME, limit).await
}

/// The unique name of whoever owns `name` now.
pub async fn owner_of(bus: &Connection, name: &str, limit: Duration) -> Result<String, CallError> {
    let call = async {
        let name = WellKnownName::try_from(name)?;
        let dbus = zbus::fdo::DBusProxy::new(bus).await?;
        Ok(dbus.get_name_owner(BusName::from(name)).await?.to_string())
    };
    within(limit, "GetNameOwner", call).await
}
