//! Does a real kube client see what it would see of a real server?

mod eviction;
mod faults;
mod reads;
mod watches;
mod writes;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::{AllowAll, Identity, Rights, Server, Store};
use crate::clock::SimClock;

/// An answer as it was on the wire.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) code: u16,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Wire {
    /// `message` of a Status.
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

/// A server with two nodes, and a pod on each.
pub(crate) fn world() -> Arc<Server> {
    world_with(Rights::base())
}

pub(crate) fn world_with(rights: Rights) -> Arc<Server> {
    let server = Server::new(
        Store::new(SimClock::new(1.0), 1),
        Arc::new(AllowAll),
        rights,
    );
    server
        .store
        .create("namespaces", json!({"metadata": {"name": "vms"}}))
        .unwrap();
    for node in ["node01", "node02"] {
        server.store.create("nodes", json!({"metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}, "spec": {}})).unwrap();
    }
    server.store.create("pods", pod("a", "node01")).unwrap();
    server.store.create("pods", pod("b", "node02")).unwrap();
    server
}

pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "vms", "labels": {"app": name, "kubevirt.io": "virt-launcher"}},
        "spec": {"nodeName": node, "containers": [{"name": "compute"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Sends one request with a JSON body (`Null`: none); patches are merge patches.
pub(crate) async fn send(
    server: &Arc<Server>,
    identity: &Identity,
    method: Method,
    uri: &str,
    body: Value,
) -> Wire {
    let media = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    send_as(server, identity, method, uri, media, &body).await
}

pub(crate) async fn send_as(
    server: &Arc<Server>,
    identity: &Identity,
    method: Method,
    uri: &str,
    media: &str,
    body: &Value,
) -> Wire {
    let bytes = if body.is_null() {
        Bytes::new()
    } else {
        body.to_string().into()
    };
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", media)
        .body(bytes)
        .unwrap();
    let response = server.handle(request, identity).await.unwrap();
    let code = response.status().as_u16();
    let retry_after = response
        .headers()
        .get("retry-after")
        .map(|value| value.to_str().unwrap().to_owned());
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    Wire {
        code,
        retry_after,
        body: serde_json::from_str(&text).unwrap_or(Value::Null),
        text,
    }
}

pub(crate) async fn get(server: &Arc<Server>, identity: &Identity, uri: &str) -> Wire {
    send(server, identity, Method::GET, uri, Value::Null).await
}
