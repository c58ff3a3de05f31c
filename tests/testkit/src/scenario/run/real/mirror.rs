//! What is seen of a real cluster: watches that fill a store, for everything that looks at stores.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::{Stream, StreamExt as _, stream};
use kube::api::{Api, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::actors::feed::resource;
use crate::api::Store;
use crate::api::kinds::by_plural;
use crate::api::log::{Filter, Log};
use crate::kubevirt::VirtApi;
use crate::kubevirt::fields::{name, namespace, text};
use crate::kubevirt::names::kind;
use crate::plane::Caller;

/// What observers, rules and expectations look at.
const FOLLOWED: [&str; 7] = [
    kind::NODES,
    kind::PODS,
    kind::VMS,
    kind::VMIS,
    kind::VMIMS,
    kind::PDBS,
    "events",
];

type Changes = Pin<Box<dyn Stream<Item = (&'static str, Event<DynamicObject>)> + Send>>;

/// Follows a cluster until it is dropped.
pub struct Mirror {
    task: JoinHandle<()>,
    /// Plurals whose first list is complete.
    complete: watch::Receiver<usize>,
    log: Arc<OnceLock<Log>>,
    others: Cancelled,
}

/// VMIs whose mark others take away.
type Cancelled = Arc<Mutex<BTreeSet<(String, String)>>>;

impl Mirror {
    /// Begins to follow. Needs a tokio runtime.
    pub(super) fn start(admin: &Caller, store: &Store, virt_api: &VirtApi) -> Self {
        let (tell, complete) = watch::channel(0);
        let (log, others) = (Arc::default(), Cancelled::default());
        let follower = Follower {
            store: store.clone(),
            virt_api: virt_api.clone(),
            log: Arc::clone(&log),
            others: others.clone(),
            listed: BTreeSet::new(),
            complete: tell,
        };
        let all = stream::select_all(FOLLOWED.map(|plural| changes(admin, plural)));
        Self {
            task: tokio::spawn(follower.run(all)),
            complete,
            log,
            others,
        }
    }

    /// From now on it is known who cancelled what.
    pub(super) fn asks(&self, log: &Log) {
        // A mirror has one story, and a story one log.
        let _ = self.log.set(log.clone());
    }

    /// Somebody other than the agent takes the mark of this VMI away.
    pub(in super::super) fn somebody_cancels(&self, vmi: &Value) {
        let who = (namespace(vmi).to_owned(), name(vmi).to_owned());
        self.others
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(who);
    }

    /// Waits until everything that is there has been seen.
    pub async fn complete(&self) {
        let mut complete = self.complete.clone();
        // The sender lives as long as the task.
        let _ = complete.wait_for(|count| *count == FOLLOWED.len()).await;
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn changes(admin: &Caller, plural: &'static str) -> Changes {
    let api: Api<DynamicObject> = Api::all_with(admin.client(), &resource(plural));
    let events = watcher(api, watcher::Config::default()).default_backoff();
    // The watcher tries again by itself.
    Box::pin(events.filter_map(move |event| async move { Some((plural, event.ok()?)) }))
}

struct Follower {
    store: Store,
    virt_api: VirtApi,
    log: Arc<OnceLock<Log>>,
    others: Cancelled,
    /// Names in the list that is under way.
    listed: BTreeSet<(&'static str, String, String)>,
    complete: watch::Sender<usize>,
}

impl Follower {
    async fn run(
        mut self,
        mut all: impl Stream<Item = (&'static str, Event<DynamicObject>)> + Unpin,
    ) {
        while let Some((plural, event)) = all.next().await {
            match event {
                Event::Init => self.listed.retain(|(own, ..)| *own != plural),
                Event::InitApply(object) => {
                    if let Some(object) = value(plural, &object) {
                        let (space, own) =
                            (namespace(&object).to_owned(), name(&object).to_owned());
                        self.listed.insert((plural, space, own));
                        self.put(plural, object);
                    }
                }
                Event::InitDone => {
                    for known in self.store.list_shared(plural) {
                        let (space, own) = (namespace(&known).to_owned(), name(&known).to_owned());
                        if !self.listed.contains(&(plural, space.clone(), own.clone())) {
                            self.store.forget(plural, &space, &own);
                        }
                    }
                    self.complete.send_modify(|count| *count += 1);
                }
                Event::Apply(object) => {
                    if let Some(object) = value(plural, &object) {
                        self.put(plural, object);
                    }
                }
                Event::Delete(object) => {
                    if let Some(object) = value(plural, &object) {
                        // Its last state, then its end.
                        self.put(plural, object.clone());
                        self.store.forget(plural, namespace(&object), name(&object));
                    }
                }
            }
        }
    }

    fn put(&self, plural: &str, object: Value) {
        let (space, own) = (namespace(&object).to_owned(), name(&object).to_owned());
        let before = self.store.get_shared(plural, &space, &own);
        let Some(after) = self.store.mirror(plural, object) else {
            return;
        };
        let marked = |vmi: &Value| !text(vmi, "status.evacuationNodeName").is_empty();
        let unmarked = before.is_some_and(|before| marked(&before)) && !marked(&after);
        if plural == kind::VMIS && unmarked && self.was_cancelled(&space, &own) {
            self.virt_api.note_cancel(&after);
        }
    }

    /// Whether somebody has asked through this story's server.
    fn was_cancelled(&self, space: &str, vmi: &str) -> bool {
        let filter = Filter {
            subresource: "evacuate/cancel".into(),
            namespace: space.into(),
            name: vmi.into(),
            ..Filter::default()
        };
        let asked = self.log.get().is_some_and(|log| log.count(&filter) > 0);
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        asked || others.contains(&(space.to_owned(), vmi.to_owned()))
    }
}

/// As the store keeps it: with version and kind, without what only the server reads.
fn value(plural: &str, object: &DynamicObject) -> Option<Value> {
    let mut value = serde_json::to_value(object).ok()?;
    let kind = by_plural(plural)?;
    value["apiVersion"] = json!(kind.api_version());
    value["kind"] = json!(kind.kind);
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Some(value)
}
