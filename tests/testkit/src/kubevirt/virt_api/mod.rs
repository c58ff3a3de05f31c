//! What does virt-api answer: webhooks on evictions, VMIs and VMIMs, and the aggregated subresources?

mod eviction;
mod limiter;
pub(crate) mod subresources;
pub(crate) mod writes;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::settings::Settings;
use crate::api::{Admission, EvictionRequest, Failure, Later, Store, SubresourceRequest};
use crate::kubernetes::engine::{Switch, Unavailable};
use limiter::Limiter;

/// Why a webhook did not answer.
const REFUSED: &str = "dial tcp 10.96.0.20:443: connect: connection refused";

/// The simulated virt-api; clones are the same one.
#[derive(Clone)]
pub struct VirtApi {
    store: Store,
    settings: Arc<Settings>,
    limiter: Arc<Mutex<Limiter>>,
    /// Revisions at which a mark was cancelled.
    cancels: Arc<Mutex<BTreeSet<String>>>,
    /// Off: connections are refused.
    pub process: Switch,
    /// Off: connections are taken and nothing answers.
    pub answers: Switch,
}

impl VirtApi {
    /// A virt-api that runs and answers.
    pub fn new(store: Store, settings: Settings) -> Self {
        let rate = if settings.since(1, 6) {
            (200.0, 400.0)
        } else {
            settings.timings.api_rate
        };
        let clock = store.clock().clone();
        Self {
            store,
            settings: Arc::new(settings),
            limiter: Arc::new(Mutex::new(Limiter::new(rate.0, rate.1))),
            cancels: Arc::default(),
            process: Switch::new(clock.clone()),
            answers: Switch::new(clock),
        }
    }

    /// The configuration that it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Refuses connections until this simulated time.
    pub fn down(&self, until: Duration) {
        self.process.down_until(until);
    }

    /// Takes connections and does not answer until this simulated time.
    pub fn hang(&self, until: Duration) {
        self.answers.down_until(until);
    }

    /// Whether webhooks answer; without them no VMI, VM or VMIM can be written by anybody.
    pub fn check(&self) -> Result<(), Unavailable> {
        if self.process.is_up() && self.answers.is_up() {
            Ok(())
        } else {
            Err(Unavailable)
        }
    }

    /// Remembers that this state of a VMI lost its mark by a cancel.
    pub(crate) fn note_cancel(&self, vmi: &Value) {
        let revision = super::fields::text(vmi, "metadata.resourceVersion").to_owned();
        self.cancels
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(revision);
    }

    /// Whether the change that made this revision was a cancel.
    pub(crate) fn was_cancelled(&self, revision: &str) -> bool {
        self.cancels
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(revision)
    }

    /// When virt-api's own API client will have made `requests` requests, from now.
    pub fn reserve(&self, requests: u32) -> Duration {
        let now = self.store.clock().elapsed();
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        (0..requests)
            .map(|_| limiter.reserve(now))
            .last()
            .unwrap_or_default()
    }

    /// Waits until virt-api's own API client may make one request.
    async fn one_request(&self) {
        let wait = self.reserve(1);
        if !wait.is_zero() {
            self.store.clock().sleep(wait).await;
        }
    }

    /// What the API server answers when it cannot reach the webhook `entry`; `None` when it can.
    async fn unreachable(&self, entry: &str, path: &str) -> Option<Failure> {
        if !self.process.is_up() {
            return Some(call_failed(entry, path, REFUSED));
        }
        if !self.answers.is_up() {
            tokio::select! {
                () = self.store.clock().sleep(self.settings.timings.webhook_timeout) => {}
                () = self.answers.wait_up() => return None,
            }
            return Some(call_failed(entry, path, "context deadline exceeded"));
        }
        None
    }
}

/// 500, what a webhook that cannot be reached costs.
fn call_failed(entry: &str, path: &str, why: &str) -> Failure {
    Failure::internal(format!(
        "failed calling webhook {entry:?}: failed to call webhook: Post \"https://virt-api.kubevirt.svc:443{path}?timeout=10s\": {why}"
    ))
}

impl Admission for VirtApi {
    fn evict<'a>(&'a self, request: &'a EvictionRequest) -> Later<'a, Result<(), Failure>> {
        Box::pin(eviction::evict(self, request))
    }

    fn admit<'a>(
        &'a self,
        verb: &'a str,
        resource: &'a str,
        user: &'a str,
        old: Option<&'a Value>,
        new: Option<&'a mut Value>,
    ) -> Later<'a, Result<(), Failure>> {
        Box::pin(writes::admit(self, verb, resource, user, old, new))
    }

    fn subresource(
        &self,
        request: SubresourceRequest,
    ) -> Later<'_, Result<(u16, Vec<u8>), Failure>> {
        Box::pin(subresources::answer(self, request))
    }
}
