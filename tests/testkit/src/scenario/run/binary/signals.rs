//! Signals on the bus, from logind itself or from anybody else: the event `host.signal`.

use super::super::stage::NotPlayed;
use super::BinaryStage;
use crate::logind::{Emission, emit, sender};
use crate::scenario::event::host::{Sender, Signal as DbusSignal};

impl BinaryStage {
    pub(super) async fn signal(&mut self, signal: &DbusSignal) -> Result<(), NotPlayed> {
        let cannot = |error: anyhow::Error| NotPlayed::Cannot(format!("{error:#}"));
        let ours = signal.path == "/org/freedesktop/login1"
            && signal.interface == "org.freedesktop.login1.Manager";
        if !ours || !matches!(signal.sender, Sender::Logind | Sender::Stranger) {
            return self.other_signal(signal).await.map_err(cannot);
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

    /// A program that owns a name stays to the end; one that owns none has gone as soon as it has sent.
    async fn other_signal(&mut self, signal: &DbusSignal) -> anyhow::Result<()> {
        let address = self.bus.address();
        let emission = Emission {
            path: &signal.path,
            interface: &signal.interface,
            member: &signal.member,
            signature: &signal.signature,
            body: &signal.body,
        };
        if let Sender::Owner(name) = &signal.sender {
            if !self.senders.contains_key(name) {
                let bus = sender(&address, Some(name)).await?;
                self.senders.insert(name.clone(), bus);
            }
            return emit(&self.senders[name], &emission).await;
        }
        let bus = sender(&address, None).await?;
        emit(&bus, &emission).await?;
        if signal.sender == Sender::Root {
            // Nobody vouches on a private bus for a sender that has gone: it stays, as a daemon of root's would.
            self.senders.insert("root".into(), bus);
        }
        Ok(())
    }
}
