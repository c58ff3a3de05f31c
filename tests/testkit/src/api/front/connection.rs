//! One client connection: who it is, its requests, and an end that the client feels.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::credentials::Credentials;
use super::pki;
use crate::api::answer::{self, Body};
use crate::api::failure::Failure;
use crate::api::identity::Identity;
use crate::api::server::Server;

/// Why a request gets no answer.
#[derive(Debug, thiserror::Error)]
enum Dropped {
    #[error(transparent)]
    Broken(#[from] crate::api::faults::Broken),
    #[error("cannot read the request: {0}")]
    Request(#[from] hyper::Error),
}

/// Serves one connection to its end. Unless that is in order, the client gets a reset.
pub(super) async fn serve(
    server: Arc<Server>,
    credentials: Arc<Credentials>,
    acceptor: TlsAcceptor,
    tcp: TcpStream,
) {
    let ended_well = Arc::new(AtomicBool::new(false));
    // Without it every answer waits for the client's delayed acknowledgement.
    let _ = tcp.set_nodelay(true);
    let Ok(tls) = acceptor
        .accept(Resettable {
            tcp,
            ended_well: ended_well.clone(),
        })
        .await
    else {
        return;
    };
    let shown = tls
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first())
        .and_then(pki::identity_of);
    let service = service_fn(move |request| {
        let (server, credentials, shown) = (server.clone(), credentials.clone(), shown.clone());
        async move { respond(&server, &credentials, shown, request).await }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(tls), service)
        .await;
    ended_well.store(served.is_ok(), Ordering::Relaxed);
}

async fn respond(
    server: &Arc<Server>,
    credentials: &Credentials,
    shown: Option<Identity>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Dropped> {
    let Some(identity) = authenticate(credentials, shown, &request) else {
        return Ok(answer::failure(&Failure::unauthorized()));
    };
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(server
        .handle(Request::from_parts(parts, body), &identity)
        .await?)
}

/// The certificate, else the token, else nobody; `None` for a token that is not known.
fn authenticate<B>(
    credentials: &Credentials,
    shown: Option<Identity>,
    request: &Request<B>,
) -> Option<Identity> {
    let token = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    match (shown, token) {
        (Some(identity), _) => Some(identity),
        (None, Some(token)) => credentials.bearer(token.trim()),
        (None, None) => Some(Identity::anonymous()),
    }
}

/// A TCP stream that is reset when it is dropped, unless it ended well.
struct Resettable {
    tcp: TcpStream,
    ended_well: Arc<AtomicBool>,
}

impl Drop for Resettable {
    fn drop(&mut self) {
        if !self.ended_well.load(Ordering::Relaxed) {
            // A socket that refuses the option is closed in the ordinary way.
            let _: Result<(), _> = self.tcp.set_zero_linger();
        }
    }
}

impl AsyncRead for Resettable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Resettable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
