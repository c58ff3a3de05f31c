//! How does a simulated controller run: which changes wake it, how soon does it react, when does it look again?
//!
//! Every controller is level-triggered: a change only puts a key into its queue, the work looks at the newest objects. The queue
//! reacts after a short seeded delay, as real informers and work queues do, and a delayed key keeps its earliest time
//! (client-go's `AddAfter`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use tokio::sync::watch;

use crate::api::kinds::KINDS;
use crate::api::{Change, ChangeKind, Store};
use crate::clock::SimClock;
use crate::kubevirt::fields;

/// What a controller works on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Kind of work, usually the plural resource.
    pub what: &'static str,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of an object.
    pub fn of(what: &'static str, object: &Value) -> Self {
        Self::new(what, fields::namespace(object), fields::name(object))
    }

    /// The key of a named object.
    pub fn new(what: &'static str, namespace: &str, name: &str) -> Self {
        Self {
            what,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The same object under another kind of work.
    #[must_use]
    pub fn as_(&self, what: &'static str) -> Self {
        Self {
            what,
            ..self.clone()
        }
    }
}

/// Work that waits, each key once.
#[derive(Debug)]
pub struct Queue {
    due: BTreeMap<Key, Duration>,
    now: Duration,
    react: (Duration, Duration),
    random: SmallRng,
}

impl Queue {
    fn new(react: (Duration, Duration), seed: u64) -> Self {
        Self {
            due: BTreeMap::new(),
            now: Duration::ZERO,
            react,
            random: SmallRng::seed_from_u64(seed),
        }
    }

    /// Looks at `key` after the usual reaction time.
    pub fn soon(&mut self, key: Key) {
        let delay = self.between(self.react.0, self.react.1);
        self.after(key, delay);
    }

    /// Looks at `key` after `delay`, or earlier when that was already planned.
    pub fn after(&mut self, key: Key, delay: Duration) {
        let at = self.now + delay;
        let planned = self.due.entry(key).or_insert(at);
        *planned = at.min(*planned);
    }

    /// Looks at `key` after `delay`, whatever was planned.
    pub fn instead(&mut self, key: Key, delay: Duration) {
        self.due.insert(key, self.now + delay);
    }

    /// A seeded moment between two durations.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        if most <= least {
            least
        } else {
            self.random.random_range(least..=most)
        }
    }

    /// The simulated time.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Puts items in a seeded order: among equals nobody promises one.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.random.random_range(0..=last);
            items.swap(last, other);
        }
    }

    fn take_due(&mut self) -> Option<Key> {
        let (at, key) = self.due.iter().map(|(key, at)| (*at, key)).min()?;
        if at > self.now {
            return None;
        }
        let key = key.clone();
        self.due.remove(&key);
        Some(key)
    }

    fn next(&self) -> Option<Duration> {
        self.due.values().min().copied()
    }
}

/// Something that this controller needs did not answer; the key is looked at again a second later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// One controller: a queue of keys and what is done about each.
pub trait Controller: Send {
    /// Name, also the seed of its delays.
    fn name(&self) -> &'static str;
    /// Puts the keys that a change concerns into the queue.
    fn changed(&mut self, store: &Store, change: &Change, queue: &mut Queue);
    /// Brings one key up to date, from the newest objects.
    fn reconcile(&mut self, store: &Store, key: &Key, queue: &mut Queue)
    -> Result<(), Unavailable>;
}

/// Turns a part of the world off and on; clones share the switch.
#[derive(Clone, Debug)]
pub struct Switch {
    until: Arc<watch::Sender<Option<Duration>>>,
    clock: SimClock,
}

impl Switch {
    /// A switch that is on.
    pub fn new(clock: SimClock) -> Self {
        Self {
            until: Arc::new(watch::channel(None).0),
            clock,
        }
    }

    /// Off until this simulated time.
    pub fn down_until(&self, until: Duration) {
        self.until.send_replace(Some(until));
    }

    /// Off until [`up`](Self::up).
    pub fn down(&self) {
        self.down_until(Duration::MAX);
    }

    /// On.
    pub fn up(&self) {
        self.until.send_replace(None);
    }

    /// Whether it is on now.
    pub fn is_up(&self) -> bool {
        self.until
            .borrow()
            .is_none_or(|until| self.clock.elapsed() >= until)
    }

    /// Waits until it is on.
    pub async fn wait_up(&self) {
        let mut changes = self.until.subscribe();
        loop {
            let until = *changes.borrow_and_update();
            match until {
                None => return,
                Some(until) if self.clock.elapsed() >= until => return,
                Some(Duration::MAX) => {
                    if changes.changed().await.is_err() {
                        return;
                    }
                }
                Some(until) => {
                    tokio::select! {
                        () = self.clock.sleep_until(until) => {}
                        _ = changes.changed() => {}
                    }
                }
            }
        }
    }

    /// Waits for the next time that somebody turns it.
    pub async fn turned(&self) {
        // The sender lives as long as self, so this cannot fail.
        let _ = self.until.subscribe().changed().await;
    }
}

/// Runs controllers that share one process: one switch turns all of them off.
pub async fn run(
    store: Store,
    controllers: Vec<Box<dyn Controller>>,
    switch: Switch,
    react: (Duration, Duration),
    seed: u64,
) {
    let mut process = Process::new(&store, controllers, react, seed);
    let mut changed = store.changed();
    loop {
        if !switch.is_up() {
            switch.wait_up().await;
            process.seen = None;
        }
        changed.borrow_and_update();
        process.step(&store);
        let next = process.next();
        let wait = async {
            match next {
                Some(at) => store.clock().sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wait => {}
            outcome = changed.changed() => if outcome.is_err() { return },
            () = switch.turned() => {}
        }
    }
}

struct Process {
    controllers: Vec<(Box<dyn Controller>, Queue)>,
    /// The revision up to which changes were seen; `None` means list everything.
    seen: Option<u64>,
}

impl Process {
    fn new(
        store: &Store,
        controllers: Vec<Box<dyn Controller>>,
        react: (Duration, Duration),
        seed: u64,
    ) -> Self {
        let _ = store;
        let controllers = controllers
            .into_iter()
            .map(|controller| {
                let own = seed_of(seed, controller.name());
                (controller, Queue::new(react, own))
            })
            .collect();
        Self {
            controllers,
            seen: None,
        }
    }

    /// Takes in what changed and does the work that is due now.
    fn step(&mut self, store: &Store) {
        let now = store.clock().elapsed();
        for (_, queue) in &mut self.controllers {
            queue.now = now;
        }
        self.ingest(store);
        for (controller, queue) in &mut self.controllers {
            while let Some(key) = queue.take_due() {
                if controller.reconcile(store, &key, queue).is_err() {
                    queue.after(key, Duration::from_secs(1));
                }
            }
        }
        self.ingest(store);
    }

    fn ingest(&mut self, store: &Store) {
        let news = match self.seen {
            Some(seen) => store.changes_since(seen).ok(),
            None => None,
        };
        let changes = news.unwrap_or_else(|| everything(store));
        self.seen = Some(changes.last().map_or_else(
            || self.seen.unwrap_or_else(|| store.revision()),
            |last| last.revision,
        ));
        for change in changes
            .iter()
            .filter(|change| fields::well_formed(&change.object))
        {
            for (controller, queue) in &mut self.controllers {
                controller.changed(store, change, queue);
            }
        }
    }

    fn next(&self) -> Option<Duration> {
        self.controllers
            .iter()
            .filter_map(|(_, queue)| queue.next())
            .min()
    }
}

/// All objects as if they had just been created.
fn everything(store: &Store) -> Vec<Change> {
    let revision = store.revision();
    KINDS
        .iter()
        .filter(|kind| kind.plural != "events")
        .flat_map(|kind| {
            store
                .list_shared(kind.plural)
                .into_iter()
                .map(|object| Change {
                    revision,
                    kind: ChangeKind::Added,
                    resource: kind.plural.to_owned(),
                    object,
                    previous: None,
                })
        })
        .collect()
}

/// A seed of its own for every named part of a world.
pub fn seed_of(seed: u64, name: &str) -> u64 {
    // FNV-1a: stable over Rust versions, unlike the standard hasher.
    name.bytes()
        .fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}
