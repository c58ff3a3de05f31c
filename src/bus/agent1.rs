//! Which methods, properties and signals does `io.vmdrain.Agent1` have?

use super::error::BusError;
use super::facts::{Facts, Newest};
use super::gate::{Act, Gate};
use super::options::{self, Options};
use crate::agent::command::{Answer, Command, Handle};
use crate::host::clock;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use zbus::Connection;
use zbus::message::Header;
use zbus::object_server::SignalEmitter;

/// How long the driver may take to answer a command: some of them ask the API server first.
const ANSWER: Duration = Duration::from_secs(60);

/// How long the driver may take to tell the status of this moment.
const STATUS: Duration = Duration::from_secs(1);

/// The object.
#[derive(Debug)]
pub struct Agent1 {
    handle: Handle,
    gate: Gate,
    newest: Arc<Mutex<Newest>>,
}

impl Agent1 {
    /// The object for one connection.
    pub fn new(handle: Handle, gate: Gate, newest: Arc<Mutex<Newest>>) -> Self {
        Self {
            handle,
            gate,
            newest,
        }
    }

    fn facts(&self) -> Facts {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.take_in(&self.handle.status.borrow(), clock::now());
        newest.facts().clone()
    }

    async fn command(
        &self,
        make: impl FnOnce(oneshot::Sender<Answer>) -> Command,
    ) -> Result<String, BusError> {
        let ending = || BusError::failed("the agent is ending and takes no more commands");
        let (answer, answered) = oneshot::channel();
        let exchange = async {
            self.handle
                .commands
                .send(make(answer))
                .await
                .map_err(|_| ending())?;
            answered.await.map_err(|_| ending())
        };
        match tokio::time::timeout(ANSWER, exchange).await {
            Ok(answer) => answer?.map_err(|refusal| BusError::refused(&refusal)),
            Err(_) => Err(BusError::failed(format!(
                "the agent gave no answer in {} s; `vmdrain-agent status` shows what it is doing",
                ANSWER.as_secs()
            ))),
        }
    }
}

/// The drain agent of this host.
#[zbus::interface(name = "io.vmdrain.Agent1")]
impl Agent1 {
    /// Starts a drain; returns its id. Options: then (s: poweroff, reboot, halt, kexec, soft-reboot), reason (s),
    /// deadline (t: microseconds, or s: 30m), on_deadline (s), allow_guest_shutdown (b), scope (s: vms, all-pods), keep_cordoned (b),
    /// shutdown_vms (b: the whole rack goes down, nobody is migrated; joins a drain that is running), stop_job (b: the system is going down; joins a drain that is running).
    #[zbus(out_args("drain_id"))]
    async fn trigger(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] call: Header<'_>,
        options: Options,
    ) -> Result<String, BusError> {
        let trigger = options::trigger_from(&options)?;
        self.gate.pass_trigger(bus, &call, &trigger).await?;
        self.command(|answer| Command::Trigger(trigger, answer))
            .await
    }

    /// Calls the drain off; returns a sentence for people. Options: abort_migrations (b).
    #[zbus(out_args("says"))]
    async fn cancel(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] call: Header<'_>,
        options: Options,
    ) -> Result<String, BusError> {
        self.gate.pass(bus, &call, Act::Cancel).await?;
        let abort_migrations = options::cancel_from(&options)?;
        self.command(|answer| Command::Cancel {
            abort_migrations,
            signal: String::new(),
            answer,
        })
        .await
    }

    /// Moves the deadline of the running drain by so many microseconds; returns a sentence for people.
    #[zbus(out_args("says"))]
    async fn extend(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] call: Header<'_>,
        by_usec: u64,
    ) -> Result<String, BusError> {
        self.gate.pass(bus, &call, Act::Extend).await?;
        let by = options::extension_from(by_usec)?;
        self.command(|answer| Command::Extend { by, answer }).await
    }

    /// Ends the running drain now: by its policy, or as asked; returns a sentence for people. Options: shutdown_vms (b),
    /// proceed (b). Said again, it does not wait for guests that are shutting down.
    #[zbus(out_args("says"))]
    async fn release(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] call: Header<'_>,
        options: Options,
    ) -> Result<String, BusError> {
        self.gate.pass(bus, &call, Act::Release).await?;
        let ending = options::release_from(&options)?;
        self.command(|answer| Command::Release { ending, answer })
            .await
    }

    /// Gives the node back (uncordon, if the cordon is ours); returns a sentence for people: what was not waited for.
    #[zbus(out_args("says"))]
    async fn restore(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] call: Header<'_>,
        options: Options,
    ) -> Result<String, BusError> {
        self.gate.pass(bus, &call, Act::Restore).await?;
        options::none_from(&options, "Restore")?;
        self.command(Command::Restore).await
    }

    /// The JSON of `vmdrain-agent status -o json`.
    #[zbus(out_args("json"))]
    async fn get_status(&self) -> Result<String, BusError> {
        let now = self.handle.status_now();
        let status = match tokio::time::timeout(STATUS, now).await {
            Ok(Some(status)) => status,
            // A driver that is busy or ending: what it has published last is better than nothing.
            Ok(None) | Err(_) => (**self.handle.status.borrow()).clone(),
        };
        serde_json::to_string(&status)
            .map_err(|e| BusError::failed(format!("cannot write the status as JSON: {e}")))
    }

    /// What would happen to every VM if the host went down now: the JSON of `vmdrain-agent plan -o json`. Asks the API
    /// server, and changes nothing.
    #[zbus(out_args("json"))]
    async fn get_plan(&self) -> Result<String, BusError> {
        let plan = tokio::time::timeout(ANSWER, self.handle.plan_now()).await;
        let plan = match plan {
            Ok(Some(plan)) => plan,
            Ok(None) => {
                return Err(BusError::failed(
                    "the agent is ending and makes no more plans",
                ));
            }
            Err(_) => {
                return Err(BusError::failed(format!(
                    "there was no plan in {} s: the API server is slow",
                    ANSWER.as_secs()
                )));
            }
        };
        serde_json::to_string(&plan)
            .map_err(|e| BusError::failed(format!("cannot write the plan as JSON: {e}")))
    }

    /// Name of the phase: idle, preparing, evacuating, falling_back, holding, confirming, drained, deadline, cancelling,
    /// cancelled.
    #[zbus(property)]
    fn state(&self) -> String {
        self.facts().state
    }

    /// Id of the current or last drain.
    #[zbus(property)]
    fn drain_id(&self) -> String {
        self.facts().drain_id
    }

    /// Why it was started.
    #[zbus(property)]
    fn reason(&self) -> String {
        self.facts().reason
    }

    /// When it must end, in microseconds of CLOCK_BOOTTIME; 0: no drain is running.
    #[zbus(property)]
    fn deadline(&self) -> u64 {
        self.facts().deadline
    }

    /// VMs that this drain has seen.
    #[zbus(property)]
    fn vms_total(&self) -> u32 {
        self.facts().vms_total
    }

    /// VMs that are still here.
    #[zbus(property)]
    fn vms_remaining(&self) -> u32 {
        self.facts().vms_remaining
    }

    /// logind lists our delay lock.
    #[zbus(property)]
    fn inhibitor_held(&self) -> bool {
        self.facts().inhibitor_held
    }

    /// How long logind waits for delay locks, in microseconds; 0: not known.
    #[zbus(property, name = "HoldBudgetUSec")]
    fn hold_budget_usec(&self) -> u64 {
        self.facts().hold_budget_usec
    }

    /// Version of the agent.
    #[expect(
        clippy::unused_self,
        reason = "a property of an interface has a receiver"
    )]
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    /// The phase has changed.
    #[zbus(signal, name = "StateChanged")]
    pub async fn phase_changed(
        emitter: &SignalEmitter<'_>,
        state: &str,
        drain_id: &str,
        says: &str,
    ) -> zbus::Result<()>;

    /// Something in the status has changed; at most five times a second.
    #[zbus(signal)]
    pub async fn progress(
        emitter: &SignalEmitter<'_>,
        vms_total: u32,
        vms_remaining: u32,
        says: &str,
    ) -> zbus::Result<()>;

    /// A drain has ended, with the exit code of `vmdrain-agent trigger`.
    #[zbus(signal)]
    pub async fn finished(
        emitter: &SignalEmitter<'_>,
        drain_id: &str,
        exit: u8,
        says: &str,
    ) -> zbus::Result<()>;
}
