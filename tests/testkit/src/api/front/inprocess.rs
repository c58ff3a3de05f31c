//! A kube client without sockets: for tests under tokio's paused time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use tower::Service;

use crate::api::answer::Body;
use crate::api::identity::Identity;
use crate::api::server::Server;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The server as one identity reaches it; a `tower` service for [`kube::Client::new`].
#[derive(Clone)]
pub struct Front {
    server: Arc<Server>,
    identity: Identity,
}

impl Server {
    /// A way into the server with credentials of today; after a rotation they are refused like any old ones.
    pub fn front(self: &Arc<Self>, identity: Identity) -> Front {
        let identity = Identity {
            generation: self.faults.generation(),
            ..identity
        };
        Front {
            server: self.clone(),
            identity,
        }
    }

    /// A kube client of an identity. It does not retry by itself. Needs a tokio runtime.
    pub fn client(self: &Arc<Self>, identity: Identity) -> kube::Client {
        kube::Client::new(self.front(identity), "default")
    }
}

impl Service<Request<kube::client::Body>> for Front {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let Self { server, identity } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(server
                .handle(Request::from_parts(parts, body), &identity)
                .await?)
        })
    }
}
