//! One run: the machine, the model and everything between them, on one virtual clock.

use super::cluster::{Cluster, Tick};
use super::host::Host;
use super::plan::{Boot, Order, Plan};
use super::rng::Rng;
use super::watcher::Watcher;
use std::collections::BTreeMap;
use std::time::Duration;
use vmdrain_agent::drain::action::{Action, EffectId, Input, Outcome, Token};
use vmdrain_agent::drain::machine::Machine;
use vmdrain_agent::drain::phase::Phase;
use vmdrain_agent::drain::policy::Policy;
use vmdrain_agent::drain::record::Record;
use vmdrain_agent::drain::time::Mono;
use vmdrain_agent::drain::trigger::{Schedule, Shutdown};
use vmdrain_agent::drain::world::Picture;

/// A rule that was broken, as a sentence.
pub(super) type Broken = String;

/// Something that will happen.
#[derive(Debug)]
pub(super) enum Event {
    Tick(Tick),
    /// A request reaches the server; the flag: its answer is lost.
    Request(u32, Box<Action>, bool),
    Result(u32, EffectId, Box<Outcome>),
    Picture(u32, Box<Picture>),
    Order(Order),
    Restart,
    Signal,
    /// The time of a scheduled shutdown has come.
    Due(u64),
    /// The host goes off, for the shutdown that was announced then.
    HostOff(u64),
    HostUp(Boot),
}

/// With nothing but the agent's own timers left, a run goes on for so long.
const QUIET: u64 = 3_600_000;

/// No plan takes so many inputs.
const MOST_INPUTS: u64 = 50_000;

/// A run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) plan: Plan,
    pub(super) cluster: Cluster,
    pub(super) host: Host,
    pub(super) watcher: Watcher,
    pub(super) rng: Rng,
    pub(super) now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    serial: u64,
    pub(super) machine: Option<Machine>,
    /// Counts the agent's processes and its watches: what belongs to an old one is not delivered.
    pub(super) process: u32,
    pub(super) watch: u32,
    pub(super) watching: bool,
    /// When the newest picture arrives.
    pub(super) last_picture: u64,
    /// Of the Node alone.
    pub(super) node_only: bool,
    /// Boots that are still to come, the next one last.
    pub(super) boots: Vec<Boot>,
    /// When something last happened that was neither a timer nor a request of the agent's.
    last_event: u64,
    store: Option<Record>,
    token: u64,
    pub(super) host_off: bool,
    inputs: u64,
    trace: Option<Vec<String>>,
}

impl Run {
    pub(super) fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(&mut rng);
        let cluster = Cluster::new(plan.clone(), Rng::new(seed ^ 0x5eed));
        let mut run = Self {
            host: Host::new(plan.limit),
            watcher: Watcher::default(),
            cluster,
            rng,
            now: 0,
            queue: BTreeMap::new(),
            serial: 0,
            machine: None,
            process: 0,
            watch: 0,
            watching: false,
            last_picture: 0,
            node_only: false,
            boots: plan.boots.iter().rev().copied().collect(),
            last_event: 0,
            store: None,
            token: 0,
            host_off: false,
            inputs: 0,
            trace: trace.then(Vec::new),
            plan,
        };
        for (at, order) in run.plan.orders.clone() {
            run.at(at, Event::Order(order));
        }
        run
    }

    pub(super) fn at(&mut self, when: u64, event: Event) {
        self.serial += 1;
        self.queue.insert((when.max(self.now), self.serial), event);
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let now = self.now;
            trace.push(format!("{:>5}.{:03}  {}", now / 1000, now % 1000, text()));
        }
    }

    pub(super) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    fn policy(&self) -> Policy {
        let mut policy = Policy::for_node(super::cluster::HERE);
        policy.machine_id = "abc".into();
        policy.boot_id = self.host.boot_id();
        policy.userspace = self.host.userspace();
        policy.up_since = Mono(self.host.up_since);
        policy.restore = self.plan.restore;
        policy.consent = self.plan.consent;
        policy.on_deadline = self.plan.on_deadline;
        policy.pacing = self.plan.pacing;
        policy.on_foreign_uncordon = self.plan.on_foreign_uncordon;
        policy
    }

    /// Runs to the end: the host is off, or nothing more will happen.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        let plan = format!("{:#?}", self.plan);
        self.note(|| plan);
        self.start_agent()?;
        while !self.host_off && self.step()? {
            if self.inputs > MOST_INPUTS {
                return Err(format!("no rest after {MOST_INPUTS} inputs"));
            }
        }
        self.finally()
    }

    fn step(&mut self) -> Result<bool, Broken> {
        let timer = self.machine.as_ref().and_then(Machine::poll_timeout);
        let head = self.queue.keys().next().copied();
        match (head, timer) {
            (None, Some((wake, _))) if wake.0 > self.last_event + QUIET && self.is_at_rest() => {
                return Ok(false);
            }
            (head, Some((wake, why))) if head.is_none_or(|(at, _)| wake.0 <= at) => {
                self.now = self.now.max(wake.0);
                self.note(|| format!("timer: {why}"));
                self.watcher.woken(self.now)?;
                if let Some(machine) = &mut self.machine {
                    machine.handle_timeout(Mono(self.now));
                }
                self.after_input()?;
            }
            (Some(key), _) => {
                self.now = key.0;
                // The agent's own questions go on for as long as it holds; what they change in the cluster is a tick.
                if let Some(event) = self.queue.get(&key)
                    && !matches!(event, Event::Request(..) | Event::Result(..))
                {
                    self.last_event = self.now;
                }
                self.cluster.now = self.now;
                if let Some(event) = self.queue.remove(&key) {
                    self.happen(event)?;
                }
            }
            (None, _) => return Ok(false),
        }
        Ok(true)
    }

    fn happen(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Tick(tick) => {
                self.note(|| format!("cluster: {tick:?}"));
                self.cluster.tick(tick);
                self.publish();
                Ok(())
            }
            Event::Request(process, action, lost) => self.serve(process, &action, lost),
            Event::Result(process, id, outcome) if process == self.process => {
                self.watcher.now = self.now;
                self.watcher.in_flight.remove(&id.0);
                self.watcher.told(&outcome);
                self.input(Input::Done(id, *outcome))
            }
            Event::Picture(watch, picture) if watch == self.watch && self.watching => {
                self.watcher.shown(&picture);
                self.input(Input::Picture(picture))
            }
            Event::Order(order) => self.order(order),
            Event::Restart => self.start_agent(),
            Event::Signal => self.signal(),
            Event::HostOff(since) if self.host.pending && self.host.since == since => {
                self.host_goes_off()
            }
            Event::Due(due) if self.host.schedule == Some(due) => self.signal(),
            Event::Result(..) | Event::Picture(..) | Event::Due(_) | Event::HostOff(_) => Ok(()),
            Event::HostUp(boot) => self.host_comes_up(boot),
        }
    }

    fn is_at_rest(&self) -> bool {
        // A hold by policy lasts as long as it takes, also on a node that cannot be cordoned.
        let past = self.stored().is_some_and(|r| r.deadline.0 < self.now);
        let rests = |phase: Phase| phase.is_at_rest() || phase == Phase::Holding || past;
        self.machine.as_ref().is_none_or(|m| rests(m.phase()))
    }

    fn order(&mut self, order: Order) -> Result<(), Broken> {
        self.note(|| format!("order: {order:?}"));
        self.token += 1;
        let token = Token(self.token);
        let of_the_cluster = matches!(order, Order::ForeignCordon | Order::ForeignUncordon);
        if self.host.off && !of_the_cluster {
            return Ok(());
        }
        match order {
            Order::Trigger(trigger) => self.input(Input::Trigger(token, trigger)),
            Order::Shutdown => self.signal(),
            Order::Vanish if self.host.pending => {
                self.host.pending = false;
                self.watcher.vanished();
                let why = "systemd said false".into();
                self.input(Input::ShutdownVanished { why })
            }
            Order::Schedule { within } => {
                if self.host.pending {
                    return Ok(());
                }
                let due = self.now + within;
                self.host.schedule = Some(due);
                self.at(due, Event::Due(due));
                self.tell_schedule()
            }
            Order::CallOff if self.host.schedule.take().is_some() => self.tell_schedule(),
            Order::Vanish | Order::CallOff => Ok(()),
            Order::Cancel { abort } => self.input(Input::Cancel {
                token,
                abort_migrations: abort,
                signal: String::new(),
            }),
            Order::Extend { by } => self.input(Input::Extend {
                token,
                by: Duration::from_millis(by),
            }),
            Order::Release(ending) => self.input(Input::Release { token, ending }),
            Order::Restore => {
                self.watcher.by_hand = true;
                self.input(Input::Restore(token))
            }
            Order::ForeignCordon => {
                if !self.cluster.unschedulable {
                    self.watcher.foreign_cordon = true;
                    self.cluster.unschedulable = true;
                    self.cluster.touch_node();
                }
                self.publish();
                Ok(())
            }
            Order::ForeignUncordon => {
                self.watcher.foreign_cordon = false;
                self.watcher.foreign_uncordons += 1;
                self.cluster.unschedulable = false;
                self.cluster.touch_node();
                self.publish();
                Ok(())
            }
            Order::Crash { rests } => {
                self.machine = None;
                self.process += 1;
                self.watching = false;
                self.watcher.crashed();
                self.at(self.now + rests, Event::Restart);
                Ok(())
            }
        }
    }

    pub(super) fn start_agent(&mut self) -> Result<(), Broken> {
        if self.machine.is_some() || self.host.off {
            return Ok(());
        }
        self.process += 1;
        let seed = u64::from(self.process) + 7;
        let now = Mono(self.now);
        let machine = Machine::start(self.policy(), seed, self.store.clone(), now);
        self.machine = Some(machine);
        let start = Input::Hold(self.host.view());
        self.input(start)?;
        if self.host.pending {
            self.tell_shutdown()?;
        } else {
            self.tell_schedule()?;
        }
        self.input(Input::HostReady)
    }

    fn tell_schedule(&mut self) -> Result<(), Broken> {
        let schedule = self.host.schedule.map(|due| Schedule {
            kind: None,
            within: Duration::from_millis(due.saturating_sub(self.now)),
        });
        self.input(Input::Scheduled(schedule))
    }

    fn signal(&mut self) -> Result<(), Broken> {
        if self.host.off {
            return Ok(());
        }
        // It has come, or an immediate one takes its place.
        self.host.schedule = None;
        if !self.host.pending {
            self.host.pending = true;
            self.host.since = self.now;
            let off = if self.host.held { self.plan.limit } else { 0 };
            self.at(self.now + off, Event::HostOff(self.now));
        }
        self.watcher.announced();
        self.tell_shutdown()
    }

    fn tell_shutdown(&mut self) -> Result<(), Broken> {
        let left = (self.host.since + self.plan.limit).saturating_sub(self.now);
        self.input(Input::Shutdown(Shutdown {
            kind: None,
            limit: Some(Duration::from_millis(left)),
            held: self.host.held,
        }))
    }

    fn input(&mut self, input: Input) -> Result<(), Broken> {
        self.note(|| {
            if let Input::Picture(picture) = &input {
                format!("-> picture {}", picture_line(picture))
            } else {
                format!("-> {input:?}")
            }
        });
        if let Some(machine) = &mut self.machine {
            machine.handle(input, Mono(self.now));
        }
        self.after_input()
    }

    /// Takes the machine's actions, checks them, and sends them on their way.
    fn after_input(&mut self) -> Result<(), Broken> {
        self.inputs += 1;
        while let Some(action) = self.machine.as_mut().and_then(Machine::poll_action) {
            self.note(|| format!("     <- {action:?}"));
            self.check_action(&action)?;
            self.act(action);
        }
        self.check_rest()
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::WatchNode => {
                self.watching = true;
                self.node_only = true;
                self.watch += 1;
                self.cluster.changed = true;
                self.publish();
            }
            Action::Watch | Action::WatchAll => {
                self.node_only = false;
                // A new drain does not wait for what the one before has asked.
                self.watcher.in_flight.clear();
                self.watching = true;
                self.watch += 1;
                self.cluster.changed = true;
                self.publish();
            }
            Action::Unwatch => self.watching = false,
            Action::Persist(record) => self.store = Some(*record),
            Action::ForgetRecord => self.store = None,
            Action::Answer(..) | Action::Tell(_) => {}
            Action::ReadNode(_)
            | Action::Cordon { .. }
            | Action::Uncordon { .. }
            | Action::Unmark { .. }
            | Action::Evict { .. }
            | Action::Confirm { .. }
            | Action::ReadVolumes(_)
            | Action::ReadTarget { .. }
            | Action::CancelEvacuation { .. }
            | Action::DeleteMigration { .. }
            | Action::StartVm { .. }
            | Action::StopGuest { .. }
            | Action::Release(_)
            | Action::TakeHold(_)
            | Action::RunHooks { .. }
            | Action::LookHere(_)
            | Action::TellGuest { .. }
            | Action::Acknowledge { .. }
            | Action::AskLogind { .. } => self.send(action),
        }
    }

    /// How many inputs there were.
    pub(super) fn count(&self) -> u64 {
        self.inputs
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn stored(&self) -> Option<&Record> {
        self.store.as_ref()
    }

    pub(super) fn is_off(&self) -> bool {
        self.host_off
    }
}

fn picture_line(p: &Picture) -> String {
    let pods: Vec<_> = p
        .pods
        .seen()
        .into_iter()
        .flatten()
        .map(|p| {
            let end = if p.is_empty_of_guest() { " over" } else { "" };
            let going = if p.deleting { " deleting" } else { "" };
            format!("{}({}{end}{going})", p.pod.name, p.pod.uid)
        })
        .collect();
    let vmis: Option<Vec<_>> = p.vmis.seen().map(|v| {
        v.iter()
            .map(|v| format!("{}@{} mark={:?}", v.vmi.name, v.node, v.mark))
            .collect()
    });
    let moves: Option<Vec<_>> = p.migrations.seen().map(|m| {
        m.iter()
            .map(|m| format!("{} {:?}", m.vm, m.phase))
            .collect()
    });
    format!("pods {pods:?} vmis {vmis:?} migrations {moves:?}")
}
