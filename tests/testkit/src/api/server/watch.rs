//! watch: the history of a selection as a stream, from a revision on.
//!
//! An object that leaves the selection is DELETED *as it was before* (with the revision of the change), one that enters it is ADDED:
//! control-plane.md 6.g. Bookmarks come once a minute to those who asked for them, and at the end of streamed initial lists.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::read::{known, resource_version};
use super::shape::Shape;
use super::{Answer, Context, Server};
use crate::api::answer;
use crate::api::call::Call;
use crate::api::failure::Failure;
use crate::api::faults::{Broken, Epoch, Stream};
use crate::api::kinds::Kind;
use crate::api::selectors::Selection;
use crate::api::store::{Change, ChangeKind};

/// How long a watch lives that does not say, real seconds (real servers choose between 30 and 60 minutes).
const DEFAULT_TIMEOUT: u64 = 2400;
/// How long before its end a watch gets a last bookmark, real seconds.
const LAST_BOOKMARK: u64 = 2;
/// Real time between two bookmarks.
const BOOKMARK_EVERY: u64 = 60;

struct Watch {
    server: Arc<Server>,
    user: String,
    call: Call,
    kind: &'static Kind,
    selection: Selection,
    shape: Shape,
    /// Everything up to this revision has been queued.
    revision: u64,
    lines: VecDeque<Bytes>,
    ended: bool,
    /// Moments of simulated time.
    deadline: Duration,
    bookmark: Option<Duration>,
    began: Epoch,
    changes: watch::Receiver<u64>,
    faults: watch::Receiver<u64>,
}

impl Server {
    pub(super) fn watch(self: &Arc<Self>, context: &Context<'_>) -> Answer {
        let call = context.call;
        let selection = Selection::of(call)?;
        // The same complaint as a list's, but as a fault of the server's own.
        let asked = resource_version(call).map_err(|refused| Failure {
            code: 500,
            reason: None,
            message: refused
                .message
                .trim_start_matches("invalid resource version: ")
                .to_owned(),
            ..refused
        })?;
        let initial = call.is_true("sendInitialEvents");
        if initial && call.param("resourceVersionMatch") != "NotOlderThan" {
            let why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            return Err(Failure::invalid_field(
                "meta.k8s.io",
                "ListOptions",
                "",
                "resourceVersionMatch",
                why,
            ));
        }
        let now = self.clock().elapsed();
        let wire = |seconds: u64| Duration::from_secs(seconds).mul_f64(self.clock().speed());
        let timeout = call
            .param("timeoutSeconds")
            .parse()
            .ok()
            .filter(|seconds| *seconds > 0)
            .unwrap_or(DEFAULT_TIMEOUT);
        let mut watch = Watch {
            server: self.clone(),
            user: context.identity.user.clone(),
            call: call.clone(),
            kind: known(call)?,
            selection,
            shape: Shape::from_accept(context.accept),
            revision: asked.unwrap_or(0),
            lines: VecDeque::new(),
            ended: false,
            deadline: now + wire(timeout),
            bookmark: None,
            began: self.faults.epoch(),
            changes: self.store.changed(),
            faults: self.faults.changed(),
        };
        if call.is_true("allowWatchBookmarks") {
            watch.bookmark = Some(watch.next_bookmark(now));
        }
        if initial || asked.unwrap_or(0) == 0 {
            watch.queue_initial(initial);
        }
        Ok(answer::stream(stream::unfold(watch, Watch::step)))
    }
}

impl Watch {
    async fn step(mut self) -> Option<(io::Result<Bytes>, Self)> {
        let line = self.next().await?;
        Some((line, self))
    }

    /// The next line; `None` when the server closes the stream.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            let now = self.server.clock().elapsed();
            match self
                .server
                .faults
                .stream(&self.user, &self.call, self.began, now)
            {
                Stream::Breaks => {
                    return (!std::mem::replace(&mut self.ended, true)).then(|| {
                        Err(io::Error::new(
                            io::ErrorKind::ConnectionReset,
                            Broken::Reset,
                        ))
                    });
                }
                Stream::Closes => return None,
                Stream::Silent(until) => {
                    tokio::select! {
                        () = self.server.sleep_until(until) => {}
                        _ = self.faults.changed() => {}
                    }
                    continue;
                }
                Stream::Expires if !self.ended => self.queue_error(&Failure::expired(
                    "The resourceVersion for the provided watch is too old.",
                )),
                Stream::Expires | Stream::Flows => {}
            }
            if let Some(line) = self.lines.pop_front() {
                return Some(Ok(line));
            }
            if self.ended {
                return None;
            }
            self.queue_changes();
            if self.lines.is_empty() && !self.wait(now).await {
                return None;
            }
        }
    }

    /// Waits until there may be something to send; false when the time is over.
    async fn wait(&mut self, now: Duration) -> bool {
        if now >= self.deadline {
            return false;
        }
        if self.bookmark.is_some_and(|due| now >= due) {
            self.queue_bookmark(false);
            self.bookmark = Some(self.next_bookmark(now));
            return true;
        }
        let wake = self
            .bookmark
            .map_or(self.deadline, |due| due.min(self.deadline));
        tokio::select! {
            () = self.server.clock().sleep_until(wake) => {}
            _ = self.changes.changed() => {}
            _ = self.faults.changed() => {}
        }
        true
    }

    /// Once a minute, and shortly before the end.
    fn next_bookmark(&self, now: Duration) -> Duration {
        let wire = |seconds: u64| Duration::from_secs(seconds).mul_f64(self.server.clock().speed());
        let last = self.deadline.saturating_sub(wire(LAST_BOOKMARK));
        let regular = now + wire(BOOKMARK_EVERY);
        if last > now {
            regular.min(last)
        } else {
            regular
        }
    }

    fn queue_initial(&mut self, bookmark: bool) {
        let (objects, revision) = self.server.store.list_now(&self.call.resource);
        self.revision = revision;
        for object in &objects {
            if self.selection.matches(object) {
                self.queue("ADDED", object);
            }
        }
        if bookmark && self.bookmark.is_some() {
            self.queue_bookmark(true);
        }
    }

    fn queue_changes(&mut self) {
        self.changes.mark_unchanged();
        match self
            .server
            .store
            .changes_of(&self.call.resource, self.revision)
        {
            Ok((changes, revision)) => {
                self.revision = revision;
                for change in &changes {
                    self.queue_change(change);
                }
            }
            Err(expired) => self.queue_error(&Failure::expired(expired.to_string())),
        }
    }

    fn queue_change(&mut self, change: &Change) {
        let before = change
            .previous
            .as_deref()
            .filter(|object| self.selection.matches(object));
        let gone = change.kind == ChangeKind::Deleted;
        let after = Some(&*change.object).filter(|object| !gone && self.selection.matches(object));
        match (before, after) {
            (None, Some(after)) => self.queue("ADDED", after),
            (Some(_), Some(after)) => self.queue("MODIFIED", after),
            (Some(_), None) if gone => self.queue("DELETED", &change.object),
            (Some(before), None) => {
                let mut object = before.clone();
                object["metadata"]["resourceVersion"] = json!(change.revision.to_string());
                self.queue("DELETED", &object);
            }
            (None, None) => {}
        }
    }

    fn queue(&mut self, event: &str, object: &Value) {
        let line = if self.shape == Shape::Whole {
            format!("{{\"type\":\"{event}\",\"object\":{object}}}\n")
        } else {
            let object = self
                .shape
                .object(self.kind, object, self.server.clock().now());
            format!("{{\"type\":\"{event}\",\"object\":{object}}}\n")
        };
        self.lines.push_back(line.into());
    }

    fn queue_bookmark(&mut self, end_of_initial: bool) {
        let mut metadata =
            json!({"resourceVersion": self.revision.to_string(), "creationTimestamp": null});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata});
        self.queue("BOOKMARK", &object);
    }

    fn queue_error(&mut self, failure: &Failure) {
        self.lines.clear();
        self.ended = true;
        self.lines.push_back(
            format!("{}\n", json!({"type": "ERROR", "object": failure.status()})).into(),
        );
    }
}
