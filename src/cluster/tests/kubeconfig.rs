//! Credentials from files: which node they name, and what is told when they cannot be used.

use crate::cluster::credentials::{AUTO, ConnectError, Origin, load, node_name};
use crate::cluster::timing::Timing;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// `O=system:nodes, CN=system:node:node01`.
pub(in crate::cluster) const NODE_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
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
    assert!(matches!(nothing, Err(ConnectError::NoFile { tried }) if tried.ends_with("absent")));
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
