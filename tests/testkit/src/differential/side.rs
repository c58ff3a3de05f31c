//! One of the two clusters: how is it reached, as whom, and who plays its nodes?
//!
//! The real servers are reached with an administrator's kubeconfig alone; every other identity is impersonated, which authorizers and
//! admission take like the identity itself. So the same code works against any control plane.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use crate::actors::fabric::Fabric;
use crate::actors::ledger::Ledger;
use crate::actors::{self, Pace};
use crate::api::{Identity, Rights};
use crate::clock::SimClock;
use crate::kubevirt::Settings;
use crate::plane;
use crate::world::{Cluster, Inventory, NodeSpec, objects};

/// The nodes of both sides.
pub const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// So many migrations may run at once that no scene waits for another's.
const SLOTS: usize = 40;
/// No answer takes longer, the 10 s of a hanging webhook and the timeouts of the watches included.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a state that has to come is looked for.
pub const LOOK: Duration = Duration::from_millis(100);

/// A cluster that can be asked.
pub struct Side {
    /// `model` or `real`.
    pub name: &'static str,
    /// KubeVirt's version.
    pub kubevirt: (u8, u8),
    pub(super) reach: Reach,
    /// What must live as long as the side.
    tasks: Vec<tokio::task::AbortHandle>,
}

/// How a side is reached.
pub(super) enum Reach {
    Model(Box<Cluster>),
    Real(kube::Client),
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status code.
    pub code: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The body as JSON, null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// What is sent.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// `GET /path`.
    pub line: String,
    /// Body.
    pub body: String,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
}

impl Drop for Side {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Side {
    /// A simulated cluster in this process, in real time.
    pub fn model(kubevirt: (u8, u8)) -> anyhow::Result<Self> {
        let settings = Settings {
            per_cluster: SLOTS,
            per_node: SLOTS,
            ..Settings::of(kubevirt.0, kubevirt.1)
        };
        let cluster = Cluster::start(
            SimClock::from_wall(1.0),
            settings,
            &Inventory::with_nodes(&NODES),
            Rights::base(),
            1,
        )?;
        Ok(Self {
            name: "model",
            kubevirt,
            reach: Reach::Model(Box::new(cluster)),
            tasks: Vec::new(),
        })
    }

    /// The cluster behind an administrator's kubeconfig. With `play` its nodes are made and played from here.
    pub async fn real(kubeconfig: &Path, kubevirt: (u8, u8), play: bool) -> anyhow::Result<Self> {
        let read = kube::config::Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
        let mut config =
            kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default())
                .await
                .with_context(|| format!("cannot use {}", kubeconfig.display()))?;
        // Every answer is wanted, also 429 and 503.
        config.default_retry = false;
        let admin = kube::Client::try_from(config)?;
        let mut side = Self {
            name: "real",
            kubevirt,
            reach: Reach::Real(admin),
            tasks: Vec::new(),
        };
        side.configure().await?;
        if play {
            side.play_nodes().await?;
        }
        Ok(side)
    }

    /// The same number of slots as the model.
    async fn configure(&self) -> anyhow::Result<()> {
        let patch = json!({"spec": {"configuration": {"migrations": {
            "parallelMigrationsPerCluster": SLOTS, "parallelOutboundMigrationsPerNode": SLOTS,
        }}}});
        self.must(
            "PATCH /apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt",
            &patch.to_string(),
            "application/merge-patch+json",
        )
        .await
        .map(|_| ())
    }

    /// Makes the nodes and starts a kubelet and a virt-handler for each.
    async fn play_nodes(&mut self) -> anyhow::Result<()> {
        let clock = SimClock::from_wall(1.0);
        let fabric = Fabric::default();
        let around = actors::Surroundings {
            clock: clock.clone(),
            fabric: fabric.clone(),
            ledger: Ledger::default(),
            pace: Pace::default(),
            seed: 1,
        };
        for name in NODES {
            let spec = NodeSpec::new(name);
            let [node, _lease] = plane::node_objects(&clock, &spec);
            self.make_node(&node).await?;
            fabric.change(name, |host| {
                host.on = true;
                host.handler = true;
                host.boot_id = objects::boot_id(&spec);
            });
            let kubelet = self.client(&Who::Kubelet(name.to_owned()));
            let handler = self.client(&Who::Handler(name.to_owned()));
            let machine = actors::machine::Shared::default();
            self.tasks
                .extend(actors::spawn(name, machine, kubelet, handler, &around));
        }
        Ok(())
    }

    async fn make_node(&self, node: &Value) -> anyhow::Result<()> {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("/api/v1/nodes/{name}");
        if self.ask(&Who::Admin, &get(&path)).await?.code == 404 {
            self.must("POST /api/v1/nodes", &node.to_string(), "application/json")
                .await?;
        } else {
            // Left by an earlier run: virt-controller has noticed meanwhile that its virt-handler was gone.
            let metadata = json!({"metadata": {"labels": node["metadata"]["labels"], "annotations": node["metadata"]["annotations"]}});
            let line = format!("PATCH {path}");
            self.must(&line, &metadata.to_string(), "application/merge-patch+json")
                .await?;
        }
        let status = json!({"status": node["status"]}).to_string();
        self.must(
            &format!("PATCH {path}/status"),
            &status,
            "application/merge-patch+json",
        )
        .await?;
        Ok(())
    }

    /// A request of the administrator that has to succeed.
    pub async fn must(&self, line: &str, body: &str, content_type: &str) -> anyhow::Result<Value> {
        let ask = Ask {
            line: line.to_owned(),
            body: body.to_owned(),
            headers: vec![("content-type", content_type.to_owned())],
        };
        let reply = self.ask(&Who::Admin, &ask).await?;
        anyhow::ensure!(
            reply.code < 300,
            "{}: {line}: {} {}",
            self.name,
            reply.code,
            String::from_utf8_lossy(&reply.body)
        );
        Ok(reply.json())
    }

    /// One request, one whole answer. Fails when the connection breaks or the answer takes too long.
    pub async fn ask(&self, who: &Who, ask: &Ask) -> anyhow::Result<Reply> {
        let (method, path) = ask.line.split_once(' ').context("a line without a path")?;
        let mut request = Request::builder()
            .method(Method::from_bytes(method.as_bytes())?)
            .uri(path);
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Body::from(ask.body.clone().into_bytes()))?;
        let client = self.client(who);
        let whole = async {
            let response = client.send(request).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await?.to_bytes().to_vec();
            anyhow::Ok(Reply {
                code: parts.status.as_u16(),
                headers: parts.headers,
                body,
            })
        };
        tokio::time::timeout(PATIENCE, whole)
            .await
            .map_err(|_| anyhow::anyhow!("{}: no answer to {}", self.name, ask.line))?
    }

    /// A client of an identity.
    pub fn client(&self, who: &Who) -> kube::Client {
        match &self.reach {
            Reach::Model(cluster) => cluster.server.client(who.identity()),
            Reach::Real(admin) => impersonating(admin, who),
        }
    }

    /// The in-process cluster, if it is one.
    pub fn cluster(&self) -> Option<&Cluster> {
        match &self.reach {
            Reach::Model(cluster) => Some(cluster),
            Reach::Real(_) => None,
        }
    }
}

/// A GET.
pub fn get(path: &str) -> Ask {
    Ask {
        line: format!("GET {path}"),
        ..Ask::default()
    }
}

fn impersonating(admin: &kube::Client, who: &Who) -> kube::Client {
    let (admin, headers) = (admin.clone(), Arc::new(who.headers()));
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let (admin, headers) = (admin.clone(), headers.clone());
        async move {
            for (name, value) in headers.iter() {
                request.headers_mut().append(name.clone(), value.clone());
            }
            admin.send(request).await
        }
    });
    kube::Client::new(service, "default")
}

/// An identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// `system:masters`.
    Admin,
    /// `system:node:<node>`.
    Kubelet(String),
    /// virt-handler's service account, bound to a node.
    Handler(String),
    /// A service account of the agent with every right that RBAC has to give: what still refuses it is a policy.
    Mighty,
    /// Nobody.
    Anonymous,
    /// Somebody without rights.
    User(String),
    /// A service account.
    Account(String, String),
}

impl Who {
    /// Reads the word of the table; `nodes` holds `here` and `there`.
    pub fn parse(text: &str, nodes: &BTreeMap<String, String>) -> anyhow::Result<Self> {
        let node = |which: &str| nodes.get(which).cloned().unwrap_or_default();
        Ok(match text.split_once(' ').unwrap_or((text, "")) {
            ("admin", "") => Self::Admin,
            ("kubelet", "") => Self::Kubelet(node("here")),
            ("kubelet", which) => Self::Kubelet(node(which)),
            ("anonymous", "") => Self::Anonymous,
            ("user", name) => Self::User(name.to_owned()),
            ("account", name) => {
                let (namespace, name) = name.split_once('/').context("account NAMESPACE/NAME")?;
                Self::Account(namespace.to_owned(), name.to_owned())
            }
            _ => anyhow::bail!("who is {text:?}?"),
        })
    }

    fn identity(&self) -> Identity {
        match self {
            Self::Admin => Identity::admin(),
            Self::Kubelet(node) => Identity::kubelet(node),
            Self::Handler(_) => Identity::service_account("kubevirt", "kubevirt-handler"),
            Self::Mighty => {
                Identity::new("system:serviceaccount:vmdrain:probe", &["system:masters"])
            }
            Self::Anonymous => Identity::anonymous(),
            Self::User(name) => Identity::new(name, &[]),
            Self::Account(namespace, name) => Identity::service_account(namespace, name),
        }
    }

    fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = Vec::new();
        let mut add = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.push((HeaderName::from_static(name), value));
            }
        };
        if *self == Self::Admin {
            return headers;
        }
        let identity = self.identity();
        add("impersonate-user", &identity.user);
        for group in &identity.groups {
            add("impersonate-group", group);
        }
        if let Self::Handler(node) = self {
            add(
                "impersonate-extra-authentication.kubernetes.io%2fnode-name",
                node,
            );
        }
        headers
    }
}
