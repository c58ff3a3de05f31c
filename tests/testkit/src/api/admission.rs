//! Where does KubeVirt have a say in a request?
//!
//! The API server asks an [`Admission`] at the moments at which the real one calls webhooks, and hands it the requests of the
//! aggregated group `subresources.kubevirt.io`. [`AllowAll`] is a cluster without KubeVirt.

use std::future::Future;
use std::pin::Pin;

use serde_json::Value;

pub use super::failure::Failure;

/// A boxed future that both fronts can await.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One POST of `pods/eviction`, as the webhooks see it.
#[derive(Clone, Debug)]
pub struct EvictionRequest {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod; equals `metadata.name` of the Eviction.
    pub name: String,
    /// The Eviction object as it was sent.
    pub eviction: Value,
    /// Whether the query or `deleteOptions.dryRun` says `All`: nothing may be written.
    pub dry_run: bool,
    /// User name of the caller.
    pub user: String,
}

/// One request to `subresources.kubevirt.io`, already authorized.
#[derive(Clone, Debug)]
pub struct SubresourceRequest {
    /// HTTP method in capitals: `PUT`, `GET`, ….
    pub method: String,
    /// Version of the group in the path, `v1` or `v1alpha3`.
    pub version: String,
    /// `virtualmachineinstances`, `virtualmachines`, …; empty for paths like `/healthz`.
    pub resource: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// What follows the name, e.g. `evacuate/cancel`; for paths without an object the rest of the path (`healthz`).
    pub sub: String,
    /// The body as it was sent.
    pub body: Vec<u8>,
    /// User name of the caller.
    pub user: String,
}

/// What KubeVirt's virt-api decides. Every method allows by default.
pub trait Admission: Send + Sync {
    /// The webhooks on `pods/eviction`; called before the UID precondition and the disruption budgets. May write marks to the store.
    fn evict<'a>(&'a self, request: &'a EvictionRequest) -> Later<'a, Result<(), Failure>> {
        let _ = request;
        Box::pin(async { Ok(()) })
    }

    /// Mutating and validating admission of create, update and delete (`verb`) of KubeVirt's kinds. `new` may be changed.
    fn admit<'a>(
        &'a self,
        verb: &'a str,
        resource: &'a str,
        user: &'a str,
        old: Option<&'a Value>,
        new: Option<&'a mut Value>,
    ) -> Later<'a, Result<(), Failure>> {
        let _ = (verb, resource, user, old, new);
        Box::pin(async { Ok(()) })
    }

    /// Answers a request to the aggregated API with a status code and a body (JSON, or empty).
    fn subresource(
        &self,
        request: SubresourceRequest,
    ) -> Later<'_, Result<(u16, Vec<u8>), Failure>> {
        let _ = request;
        Box::pin(async { Err(Failure::text(404, "404 page not found\n")) })
    }
}

/// A cluster in which no webhook is registered.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Admission for AllowAll {}
