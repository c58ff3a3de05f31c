//! What differs between versions of systemd, and how do refusals look on the wire?

use std::fmt;
use zbus::message::{Header, Message};
use zbus::names::ErrorName;

/// Bus name.
pub(super) const NAME: &str = "org.freedesktop.login1";
/// Object.
pub(super) const PATH: &str = "/org/freedesktop/login1";
/// Interface.
pub(super) const INTERFACE: &str = "org.freedesktop.login1.Manager";

/// What kind of shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Power off.
    Poweroff,
    /// Reboot.
    Reboot,
    /// Halt.
    Halt,
    /// Reboot into the loaded kernel.
    Kexec,
    /// Reboot user space.
    SoftReboot,
}

impl Kind {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Poweroff => "poweroff",
            Self::Reboot => "reboot",
            Self::Halt => "halt",
            Self::Kexec => "kexec",
            Self::SoftReboot => "soft-reboot",
        }
    }

    /// From the wire.
    pub fn of(word: &str) -> Option<Self> {
        [
            Self::Poweroff,
            Self::Reboot,
            Self::Halt,
            Self::Kexec,
            Self::SoftReboot,
        ]
        .into_iter()
        .find(|kind| kind.word() == word)
    }
}

/// What a version can.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version(pub(super) u32);

impl Version {
    /// `PrepareForShutdownWithMetadata` (255).
    pub(super) fn signals_metadata(self) -> bool {
        self.0 >= 255
    }

    /// The property `PreparingForShutdownWithMetadata`, `PropertiesChanged(ScheduledShutdown)`, monotonic deadlines
    /// and a cancel that cancels (257).
    pub(super) fn tells_schedule(self) -> bool {
        self.0 >= 257
    }

    /// `infinity` is counted right (257); before, the request fails with EOVERFLOW.
    pub(super) fn counts_infinity(self) -> bool {
        self.0 >= 257
    }

    /// Block locks bind root too (257).
    pub(super) fn blocks_root(self) -> bool {
        self.0 >= 257
    }

    /// The mode `block-weak` (257).
    pub(super) fn has_block_weak(self) -> bool {
        self.0 >= 257
    }

    /// `soft-reboot` (254).
    pub(super) fn soft_reboots(self) -> bool {
        self.0 >= 254
    }

    /// `PropertiesChanged(ScheduledShutdown)` at a shutdown carries the end of the delay and comes after the
    /// Prepare signals (seen on 262), not an empty value before them (seen on 257).
    pub(super) fn tells_deadline(self) -> bool {
        self.0 >= 260
    }

    /// A restart of the bus restarts logind (Type=dbus, up to 252); later ones sit on a dead connection.
    pub(super) fn follows_the_bus(self) -> bool {
        self.0 <= 252
    }

    /// The error of a request that a block lock forbids (262 has a name of its own).
    pub(super) fn blocked(self) -> Refused {
        if self.0 >= 260 {
            Refused::new(
                "org.freedesktop.login1.BlockedByInhibitorLock",
                "Operation denied due to active block inhibitor",
            )
        } else {
            Refused::new("org.freedesktop.DBus.Error.AccessDenied", "Access denied")
        }
    }

    /// The error of a second request.
    pub(super) fn busy(self, running: Kind, asked: Kind) -> Refused {
        let text = if self.tells_schedule() {
            format!(
                "Action {} already in progress, refusing requested {} operation.",
                running.word(),
                asked.word()
            )
        } else {
            "There's already a shutdown or sleep operation in progress".to_owned()
        };
        Refused::new("org.freedesktop.login1.OperationInProgress", text)
    }
}

/// An error with its D-Bus name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// D-Bus error name.
    pub name: &'static str,
    /// Text.
    pub text: String,
}

impl Refused {
    pub(super) fn new(name: &'static str, text: impl Into<String>) -> Self {
        Self {
            name,
            text: text.into(),
        }
    }

    pub(super) fn invalid(text: impl Into<String>) -> Self {
        Self::new("org.freedesktop.DBus.Error.InvalidArgs", text)
    }

    /// A lock on what is going on already.
    pub(super) fn lock_too_late() -> Self {
        Self::new(
            "org.freedesktop.login1.OperationInProgress",
            "The operation inhibition has been requested for is already running",
        )
    }

    /// `infinity` on 256 and older.
    pub(super) fn overflow() -> Self {
        Self::new(
            "System.Error.EOVERFLOW",
            "Value too large for defined data type",
        )
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.text)
    }
}

impl std::error::Error for Refused {}

impl zbus::DBusError for Refused {
    fn create_reply(&self, call: &Header<'_>) -> zbus::Result<Message> {
        Message::error(call, self.name()).build(&self.text)
    }

    fn name(&self) -> ErrorName<'_> {
        ErrorName::from_static_str_unchecked(self.name)
    }

    fn description(&self) -> Option<&str> {
        Some(&self.text)
    }
}
