//! The only loop: next event or timer → machine → actions. One task owns the machine.

use super::announcer::Announcer;
use super::command::{Answer, Command, Handle};
use super::effects::carry_out;
use super::planner;
use super::ports::{Clock, Cluster, Host, HostEvent, RecordStore};
use super::recorder::Recorder;
use crate::drain::action::{Action, EffectId, HoldView, Input, Level, Notice, Outcome, Token};
use crate::drain::machine::Machine;
use crate::drain::plan::Plan;
use crate::drain::policy::Policy;
use crate::drain::status::Status;
use crate::drain::world::Picture;
use crate::telemetry::catalog::message_id;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// Room for commands and host events: more than people and logind ever send at once.
const QUEUE: usize = 64;

/// What a driver is made of.
#[derive(Debug)]
pub struct Parts<C, H, S, K> {
    /// The Kubernetes API.
    pub cluster: Arc<C>,
    /// logind and the hold.
    pub host: Arc<H>,
    /// The state file.
    pub store: Arc<S>,
    /// The clock.
    pub clock: Arc<K>,
}

/// Makes a driver: the handle for commands and status, and the future that runs until `stop` is done
/// (a termination of the service; the drain is left where it is and goes on after the next start).
pub fn start<C: Cluster, H: Host, S: RecordStore, K: Clock>(
    parts: Parts<C, H, S, K>,
    policy: Policy,
    seed: u64,
    reload: watch::Receiver<Policy>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> (Handle, impl Future<Output = ()> + Send + 'static) {
    let (commands, inbox) = mpsc::channel(QUEUE);
    let now = parts.clock.now();
    let request = policy.timing.request;
    let (record, warning) = match parts.store.load() {
        Ok(record) => (record, None),
        Err(why) => (None, Some(why)),
    };
    let machine = Machine::start(policy, seed, record, now);
    let (publish, status) = watch::channel(Arc::new(machine.status(now)));
    let driving = async move {
        let (records, recording) = Recorder::new(Arc::clone(&parts.store));
        let (announcer, announcing) = Announcer::new(Arc::clone(&parts.cluster), request / 2);
        let mut background = JoinSet::new();
        background.spawn(recording);
        background.spawn(announcing);
        let driver = Driver {
            machine,
            parts,
            request,
            records,
            announcer,
            effects: JoinSet::new(),
            _background: background,
            running: BTreeMap::new(),
            pictures: None,
            answers: BTreeMap::new(),
            planned_for: Vec::new(),
            next_token: 0,
            publish,
            said: String::new(),
        };
        driver.run(inbox, reload, warning, stop).await;
    };
    let handle = Handle { commands, status };
    (handle, driving)
}

struct Driver<C, H, S, K> {
    machine: Machine,
    parts: Parts<C, H, S, K>,
    request: Duration,
    records: Recorder,
    announcer: Announcer,
    effects: JoinSet<Done>,
    /// Ends with the driver.
    _background: JoinSet<()>,
    /// Which task carries which effect, so that a panic in one of them still ends it.
    running: BTreeMap<tokio::task::Id, EffectId>,
    pictures: Option<watch::Receiver<Picture>>,
    answers: BTreeMap<Token, oneshot::Sender<Answer>>,
    /// Who waits for the plan that is being made.
    planned_for: Vec<oneshot::Sender<Plan>>,
    next_token: u64,
    publish: watch::Sender<Arc<Status>>,
    said: String,
}

/// What a task brings back.
enum Done {
    Effect(EffectId, Box<Outcome>),
    HostStarted(Result<HoldView, String>),
    Planned(Box<Plan>),
}

impl<C: Cluster, H: Host, S: RecordStore, K: Clock> Driver<C, H, S, K> {
    async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Command>,
        mut reload: watch::Receiver<Policy>,
        warning: Option<String>,
        stop: impl Future<Output = ()> + Send,
    ) {
        if let Some(why) = warning {
            tracing::warn!(
                vmdrain_reason = "StateFileSetAside",
                message_id = message_id("StateFileSetAside"),
                "{why}"
            );
        }
        let (to_us, mut host_events) = mpsc::channel(QUEUE);
        let host = Arc::clone(&self.parts.host);
        self.effects
            .spawn(async move { Done::HostStarted(host.start(to_us).await) });
        self.machine.set_hooks(self.parts.host.hooks());
        self.machine.handle_timeout(self.parts.clock.now());
        self.settle();
        tokio::pin!(stop);
        loop {
            let timer = self.machine.poll_timeout();
            let clock = Arc::clone(&self.parts.clock);
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some(event) = host_events.recv() => self.host_event(event),
                Some(done) = self.effects.join_next_with_id() => self.effect_done(done),
                Ok(()) = reload.changed() => {
                    let policy = reload.borrow_and_update().clone();
                    self.request = policy.timing.request;
                    self.machine.set_policy(policy);
                }
                Some(picture) = next_picture(&mut self.pictures) => self.input(Input::Picture(Box::new(picture))),
                () = wait(timer.map(|(when, _)| when), &*clock) => {
                    self.machine.handle_timeout(self.parts.clock.now());
                }
                // Last: anybody may ask for the status as often as they like, and must not keep the drain
                // from its pictures and its deadline.
                Some(command) = inbox.recv() => self.command(command),
            }
            self.settle();
        }
        self.parts.cluster.unwatch();
        if tokio::time::timeout(self.request, self.records.written())
            .await
            .is_err()
        {
            tracing::error!(
                vmdrain_reason = "StateFileNotWritten",
                message_id = message_id("StateFileNotWritten"),
                "the disk of the state file does not answer; after the next start the agent could not tell its own marks"
            );
        }
    }

    fn input(&mut self, input: Input) {
        if let Input::Trigger(..) | Input::Shutdown(_) | Input::Scheduled(_) = &input {
            self.machine.set_hooks(self.parts.host.hooks());
        }
        let now = self.parts.clock.now();
        self.machine.handle(input, now);
    }

    fn host_event(&mut self, event: HostEvent) {
        match event {
            HostEvent::Shutdown(shutdown) => self.input(Input::Shutdown(shutdown)),
            HostEvent::ShutdownVanished { why } => self.input(Input::ShutdownVanished { why }),
            HostEvent::Scheduled(schedule) => self.input(Input::Scheduled(schedule)),
            HostEvent::Hold(hold) => self.input(Input::Hold(hold)),
        }
    }

    fn command(&mut self, command: Command) {
        self.next_token += 1;
        let token = Token(self.next_token);
        let (input, answer) = match command {
            Command::Trigger(trigger, answer) => (Input::Trigger(token, trigger), answer),
            Command::Cancel {
                abort_migrations,
                signal,
                answer,
            } => (
                Input::Cancel {
                    token,
                    abort_migrations,
                    signal,
                },
                answer,
            ),
            Command::Extend { by, answer } => (Input::Extend { token, by }, answer),
            Command::Release { ending, answer } => (Input::Release { token, ending }, answer),
            Command::Restore(answer) => (Input::Restore(token), answer),
            Command::Sources(sources) => return self.input(Input::Sources(sources)),
            Command::Status(answer) => {
                let _ = answer.send(self.machine.status(self.parts.clock.now()));
                return;
            }
            Command::Plan(answer) => return self.plan(answer),
        };
        self.answers.insert(token, answer);
        self.input(input);
    }

    /// Beside the machine: a plan changes nothing, and the loop does not wait for it. Whoever asks while one is being made
    /// gets the same: everybody may ask, and nobody may load the API server by that.
    fn plan(&mut self, answer: oneshot::Sender<Plan>) {
        self.planned_for.push(answer);
        if self.planned_for.len() > 1 {
            return;
        }
        let scene = self.machine.plan_scene(self.parts.clock.now());
        let (cluster, request) = (Arc::clone(&self.parts.cluster), self.request);
        self.effects.spawn(async move {
            Done::Planned(Box::new(planner::make(&*cluster, &scene, request).await))
        });
    }

    fn effect_done(&mut self, done: Result<(tokio::task::Id, Done), tokio::task::JoinError>) {
        match done {
            Ok((task, Done::Effect(id, outcome))) => {
                self.running.remove(&task);
                self.input(Input::Done(id, *outcome));
            }
            Ok((_, Done::HostStarted(result))) => self.host_started(result),
            Ok((_, Done::Planned(plan))) => {
                for asker in self.planned_for.drain(..) {
                    // It may have gone away meanwhile.
                    let _ = asker.send((*plan).clone());
                }
            }
            Err(error) => {
                // A panic in an effect must not end the hold: it counts as a failed request.
                tracing::error!(
                    vmdrain_reason = "EffectPanicked",
                    "an effect panicked: {error}"
                );
                let Some(id) = self.running.remove(&error.id()) else {
                    // A plan, if one was being made: whoever waits for it is told that there is none.
                    self.planned_for.clear();
                    return;
                };
                if let Some(outcome) = self
                    .machine
                    .failed_outcome(id, "internal error in the agent")
                {
                    self.input(Input::Done(id, outcome));
                }
            }
        }
    }

    fn host_started(&mut self, result: Result<HoldView, String>) {
        let hold = result.unwrap_or_else(|why| {
            tracing::error!(
                vmdrain_reason = "HoldMissing",
                message_id = message_id("HoldMissing"),
                "no hold on the host: {why}"
            );
            HoldView {
                held: false,
                limit: None,
                trouble: why,
                ..HoldView::default()
            }
        });
        // Without logind nobody knows whether a shutdown is pending: that is not "no longer pending".
        let looked = hold.limit.is_some();
        self.input(Input::Hold(hold));
        if looked {
            self.input(Input::HostReady);
        }
    }

    /// Carries out everything the machine wants, then shows where it stands.
    fn settle(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            self.act(action);
        }
        self.announcer.busy(self.running.len());
        let now = self.parts.clock.now();
        let status = self.machine.status(now);
        if status.says != self.said {
            self.said.clone_from(&status.says);
            self.parts.host.status_line(&status.says);
        }
        // Who follows the status is woken by what changed, not by the passing of time.
        self.publish.send_if_modified(|shown| {
            let news = !shown.says_the_same(&status);
            if news {
                *shown = Arc::new(status);
            }
            news
        });
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Watch => self.pictures = Some(self.parts.cluster.watch()),
            Action::WatchAll => self.pictures = Some(self.parts.cluster.watch_all()),
            Action::WatchNode => self.pictures = Some(self.parts.cluster.watch_node()),
            Action::Unwatch => {
                self.pictures = None;
                self.parts.cluster.unwatch();
            }
            Action::Persist(record) => self.records.save(record),
            Action::ForgetRecord => self.records.forget(),
            Action::Answer(token, answer) => {
                if let Some(waiting) = self.answers.remove(&token) {
                    // The asker may have gone away meanwhile; the command was carried out all the same.
                    let _ = waiting.send(answer);
                }
            }
            Action::Tell(notice) => self.tell(notice),
            // Reads change nothing, and what frees the host must not hang on a disk.
            effect @ (Action::ReadNode(_)
            | Action::Confirm { .. }
            | Action::ReadVolumes(_)
            | Action::ReadTarget { .. }
            | Action::LookHere(_)
            | Action::Release(_)
            | Action::RunHooks { .. }
            | Action::Acknowledge { .. }
            | Action::TakeHold(_)) => self.carry_out(effect, std::future::ready(()), Box::new(())),
            // After a crash these are known to be ours, or to be done, by the record alone.
            effect @ (Action::Cordon { .. }
            | Action::Uncordon { .. }
            | Action::Unmark { .. }
            | Action::Evict { .. }
            | Action::CancelEvacuation { .. }
            | Action::DeleteMigration { .. }
            | Action::StartVm { .. }
            | Action::StopGuest { .. }
            | Action::TellGuest { .. }
            | Action::AskLogind { .. }) => {
                let hurry = self.parts.cluster.hurry();
                self.carry_out(effect, self.records.written(), hurry);
            }
        }
    }

    fn carry_out(
        &mut self,
        effect: Action,
        first: impl Future<Output = ()> + Send + 'static,
        hurry: Box<dyn Send>,
    ) {
        if let Some((id, work)) =
            carry_out(effect, &self.parts.cluster, &self.parts.host, self.request)
        {
            let patience = self.request;
            let task = self.effects.spawn(async move {
                // A disk that does not answer must not stop the drain; the recorder tells of it.
                let _ = tokio::time::timeout(patience, first).await;
                let outcome = work.await;
                drop(hurry);
                Done::Effect(id, Box::new(outcome))
            });
            self.running.insert(task.id(), id);
        }
    }

    fn tell(&mut self, notice: Notice) {
        let drain = self.machine.drain_id().unwrap_or_default().to_owned();
        let vm = notice
            .vm
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        let phase = self.machine.phase().name();
        let (reason, text) = (notice.reason, &notice.text);
        let message_id = message_id(reason);
        match notice.level {
            Level::Info => {
                tracing::info!(
                    vmdrain_drain_id = drain,
                    vmdrain_vmi = vm,
                    vmdrain_phase = phase,
                    vmdrain_reason = reason,
                    message_id,
                    "{text}"
                );
            }
            Level::Warn => {
                tracing::warn!(
                    vmdrain_drain_id = drain,
                    vmdrain_vmi = vm,
                    vmdrain_phase = phase,
                    vmdrain_reason = reason,
                    message_id,
                    "{text}"
                );
            }
            Level::Error => {
                tracing::error!(
                    vmdrain_drain_id = drain,
                    vmdrain_vmi = vm,
                    vmdrain_phase = phase,
                    vmdrain_reason = reason,
                    message_id,
                    "{text}"
                );
            }
        }
        if notice.event {
            self.announcer.tell(notice);
        }
    }
}

async fn next_picture(pictures: &mut Option<watch::Receiver<Picture>>) -> Option<Picture> {
    match pictures {
        Some(channel) => {
            if channel.changed().await.is_err() {
                // The watches have ended; only a new `Watch` brings pictures again.
                *pictures = None;
                return None;
            }
            Some(channel.borrow_and_update().clone())
        }
        None => std::future::pending().await,
    }
}

async fn wait<K: Clock>(when: Option<crate::drain::time::Mono>, clock: &K) {
    match when {
        Some(when) => clock.sleep_until(when).await,
        None => std::future::pending().await,
    }
}
