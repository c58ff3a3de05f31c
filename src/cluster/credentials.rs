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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    /// `O=system:nodes, CN=system:node:node01`.
    pub(in super::super) const NODE_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBvzCCAWWgAwIBAgIUAipkdBoaQApQfmklu7f5eXAr4xEwCgYIKoZIzj0EAwIw
NDEVMBMGA1UECgwMc3lzdGVtOm5vZGVzMRswGQYDVQQDDBJzeXN0ZW06bm9kZTpu
b2RlMDEwIBcNMjYxMTMwMDcyNTM4WhgPMjEyNjExMDYwNzI1MzhaMDQxFTATBgNV
BAoMDHN5c3RlbTpub2RlczEbMBkGA1UEAwwSc3lzdGVtOm5vZGU6bm9kZTAxMFkw
EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEKARy7REnKo6coKN4xwS455uOwbopv9it
WioC60cA/N1qlywaG/DG5LijKi5621xZKNNS0Q/kcGf6BCxgsWE+hqNTMFEwHQYD
VR0OBBYEFD2aCd+vL5tqVPXx773FdRml7WeyMB8GA1UdIwQYMBaAFD2aCd+vL5tq
VPXx773FdRml7WeyMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIg
Uw6VQrvwPZU+kP4pZvP62XAl+6PW61DMvzKyZMNN0IUCIQCAskp9n4W6OOqger6h
zmKhiyrttv3c84lcbse13ZVEKA==
-----END CERTIFICATE-----";
    /// `O=vmdrain, CN=agent`.
    const OTHER_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUHVRKmSbnzjv24rQV5lSvPYj6RaYwCgYIKoZIzj0EAwIw
IjEQMA4GA1UECgwHdm1kcmFpbjEOMAwGA1UEAwwFYWdlbnQwIBcNMjYxMTMwMDcy
NTM4WhgPMjEyNjExMDYwNzI1MzhaMCIxEDAOBgNVBAoMB3ZtZHJhaW4xDjAMBgNV
BAMMBWFnZW50MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEQj9gyYMSZ36kN8SQ
kzprxCumSv7HmCLHXOQT57d73AlYtiI2JKFxuk97WRx3xzs7VfDqf8YkovUONIs9
gqwftKNTMFEwHQYDVR0OBBYEFBmSVyXnN/qwmN4ZVQVW0omvdBO7MB8GA1UdIwQY
MBaAFBmSVyXnN/qwmN4ZVQVW0omvdBO7MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZI
zj0EAwIDRwAwRAIgHilyOUATdvjpugEmpl3avzm377R2Bxlomq74XgKF88MCIDXc
A1S0rYqIJUEI+chmzHwjaXVUzifg6E9CBySDL776
-----END CERTIFICATE-----";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg9TxL0u4qWWzzogQA
F+rK65cTMooOcIWTH9hWgN+PfxihRANCAAQoBHLtEScqjpygo3jHBLjnm47Buim/
2K1aKgLrRwD83WqXLBob8MbkuKMqLnrbXFko01LRD+RwZ/oELGCxYT6G
-----END PRIVATE KEY-----";

    /// A kubelet's files: certificate and key in one file, the authority beside them.
    fn kubelet(certificate: &str) -> (TempDir, PathBuf) {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("ca.crt"), certificate).unwrap();
        fs::write(
            dir.path().join("client.pem"),
            format!("{certificate}\n{KEY}\n"),
        )
        .unwrap();
        let path = dir.path().join("kubelet.conf");
        fs::write(
            &path,
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1', certificate-authority: ca.crt}}]\n\
             contexts: [{name: c, context: {cluster: k, user: u}}]\n\
             users: [{name: u, user: {client-certificate: client.pem, client-key: client.pem}}]\n",
        )
        .unwrap();
        (dir, path)
    }

    #[tokio::test]
    async fn a_kubelets_certificate_names_the_node() {
        let (dir, path) = kubelet(NODE_CERTIFICATE);
        let found = load(&Origin::File(path), &Timing::default()).await.unwrap();
        assert_eq!(found.node.as_deref(), Some("node01"));
        assert!(!found.config.default_retry);
        assert_eq!(found.config.root_cert_file, Some(dir.path().join("ca.crt")));
        assert!(kube::Client::try_from(found.config).is_ok());
    }

    #[tokio::test]
    async fn other_certificates_name_no_node() {
        let (_dir, path) = kubelet(OTHER_CERTIFICATE);
        let found = load(&Origin::File(path), &Timing::default()).await.unwrap();
        assert_eq!(found.node, None);
    }

    #[tokio::test]
    async fn auto_takes_the_first_file_that_exists() {
        let (_dir, path) = kubelet(NODE_CERTIFICATE);
        let absent = path.with_file_name("absent");
        let origin = Origin::Auto(vec![absent.clone(), path.clone()]);
        let found = load(&origin, &Timing::default()).await.unwrap();
        assert_eq!(found.file, path.display().to_string());
        let nothing = load(&Origin::Auto(vec![absent]), &Timing::default()).await;
        assert!(
            matches!(nothing, Err(ConnectError::NoFile { tried }) if tried.ends_with("absent"))
        );
    }

    #[tokio::test]
    async fn errors_name_the_file() {
        let (dir, path) = kubelet(NODE_CERTIFICATE);
        let timing = Timing::default();
        let client = dir.path().join("client.pem");
        fs::remove_file(&client).unwrap();
        let told = load(&Origin::File(path.clone()), &timing)
            .await
            .err()
            .unwrap();
        let expected = format!("cannot use {}: no such file or directory", client.display());
        assert_eq!(told.to_string(), expected);
        fs::write(&path, "clusters: 5").unwrap();
        let told = load(&Origin::File(path.clone()), &timing)
            .await
            .err()
            .unwrap();
        assert!(
            told.to_string()
                .starts_with(&format!("cannot use {}: ", path.display()))
        );
    }

    #[tokio::test]
    async fn certificate_data_is_read_as_well() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("kubeconfig");
        let encoded = serde_json::to_value(k8s_openapi::ByteString(NODE_CERTIFICATE.into()));
        let user = format!("{{client-certificate-data: {}}}", encoded.unwrap());
        fs::write(
            &path,
            format!(
                "current-context: c\nclusters: [{{name: k, cluster: {{server: 'https://h'}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
                 users: [{{name: u, user: {user}}}]\n"
            ),
        )
        .unwrap();
        let found = load(&Origin::File(path), &Timing::default()).await.unwrap();
        assert_eq!(found.node.as_deref(), Some("node01"));
    }

    #[tokio::test]
    async fn a_rotated_file_changes_the_stamp() {
        let (dir, path) = kubelet(NODE_CERTIFICATE);
        let found = load(&Origin::File(path), &Timing::default()).await.unwrap();
        assert_eq!(found.stamp.again(), found.stamp);
        fs::write(dir.path().join("client.pem"), OTHER_CERTIFICATE).unwrap();
        assert_ne!(found.stamp.again(), found.stamp);
    }

    #[test]
    fn whose_word_counts_for_the_node_name() {
        for (certified, configured, hostname, expected) in [
            (Some("a"), "b", "c", Some("a")),
            (None, "b", "c", Some("b")),
            (None, "", "Host.Example\n", Some("host.example")),
            (None, " ", "", None),
        ] {
            let name = node_name(certified, configured, hostname);
            assert_eq!(name.as_deref(), expected);
        }
    }

    #[test]
    fn settings() {
        let auto = Origin::from_setting("auto");
        assert!(matches!(auto, Origin::Auto(paths) if paths.len() == AUTO.len()));
        assert_eq!(Origin::from_setting("in-cluster"), Origin::InCluster);
        assert_eq!(Origin::from_setting("/k"), Origin::File("/k".into()));
    }
}
