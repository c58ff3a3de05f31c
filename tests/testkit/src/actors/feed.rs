//! What are the newest objects of a kind that an actor may see?

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;
use tokio::sync::watch;

use crate::api::kinds::by_plural;
use crate::kubevirt::fields;

/// Objects by namespace and name.
pub type Objects = BTreeMap<(String, String), Arc<Value>>;

/// The API resource of a plural that the simulator knows.
pub fn resource(plural: &str) -> ApiResource {
    match by_plural(plural) {
        Some(kind) => ApiResource {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            api_version: kind.api_version(),
            kind: kind.kind.to_owned(),
            plural: kind.plural.to_owned(),
        },
        None => ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: plural.to_owned(),
            plural: plural.to_owned(),
        },
    }
}

/// A watched list; clones share it.
#[derive(Clone, Debug)]
pub struct Feed {
    /// `None` until the first list is complete.
    objects: Arc<Mutex<Option<Objects>>>,
    changed: Arc<watch::Sender<u64>>,
}

impl Feed {
    /// Watches a resource for ever, in a task that the returned handle owns.
    pub fn start(
        client: &kube::Client,
        plural: &str,
        selector: watcher::Config,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let feed = Self {
            objects: Arc::default(),
            changed: Arc::new(watch::channel(0).0),
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(plural));
        let task = tokio::spawn(feed.clone().follow(api, selector));
        (feed, task)
    }

    async fn follow(self, api: Api<DynamicObject>, selector: watcher::Config) {
        let mut events = std::pin::pin!(watcher(api, selector).default_backoff());
        let mut fresh = Objects::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => fresh.clear(),
                Ok(Event::InitApply(object)) => insert(&mut fresh, &object),
                Ok(Event::InitDone) => self.change(|objects| *objects = std::mem::take(&mut fresh)),
                Ok(Event::Apply(object)) => self.change(|objects| insert(objects, &object)),
                Ok(Event::Delete(object)) => self.change(|objects| {
                    let metadata = object.metadata;
                    objects.remove(&(
                        metadata.namespace.unwrap_or_default(),
                        metadata.name.unwrap_or_default(),
                    ));
                }),
                // The watcher tries again by itself.
                Err(_) => {}
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Objects)) {
        change(
            self.objects
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert_default(),
        );
        self.changed.send_modify(|count| *count += 1);
    }

    /// What is there now; `None` before the first list is complete.
    pub fn objects(&self) -> Option<Objects> {
        self.objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Tells whenever something changed.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

fn insert(objects: &mut Objects, object: &DynamicObject) {
    if let Ok(value) = serde_json::to_value(object) {
        if !fields::well_formed(&value) {
            return;
        }
        objects.insert(
            (
                fields::namespace(&value).to_owned(),
                fields::name(&value).to_owned(),
            ),
            Arc::new(value),
        );
    }
}
