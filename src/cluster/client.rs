//! The way to the API server: one client, built anew when the credentials changed, and requests
//! that are sent exactly once.

use super::credentials::{self, ConnectError, Origin, Stamp};
use super::fault;
use super::reply;
use super::timing::Timing;
use crate::drain::action::{Fault, FaultClass};
use crate::drain::answer::Reply;
use crate::drain::time::Mono;
use futures_util::Stream;
use futures_util::io::AsyncBufReadExt as _;
use http::header::{ACCEPT_ENCODING, DATE};
use http::{HeaderMap, HeaderValue};
use kube::Client;
use kube::client::Body;
use std::sync::Arc;
use std::sync::PoisonError;
use tokio::sync::Mutex;

/// The connection to one API server.
pub(crate) struct Connection {
    origin: Option<Origin>,
    timing: Arc<Timing>,
    held: Mutex<Held>,
    /// The server's wall clock: seconds since the epoch, and when it said so.
    server_time: std::sync::Mutex<Option<(i64, Mono)>>,
}

struct Held {
    client: Client,
    /// Counts the clients that there were.
    generation: u64,
    stamp: Stamp,
    /// When a 401 last had the client built anew.
    rebuilt: Option<Mono>,
}

/// A client and which one it is.
type Current = (Client, u64);

/// An HTTP answer of any status.
pub(crate) struct Answer {
    pub(crate) code: u16,
    headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Judged by its status alone.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// As the core sees it.
    pub(crate) fn reply(&self) -> Reply {
        reply::from_http(self.code, &self.headers, &self.body)
    }
}

impl Connection {
    /// With a ready client.
    pub(crate) fn ready(client: Client, timing: Arc<Timing>) -> Self {
        Self::new(None, timing, client, Stamp::default())
    }

    /// With credentials from files; also answers the node that they name and the file.
    pub(crate) async fn open(
        origin: Origin,
        timing: Arc<Timing>,
    ) -> Result<(Self, Option<String>, String), ConnectError> {
        let (client, found) = build(&origin, &timing).await?;
        let connection = Self::new(Some(origin), timing, client, found.stamp);
        Ok((connection, found.node, found.file))
    }

    fn new(origin: Option<Origin>, timing: Arc<Timing>, client: Client, stamp: Stamp) -> Self {
        Self {
            origin,
            timing,
            held: Mutex::new(Held {
                client,
                generation: 0,
                stamp,
                rebuilt: None,
            }),
            server_time: std::sync::Mutex::new(None),
        }
    }

    /// Sends one request and reads the whole answer, whatever its status. `what` completes the
    /// sentence "cannot …". After a 401 the credentials are read again and the request, which the
    /// server did not even look at, is sent a second and last time.
    pub(crate) async fn send(
        &self,
        what: &str,
        now: Mono,
        request: http::Request<Vec<u8>>,
    ) -> Result<Answer, Fault> {
        let (client, generation) = self.current().await;
        let outcome = once(&client, what, request.clone()).await;
        let refused = match &outcome {
            Ok(answer) => answer.code == 401,
            Err(fault) => fault.class == FaultClass::Unauthorized,
        };
        let another = if refused {
            self.after_refusal(generation, now).await
        } else {
            None
        };
        let outcome = match another {
            Some((client, _)) => once(&client, what, request).await,
            None => outcome,
        };
        if let Ok(answer) = &outcome {
            self.note_time(&answer.headers, now);
        }
        outcome
    }

    /// Opens a watch; the lines that it brings have no end of their own. 401 as for [`Self::send`].
    pub(crate) async fn watch(
        &self,
        now: Mono,
        mut request: http::Request<Vec<u8>>,
    ) -> kube::Result<impl Stream<Item = std::io::Result<String>> + use<>> {
        // Servers of 1.37 and later compress every event by itself, which nothing here could read.
        let plain = HeaderValue::from_static("identity");
        request.headers_mut().insert(ACCEPT_ENCODING, plain);
        let (client, generation) = self.current().await;
        let opened = client.request_stream(request.clone()).await;
        let body = match opened {
            Err(kube::Error::Api(status)) if status.code == 401 => {
                match self.after_refusal(generation, now).await {
                    Some((client, _)) => client.request_stream(request).await?,
                    None => return Err(kube::Error::Api(status)),
                }
            }
            opened => opened?,
        };
        Ok(body.lines())
    }

    /// The client to use, built anew when the files have changed.
    pub(crate) async fn current(&self) -> Current {
        let mut held = self.held.lock().await;
        if let Some(origin) = &self.origin {
            let stamp = held.stamp.again();
            if stamp != held.stamp {
                // Remembered also when it fails, so that a half-written file is told once.
                held.stamp = stamp;
                self.rebuild(&mut held, origin).await;
            }
        }
        (held.client.clone(), held.generation)
    }

    /// After a 401 with the client of this generation: another client, if there can be one.
    pub(crate) async fn after_refusal(&self, generation: u64, now: Mono) -> Option<Current> {
        let origin = self.origin.as_ref()?;
        let mut held = self.held.lock().await;
        if held.generation == generation {
            let soon = held
                .rebuilt
                .is_some_and(|before| now.since(before) < self.timing.rebuild);
            held.rebuilt = held.rebuilt.filter(|_| soon).or(Some(now));
            if soon || !self.rebuild(&mut held, origin).await {
                return None;
            }
        }
        Some((held.client.clone(), held.generation))
    }

    /// Reads the credentials again; the old client stays when that fails.
    async fn rebuild(&self, held: &mut Held, origin: &Origin) -> bool {
        match build(origin, &self.timing).await {
            Ok((client, found)) => {
                held.client = client;
                held.generation += 1;
                held.stamp = found.stamp;
                tracing::info!(file = %found.file, "credentials were read again");
                true
            }
            Err(error) => {
                tracing::warn!(%error, "credentials changed but cannot be used; the old ones stay");
                false
            }
        }
    }

    fn note_time(&self, headers: &HeaderMap, now: Mono) {
        let date = headers.get(DATE).and_then(|value| value.to_str().ok());
        if let Some(stamp) = date.and_then(|text| jiff::fmt::rfc2822::parse(text).ok()) {
            let mut known = self
                .server_time
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *known = Some((stamp.timestamp().as_second(), now));
        }
    }

    /// What the server's clock shows, as far as its answers have told; no clock of this host is asked.
    pub(crate) fn server_time(&self, now: Mono) -> Option<jiff::Timestamp> {
        let known = self
            .server_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (seconds, then) = (*known)?;
        let since = i64::try_from(now.since(then).as_secs()).ok()?;
        jiff::Timestamp::from_second(seconds.checked_add(since)?).ok()
    }
}

async fn build(
    origin: &Origin,
    timing: &Timing,
) -> Result<(Client, credentials::Credentials), ConnectError> {
    let found = credentials::load(origin, timing).await?;
    let client =
        Client::try_from(found.config.clone()).map_err(|error| ConnectError::Unusable {
            file: found.file.clone(),
            why: fault::plain(&error),
        })?;
    Ok((client, found))
}

async fn once(
    client: &Client,
    what: &str,
    request: http::Request<Vec<u8>>,
) -> Result<Answer, Fault> {
    let failed = |error| fault::from_kube(what, &error);
    let response = client.send(request.map(Body::from)).await.map_err(failed)?;
    let (head, body) = response.into_parts();
    let body = body.collect_bytes().await.map_err(failed)?;
    Ok(Answer {
        code: head.status.as_u16(),
        headers: head.headers,
        body: Vec::from(body),
    })
}
