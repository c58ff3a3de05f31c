//! A real server answers: this one passes the request on, and the stream of a watch through its faults.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream as Chunks, StreamExt as _, stream};
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::sync::watch;

use super::{Answer, Context, Server, Upstream};
use crate::api::answer;
use crate::api::call::Call;
use crate::api::failure::Failure;
use crate::api::faults::{Broken, Epoch, Stream};

type Lines = Pin<Box<dyn Chunks<Item = io::Result<Bytes>> + Send>>;

impl Server {
    pub(super) async fn forward(
        self: &Arc<Self>,
        upstream: &Arc<dyn Upstream>,
        context: &Context<'_>,
    ) -> Answer {
        let request = Request::from_parts(context.parts.clone(), context.body.clone());
        let began = self.faults.epoch();
        let response = upstream.forward(context.identity, request).await?;
        if context.call.verb == "watch" && response.status().is_success() {
            let relay = Relay {
                server: self.clone(),
                user: context.identity.user.clone(),
                call: context.call.clone(),
                began,
                faults: self.faults.changed(),
                lines: lines(response.into_body().into_data_stream().boxed()),
                ended: false,
            };
            return Ok(answer::stream(stream::unfold(relay, Relay::step)));
        }
        let (parts, body) = response.into_parts();
        let broke_off =
            |error: io::Error| Failure::internal(format!("the real server broke off: {error}"));
        let body = body.collect().await.map_err(broke_off)?.to_bytes();
        let mut whole = answer::bytes(parts.status.as_u16(), "application/json", body);
        for (name, value) in &parts.headers {
            // The length is this server's to tell.
            if *name != http::header::CONTENT_LENGTH && *name != http::header::TRANSFER_ENCODING {
                whole.headers_mut().insert(name, value.clone());
            }
        }
        Ok(whole)
    }
}

/// Whole lines: a fault must not cut one in two.
fn lines(chunks: Lines) -> Lines {
    let begun = (chunks, BytesMut::new());
    Box::pin(stream::unfold(begun, |(mut chunks, mut rest)| async {
        loop {
            if let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') {
                let whole = rest.split_to(end + 1).freeze();
                return Some((Ok(whole), (chunks, rest)));
            }
            match chunks.next().await? {
                Ok(chunk) => rest.extend_from_slice(&chunk),
                Err(error) => return Some((Err(error), (chunks, rest))),
            }
        }
    }))
}

/// A watch on its way through.
struct Relay {
    server: Arc<Server>,
    user: String,
    call: Call,
    began: Epoch,
    faults: watch::Receiver<u64>,
    lines: Lines,
    ended: bool,
}

impl Relay {
    async fn step(mut self) -> Option<(io::Result<Bytes>, Self)> {
        let line = self.next().await?;
        Some((line, self))
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.ended {
            return None;
        }
        loop {
            let now = self.server.clock().elapsed();
            match self
                .server
                .faults
                .stream(&self.user, &self.call, self.began, now)
            {
                Stream::Breaks => {
                    self.ended = true;
                    return Some(Err(io::Error::new(
                        io::ErrorKind::ConnectionReset,
                        Broken::Reset,
                    )));
                }
                Stream::Closes => return None,
                Stream::Expires => {
                    self.ended = true;
                    let failure =
                        Failure::expired("The resourceVersion for the provided watch is too old.");
                    let line = json!({"type": "ERROR", "object": failure.status()});
                    return Some(Ok(format!("{line}\n").into()));
                }
                Stream::Silent(until) => {
                    tokio::select! {
                        () = self.server.sleep_until(until) => {}
                        _ = self.faults.changed() => {}
                    }
                }
                Stream::Flows => {
                    tokio::select! {
                        line = self.lines.next() => return line,
                        _ = self.faults.changed() => {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whole_lines_whatever_the_chunks() {
        let chunks = ["{\"a\":", "1}\n{\"b\"", ":2}\n{\"c\":3}\n", "half"];
        let chunks = chunks.map(|chunk| Ok(Bytes::from_static(chunk.as_bytes())));
        let lines: Vec<_> = lines(stream::iter(chunks).boxed())
            .map(|line| String::from_utf8(line.unwrap().to_vec()).unwrap())
            .collect()
            .await;
        assert_eq!(lines, ["{\"a\":1}\n", "{\"b\":2}\n{\"c\":3}\n"]);
    }
}
