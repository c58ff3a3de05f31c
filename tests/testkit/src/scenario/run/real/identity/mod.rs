//! Who is the agent for a real API server? Credentials run out in the middle of a drain, are renewed in time and too late; and what one
//! node's credentials cannot do to another node.
//!
//! The agent speaks to the real server itself here: a server in front would look at its credentials in the real one's place.
//!
//! - `papers`: a kubelet's certificate and a service account's token on disk, and their renewal.
//! - `renewal`: a drain whose credentials run out. `strangers`: requests that must be refused.

mod papers;
mod renewal;
mod strangers;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::super::Shipped;
use crate::differential::manifests;
use crate::plane::ControlPlane;
use papers::Kind;

/// What can be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// The kubelet's certificate.
    Certificate,
    /// A service account's token.
    Token,
    /// Another node's objects, and secrets.
    Strangers,
}

impl Case {
    /// All of them with their names.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Certificate, "certificate_runs_out"),
        (Self::Token, "token_runs_out"),
        (Self::Strangers, "other_nodes_and_secrets"),
    ];
}

/// No case takes longer in real time.
const LIMIT: Duration = Duration::from_secs(300);

/// Plays a case and leaves the control plane as empty as before; what was seen, for people. Fails when something did not hold.
pub async fn play(
    case: Case,
    shipped: &Shipped,
    plane: &Arc<ControlPlane>,
) -> anyhow::Result<String> {
    let played = async {
        match case {
            Case::Certificate => renewal::play(Kind::Certificate, shipped, plane).await,
            Case::Token => renewal::play(Kind::Token, shipped, plane).await,
            Case::Strangers => strangers::play(plane).await,
        }
    };
    tokio::time::timeout(LIMIT, Box::pin(played))
        .await
        .context("it did not end in time")?
}

/// The node of every case.
const NODE: &str = "n1";

/// Service accounts of the agent are in this namespace, one for each node.
const NAMESPACE: &str = "vmdrain";

/// Applies parts of `packaging/rbac`.
async fn apply(plane: &ControlPlane, parts: &[&str]) -> anyhow::Result<()> {
    for part in parts {
        for object in manifests::objects(part)? {
            plane.admin().create(&object).await?;
        }
        if *part == "service-account" {
            account(plane).await?;
        }
    }
    Ok(())
}

/// As its first lines say.
async fn account(plane: &ControlPlane) -> anyhow::Result<()> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NODE, "namespace": NAMESPACE}});
    plane.admin().create(&account).await?;
    Ok(())
}

/// Takes them away again. Namespaces stay: the next one finds them.
async fn withdraw(plane: &ControlPlane, parts: &[&str]) -> anyhow::Result<()> {
    for part in parts {
        for object in manifests::objects(part)? {
            if object["kind"] == "Namespace" {
                continue;
            }
            let path = crate::plane::path_of(&object);
            let reply = plane.admin().ask("DELETE", &path, &Value::Null).await?;
            anyhow::ensure!(
                reply.is_success() || reply.status == 404,
                "DELETE {path}: {}",
                reply.text
            );
        }
    }
    Ok(())
}
