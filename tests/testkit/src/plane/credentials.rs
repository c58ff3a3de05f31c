//! Who may speak to the control plane, and with which files?

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::Options;
use super::pki::{Authority, LONG};
use super::ports::Ports;
use super::requests::Caller;

/// Somebody with a certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The cluster's administrator (`system:masters`).
    Admin,
    /// The kubelet of a node: `system:node:<name>` in `system:nodes`.
    Node(String),
    /// Anybody: a user, and one group at most.
    User(String, Option<String>),
}

impl Who {
    fn user(&self) -> (String, Vec<String>) {
        match self {
            Self::Admin => ("admin".into(), vec!["system:masters".into()]),
            Self::Node(name) => (format!("system:node:{name}"), vec!["system:nodes".into()]),
            Self::User(name, group) => (name.clone(), group.iter().cloned().collect()),
        }
    }

    /// A file name.
    fn file(&self) -> String {
        match self {
            Self::Admin => "admin".into(),
            Self::Node(name) => format!("node-{name}"),
            Self::User(name, group) => {
                let plain = |text: &str| text.replace([':', '/'], "-");
                format!(
                    "user-{}-{}",
                    plain(name),
                    plain(group.as_deref().unwrap_or(""))
                )
            }
        }
    }
}

/// The authorities and the folder with what they signed.
pub(super) struct Credentials {
    dir: PathBuf,
    url: String,
    clients: Authority,
}

impl Credentials {
    /// Makes the authorities and the servers' certificates.
    pub(super) fn make(options: &Options, ports: &Ports) -> anyhow::Result<Self> {
        let dir = std::path::absolute(&options.dir).context("no current folder")?;
        for folder in ["pki", "kubeconfig", "log"] {
            let folder = dir.join(folder);
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let clients = Authority::new("vmdrain-control-plane")?;
        let made = Self {
            url: ports.url([127, 0, 0, 1].into()),
            dir,
            clients,
        };
        made.keep("ca.crt", &made.clients.pem())?;
        made.keep("ca.key", &made.clients.key())?;
        let names = [
            "127.0.0.1",
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        let more = options.addresses.iter().map(ToString::to_string);
        let names = names.map(str::to_owned).into_iter().chain(more).collect();
        made.server("apiserver", &made.clients, "kube-apiserver", names)?;
        let front = Authority::new("front-proxy")?;
        made.keep("front-proxy-ca.crt", &front.pem())?;
        made.server("front-proxy", &front, "front-proxy-client", Vec::new())?;
        let kubevirt = Authority::new("kubevirt")?;
        made.keep("kubevirt-ca.crt", &kubevirt.pem())?;
        let names = ["127.0.0.1", "localhost", "virt-api.kubevirt.svc"]
            .map(str::to_owned)
            .to_vec();
        made.server("virt-api", &kubevirt, "virt-api.kubevirt.svc", names)?;
        made.server(
            "virt-controller",
            &kubevirt,
            "virt-controller",
            vec!["127.0.0.1".into()],
        )?;
        let tokens = KeyPair::generate()?;
        made.keep("tokens.key", &tokens.serialize_pem())?;
        made.keep("tokens.pub", &tokens.public_key_pem())?;
        Ok(made)
    }

    fn server(
        &self,
        name: &str,
        authority: &Authority,
        user: &str,
        names: Vec<String>,
    ) -> anyhow::Result<()> {
        let pair = authority.sign(user, &[], names, LONG)?;
        self.keep(&format!("{name}.crt"), &pair.certificate)?;
        self.keep(&format!("{name}.key"), &pair.key)
    }

    /// A file of `pki`.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.join("pki").join(name)
    }

    fn keep(&self, name: &str, text: &str) -> anyhow::Result<()> {
        write(&self.file(name), text)
    }

    pub(super) fn ca(&self) -> PathBuf {
        self.file("ca.crt")
    }

    pub(super) fn certificate(&self, who: &Who, valid: Duration) -> anyhow::Result<String> {
        let (user, groups) = who.user();
        Ok(self
            .clients
            .sign(&user, &groups, Vec::new(), valid)?
            .together())
    }

    pub(super) fn kubeconfig(&self, who: &Who) -> anyhow::Result<PathBuf> {
        let path = self.kubeconfig_path(&who.file());
        if !path.exists() {
            let (user, groups) = who.user();
            let pair = self.clients.sign(&user, &groups, Vec::new(), LONG)?;
            let user = json!({"client-certificate-data": base64(&pair.certificate), "client-key-data": base64(&pair.key)});
            self.write_kubeconfig(&path, &user)?;
        }
        Ok(path)
    }

    pub(super) fn token_kubeconfig(&self, name: &str, token: &str) -> anyhow::Result<PathBuf> {
        let path = self.kubeconfig_path(name);
        self.write_kubeconfig(&path, &json!({"token": token}))?;
        Ok(path)
    }

    fn kubeconfig_path(&self, name: &str) -> PathBuf {
        self.dir.join("kubeconfig").join(name)
    }

    /// Everything in one file, so that it can be carried to another host. JSON is YAML.
    fn write_kubeconfig(&self, path: &Path, user: &Value) -> anyhow::Result<()> {
        let ca = fs::read_to_string(self.ca()).context("the authority's certificate is gone")?;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "plane",
            "clusters": [{"name": "plane", "cluster": {"server": self.url, "certificate-authority-data": base64(&ca)}}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": "user"}}],
        });
        write(path, &serde_json::to_string_pretty(&config)?)
    }
}

/// A token of a service account.
pub(super) async fn token(
    admin: &Caller,
    (namespace, account): (&str, &str),
    node: Option<&str>,
    valid: Duration,
) -> anyhow::Result<String> {
    let mut request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": valid.as_secs()},
    });
    if let Some(node) = node {
        request["spec"]["boundObjectRef"] =
            json!({"apiVersion": "v1", "kind": "Node", "name": node});
    }
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let made = admin.done("POST", &path, &request).await?;
    let token = made["status"]["token"].as_str();
    Ok(token.context("the server gave no token")?.to_owned())
}

fn base64(text: &str) -> Value {
    serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap_or_default()
}

/// Writes a file that only its owner may read.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = || {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(path)?.write_all(text.as_bytes())
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}
