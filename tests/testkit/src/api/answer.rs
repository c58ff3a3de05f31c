//! How does an answer look on the wire?

use std::io;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::{Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use serde_json::Value;

use super::failure::Failure;

/// The body of an answer: whole, or the lines of a watch.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// An answer that is whole.
pub fn bytes(code: u16, content_type: &str, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into())
        .map_err(|never| match never {})
        .boxed_unsync();
    build(code, content_type, body)
}

/// A JSON answer.
pub fn json(code: u16, value: &Value) -> Response<Body> {
    bytes(code, "application/json", value.to_string())
}

/// A refusal.
pub fn failure(failure: &Failure) -> Response<Body> {
    let mut response = if failure.text_body {
        bytes(
            failure.code,
            "text/plain; charset=utf-8",
            failure.message.clone(),
        )
    } else {
        json(failure.code, &failure.status())
    };
    if let Some(seconds) = failure.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// A stream of chunks; an error breaks the connection.
pub fn stream(chunks: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Response<Body> {
    let body = StreamBody::new(chunks.map(|chunk| chunk.map(Frame::data)));
    build(200, "application/json", body.boxed_unsync())
}

fn build(code: u16, content_type: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}
