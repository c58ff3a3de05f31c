//! Who are we? Credentials from a kubeconfig or a pod, the files they hang on, and the node that they name.

use super::fault::plain;
use super::subject::common_name;
use super::timing::Timing;
use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where credentials are looked for with `kubeconfig = "auto"`, in this order (design section 6).
pub const AUTO: [&str; 6] = [
    "/etc/vmdrain-agent/kubeconfig",
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/var/snap/microk8s/current/credentials/kubelet.config",
];

/// The user name that a node's own certificate carries, before the name of the node.
const NODE_USER: &str = "system:node:";

/// Where credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The first of these kubeconfigs that exists.
    Auto(Vec<PathBuf>),
    /// This kubeconfig and no other.
    File(PathBuf),
    /// The service account of the pod that we run in.
    InCluster,
}

impl Origin {
    /// The configuration value `cluster.kubeconfig`: `auto`, `in-cluster`, or a path.
    pub fn from_setting(text: &str) -> Self {
        match text {
            "" | "auto" => Self::Auto(AUTO.iter().map(PathBuf::from).collect()),
            "in-cluster" => Self::InCluster,
            path => Self::File(PathBuf::from(path)),
        }
    }
}

/// Why there is no way to the API server. No network is involved yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// None of the usual files exists.
    #[error(
        "no kubeconfig was found; looked for {tried}. Set `cluster.kubeconfig` to the file that this host should use"
    )]
    NoFile {
        /// The paths.
        tried: String,
    },
    /// A file cannot be used.
    #[error("cannot use {file}: {why}")]
    Unusable {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody knows the node.
    #[error(
        "the name of this node is not known: {file} has no certificate of a node, and neither `cluster.node_name` nor a hostname is set"
    )]
    NoNodeName {
        /// The kubeconfig.
        file: String,
    },
}

/// Credentials as they were read.
pub(crate) struct Credentials {
    /// Ready for a client.
    pub(crate) config: Config,
    /// Where they are from, for messages.
    pub(crate) file: String,
    /// The files that they hang on.
    pub(crate) stamp: Stamp,
    /// The node that the client certificate names.
    pub(crate) node: Option<String>,
}

/// Which files, and in which state: another state means other credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp(BTreeMap<PathBuf, Option<FileState>>);

/// Inode, size, and modification time in seconds and nanoseconds.
type FileState = (u64, u64, i64, i64);

impl Stamp {
    fn of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(
            paths
                .into_iter()
                .map(|path| {
                    let state = file_state(&path);
                    (path, state)
                })
                .collect(),
        )
    }

    /// The state of the same files now.
    pub(crate) fn again(&self) -> Self {
        Self::of(self.0.keys().cloned())
    }
}

/// Symbolic links are followed: a rotated kubelet certificate is another file behind the same link.
fn file_state(path: &Path) -> Option<FileState> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
}

/// Reads the credentials.
pub(crate) async fn load(origin: &Origin, timing: &Timing) -> Result<Credentials, ConnectError> {
    let mut found = match origin {
        Origin::InCluster => in_cluster()?,
        Origin::File(path) => kubeconfig(path).await?,
        Origin::Auto(paths) => {
            // One that may not be looked at counts as found: the error then says so.
            let there = |path: &&PathBuf| !matches!(path.try_exists(), Ok(false));
            let first = paths.iter().find(there);
            let path = first.ok_or_else(|| ConnectError::NoFile { tried: list(paths) })?;
            kubeconfig(path).await?
        }
    };
    let config = &mut found.config;
    // The client's own retry would hide every answer of KubeVirt's eviction webhook for minutes.
    config.default_retry = false;
    config.connect_timeout = Some(timing.connect);
    config.write_timeout = Some(timing.write);
    config.read_timeout = Some(timing.read);
    // Otherwise the time that a pooled connection sat idle counts against the next answer.
    config.reset_reader_on_write = true;
    Ok(found)
}

fn list(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    shown.join(", ")
}

fn in_cluster() -> Result<Credentials, ConnectError> {
    let file = "the service account of this pod".to_owned();
    let config = Config::incluster().map_err(|error| ConnectError::Unusable {
        file: file.clone(),
        why: plain(&error),
    })?;
    Ok(Credentials {
        stamp: Stamp::of(config.root_cert_file.clone()),
        config,
        file,
        node: None,
    })
}

async fn kubeconfig(path: &Path) -> Result<Credentials, ConnectError> {
    let unusable = |why: String| ConnectError::Unusable {
        file: path.display().to_string(),
        why,
    };
    // A kubelet's kubeconfig is of root alone, so this is the error that people will meet.
    std::fs::read(path).map_err(|error| unusable(plain(&error)))?;
    let parsed = Kubeconfig::read_from(path).map_err(|error| unusable(error.to_string()))?;
    let ca = authority(&parsed);
    let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .map_err(|error| unusable(error.to_string()))?;
    // Re-read every minute by the client, so that a rotated authority is taken up.
    config.root_cert_file.clone_from(&ca);
    let user = &config.auth_info;
    let certificate = certificate(user)?;
    let files = [&user.client_certificate, &user.client_key, &user.token_file];
    let files = files.into_iter().flatten().map(PathBuf::from);
    Ok(Credentials {
        stamp: Stamp::of(files.chain(ca).chain([path.to_owned()])),
        node: certificate.as_deref().and_then(node_of),
        config,
        file: path.display().to_string(),
    })
}

/// The file with the certificate authority of the current context.
fn authority(config: &Kubeconfig) -> Option<PathBuf> {
    let current = config.current_context.as_deref()?;
    let named = config.contexts.iter().find(|named| named.name == current)?;
    let cluster = &named.context.as_ref()?.cluster;
    let named = config
        .clusters
        .iter()
        .find(|named| &named.name == cluster)?;
    let path = named.cluster.as_ref()?.certificate_authority.as_ref()?;
    Some(PathBuf::from(path))
}

/// The client certificate in PEM, from its file or from the kubeconfig itself.
fn certificate(user: &AuthInfo) -> Result<Option<Vec<u8>>, ConnectError> {
    if let Some(data) = &user.client_certificate_data {
        let encoded: String = data.split_whitespace().collect();
        let decoded: Result<k8s_openapi::ByteString, _> = serde_json::from_value(encoded.into());
        // What is wrong with it is told when the client is built.
        return Ok(decoded.ok().map(|bytes| bytes.0));
    }
    let unusable = |file: &String| {
        let shown = file.clone();
        move |error: std::io::Error| ConnectError::Unusable {
            file: shown,
            why: plain(&error),
        }
    };
    if let Some(key) = &user.client_key {
        std::fs::read(key).map_err(unusable(key))?;
    }
    match &user.client_certificate {
        Some(file) => std::fs::read(file).map(Some).map_err(unusable(file)),
        None => Ok(None),
    }
}

/// The node that a certificate names.
fn node_of(certificate: &[u8]) -> Option<String> {
    let blocks = pem::parse_many(certificate).ok()?;
    let first = blocks.iter().find(|block| block.tag() == "CERTIFICATE")?;
    let user = common_name(first.contents())?;
    let node = user.strip_prefix(NODE_USER)?;
    (!node.is_empty()).then(|| node.to_owned())
}

/// Which node is ours: the certificate knows best, then the configuration, then the hostname.
pub(crate) fn node_name(
    certified: Option<&str>,
    configured: &str,
    hostname: &str,
) -> Option<String> {
    // The kubelet registers under the hostname in lower case.
    let hostname = hostname.trim().to_lowercase();
    [certified.unwrap_or_default(), configured.trim(), &hostname]
        .into_iter()
        .find(|name| !name.is_empty())
        .map(str::to_owned)
}
