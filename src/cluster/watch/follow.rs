//! Following one kind of object: list, watch, and everything that can end a watch.
//!
//! | end of a watch | reaction |
//! |---|---|
//! | the server closes it, its time is over | open again from the last version |
//! | silence | the same: the request itself proves whether the server lives |
//! | silence, and the next watch at once brings what this one has missed | it was dead, and probably the others are: all are opened again |
//! | 410, in the stream or as HTTP status | list anew; the list replaces everything |
//! | 401 | the connection reads the credentials again and repeats the request once |
//! | 403, 404 of the kind | tell it, look again slowly |
//! | anything else | pause with growing backoff; after three failures in a row list anew |

use super::Scene;
use super::backoff::Backoff;
use super::board::Slots;
use super::event::Event;
use super::slot::{Change, Slot};
use crate::agent::ports::Clock;
use crate::cluster::collection::{Collection, list};
use crate::cluster::fault;
use crate::cluster::types::Thin;
use crate::drain::action::{Fault, FaultClass};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Failures of the watch in a row after which a list is asked for the reason.
const STRIKES: u32 = 3;
/// What comes this soon after the opening had happened before it.
const AT_ONCE: Duration = Duration::from_secs(1);
/// A watch that lived this long was a good one, also when nothing happened in it.
const GOOD_WATCH: Duration = Duration::from_secs(5);

/// One kind being followed.
pub(super) struct Follower<V, C> {
    pub(super) scene: Arc<Scene<C>>,
    pub(super) collection: Collection,
    /// Where it is written down.
    pub(super) slot: fn(&mut Slots) -> &mut Slot<V>,
    /// Longest silence of a watch.
    pub(super) silence: Duration,
}

/// How a watch ended.
enum End {
    /// By the server, in order.
    Closed,
    /// Nothing was heard for too long.
    Silent,
    /// The version is too old.
    Expired,
    /// Something went wrong.
    Failed(Fault),
}

impl<V: Clone + PartialEq + Send + Sync + 'static, C: Clock> Follower<V, C> {
    /// Follows for ever.
    pub(super) async fn follow<T: Thin<View = V> + Clone + Send>(self) {
        let (mut retry, mut refused) = self.backoffs();
        let mut denials = 0;
        loop {
            let now = self.scene.clock.now();
            let timing = &self.scene.timing;
            let door = self.scene.doors.enter().await;
            let listed = list::<T>(&self.scene.connection, &self.collection, timing, now).await;
            drop(door);
            let failure = match listed {
                Ok(listing) => {
                    let now = self.scene.clock.now();
                    self.edit(|slot| slot.replace(&listing, now));
                    denials = 0;
                    refused.reset();
                    self.watch::<T>(listing.version, &mut retry).await
                }
                Err(fault) => Some(fault),
            };
            let pause = match failure {
                None => retry.pause(),
                Some(fault) if matches!(fault.class, FaultClass::Denied | FaultClass::Gone) => {
                    denials += 1;
                    self.refused(&fault, denials);
                    refused.pause()
                }
                Some(fault) => {
                    self.failed(&fault);
                    retry.pause()
                }
            };
            sleep(pause).await;
        }
    }

    /// Lists again and again without watching; `pause` answers how long to wait after a list that worked.
    pub(super) async fn poll<T: Thin<View = V>, W: Future<Output = ()>>(
        self,
        pause: impl Fn() -> W,
    ) {
        let (mut retry, mut refused) = self.backoffs();
        let mut denials = 0;
        loop {
            let now = self.scene.clock.now();
            let timing = &self.scene.timing;
            let door = self.scene.doors.enter().await;
            let listed = list::<T>(&self.scene.connection, &self.collection, timing, now).await;
            drop(door);
            match listed {
                Ok(listing) => {
                    let now = self.scene.clock.now();
                    self.edit(|slot| slot.replace(&listing, now));
                    denials = 0;
                    retry.reset();
                    refused.reset();
                    pause().await;
                }
                Err(fault) if matches!(fault.class, FaultClass::Denied | FaultClass::Gone) => {
                    denials += 1;
                    self.refused(&fault, denials);
                    sleep(refused.pause()).await;
                }
                Err(fault) => {
                    self.failed(&fault);
                    sleep(retry.pause()).await;
                }
            }
        }
    }

    /// Watches from `version` on until a new list is needed; a failure is the reason for it.
    async fn watch<T: Thin<View = V> + Clone + Send>(
        &self,
        mut version: String,
        retry: &mut Backoff,
    ) -> Option<Fault> {
        let (mut strikes, mut silent) = (0, false);
        loop {
            let opened = self.scene.clock.now();
            let mut productive = false;
            let end = self.once::<T>(&mut version, silent, &mut productive).await;
            silent = matches!(end, End::Silent);
            if productive || self.scene.clock.now().since(opened) >= GOOD_WATCH {
                retry.reset();
                strikes = 0;
            }
            match end {
                End::Expired => return None,
                End::Failed(fault)
                    if matches!(fault.class, FaultClass::Denied | FaultClass::Gone) =>
                {
                    return Some(fault);
                }
                End::Failed(fault) => {
                    strikes += 1;
                    if strikes >= STRIKES {
                        return Some(fault);
                    }
                    self.failed(&fault);
                    sleep(retry.pause()).await;
                }
                End::Closed | End::Silent => {
                    strikes = 0;
                    if self.scene.clock.now().since(opened) < GOOD_WATCH {
                        sleep(retry.pause()).await;
                    }
                }
            }
        }
    }

    /// One watch request, from its opening to its end.
    async fn once<T: Thin<View = V> + Clone + Send>(
        &self,
        version: &mut String,
        after_silence: bool,
        productive: &mut bool,
    ) -> End {
        let timing = &self.scene.timing;
        let what = self.collection.watch_what();
        let request = match self.collection.watch_request(version, timing) {
            Ok(request) => request,
            Err(fault) => return End::Failed(fault),
        };
        let now = self.scene.clock.now();
        let door = self.scene.doors.enter().await;
        let opening = self.scene.connection.watch(now, request);
        let opened = timeout(timing.request, opening).await;
        drop(door);
        let stream = match opened {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return ended(&what, &error),
            Err(_) => {
                let seconds = timing.request.as_secs_f64();
                return End::Failed(fault::timed_out(&what, seconds));
            }
        };
        let opened = self.scene.clock.now();
        self.edit(|slot| slot.alive(opened));
        let mut stream = std::pin::pin!(stream);
        loop {
            let next = tokio::select! {
                biased;
                next = timeout(self.silence, stream.next()) => next,
                () = self.scene.suspicion.notified() => return End::Closed,
            };
            match next {
                Err(_) => return End::Silent,
                Ok(None) => return End::Closed,
                Ok(Some(Err(error))) if fault::was_cut_off(&error) => return End::Closed,
                Ok(Some(Err(error))) => return ended(&what, &kube::Error::ReadEvents(error)),
                Ok(Some(Ok(line))) => {
                    let event = match Event::read::<T>(&line) {
                        Ok(Some(event)) => event,
                        Ok(None) => continue,
                        Err(error) => return ended(&what, &error),
                    };
                    let missed = after_silence && !*productive && event.is_change();
                    if missed && self.scene.clock.now().since(opened) < AT_ONCE {
                        self.scene.suspicion.notify_waiters();
                    }
                    if let Some(end) = self.take(&what, event, version) {
                        return end;
                    }
                    *productive = true;
                }
            }
        }
    }

    /// Writes an event down; an ERROR event ends the watch.
    fn take(&self, what: &str, event: Event<V>, version: &mut String) -> Option<End> {
        let now = self.scene.clock.now();
        match event {
            Event::Changed(object) => {
                newer(version, &object.version);
                self.edit(|slot| slot.apply(&object, now));
            }
            Event::Deleted(object) => {
                newer(version, &object.version);
                self.edit(|slot| slot.remove(&object, now));
            }
            Event::Bookmark(seen) => {
                newer(version, &seen);
                self.edit(|slot| slot.alive(now));
            }
            Event::Error(status) => return Some(ended(what, &kube::Error::Api(status))),
        }
        None
    }

    fn refused(&self, fault: &Fault, denials: u32) {
        let why = self.collection.forbidden(fault);
        let missing = fault.class == FaultClass::Gone;
        let (now, keep) = (self.scene.clock.now(), self.scene.timing.keep);
        tracing::debug!(what = %self.collection.what, %why, missing, "cannot be seen");
        self.edit(|slot| match (missing, denials) {
            // Right after its start an API server refuses what it allows a second later.
            (false, ..=1) if slot.is_seen() => slot.failed(why, now, keep),
            (false, _) => slot.forbidden(why),
            (true, _) => slot.missing(),
        });
    }

    fn failed(&self, fault: &Fault) {
        let (now, keep) = (self.scene.clock.now(), self.scene.timing.keep);
        tracing::debug!(what = %self.collection.what, why = %fault.text, "cannot be seen now");
        self.edit(|slot| slot.failed(fault.text.clone(), now, keep));
    }

    fn edit(&self, write: impl FnOnce(&mut Slot<V>) -> Change) {
        self.scene.board.edit(|slots| write((self.slot)(slots)));
    }

    /// For failures, and for refusals.
    fn backoffs(&self) -> (Backoff, Backoff) {
        let timing = &self.scene.timing;
        let salt = format!("{} {}", self.scene.node, self.collection.what);
        let most = if self.collection.vital {
            timing.refused_vital
        } else {
            timing.refused_most
        };
        (
            Backoff::new(timing.retry_first, timing.retry_most, 2, &salt),
            Backoff::new(timing.refused_first, most, 4, &salt),
        )
    }
}

/// What an error in or before the stream means.
fn ended(what: &str, error: &kube::Error) -> End {
    if let kube::Error::Api(status) = error
        && (status.code == 410 || status.reason == "Expired")
    {
        return End::Expired;
    }
    End::Failed(fault::from_kube(what, error))
}

/// Unreadable objects have no version: the one before stays.
fn newer(version: &mut String, seen: &str) {
    if !seen.is_empty() {
        seen.clone_into(version);
    }
}
