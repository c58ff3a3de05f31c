//! What did the API server see? Every request, in order, for expectations and invariants.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::call::Call;
use super::identity::Identity;

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Simulated time at which it arrived.
    pub at: Duration,
    /// Simulated time at which it was answered (for a watch: at which the stream began); `None` while it is under way or when the
    /// connection was dropped.
    pub answered: Option<Duration>,
    /// User name.
    pub user: String,
    /// `User-Agent` header.
    pub agent: String,
    /// RBAC verb; for paths that are no resources the method in small letters.
    pub verb: String,
    /// Plural resource; empty for paths that are no resources.
    pub resource: String,
    /// Everything after the name: `eviction`, `status`, `evacuate/cancel`.
    pub subresource: String,
    /// Namespace, if any.
    pub namespace: String,
    /// Name in the path, if any.
    pub name: String,
    /// The path.
    pub path: String,
    /// Whether a dry run was asked for, in the query or in the body.
    pub dry_run: bool,
    /// For evictions and deletes: the UID precondition.
    pub uid: Option<String>,
    /// The body, when it is JSON.
    pub body: Option<Value>,
    /// HTTP status of the answer; `None` when there was none.
    pub status: Option<u16>,
    /// Message of a refusal, empty otherwise.
    pub message: String,
}

/// Which entries are meant; an empty field means any, a `*` at the end of a name any rest.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// User name.
    pub user: String,
    /// RBAC verb.
    pub verb: String,
    /// Plural resource.
    pub resource: String,
    /// Subresource; `-` means none.
    pub subresource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Filter {
    /// Whether an entry is meant.
    pub fn matches(&self, entry: &Entry) -> bool {
        let Entry {
            user,
            verb,
            resource,
            subresource,
            namespace,
            name,
            ..
        } = entry;
        self.fits(user, [verb, resource, subresource, namespace, name])
    }

    /// Whether a request is meant.
    pub fn matches_call(&self, user: &str, call: &Call) -> bool {
        let Call {
            verb,
            resource,
            rest,
            namespace,
            name,
            ..
        } = call;
        self.fits(user, [verb, resource, rest, namespace, name])
    }

    fn fits(&self, user: &str, values: [&String; 5]) -> bool {
        let [verb, resource, subresource, namespace, name] = values;
        let fits = |wanted: &str, value: &str| wanted.is_empty() || wildcard(wanted, value);
        let sub = if self.subresource == "-" {
            subresource.is_empty()
        } else {
            fits(&self.subresource, subresource)
        };
        sub && fits(&self.user, user)
            && fits(&self.verb, verb)
            && fits(&self.resource, resource)
            && fits(&self.namespace, namespace)
            && fits(&self.name, name)
    }
}

/// Whether `value` is `pattern`, which may end in `*`.
pub fn wildcard(pattern: &str, value: &str) -> bool {
    pattern
        .strip_suffix('*')
        .map_or(pattern == value, |prefix| value.starts_with(prefix))
}

/// The request log. Cheap to clone; all clones are the same log.
#[derive(Clone, Debug, Default)]
pub struct Log {
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Log {
    /// Everything so far, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().clone()
    }

    /// Everything from index `from` on.
    pub fn entries_from(&self, from: usize) -> Vec<Entry> {
        self.lock()
            .get(from..)
            .map(<[Entry]>::to_vec)
            .unwrap_or_default()
    }

    /// One entry, once it has an answer. For whoever waits for many of them: nothing else is copied.
    pub fn answered(&self, index: usize) -> Option<Entry> {
        let log = self.lock();
        let entry = log.get(index).filter(|entry| entry.status.is_some());
        entry.cloned()
    }

    /// How many requests there were.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The entries that a filter means.
    pub fn find(&self, filter: &Filter) -> Vec<Entry> {
        self.lock()
            .iter()
            .filter(|entry| filter.matches(entry))
            .cloned()
            .collect()
    }

    /// How many entries a filter means.
    pub fn count(&self, filter: &Filter) -> usize {
        self.lock()
            .iter()
            .filter(|entry| filter.matches(entry))
            .count()
    }

    /// Forgets everything (between two measurements).
    pub fn clear(&self) {
        self.lock().clear();
    }

    pub(super) fn begin(
        &self,
        at: Duration,
        identity: &Identity,
        agent: &str,
        call: &Call,
        body: Option<Value>,
    ) -> usize {
        let options = body.as_ref().map(|body| {
            if call.subresource == "eviction" {
                &body["deleteOptions"]
            } else {
                body
            }
        });
        let dry_run =
            call.is_dry_run() || options.is_some_and(|options| options["dryRun"][0] == "All");
        let uid = options
            .and_then(|options| options["preconditions"]["uid"].as_str())
            .map(str::to_owned);
        let entry = Entry {
            at,
            answered: None,
            user: identity.user.clone(),
            agent: agent.to_owned(),
            verb: call.verb.clone(),
            resource: call.resource.clone(),
            subresource: call.rest.clone(),
            namespace: call.namespace.clone(),
            name: call.name.clone(),
            path: call.path.clone(),
            dry_run,
            uid,
            body,
            status: None,
            message: String::new(),
        };
        let mut entries = self.lock();
        entries.push(entry);
        entries.len() - 1
    }

    pub(super) fn end(&self, index: usize, at: Duration, status: u16, message: &str) {
        // The log may have been cleared in between.
        if let Some(entry) = self.lock().get_mut(index) {
            entry.answered = Some(at);
            entry.status = Some(status);
            message.clone_into(&mut entry.message);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
