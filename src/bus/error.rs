//! What does a failed call look like on the wire? A stable name and one sentence.

use super::{FAILED, REFUSED};
use crate::drain::trigger::Refusal;
use std::fmt;
use zbus::message::{Header, Message};
use zbus::names::ErrorName;

/// A failed call of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusError {
    name: &'static str,
    text: String,
}

impl BusError {
    /// The core says no.
    pub fn refused(refusal: &Refusal) -> Self {
        Self::new(REFUSED, refusal.to_string())
    }

    /// An option is unknown, of a wrong type or makes no sense.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new("org.freedesktop.DBus.Error.InvalidArgs", text)
    }

    /// The caller may not.
    pub fn denied(text: impl Into<String>) -> Self {
        Self::new("org.freedesktop.DBus.Error.AccessDenied", text)
    }

    /// The call belongs to the interface, but this version cannot do it.
    pub fn not_yet(text: impl Into<String>) -> Self {
        Self::new("org.freedesktop.DBus.Error.NotSupported", text)
    }

    /// Anything else.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::new(FAILED, text)
    }

    fn new(name: &'static str, text: impl Into<String>) -> Self {
        Self {
            name,
            text: text.into(),
        }
    }
}

impl fmt::Display for BusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for BusError {}

impl zbus::DBusError for BusError {
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
