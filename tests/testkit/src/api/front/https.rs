//! HTTPS on loopback: for the real binary, for kubectl, for people.
//!
//! A server that is down really refuses: its listener is closed and its connections are reset; it comes back on the same port.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::connection;
use super::credentials::{Credentials, Paths};
use super::pki::Authority;
use crate::api::server::Server;

/// How long to wait before the port is tried again when somebody holds it.
const BIND_PAUSE: Duration = Duration::from_millis(50);

/// Where to listen and what to write.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory for kubeconfigs and certificates; it is made if missing.
    pub dir: PathBuf,
    /// The port on 127.0.0.1; 0 takes a free one.
    pub port: u16,
    /// Nodes whose kubelets get a kubeconfig; empty: all nodes in the store.
    pub nodes: Vec<String>,
}

impl Options {
    /// A free port, and a kubeconfig for every node.
    pub fn in_dir(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            port: 0,
            nodes: Vec::new(),
        }
    }
}

/// A running HTTPS front. Dropping it stops it.
pub struct Serving {
    /// `https://127.0.0.1:<port>`.
    pub url: String,
    /// Where the kubeconfigs are.
    pub paths: Paths,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Serving {
    /// Stops listening, closes all connections, and returns when that is done.
    pub async fn shutdown(mut self) {
        if let Some(stop) = self.stop.take() {
            // It may have ended by itself already.
            let _ = stop.send(());
        }
        let _ = (&mut self.task).await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the model over HTTPS; returns when it listens and all kubeconfigs are written.
pub async fn serve_https(server: Arc<Server>, options: Options) -> anyhow::Result<Serving> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))
        .await
        .with_context(|| format!("cannot listen on 127.0.0.1:{}", options.port))?;
    let address = listener
        .local_addr()
        .context("cannot tell the port that was taken")?;
    let url = format!("https://{address}");
    let nodes = if options.nodes.is_empty() {
        all_nodes(&server)
    } else {
        options.nodes
    };
    let credentials = Credentials::new(&options.dir, &url, Authority::new()?, nodes);
    credentials.write_kubeconfigs()?;
    let generation = server.faults.generation();
    credentials.issue(generation)?;
    let acceptor = TlsAcceptor::from(Arc::new(credentials.authority().server_config()?));
    let paths = credentials.paths();
    let (stop, stopped) = oneshot::channel();
    let front = HttpsFront {
        server,
        credentials: Arc::new(credentials),
        acceptor,
        address,
        generation,
    };
    let task = tokio::spawn(async move {
        tokio::select! {
            () = front.run(listener) => {}
            _ = stopped => {}
        }
    });
    Ok(Serving {
        url,
        paths,
        stop: Some(stop),
        task,
    })
}

fn all_nodes(server: &Server) -> Vec<String> {
    let nodes = server.store.list_shared("nodes");
    nodes
        .iter()
        .filter_map(|node| node["metadata"]["name"].as_str().map(str::to_owned))
        .collect()
}

struct HttpsFront {
    server: Arc<Server>,
    credentials: Arc<Credentials>,
    acceptor: TlsAcceptor,
    address: SocketAddr,
    /// The generation of credentials that is on disk.
    generation: u64,
}

impl HttpsFront {
    async fn run(mut self, listener: TcpListener) {
        let mut listener = listener;
        loop {
            self.accept(&listener).await;
            drop(listener);
            self.stay_down().await;
            listener = self.listen_again().await;
        }
    }

    /// Serves until the server goes down; then all connections are reset.
    async fn accept(&mut self, listener: &TcpListener) {
        let mut faults = self.server.faults.changed();
        let mut connections = JoinSet::new();
        loop {
            self.rotate();
            if self.server.faults.is_down(self.server.clock().elapsed()) {
                return;
            }
            tokio::select! {
                accepted = listener.accept() => {
                    // An accept fails when the client is gone already or descriptors run out; either way the next may work.
                    let Ok((tcp, _)) = accepted else { continue };
                    connections.spawn(connection::serve(self.server.clone(), self.credentials.clone(), self.acceptor.clone(), tcp));
                }
                _ = faults.changed() => {}
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// Writes new credentials when there is a new generation.
    fn rotate(&mut self) {
        let newest = self.server.faults.generation();
        if newest == self.generation {
            return;
        }
        match self.credentials.issue(newest) {
            Ok(()) => self.generation = newest,
            Err(error) => tracing::error!("cannot write the rotated credentials: {error:#}"),
        }
    }

    async fn stay_down(&self) {
        let mut faults = self.server.faults.changed();
        while let Some(back) = self.server.faults.back_at(self.server.clock().elapsed()) {
            tokio::select! {
                () = self.server.sleep_until(back) => {}
                _ = faults.changed() => {}
            }
        }
    }

    async fn listen_again(&self) -> TcpListener {
        loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => return listener,
                Err(error) => tracing::warn!("cannot listen on {} again: {error}", self.address),
            }
            tokio::time::sleep(BIND_PAUSE).await;
        }
    }
}
