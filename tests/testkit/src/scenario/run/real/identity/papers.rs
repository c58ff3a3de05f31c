//! Credentials on disk that are renewed as their owners do it: the kubelet writes a new file and turns a link, whoever renews a token
//! puts a new file in the place of the old one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{NAMESPACE, NODE};
use crate::plane::{Caller, ControlPlane, Who};

/// Whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A kubelet's certificate.
    Certificate,
    /// The token of a service account.
    Token,
}

/// The files.
pub(super) struct Papers {
    kind: Kind,
    plane: Arc<ControlPlane>,
    folder: TempDir,
    issued: AtomicU32,
}

impl Papers {
    /// A kubeconfig that names files, and the first credentials.
    pub(super) async fn new(
        kind: Kind,
        plane: &Arc<ControlPlane>,
        valid: Duration,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("vmdrain-papers")
            .tempdir()?;
        let papers = Self {
            kind,
            plane: plane.clone(),
            folder,
            issued: AtomicU32::new(0),
        };
        let file = papers.file();
        let user = match kind {
            Kind::Certificate => json!({"client-certificate": file, "client-key": file}),
            Kind::Token => json!({"tokenFile": file}),
        };
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "own",
            "clusters": [{"name": "own", "cluster": {"server": plane.url(), "certificate-authority": plane.ca()}}],
            "users": [{"name": "own", "user": user}],
            "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
        });
        std::fs::write(papers.kubeconfig(), config.to_string())?;
        papers.renew(valid).await?;
        Ok(papers)
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn file(&self) -> PathBuf {
        let name = match self.kind {
            Kind::Certificate => "kubelet-client-current.pem",
            Kind::Token => "token",
        };
        self.folder.path().join(name)
    }

    /// New credentials, accepted for so long.
    pub(super) async fn renew(&self, valid: Duration) -> anyhow::Result<()> {
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let fresh = self.folder.path().join(format!("issued-{number}"));
        let text = match self.kind {
            Kind::Certificate => self.plane.certificate(&Who::Node(NODE.into()), valid)?,
            Kind::Token => self.plane.short_token((NAMESPACE, NODE), valid).await?,
        };
        std::fs::write(&fresh, text)?;
        match self.kind {
            Kind::Certificate => turn(&self.file(), &fresh),
            Kind::Token => std::fs::rename(&fresh, self.file()),
        }
        .context("the new credentials cannot be put in their place")
    }

    /// Whether the server refuses what is there now.
    pub(super) async fn are_refused(&self) -> anyhow::Result<bool> {
        let caller = Caller::new(&self.kubeconfig()).await?;
        let path = format!("/api/v1/nodes/{NODE}");
        let reply = caller.ask("GET", &path, &Value::Null).await?;
        match reply.status {
            200 => Ok(false),
            401 => Ok(true),
            _ => anyhow::bail!("GET {path}: {} {}", reply.status, reply.text),
        }
    }
}

/// Lets a link name another file, in one step.
fn turn(link: &Path, target: &Path) -> std::io::Result<()> {
    let fresh = link.with_extension("new");
    std::os::unix::fs::symlink(target, &fresh)?;
    std::fs::rename(fresh, link)
}
