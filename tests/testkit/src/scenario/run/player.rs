//! The loop of a story: play what is due, look at everything, wait for the next change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::changes::Changes;
use super::cluster::Cluster;
use super::ending::Ending;
use super::estimates::Said;
use super::observer::{Key, Observer, Pod};
use super::others::Others;
use super::rules::{Rules, Terms};
use super::scene::{from_agent, scene};
use super::stage::Stage;
use super::trace::Trace;
use super::tracker::Tracker;
use super::verdict::Verdict;
use crate::api::log::Entry;
use crate::host::{Change as HostChange, Moment};
use crate::scenario::event::agent::{AgentDo, Trigger};
use crate::scenario::event::{Do, Event};
use crate::scenario::{Rule, Scenario};

/// How long the story goes on after its end: what follows from it (a VM that starts elsewhere) is part of it.
pub(super) const AFTERWARDS: Duration = Duration::from_secs(60);

/// No story is longer.
const LONGEST: Duration = Duration::from_secs(6 * 3600);

/// Plays one story.
pub(super) struct Player<'a, S> {
    scenario: &'a Scenario,
    cluster: &'a Cluster,
    stage: S,
    tracker: Tracker,
    rules: Rules,
    observer: Observer,
    trace: Trace,
    want_trace: bool,
    /// How long the story goes on after its end.
    afterwards: Duration,
    /// When the story began on the world's clock.
    origin: Duration,
    changes: Changes,
    moments: usize,
    kills: usize,
    /// What the agent asked, without bodies.
    asked: Vec<Entry>,
    log_seen: usize,
    problems: Vec<String>,
    /// When the agent first said that a drain has ended.
    drained: Option<Duration>,
    /// What the agent says about the end of its drains.
    said: Said,
    /// How often it is asked for that.
    ask_every: Option<Duration>,
    /// Since when nothing is left to wait for.
    over_since: Option<Duration>,
}

impl<'a, S: Stage> Player<'a, S> {
    pub(super) fn new(
        scenario: &'a Scenario,
        cluster: &'a Cluster,
        stage: S,
        terms: Terms,
        want_trace: bool,
    ) -> Self {
        Self {
            tracker: Tracker::new(&scenario.expectations, terms.slack),
            rules: Rules::new(scenario, terms),
            observer: Observer::new(&scenario.host.node),
            trace: Trace::default(),
            changes: Changes::default(),
            moments: 0,
            kills: 0,
            asked: Vec::new(),
            log_seen: 0,
            origin: Duration::ZERO,
            problems: Vec::new(),
            drained: None,
            said: Said::default(),
            ask_every: None,
            over_since: None,
            scenario,
            cluster,
            stage,
            want_trace,
            afterwards: AFTERWARDS,
        }
    }

    /// Goes on for less (or more) than usual after the end.
    pub(super) fn afterwards(mut self, span: Duration) -> Self {
        self.afterwards = span;
        self
    }

    /// Asks for the status so often, for its estimates.
    pub(super) fn asking(mut self, every: Option<Duration>) -> Self {
        self.ask_every = every;
        self
    }

    /// Plays it to its end.
    pub(super) async fn play(self) -> Verdict {
        self.play_out().await.0
    }

    /// Plays it to its end, and hands over what was seen.
    pub(super) async fn play_out(mut self) -> (Verdict, Ending) {
        if let Err(why) = self.stage.begin().await {
            self.problems.push(why);
        }
        self.origin = self.elapsed();
        self.trace = Trace::new(self.want_trace, self.origin);
        if self.problems.is_empty() {
            self.run().await;
        }
        self.finish().await
    }

    fn elapsed(&self) -> Duration {
        self.cluster.server.clock().elapsed()
    }

    /// Time of the story.
    fn now(&self) -> Duration {
        self.elapsed().saturating_sub(self.origin)
    }

    async fn run(&mut self) {
        let mut changed = self.cluster.store().changed();
        let timeline: &'a [Event] = &self.scenario.timeline;
        let mut next = 0;
        self.step().await;
        self.begin();
        loop {
            changed.borrow_and_update();
            while timeline
                .get(next)
                .is_some_and(|event| event.time.0 <= self.now())
            {
                self.event(&timeline[next]).await;
                next += 1;
            }
            self.step().await;
            let upcoming = timeline.get(next).map(|event| event.time.0);
            if self.is_over(upcoming.is_some()) {
                return;
            }
            if self.now() >= LONGEST {
                self.problems
                    .push("the story did not end within 6 hours".into());
                return;
            }
            if self.ask_every.is_some()
                && let Some(status) = self.stage.look().await.status
            {
                self.said.hear(&status);
            }
            let wake = [
                upcoming,
                self.ask_every.map(|every| self.now() + every),
                self.tracker.next(self.now()),
                self.over_since.map(|since| since + self.afterwards),
                Some(LONGEST),
            ];
            let wake = wake.into_iter().flatten().min().unwrap_or(LONGEST);
            let clock = self.cluster.server.clock().clone();
            tokio::select! {
                _ = changed.changed() => {}
                () = self.stage.changed() => {}
                () = clock.sleep_until(self.origin + wake) => {}
            }
        }
    }

    /// The expectations see the scene before anything has happened.
    fn begin(&mut self) {
        let glance = self.stage.glance();
        let scene = scene(
            self.now(),
            self.cluster,
            &self.stage,
            (&glance, &self.asked),
            &self.observer,
            self.scenario,
        );
        self.tracker.begin(&scene);
    }

    async fn event(&mut self, event: &Event) {
        self.trace
            .event(self.elapsed(), &format!("{} {:?}", event.name, event.what));
        let played = match &event.what {
            Do::Host(what) => self.stage.host(what).await,
            Do::Agent(what) => {
                self.consent(what);
                self.stage.agent(what).await
            }
            other @ (Do::Api(_)
            | Do::Virt(..)
            | Do::Vm(_)
            | Do::Node(_)
            | Do::Pod(_)
            | Do::Pdb(_)
            | Do::Apply(_)
            | Do::Lease(_)) => {
                let others = Others {
                    cluster: self.cluster,
                    origin: self.origin,
                    host: &self.scenario.host.node,
                };
                others.play(other).await
            }
        };
        if let Err(why) = played {
            let file = self.scenario.file.display();
            self.problems
                .push(format!("{file}:{}: {}: {why}", event.line, event.name));
        }
    }

    /// A command may say that guests can be stopped: in so many words, or because the host goes down afterwards.
    fn consent(&mut self, what: &AgentDo) {
        let says =
            |keys: &Trigger| keys.then.is_some() || keys.allow_guest_shutdown || keys.shutdown_vms;
        if matches!(what, AgentDo::Trigger(keys) if says(keys))
            || matches!(what, AgentDo::Release(keys) if keys.shutdown_vms)
        {
            self.rules.consent();
        }
    }

    /// Looks at everything that is new.
    async fn step(&mut self) {
        self.stage.refresh();
        let history = self.stage.history();
        self.host_moved(&history).await;
        let changes = self.changes.take(self.cluster.store());
        let elapsed = self.elapsed();
        for change in &changes {
            self.observer.change(change, elapsed);
        }
        for kill in self
            .cluster
            .world
            .dirty_kills()
            .into_iter()
            .skip(self.kills)
        {
            self.kills += 1;
            self.observer
                .killed(&(kill.namespace, kill.name), &kill.reason);
        }
        self.listen();
        for panic in self.stage.panics() {
            self.rules.broken(Rule::Panic, self.now(), panic);
        }
        let glance = self.stage.glance();
        if let Some(status) = &glance.status {
            self.said.hear(status);
        }
        if glance.has_drained() {
            self.drained.get_or_insert(elapsed);
        }
        let scene = scene(
            self.now(),
            self.cluster,
            &self.stage,
            (&glance, &self.asked),
            &self.observer,
            self.scenario,
        );
        self.tracker.late(self.stage.lateness());
        self.rules.step(&scene, &history);
        self.trace.step(&scene, &changes, &history);
        self.tracker.look(&scene);
    }

    /// Takes in the agent's requests.
    fn listen(&mut self) {
        let fresh = self.cluster.server.log.entries_from(self.log_seen);
        self.log_seen += fresh.len();
        let node = &self.scenario.host.node;
        let ours = fresh.into_iter().filter(|entry| from_agent(node, entry));
        self.asked.extend(ours.map(|entry| Entry {
            body: None,
            ..entry
        }));
    }

    /// The cluster follows the host's power.
    async fn host_moved(&mut self, history: &[Moment]) {
        let fresh: Vec<Moment> = history.get(self.moments..).unwrap_or_default().to_vec();
        self.moments = history.len();
        let node = &self.scenario.host.node;
        for moment in fresh {
            match moment.change {
                HostChange::Down(_) => {
                    self.stage.down().await;
                    self.cluster.world.node_off(node);
                    // The hosts' physics notice the power at once; their clocks need a turn to tell who died.
                    tokio::task::yield_now().await;
                }
                HostChange::Up { .. } => {
                    let boot_id = self.stage.boot_id();
                    self.cluster.world.node_boot(node, &boot_id);
                    self.stage.up().await;
                }
                HostChange::Announced { .. }
                | HostChange::CalledOff
                | HostChange::Stopping
                | HostChange::LockTaken
                | HostChange::LockGone(_)
                | HostChange::Note(_) => {}
            }
        }
    }

    /// Whether nothing is left to wait for, for long enough.
    fn is_over(&mut self, more_events: bool) -> bool {
        let now = self.now();
        let waiting =
            more_events || now < self.tracker.last() || self.stage.is_busy() || self.agent_works();
        if waiting && self.problems.is_empty() {
            self.over_since = None;
            return false;
        }
        let since = *self.over_since.get_or_insert(now);
        now >= since + self.afterwards || !self.problems.is_empty()
    }

    /// A drain is under way.
    fn agent_works(&self) -> bool {
        let glance = self.stage.glance();
        let status = glance
            .status
            .as_ref()
            .filter(|_| glance.running && glance.up);
        status.is_some_and(|status| {
            let drains = status
                .drain
                .as_ref()
                .is_some_and(|drain| drain.exit.is_none());
            // One that is late may wait for ever: a story that wants to see more of it names a moment.
            let restores = status.restore.as_ref().is_some_and(|restore| !restore.late);
            drains || restores
        })
    }

    async fn finish(mut self) -> (Verdict, Ending) {
        let glance = self.stage.look().await;
        self.step().await;
        let now = self.now();
        if glance
            .status
            .as_ref()
            .is_some_and(|status| status.state.starts_with("cancel"))
        {
            self.rules.cancelled();
        }
        let mut seen = BTreeSet::new();
        for violation in self.cluster.world.check_invariants() {
            if seen.insert(violation.what.clone()) {
                let at = violation.at.saturating_sub(self.origin);
                let what = format!("{} {}", violation.rule, violation.what);
                self.rules.broken(Rule::KubeVirt, at, what);
            }
        }
        let scene = scene(
            now,
            self.cluster,
            &self.stage,
            (&glance, &self.asked),
            &self.observer,
            self.scenario,
        );
        if self.problems.is_empty() {
            self.rules.end(&scene);
            self.tracker.end(&scene);
        }
        let trace = std::mem::take(&mut self.trace).finish(&scene);
        let (misses, breaches) = (self.tracker.misses(), self.rules.breaches().to_vec());
        let ending = Ending {
            status: glance.status,
            history: self.stage.history(),
            origin: self.origin,
            drained: self.drained,
            emptied: self.observer.emptied,
            cordoned: self.observer.cordoned,
            pods: pods_of(&self.observer.pods),
            vms: self.observer.vms,
            asked: self.asked,
        };
        self.stage.end().await;
        let verdict = Verdict {
            file: self.scenario.file.clone(),
            name: self.scenario.name.clone(),
            skipped: None,
            passed: misses.is_empty() && breaches.is_empty() && self.problems.is_empty(),
            expectations: self.tracker.len(),
            seconds: now.as_secs_f64(),
            took: None,
            misses,
            breaches,
            problems: self.problems,
            estimates: self.said.estimates(),
            trace,
        };
        (verdict, ending)
    }
}

/// Ordinary pods that were on the host, and whether each is gone.
fn pods_of(pods: &BTreeMap<String, Pod>) -> BTreeMap<Key, bool> {
    let here = pods.values().filter(|pod| pod.first_here && !pod.launcher);
    here.filter_map(|pod| {
        let (space, name) = pod.name.split_once('/')?;
        Some(((space.to_owned(), name.to_owned()), pod.gone))
    })
    .collect()
}
