//! The real API server, as the server of a story passes requests on: with a certificate of whoever asks.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, header};
use http_body_util::BodyExt as _;
use tokio::sync::Mutex;

use crate::api::answer::Body;
use crate::api::server::Upstream;
use crate::api::{Failure, Identity};
use crate::plane::{ControlPlane, Who};

/// One client for each user.
pub(super) struct Real {
    plane: Arc<ControlPlane>,
    clients: Arc<Mutex<BTreeMap<String, kube::Client>>>,
}

impl Real {
    pub(super) fn new(plane: Arc<ControlPlane>) -> Self {
        Self {
            plane,
            clients: Arc::default(),
        }
    }
}

/// The connection's own headers, and the client's credentials: those are for the server in front.
const OWN: [header::HeaderName; 5] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TRANSFER_ENCODING,
];

impl Upstream for Real {
    fn forward(
        &self,
        identity: &Identity,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<Body>, Failure>> {
        let (plane, clients) = (self.plane.clone(), self.clients.clone());
        let identity = identity.clone();
        Box::pin(async move {
            let failed = |error: String| Failure::internal(format!("the real server: {error}"));
            let client = client(&plane, &clients, &identity)
                .await
                .map_err(|error| failed(format!("{error:#}")))?;
            let (mut parts, body) = request.into_parts();
            for name in OWN {
                parts.headers.remove(name);
            }
            let request = Request::from_parts(parts, kube::client::Body::from(body));
            let response = client
                .send(request)
                .await
                .map_err(|error| failed(error.to_string()))?;
            Ok(response.map(|body| body.map_err(io::Error::other).boxed_unsync()))
        })
    }
}

async fn client(
    plane: &ControlPlane,
    clients: &Mutex<BTreeMap<String, kube::Client>>,
    identity: &Identity,
) -> anyhow::Result<kube::Client> {
    let mut clients = clients.lock().await;
    if let Some(client) = clients.get(&identity.user) {
        return Ok(client.clone());
    }
    let who = match identity.node() {
        Some(node) => Who::Node(node.to_owned()),
        None => Who::User(identity.user.clone(), identity.groups.first().cloned()),
    };
    let client = plane.caller(&who).await?.client();
    clients.insert(identity.user.clone(), client.clone());
    Ok(client)
}
