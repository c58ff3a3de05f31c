//! What is known of one kind of object: its newest state, how fresh it is, or why there is none.

use crate::cluster::collection::Listing;
use crate::cluster::types::Guarded;
use crate::cluster::types::guard::malformed;
use crate::drain::time::Mono;
use crate::drain::world::{Malformed, Sight};
use std::collections::BTreeMap;
use std::time::Duration;

/// Whether the kind can be seen.
#[derive(Clone, Debug, Default, PartialEq)]
enum Standing {
    #[default]
    Pending,
    Seen,
    Forbidden(String),
    Missing,
    Broken {
        why: String,
        since: Mono,
    },
}

/// Newest state of one list or watch.
#[derive(Clone, Debug)]
pub(crate) struct Slot<V> {
    resource: &'static str,
    standing: Standing,
    /// Last sign of life.
    fresh: Mono,
    /// When the failures began that nothing has ended yet.
    failing: Option<Mono>,
    /// By namespace and name.
    items: BTreeMap<(String, String), Item<V>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Item<V> {
    version: String,
    view: Result<V, Malformed>,
}

/// Whether a picture made from the slot would look different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// Not at all.
    Nothing,
    /// The same, but fresher.
    Fresher,
    /// Different.
    Different,
}

impl<V: Clone + PartialEq> Slot<V> {
    pub(super) fn new(resource: &'static str) -> Self {
        Self {
            resource,
            standing: Standing::Pending,
            fresh: Mono::default(),
            failing: None,
            items: BTreeMap::new(),
        }
    }

    /// A list replaces everything: what is not in it is gone.
    pub(super) fn replace(&mut self, listing: &Listing<V>, now: Mono) -> Change {
        let items: BTreeMap<_, _> = listing
            .items
            .iter()
            .map(|object| (key(object), self.item(object)))
            .collect();
        let changed = if items == self.items {
            Change::Fresher
        } else {
            Change::Different
        };
        self.items = items;
        self.alive(now).max(changed)
    }

    /// An object was added or changed.
    pub(super) fn apply(&mut self, object: &Guarded<V>, now: Mono) -> Change {
        let item = self.item(object);
        let before = self.items.insert(key(object), item.clone());
        let changed = if before.is_some_and(|before| before.view == item.view) {
            Change::Fresher
        } else {
            Change::Different
        };
        self.alive(now).max(changed)
    }

    /// An object is gone, or does not match the selector any more; the event shows it as it was before.
    pub(super) fn remove(&mut self, object: &Guarded<V>, now: Mono) -> Change {
        let changed = if self.items.remove(&key(object)).is_some() {
            Change::Different
        } else {
            Change::Fresher
        };
        self.alive(now).max(changed)
    }

    /// A sign of life: the server has confirmed what we know.
    pub(super) fn alive(&mut self, now: Mono) -> Change {
        self.fresh = now;
        self.failing = None;
        self.stand(Standing::Seen).max(Change::Fresher)
    }

    /// Nobody may look.
    pub(super) fn forbidden(&mut self, why: String) -> Change {
        self.items.clear();
        self.stand(Standing::Forbidden(why))
    }

    /// The kind does not exist.
    pub(super) fn missing(&mut self) -> Change {
        self.items.clear();
        self.stand(Standing::Missing)
    }

    /// A request failed. What was seen before stays for `keep`, growing old; then the kind is broken.
    pub(super) fn failed(&mut self, why: String, now: Mono, keep: Duration) -> Change {
        let since = *self.failing.get_or_insert(now);
        if self.standing == Standing::Seen && now.since(self.fresh) < keep {
            return Change::Nothing;
        }
        self.stand(Standing::Broken { why, since })
    }

    /// The kind is seen.
    pub(super) fn is_seen(&self) -> bool {
        self.standing == Standing::Seen
    }

    fn stand(&mut self, standing: Standing) -> Change {
        let changed = self.standing != standing;
        self.standing = standing;
        if changed {
            Change::Different
        } else {
            Change::Nothing
        }
    }

    fn item(&self, object: &Guarded<V>) -> Item<V> {
        Item {
            version: object.version.clone(),
            view: object
                .view
                .clone()
                .map_err(|why| malformed(self.resource, &object.at, why)),
        }
    }

    /// As the core sees it, made from all readable objects.
    pub(super) fn sight<T>(&self, make: impl FnOnce(&Self) -> T) -> Sight<T> {
        match &self.standing {
            Standing::Pending => Sight::Pending,
            Standing::Seen => Sight::Seen {
                value: make(self),
                fresh: self.fresh,
            },
            Standing::Forbidden(why) => Sight::Forbidden { why: why.clone() },
            Standing::Missing => Sight::Missing,
            Standing::Broken { why, since } => Sight::Broken {
                why: why.clone(),
                since: *since,
            },
        }
    }

    /// An object of this name was read, whatever came of it.
    pub(super) fn knows(&self, namespace: &str, name: &str) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        self.items.contains_key(&key)
    }

    /// The readable objects, in the order of their names.
    pub(super) fn views(&self) -> impl Iterator<Item = &V> {
        self.items
            .values()
            .filter_map(|item| item.view.as_ref().ok())
    }

    /// The readable objects with namespace, name and resourceVersion.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&(String, String), &str, &V)> {
        self.items.iter().filter_map(|(key, item)| {
            let view = item.view.as_ref().ok()?;
            Some((key, item.version.as_str(), view))
        })
    }

    /// The unreadable ones.
    pub(super) fn malformed(&self) -> impl Iterator<Item = &Malformed> {
        self.items
            .values()
            .filter_map(|item| item.view.as_ref().err())
    }
}

fn key<V>(object: &Guarded<V>) -> (String, String) {
    (object.at.namespace.clone(), object.at.name.clone())
}
