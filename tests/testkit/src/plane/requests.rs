//! Requests to a real API server, with the answers as they are.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use http::{Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

/// Somebody who sends requests.
#[derive(Clone)]
pub struct Caller {
    client: kube::Client,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers, names in small letters.
    pub headers: BTreeMap<String, String>,
    /// The body as it came.
    pub text: String,
}

impl Reply {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Caller {
    /// Somebody with the credentials of a kubeconfig. Needs a tokio runtime.
    pub async fn new(kubeconfig: &Path) -> anyhow::Result<Self> {
        let parsed = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("cannot use {}", kubeconfig.display()))?;
        let mut config =
            kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
        // Everything is on this machine, whatever the environment says of proxies.
        config.proxy_url = None;
        // Whoever asks wants the first answer.
        config.default_retry = false;
        Ok(Self {
            client: kube::Client::try_from(config)?,
        })
    }

    /// Somebody with a client.
    pub fn of(client: kube::Client) -> Self {
        Self { client }
    }

    /// A client with the same credentials.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Sends a request; any answer is fine. `body` goes as it is, with this content type.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<Reply> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            // As client-go does: some answers of virt-api have no body, and so no kind (start of a VM says 406 to "application/json" alone).
            .header(header::ACCEPT, "application/json, */*")
            .header(header::CONTENT_TYPE, content_type)
            .body(Body::from(body))?;
        let sent = self.client.send(request).await;
        let response = sent.with_context(|| format!("{method} {path} got no answer"))?;
        let (parts, body) = response.into_parts();
        let body = body
            .collect()
            .await
            .with_context(|| format!("{method} {path}: the answer broke off"))?;
        let headers = parts.headers.iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        });
        Ok(Reply {
            status: parts.status.as_u16(),
            headers: headers.collect(),
            text: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        })
    }

    /// Sends JSON (null: no body); any answer is fine. PATCH is a merge patch.
    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Reply> {
        let content_type = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let bytes = if body.is_null() {
            Vec::new()
        } else {
            serde_json::to_vec(body)?
        };
        self.send(method, path, content_type, bytes).await
    }

    /// Sends JSON and wants success.
    pub async fn done(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let reply = self.ask(method, path, body).await?;
        anyhow::ensure!(
            reply.is_success(),
            "{method} {path}: {} {}",
            reply.status,
            reply.text.trim()
        );
        Ok(reply.json())
    }

    /// Creates an object where its own fields say it belongs; one that is there already is left alone.
    pub async fn create(&self, object: &Value) -> anyhow::Result<Value> {
        let path = collection(object);
        let reply = self.ask("POST", &path, object).await?;
        anyhow::ensure!(
            reply.is_success() || reply.status == 409,
            "POST {path} {}: {} {}",
            object["metadata"]["name"],
            reply.status,
            reply.text.trim()
        );
        Ok(reply.json())
    }
}

/// The path of an object's collection, from its kind and namespace.
pub fn collection(object: &Value) -> String {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (
        text(&object["apiVersion"]),
        text(&object["kind"]).to_lowercase(),
    );
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with("ss") => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    let root = if version.contains('/') { "apis" } else { "api" };
    match object["metadata"]["namespace"].as_str() {
        Some(space) => format!("/{root}/{version}/namespaces/{space}/{plural}"),
        None => format!("/{root}/{version}/{plural}"),
    }
}

/// The path of an object.
pub fn path_of(object: &Value) -> String {
    format!(
        "{}/{}",
        collection(object),
        object["metadata"]["name"].as_str().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_of_collections() {
        let path = |version: &str, kind: &str, space: Option<&str>| {
            let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {}});
            if let Some(space) = space {
                object["metadata"]["namespace"] = json!(space);
            }
            collection(&object)
        };
        assert_eq!(path("v1", "Pod", Some("a")), "/api/v1/namespaces/a/pods");
        assert_eq!(
            path(
                "admissionregistration.k8s.io/v1",
                "ValidatingAdmissionPolicy",
                None
            ),
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        );
        assert_eq!(
            path("scheduling.k8s.io/v1", "PriorityClass", None),
            "/apis/scheduling.k8s.io/v1/priorityclasses"
        );
        assert_eq!(path("v1", "Node", None), "/api/v1/nodes");
    }
}
