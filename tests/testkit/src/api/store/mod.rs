//! Which objects exist, at which revision, and what happened to them?
//!
//! Objects are JSON, named by plural resource, namespace (empty for cluster-scoped kinds) and name. Every change is one revision
//! and one entry of the history, as in etcd; watches and level-triggered controllers read the history. Nothing here checks rights or
//! asks webhooks: that is the server's part, and the simulated controllers work on the store directly.

mod deletion;
mod events;
mod state;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde_json::Value;
use tokio::sync::watch;

use super::failure::Failure;
use super::kinds;
use crate::clock::SimClock;
use state::State;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It was removed.
    Deleted,
}

/// One entry of the history.
#[derive(Clone, Debug)]
pub struct Change {
    /// The revision that this change made; also the `resourceVersion` in [`object`](Self::object).
    pub revision: u64,
    /// What happened.
    pub kind: ChangeKind,
    /// Plural resource.
    pub resource: String,
    /// The object after the change; for [`ChangeKind::Deleted`] the last state with the revision of the removal.
    pub object: Arc<Value>,
    /// The object before the change; `None` for [`ChangeKind::Added`].
    pub previous: Option<Arc<Value>>,
}

/// The history does not reach back to the revision that was asked for: list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct Expired {
    /// The revision that was asked for.
    pub asked: u64,
    /// The oldest revision after which the history is complete.
    pub oldest: u64,
}

/// All objects of the simulated cluster. Cheap to clone; all clones are the same store.
#[derive(Clone, Debug)]
pub struct Store {
    state: Arc<Mutex<State>>,
    newest: Arc<watch::Sender<u64>>,
    clock: SimClock,
}

impl Store {
    /// An empty store. `seed` decides uids and generated names, so that every run is the same.
    pub fn new(clock: SimClock, seed: u64) -> Self {
        let state = State::new(SmallRng::seed_from_u64(seed));
        let (newest, _) = watch::channel(state.revision());
        Self {
            state: Arc::new(Mutex::new(state)),
            newest: Arc::new(newest),
            clock,
        }
    }

    /// The clock that stamps the objects.
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// One object. `namespace` is empty for cluster-scoped kinds.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.get_shared(resource, namespace, name)
            .map(|object| (*object).clone())
    }

    /// Like [`get`](Self::get), without the copy.
    pub fn get_shared(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.lock().get(resource, namespace, name)
    }

    /// All objects of a resource, ordered by namespace and name.
    pub fn list(&self, resource: &str) -> Vec<Value> {
        self.list_shared(resource)
            .iter()
            .map(|object| (**object).clone())
            .collect()
    }

    /// Like [`list`](Self::list), without the copies.
    pub fn list_shared(&self, resource: &str) -> Vec<Arc<Value>> {
        self.lock().list(resource)
    }

    /// All objects of a resource and the revision at which this was true.
    pub fn list_now(&self, resource: &str) -> (Vec<Arc<Value>>, u64) {
        let state = self.lock();
        (state.list(resource), state.revision())
    }

    /// All objects of a resource as they were at `revision`.
    pub fn list_at(&self, resource: &str, revision: u64) -> Result<Vec<Arc<Value>>, Expired> {
        self.lock().list_at(resource, revision)
    }

    /// Creates an object and returns it as stored.
    ///
    /// Fills in uid (seeded), resourceVersion, creationTimestamp, generation, apiVersion and kind, and the suffix of a
    /// `generateName`. Fails with 409 for a name that is taken and 422 for no name at all. Does not look at the namespace object.
    pub fn create(&self, resource: &str, object: Value) -> Result<Value, Failure> {
        let mut object = object;
        let mut state = self.lock();
        state.prepare_create(resource, &mut object, &self.stamp())?;
        let created = state.insert(resource, object);
        self.publish(&state);
        Ok((*created).clone())
    }

    /// Fills in what [`create`](Self::create) would, and stores nothing (dry run).
    pub fn preview_create(&self, resource: &str, object: Value) -> Result<Value, Failure> {
        let mut object = object;
        self.lock()
            .prepare_create(resource, &mut object, &self.stamp())?;
        Ok(object)
    }

    /// Changes an object in one step, which is one MODIFIED event; returns the object after it, `None` when there is none.
    ///
    /// No event when `change` changed nothing. Name, namespace, uid, creationTimestamp and resourceVersion cannot be changed. When
    /// the object is being deleted and the change takes its last finalizer, it is removed.
    pub fn update(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Option<Value> {
        let attempt = |object: &mut Value| {
            change(object);
            Ok::<(), std::convert::Infallible>(())
        };
        self.try_update(resource, namespace, name, attempt)
            .map(|Ok(object)| object)
    }

    /// Like [`update`](Self::update) for a change that may refuse: then nothing is written.
    pub fn try_update<E>(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value) -> Result<(), E>,
    ) -> Option<Result<Value, E>> {
        let mut state = self.lock();
        let before = state.get(resource, namespace, name)?;
        let mut object = (*before).clone();
        if let Err(refusal) = change(&mut object) {
            return Some(Err(refusal));
        }
        let after = state.write(resource, &before, object);
        self.publish(&state);
        Some(Ok((*after).clone()))
    }

    /// Puts an object in as another server has it, with its uid and dates: one event, none when nothing is new. Only the
    /// `resourceVersion` is this store's own.
    pub fn mirror(&self, resource: &str, object: Value) -> Option<Arc<Value>> {
        let mut state = self.lock();
        let stored = state.mirror(resource, object);
        self.publish(&state);
        stored
    }

    /// Takes an object out, whatever its finalizers say.
    pub fn forget(&self, resource: &str, namespace: &str, name: &str) {
        let mut state = self.lock();
        if let Some(before) = state.get(resource, namespace, name) {
            state.remove(resource, &before, (*before).clone());
            self.publish(&state);
        }
    }

    /// What [`try_update`](Self::try_update) would store, without storing it (dry run).
    pub fn preview_update<E>(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value) -> Result<(), E>,
    ) -> Option<Result<Value, E>> {
        let mut object = self.get(resource, namespace, name)?;
        Some(change(&mut object).map(|()| object))
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.lock().revision()
    }

    /// Tells the newest revision whenever there is a new one.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Everything that happened after `revision`, oldest first.
    pub fn changes_since(&self, revision: u64) -> Result<Vec<Change>, Expired> {
        self.lock().changes_since(revision)
    }

    /// What happened to one resource after `revision`, and the newest revision of all (up to which this is complete).
    pub fn changes_of(&self, resource: &str, revision: u64) -> Result<(Vec<Change>, u64), Expired> {
        let state = self.lock();
        Ok((state.changes_of(resource, revision)?, state.revision()))
    }

    /// Whether anything lives in a namespace, whatever its Namespace object says.
    pub fn is_namespace_used(&self, namespace: &str) -> bool {
        self.lock().is_namespace_used(namespace)
    }

    /// Forgets the history: watches and pages of older revisions get 410 from now on.
    pub fn compact(&self) {
        self.lock().compact();
    }

    /// The date as Kubernetes writes it (whole seconds).
    pub fn stamp(&self) -> String {
        timestamp(self.clock.now())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of one test task must not hide what the others see: the state is only changed by whole steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, state: &State) {
        let revision = state.revision();
        self.newest
            .send_if_modified(|newest| std::mem::replace(newest, revision) != revision);
    }
}

/// RFC 3339 in whole seconds, as in `metadata.creationTimestamp`.
pub fn timestamp(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether a resource counts the changes of its spec in `metadata.generation`.
fn counts_generation(resource: &str) -> bool {
    kinds::by_plural(resource).is_some_and(|kind| kind.generation)
}
