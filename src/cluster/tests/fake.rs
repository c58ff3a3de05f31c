//! A scripted API server in this process: it plays what it is told and writes down what it was asked.

use crate::agent::ports::{Clock, Cluster};
use crate::cluster::{KubeCluster, Timing, with_client};
use crate::drain::time::Mono;
use crate::drain::world::{Picture, Sight};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::channel::Channel;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

pub(super) use super::objects::*;

/// Tokio's clock, which the tests pause.
#[derive(Clone, Copy)]
pub(super) struct TestClock(Instant);

#[allow(
    clippy::disallowed_methods,
    reason = "the clock of these tests is tokio's paused one"
)]
fn instant() -> Instant {
    Instant::now()
}

impl Clock for TestClock {
    fn now(&self) -> Mono {
        Mono(u64::try_from((instant() - self.0).as_millis()).unwrap())
    }

    /// These tests begin with 1970.
    fn booted_at(&self) -> i64 {
        0
    }

    async fn sleep_until(&self, when: Mono) {
        tokio::time::sleep_until(self.0 + Duration::from_millis(when.0)).await;
    }
}

/// What the server does with one request.
#[derive(Clone, Debug)]
pub(super) enum Play {
    /// Answers.
    Say(u16, Value),
    /// Answers with a text.
    Text(u16, &'static str),
    /// Answers with a header.
    With(&'static str, &'static str, Box<Play>),
    /// Answers 200 and streams.
    Stream(Vec<Step>),
    /// Never answers.
    Hang,
    /// Breaks the connection.
    Refuse,
}

/// What happens in a stream; after the last step it stays silent.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Event(&'static str, Value),
    Wait(u64),
    Close,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) at: Mono,
    pub(super) key: String,
    pub(super) uri: String,
    pub(super) content_type: String,
    pub(super) body: String,
}

pub(super) struct Fake {
    clock: TestClock,
    scripts: Mutex<BTreeMap<String, VecDeque<Play>>>,
    log: Mutex<Vec<Asked>>,
}

impl Fake {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            clock: TestClock(instant()),
            scripts: Mutex::default(),
            log: Mutex::default(),
        })
    }

    /// Plays these in turn for requests of this key; the last one again and again.
    pub(super) fn play(&self, key: &str, plays: impl IntoIterator<Item = Play>) {
        let script = plays.into_iter().collect();
        self.scripts.lock().unwrap().insert(key.into(), script);
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.log.lock().unwrap().clone()
    }

    pub(super) fn asked_for(&self, key: &str) -> Vec<Asked> {
        let all = self.asked().into_iter();
        all.filter(|asked| asked.key == key).collect()
    }

    pub(super) fn now(&self) -> Mono {
        self.clock.now()
    }

    /// The adapter, connected to this server.
    pub(super) fn cluster(self: &Arc<Self>) -> KubeCluster<TestClock> {
        let fake = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = Arc::clone(&fake);
            async move { fake.answer(request).await }
        });
        let client = kube::Client::new(service, "default");
        with_client(client, NODE, self.clock, &Timing::default()).cluster
    }

    async fn answer(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Channel<Bytes>>, std::io::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let uri = head.uri.to_string();
        let key = key(head.method.as_str(), &uri);
        self.log.lock().unwrap().push(Asked {
            at: self.now(),
            key: key.clone(),
            uri,
            content_type: head
                .headers
                .get(http::header::CONTENT_TYPE)
                .map(|value| value.to_str().unwrap().to_owned())
                .unwrap_or_default(),
            body: String::from_utf8(body.to_vec()).unwrap(),
        });
        let play = self.next(&key);
        self.perform(play).await
    }

    fn next(&self, key: &str) -> Play {
        let mut scripts = self.scripts.lock().unwrap();
        match scripts.get_mut(key) {
            Some(script) if script.len() > 1 => script.pop_front().unwrap(),
            Some(script) => script.front().unwrap().clone(),
            None if key.starts_with("watch ") => Play::Stream(vec![]),
            None => listed("1", []),
        }
    }

    async fn perform(&self, play: Play) -> Result<Response<Channel<Bytes>>, std::io::Error> {
        match play {
            Play::Say(code, body) => Ok(respond(code, body.to_string())),
            Play::Text(code, text) => Ok(respond(code, text.to_owned())),
            Play::With(name, value, play) => {
                let mut response = Box::pin(self.perform(*play)).await?;
                response
                    .headers_mut()
                    .insert(name, http::HeaderValue::from_static(value));
                Ok(response)
            }
            Play::Stream(steps) => Ok(stream(steps)),
            Play::Hang => std::future::pending().await,
            Play::Refuse => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
        }
    }
}

/// `list pods`, `watch vmis coming`, `PATCH /api/v1/nodes/n1`.
fn key(method: &str, uri: &str) -> String {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let short = match path {
        "/api/v1/pods" => "pods",
        "/api/v1/nodes" => "nodes",
        "/apis/kubevirt.io/v1/virtualmachineinstances" if query.contains("TargetNodeName") => {
            "vmis coming"
        }
        "/apis/kubevirt.io/v1/virtualmachineinstances" => "vmis here",
        "/apis/kubevirt.io/v1/virtualmachineinstancemigrations" => "migrations",
        "/apis/kubevirt.io/v1/kubevirts" => "kubevirts",
        "/apis/policy/v1/poddisruptionbudgets" => "budgets",
        _ => return format!("{method} {path}"),
    };
    let verb = if query.contains("watch=true") {
        "watch"
    } else {
        "list"
    };
    format!("{verb} {short}")
}

fn respond(code: u16, body: String) -> Response<Channel<Bytes>> {
    let (mut sender, channel) = Channel::new(1);
    tokio::spawn(async move { sender.send_data(Bytes::from(body)).await });
    Response::builder().status(code).body(channel).unwrap()
}

fn stream(steps: Vec<Step>) -> Response<Channel<Bytes>> {
    let (mut sender, channel) = Channel::new(1);
    tokio::spawn(async move {
        for step in steps {
            match step {
                Step::Event(kind, object) => {
                    let line = format!("{}\n", json!({"type": kind, "object": object}));
                    if sender.send_data(Bytes::from(line)).await.is_err() {
                        return;
                    }
                }
                Step::Wait(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
                Step::Close => return,
            }
        }
        std::future::pending::<()>().await;
    });
    Response::new(channel)
}

/// A list with everything on one page.
pub(super) fn listed(version: &str, items: impl IntoIterator<Item = Value>) -> Play {
    let items: Vec<Value> = items.into_iter().collect();
    Play::Say(
        200,
        json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items}),
    )
}

/// A Status object of failure.
pub(super) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "reason": reason, "message": message, "code": code})
}

pub(super) fn forbidden() -> Play {
    Play::Say(403, status(403, "Forbidden", "no"))
}

pub(super) fn bookmark(version: &str) -> Step {
    let object =
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version}});
    Step::Event("BOOKMARK", object)
}

/// A picture that satisfies the condition, at most so many (virtual) seconds from now.
pub(super) async fn until(
    pictures: &mut Receiver<Picture>,
    seconds: u64,
    condition: impl FnMut(&Picture) -> bool,
) -> Picture {
    let waiting = pictures.wait_for(condition);
    let picture = tokio::time::timeout(Duration::from_secs(seconds), waiting).await;
    picture.expect("no such picture in time").unwrap().clone()
}

/// Lets virtual time pass.
pub(super) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// A server with one of everything, watched; and the first complete picture.
pub(super) async fn watched(fake: &Arc<Fake>) -> (KubeCluster<TestClock>, Receiver<Picture>) {
    let cluster = fake.cluster();
    let mut pictures = cluster.watch();
    until(&mut pictures, 1, all_settled).await;
    (cluster, pictures)
}

pub(super) fn all_settled(picture: &Picture) -> bool {
    picture.node.settled()
        && picture.pods.settled()
        && picture.vmis.settled()
        && picture.migrations.settled()
        && picture.pdbs.settled()
        && picture.kubevirt.settled()
}

/// Names of the VMs of the pods that are seen.
pub(super) fn vms(picture: &Picture) -> Vec<String> {
    let pods = picture.pods.seen().cloned().unwrap_or_default();
    pods.into_iter().map(|pod| pod.vm.name).collect()
}

/// The age of what is seen.
pub(super) fn fresh<T>(sight: &Sight<T>) -> Option<Mono> {
    match sight {
        Sight::Seen { fresh, .. } => Some(*fresh),
        Sight::Pending | Sight::Forbidden { .. } | Sight::Missing | Sight::Broken { .. } => None,
    }
}
