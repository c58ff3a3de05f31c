//! Signals on the bus, from logind itself or from anybody else: the event `host.signal`.

use super::super::stage::NotPlayed;
use super::BinaryStage;
use crate::scenario::event::host::{Sender, Signal as DbusSignal};

impl BinaryStage {
    pub(super) async fn signal(&mut self, signal: &DbusSignal) -> Result<(), NotPlayed> {
        let cannot = |error: anyhow::Error| NotPlayed::Cannot(format!("{error:#}"));
        let ours = signal.path == "/org/freedesktop/login1"
            && signal.interface == "org.freedesktop.login1.Manager";
        if !ours {
            return Err(NotPlayed::NotYet("signals of other objects on this front"));
        }
        let from_logind = signal.sender == Sender::Logind;
        let member = signal.member.as_str();
        let address = self.bus.address();
        match (signal.signature.as_str(), signal.body.first()) {
            ("b", Some(toml::Value::Boolean(value))) if from_logind => {
                self.logind.emit_raw(member, value).await
            }
            ("s", Some(toml::Value::String(text))) if from_logind => {
                self.logind.emit_raw(member, text).await
            }
            ("b", Some(toml::Value::Boolean(value))) => {
                crate::logind::spoof(&address, None, member, value).await
            }
            ("s", Some(toml::Value::String(text))) => {
                crate::logind::spoof(&address, None, member, text).await
            }
            ("", None) if from_logind => self.logind.emit_raw(member, &()).await,
            ("", None) => crate::logind::spoof(&address, None, member, &()).await,
            _ => {
                return Err(NotPlayed::NotYet(
                    "signals with this signature on this front",
                ));
            }
        }
        .map_err(cannot)
    }
}
