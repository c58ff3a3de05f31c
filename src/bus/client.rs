//! How does the command line ask the daemon?

use super::options::{self, Options};
use super::{NAME, PATH, REFUSED};
use crate::drain::plan::Plan;
use crate::drain::status::Status;
use crate::drain::trigger::{Ending, Trigger};
use crate::host::Timing;
use crate::host::login1::{self, CallError, within};
use futures_util::{FutureExt, StreamExt};
use std::time::Duration;
use zbus::message::Type;
use zbus::{Connection, MatchRule, MessageStream};

/// Longer than the daemon's own limit for an answer, so that its sentence wins.
const ANSWER: Duration = Duration::from_secs(65);

/// Why the daemon did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// There is no daemon, or no bus.
    #[error(
        "the daemon is not reachable: {0}; `systemctl status vmdrain-agent` tells whether it runs"
    )]
    Unreachable(String),
    /// It says no, and why.
    #[error("{0}")]
    Refused(String),
    /// We are not allowed to.
    #[error("{0}")]
    Denied(String),
    /// Anything else, among it options and calls that this daemon does not know.
    #[error("{0}")]
    Failed(String),
}

impl From<CallError> for ClientError {
    fn from(e: CallError) -> Self {
        match e.name.as_str() {
            REFUSED => Self::Refused(e.text),
            "org.freedesktop.DBus.Error.AccessDenied" => Self::Denied(e.text),
            "org.freedesktop.DBus.Error.ServiceUnknown"
            | "org.freedesktop.DBus.Error.NameHasNoOwner" => {
                Self::Unreachable("no vmdrain-agent is on the bus".to_owned())
            }
            ""
            | "org.freedesktop.DBus.Error.NoReply"
            | "org.freedesktop.DBus.Error.Disconnected" => {
                Self::Unreachable(e.text.trim_end_matches('.').to_owned())
            }
            _ => Self::Failed(e.text),
        }
    }
}

#[zbus::proxy(
    interface = "io.vmdrain.Agent1",
    default_service = "io.vmdrain.Agent1",
    default_path = "/io/vmdrain/Agent1"
)]
trait Agent1 {
    fn trigger(&self, options: &Options) -> zbus::Result<String>;
    fn cancel(&self, options: &Options) -> zbus::Result<String>;
    fn extend(&self, by_usec: u64) -> zbus::Result<String>;
    fn release(&self, options: &Options) -> zbus::Result<String>;
    fn restore(&self, options: &Options) -> zbus::Result<String>;
    fn get_status(&self) -> zbus::Result<String>;
    fn get_plan(&self) -> zbus::Result<String>;
}

/// A connection to the daemon.
#[derive(Clone, Debug)]
pub struct Client {
    bus: Connection,
    agent: Agent1Proxy<'static>,
    probe: Duration,
}

impl Client {
    /// Connects to the bus at `address`, or to the system bus. Whether a daemon is on it shows at the first call.
    pub async fn connect(address: Option<&str>) -> Result<Self, ClientError> {
        let timing = Timing::default();
        let bus = login1::connect(address, timing.work).await?;
        let agent = Agent1Proxy::builder(&bus)
            .cache_properties(zbus::proxy::CacheProperties::No)
            .build()
            .await
            .map_err(CallError::from)?;
        Ok(Self {
            bus,
            agent,
            probe: timing.probe,
        })
    }

    /// Starts a drain; its id.
    pub async fn trigger(&self, trigger: &Trigger) -> Result<String, ClientError> {
        let options = options::trigger_to(trigger);
        Ok(within(ANSWER, "Trigger", self.agent.trigger(&options)).await?)
    }

    /// Calls the drain off; what the daemon says about it.
    pub async fn cancel(&self, abort_migrations: bool) -> Result<String, ClientError> {
        let options = options::cancel_to(abort_migrations);
        Ok(within(ANSWER, "Cancel", self.agent.cancel(&options)).await?)
    }

    /// Moves the deadline; what the daemon says about it.
    pub async fn extend(&self, by: Duration) -> Result<String, ClientError> {
        let usec = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        Ok(within(ANSWER, "Extend", self.agent.extend(usec)).await?)
    }

    /// Ends the drain now; what the daemon says about it.
    pub async fn release(&self, ending: Ending) -> Result<String, ClientError> {
        let options = options::release_to(ending);
        Ok(within(ANSWER, "Release", self.agent.release(&options)).await?)
    }

    /// Gives the node back; what the daemon says about it.
    pub async fn restore(&self) -> Result<String, ClientError> {
        let options = Options::new();
        Ok(within(ANSWER, "Restore", self.agent.restore(&options)).await?)
    }

    /// The newest status.
    pub async fn status(&self) -> Result<Status, ClientError> {
        let json = within(self.probe, "GetStatus", self.agent.get_status()).await?;
        serde_json::from_str(&json)
            .map_err(|e| ClientError::Failed(format!("the daemon's status cannot be read: {e}")))
    }

    /// What would become of every VM now.
    pub async fn plan(&self) -> Result<Plan, ClientError> {
        let json = within(ANSWER, "GetPlan", self.agent.get_plan()).await?;
        serde_json::from_str(&json)
            .map_err(|e| ClientError::Failed(format!("the daemon's plan cannot be read: {e}")))
    }

    /// Follows the status: the first one comes at once, further ones with every change and at least every
    /// `at_least` (its times go on without a change).
    pub async fn follow(&self, at_least: Duration) -> Result<Following, ClientError> {
        let from_agent = MatchRule::builder()
            .msg_type(Type::Signal)
            .sender(NAME)
            .path(PATH)
            .build()
            .map_err(CallError::from)?;
        let of_the_name = MatchRule::builder()
            .msg_type(Type::Signal)
            .sender("org.freedesktop.DBus")
            .interface("org.freedesktop.DBus")
            .member("NameOwnerChanged")
            .add_arg(NAME)
            .build()
            .map_err(CallError::from)?;
        let subscribe = async {
            let signals = MessageStream::for_match_rule(from_agent, &self.bus, None).await?;
            let owners = MessageStream::for_match_rule(of_the_name, &self.bus, None).await?;
            Ok((signals, owners))
        };
        let (signals, owners) = within(self.probe, "AddMatch", subscribe).await?;
        Ok(Following {
            client: self.clone(),
            signals,
            owners,
            at_least,
            fresh: true,
        })
    }
}

/// A stream of statuses, see [`Client::follow`].
pub struct Following {
    client: Client,
    signals: MessageStream,
    owners: MessageStream,
    at_least: Duration,
    fresh: bool,
}

impl Following {
    /// The next status. `Unreachable` when the daemon is gone; asking on waits until it is back, and fails for
    /// good when the bus itself is gone (connect again).
    pub async fn next(&mut self) -> Result<Status, ClientError> {
        if !std::mem::take(&mut self.fresh) {
            let bus_lost = || ClientError::Unreachable("the connection to the bus was lost".into());
            tokio::select! {
                signal = self.signals.next() => drop(signal.ok_or_else(bus_lost)?),
                owner = self.owners.next() => drop(owner.ok_or_else(bus_lost)?),
                () = tokio::time::sleep(self.at_least) => {}
            }
        }
        // One look answers all the signals that are here already.
        while let Some(Some(Ok(_))) = self.signals.next().now_or_never() {}
        while let Some(Some(Ok(_))) = self.owners.next().now_or_never() {}
        self.client.status().await
    }
}
