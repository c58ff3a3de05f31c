//! The API server itself: one request in, one answer out, whatever front it came through.
//!
//! [`Server::handle`] is the way of every request: log, faults, authentication, rights, then the handler of its verb in
//! `read`, `watch`, `write`, `delete` or `evict`.

mod checks;
mod delete;
mod evict;
mod forward;
mod paths;
mod read;
mod reviews;
mod shape;
mod watch;
mod write;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, header};
use serde_json::{Value, json};

use super::admission::{Admission, SubresourceRequest};
use super::answer::{self, Body};
use super::call::Call;
use super::discovery;
use super::failure::Failure;
use super::faults::{Broken, Effect, Faults, NEVER};
use super::identity::Identity;
use super::log::Log;
use super::protobuf;
use super::rights::Rights;
use super::store::Store;
use crate::clock::SimClock;

/// The group whose requests virt-api answers.
pub(super) const SUBRESOURCES: &str = "subresources.kubevirt.io";

/// The simulated API server.
pub struct Server {
    /// The objects.
    pub store: Store,
    /// KubeVirt's webhooks and aggregated API.
    pub admission: Arc<dyn Admission>,
    /// What goes wrong.
    pub faults: Faults,
    /// What was asked.
    pub log: Log,
    /// Who may do what.
    rights: RwLock<Arc<Rights>>,
    /// A real server that answers instead; this one then only logs, and misbehaves where a story wants it.
    upstream: Option<Arc<dyn Upstream>>,
}

/// A real API server behind this one.
pub trait Upstream: Send + Sync {
    /// Its answer to a request of this identity, or why there is none.
    fn forward(
        &self,
        identity: &Identity,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<Body>, Failure>>;
}

/// One authorized request on its way to its handler.
struct Context<'a> {
    identity: &'a Identity,
    call: &'a Call,
    /// `Accept` header.
    accept: &'a str,
    /// `Content-Type` header.
    content_type: &'a str,
    body: &'a Bytes,
    /// The request line and all headers.
    parts: &'a http::request::Parts,
}

type Answer = Result<Response<Body>, Failure>;

impl Server {
    /// A server on a store. The namespaces that every cluster has are made if they are missing.
    pub fn new(store: Store, admission: Arc<dyn Admission>, rights: Rights) -> Arc<Self> {
        for name in [
            "default",
            "kube-node-lease",
            "kube-public",
            "kube-system",
            "kubevirt",
        ] {
            // One that exists already stays as it is.
            let _ = store.create("namespaces", json!({"metadata": {"name": name}}));
        }
        Arc::new(Self {
            store,
            admission,
            faults: Faults::default(),
            log: Log::default(),
            rights: RwLock::new(Arc::new(rights)),
            upstream: None,
        })
    }

    /// A server in front of a real one. `store` holds what is seen of the real one's objects, for the clock and for whoever looks on.
    pub fn before(
        upstream: Arc<dyn Upstream>,
        store: Store,
        admission: Arc<dyn Admission>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            admission,
            faults: Faults::default(),
            log: Log::default(),
            rights: RwLock::default(),
            upstream: Some(upstream),
        })
    }

    /// What the identities may do now.
    pub fn rights(&self) -> Arc<Rights> {
        self.rights
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Changes what the identities may do, from the next request on.
    pub fn set_rights(&self, rights: Rights) {
        *self.rights.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rights);
    }

    /// Forgets the history and sends 410 to every open watch.
    pub fn expire_watches(&self) {
        // The history of a real server is its own.
        if self.upstream.is_none() {
            self.store.compact();
        }
        self.faults.expire_watches();
    }

    /// The clock of the world.
    pub fn clock(&self) -> &SimClock {
        self.store.clock()
    }

    /// Answers one request; [`Broken`] means that the connection breaks instead.
    pub async fn handle(
        self: &Arc<Self>,
        request: Request<Bytes>,
        identity: &Identity,
    ) -> Result<Response<Body>, Broken> {
        let (parts, body) = request.into_parts();
        let call = Call::parse(&parts.method, &parts.uri);
        let text = |name: header::HeaderName| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        let now = self.clock().elapsed();
        let number = self.log.begin(
            now,
            identity,
            text(header::USER_AGENT),
            &call,
            read_json("", &body).ok(),
        );
        if self.faults.is_down(now) {
            return Err(Broken::Refused);
        }
        let plan = self.faults.take(&identity.user, &call, now);
        if !plan.delay.is_zero() {
            self.clock().sleep(plan.delay).await;
        }
        let context = Context {
            identity,
            call: &call,
            accept: text(header::ACCEPT),
            content_type: text(header::CONTENT_TYPE),
            body: &body,
            parts: &parts,
        };
        let result = match plan.effect {
            Some((_, Effect::Answer(failure))) => Err(failure),
            Some((_, Effect::Drop { after_write: false })) => return Err(Broken::Reset),
            Some((_, Effect::Drop { after_write: true })) => {
                // Whatever the answer would have been, nobody hears it.
                let _ = self.answer(&context).await;
                return Err(Broken::Reset);
            }
            Some((rule, Effect::Hang { after_write: false })) => {
                self.wait_for_end(rule).await?;
                self.answer(&context).await
            }
            Some((rule, Effect::Hang { after_write: true })) => {
                let result = self.answer(&context).await;
                self.wait_for_end(rule).await?;
                result
            }
            Some((_, Effect::Delay(_))) | None => self.answer(&context).await,
        };
        Ok(self.finish(number, result))
    }

    fn finish(&self, number: usize, result: Answer) -> Response<Body> {
        let (response, message) = match result {
            Ok(response) => (response, String::new()),
            Err(failure) => (answer::failure(&failure), failure.message),
        };
        self.log.end(
            number,
            self.clock().elapsed(),
            response.status().as_u16(),
            &message,
        );
        response
    }

    /// Waits until a hanging rule ends; breaks when the server goes down meanwhile.
    async fn wait_for_end(&self, rule: u64) -> Result<(), Broken> {
        let mut changed = self.faults.changed();
        loop {
            let now = self.clock().elapsed();
            if self.faults.is_down(now) {
                return Err(Broken::Reset);
            }
            let Some(until) = self.faults.in_force(rule, now) else {
                return Ok(());
            };
            tokio::select! {
                () = self.sleep_until(until) => {}
                _ = changed.changed() => {}
            }
        }
    }

    /// Waits for a moment of simulated time; for ever when it is [`NEVER`].
    pub(in crate::api) async fn sleep_until(&self, moment: Duration) {
        if moment == NEVER {
            std::future::pending::<()>().await;
        }
        self.clock().sleep_until(moment).await;
    }

    /// Authentication, rights, and the handler.
    async fn answer(self: &Arc<Self>, context: &Context<'_>) -> Answer {
        let Context { identity, call, .. } = context;
        if !identity.is_anonymous()
            && !self
                .faults
                .accepts(identity.generation, self.clock().elapsed())
        {
            return Err(Failure::unauthorized());
        }
        if let Some(upstream) = &self.upstream {
            return self.forward(upstream, context).await;
        }
        self.rights().authorize(identity, call, &self.store)?;
        if call.resource.is_empty() {
            return paths::answer(context);
        }
        if call.group == SUBRESOURCES {
            return self.aggregated(context).await;
        }
        if let Some(review) = reviews::answer(self, context) {
            return review;
        }
        if call.kind().is_none() {
            let custom = call.group == "kubevirt.io" || call.group.ends_with(".kubevirt.io");
            return Err(
                if !custom && discovery::serves(&call.group, &call.version) {
                    Failure::no_such_path()
                } else {
                    Failure::text(404, "404 page not found\n")
                },
            );
        }
        checks::request(context)?;
        match (call.verb.as_str(), call.subresource.as_str()) {
            ("create", "eviction") if call.resource == "pods" => self.evict(context).await,
            (_, "status") if !has_subresource(call, "status") => Err(Failure::not_found(
                &call.group,
                &call.resource,
                &call.path_name,
            )),
            (_, sub) if !has_subresource(call, sub) => Err(Failure::no_such_path()),
            ("get", _) => self.get(context),
            ("list", _) => self.list(context),
            ("watch", _) => self.watch(context),
            ("create", "") => self.create(context).await,
            ("update", _) => self.update(context).await,
            ("patch", _) => self.patch(context).await,
            ("delete", "") => self.delete(context).await,
            ("deletecollection", "") => self.delete_collection(context).await,
            _ => Err(Failure::method_not_allowed()),
        }
    }

    async fn aggregated(&self, context: &Context<'_>) -> Answer {
        let Context {
            identity,
            call,
            body,
            ..
        } = context;
        let method = match call.verb.as_str() {
            "create" => "POST",
            "update" => "PUT",
            "patch" => "PATCH",
            "delete" | "deletecollection" => "DELETE",
            _ => "GET",
        };
        let request = SubresourceRequest {
            method: method.to_owned(),
            version: call.version.clone(),
            resource: call.resource.clone(),
            namespace: call.namespace.clone(),
            name: call.path_name.clone(),
            sub: call.rest.clone(),
            body: body.to_vec(),
            user: identity.user.clone(),
        };
        let (code, body) = self.admission.subresource(request).await?;
        Ok(answer::bytes(code, "application/json", body))
    }
}

fn has_subresource(call: &Call, sub: &str) -> bool {
    match sub {
        "" => true,
        "status" => call.rest == "status" && call.kind().is_some_and(|kind| kind.status),
        "finalize" => call.resource == "namespaces",
        _ => false,
    }
}

/// Reads a JSON (or protobuf) body that should be a `kind`; 400 with the decoder's complaint otherwise.
fn read_json(kind: &str, body: &[u8]) -> Result<Value, Failure> {
    if protobuf::is_protobuf(body) {
        return protobuf::decode(body);
    }
    let value: Value =
        serde_json::from_slice(body).map_err(|error| checks::unreadable(kind, body, &error))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(checks::no_object(kind, body))
    }
}
