//! Signals on the bus, as the adapters would pass them on: the event `host.signal`.

use tokio::sync::oneshot;
use vmdrain_agent::bus::maintenance::command;
use vmdrain_agent::config::maintenance::{Fit, Heard};

use super::ModelStage;
use crate::scenario::event::host::{Sender, Signal};

impl ModelStage {
    /// What the adapter makes of a signal: a body that is not exactly one boolean is no `PrepareForShutdown`.
    pub(super) async fn signal(&self, signal: &Signal) {
        self.maintenance(signal).await;
        let body: Vec<bool> = signal
            .body
            .iter()
            .filter_map(toml::Value::as_bool)
            .collect();
        let well_formed = signal.signature == "b"
            && body.len() == signal.body.len()
            && signal.path == "/org/freedesktop/login1"
            && signal.interface == "org.freedesktop.login1.Manager";
        let from_logind = signal.sender == Sender::Logind && well_formed;
        self.host.signal(from_logind, &signal.member, &body);
    }

    /// What the adapter makes of a signal that the configuration names.
    async fn maintenance(&self, signal: &Signal) {
        let args = signal.body.iter().map(serde_json::to_value);
        let heard = Heard {
            path: signal.path.clone(),
            interface: signal.interface.clone(),
            member: signal.member.clone(),
            args: args.filter_map(Result::ok).collect(),
        };
        let entries = self.role.settings.maintenance.iter();
        let meant = entries.filter(|e| signal.sender.is(&e.sender) && e.fits(&heard) == Fit::Yes);
        for entry in meant {
            let Some(agent) = &self.agent else { return };
            // What is refused shows in what the drain does; the adapter would write it to the journal.
            let (answer, _) = oneshot::channel();
            let command = command(entry, answer);
            let _ = agent.handle.commands.send(command).await;
        }
    }
}
