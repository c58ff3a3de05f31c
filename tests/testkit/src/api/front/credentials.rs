//! The credentials on disk: one kubeconfig per identity, written again at every rotation.
//!
//! As a kubelet keeps them: the kubeconfig names files, a rotation replaces those files (by rename) and leaves the kubeconfig alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use rcgen::{KeyPair, PublicKeyData as _};

use super::pki::Authority;
use crate::api::identity::Identity;

/// Where the kubeconfigs are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Of the cluster administrator.
    pub admin: PathBuf,
    /// Of every node's kubelet, by node name.
    pub kubelets: BTreeMap<String, PathBuf>,
    /// Of the agent's service account (`vmdrain/vmdrain-agent`), with a token file.
    pub service_account: PathBuf,
    /// The certificate authority.
    pub ca: PathBuf,
}

/// Writes credentials and knows the tokens among them.
pub(super) struct Credentials {
    dir: PathBuf,
    url: String,
    authority: Authority,
    nodes: Vec<String>,
    tokens: Mutex<BTreeMap<String, Identity>>,
}

impl Credentials {
    pub(super) fn new(dir: &Path, url: &str, authority: Authority, nodes: Vec<String>) -> Self {
        Self {
            dir: dir.to_owned(),
            url: url.to_owned(),
            authority,
            nodes,
            tokens: Mutex::default(),
        }
    }

    pub(super) fn paths(&self) -> Paths {
        let kubeconfig = |name: &str| self.dir.join(format!("{name}.kubeconfig"));
        Paths {
            admin: kubeconfig("admin"),
            kubelets: self
                .nodes
                .iter()
                .map(|node| (node.clone(), kubeconfig(&format!("kubelet-{node}"))))
                .collect(),
            service_account: kubeconfig("service-account"),
            ca: self.dir.join("pki/ca.crt"),
        }
    }

    /// Writes everything that does not change at a rotation.
    pub(super) fn write_kubeconfigs(&self) -> anyhow::Result<()> {
        let pki = self.dir.join("pki");
        std::fs::create_dir_all(&pki).with_context(|| format!("cannot make {}", pki.display()))?;
        let paths = self.paths();
        replace(&paths.ca, &self.authority.pem())?;
        replace(
            &paths.admin,
            &self.kubeconfig("kubernetes-admin", &self.certificate_lines("admin")),
        )?;
        for (node, path) in &paths.kubelets {
            let user = self.certificate_lines(&format!("kubelet-{node}"));
            replace(
                path,
                &self.kubeconfig(&format!("system:node:{node}"), &user),
            )?;
        }
        let token = format!(
            "    tokenFile: {}\n",
            pki.join("service-account.token").display()
        );
        replace(
            &paths.service_account,
            &self.kubeconfig("vmdrain-agent", &token),
        )
    }

    /// Issues a generation of certificates and tokens, over the old files.
    pub(super) fn issue(&self, generation: u64) -> anyhow::Result<()> {
        let with = |identity: Identity| Identity {
            generation,
            ..identity
        };
        let pki = self.dir.join("pki");
        replace(
            &pki.join("admin.pem"),
            &self.authority.client(&with(Identity::admin()))?,
        )?;
        for node in &self.nodes {
            replace(
                &pki.join(format!("kubelet-{node}.pem")),
                &self.authority.client(&with(Identity::kubelet(node)))?,
            )?;
        }
        let token = self.new_token(with(Identity::service_account("vmdrain", "vmdrain-agent")))?;
        replace(&pki.join("service-account.token"), &token)
    }

    /// Who is behind a bearer token.
    pub(super) fn bearer(&self, token: &str) -> Option<Identity> {
        self.tokens().get(token).cloned()
    }

    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// A token that nobody can guess: a fresh public key.
    fn new_token(&self, identity: Identity) -> anyhow::Result<String> {
        let key = KeyPair::generate()?;
        let mut token = String::new();
        for byte in key.der_bytes().iter().skip(1).take(24) {
            // Writing to a String cannot fail.
            let _ = write!(token, "{byte:02x}");
        }
        self.tokens().insert(token.clone(), identity);
        Ok(token)
    }

    fn tokens(&self) -> MutexGuard<'_, BTreeMap<String, Identity>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn certificate_lines(&self, name: &str) -> String {
        let path = self.dir.join(format!("pki/{name}.pem"));
        format!(
            "    client-certificate: {0}\n    client-key: {0}\n",
            path.display()
        )
    }

    fn kubeconfig(&self, user: &str, credentials: &str) -> String {
        let ca = self.dir.join("pki/ca.crt");
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: clustersim\nclusters:\n- name: clustersim\n  cluster:\n    server: {}\n    certificate-authority: {}\n\
             contexts:\n- name: clustersim\n  context:\n    cluster: clustersim\n    user: {user}\nusers:\n- name: {user}\n  user:\n{credentials}",
            self.url,
            ca.display(),
        )
    }
}

/// Writes a file that only its owner may read, in the place of the old one.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let fresh = path.with_extension("new");
    let write = || {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&fresh, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
