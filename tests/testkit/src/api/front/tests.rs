//! The HTTPS front with a real kube client: credentials, faults on the wire, rotation, stop.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tempfile::TempDir;

use super::{Options, Serving, serve_https};
use crate::api::tests::world;
use crate::api::{Effect, Filter, Rule, Server};

async fn front() -> (Arc<Server>, Serving, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let server = world();
    let serving = serve_https(server.clone(), Options::in_dir(dir.path()))
        .await
        .unwrap();
    (server, serving, dir)
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn code(error: &kube::Error) -> Option<u16> {
    if let kube::Error::Api(status) = error {
        Some(status.code)
    } else {
        None
    }
}

#[tokio::test]
async fn every_kubeconfig_is_its_identity() {
    let (server, serving, _dir) = front().await;
    let nodes = Api::<Node>::all(client(&serving.paths.admin).await);
    assert_eq!(
        nodes
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        2
    );
    let kubelet = Api::<Node>::all(client(&serving.paths.kubelets["node01"]).await);
    assert!(kubelet.get("node01").await.is_ok());
    assert_eq!(code(&kubelet.get("node02").await.unwrap_err()), Some(403));
    let agent = client(&serving.paths.service_account).await;
    assert!(
        Api::<Pod>::all(agent)
            .list(&ListParams::default())
            .await
            .is_ok()
    );
    assert_eq!(
        server.log.entries().pop().unwrap().user,
        "system:serviceaccount:vmdrain:vmdrain-agent"
    );
    serving.shutdown().await;
    let gone = nodes.get("node01").await.unwrap_err();
    assert!(
        matches!(gone, kube::Error::Service(_) | kube::Error::HyperError(_)),
        "{gone:?}"
    );
}

#[tokio::test]
async fn faults_are_real_on_the_wire() {
    let (server, serving, _dir) = front().await;
    let nodes = Api::<Node>::all(client(&serving.paths.admin).await);
    let drop = Rule {
        filter: Filter {
            verb: "get".into(),
            ..Filter::default()
        },
        effect: Effect::Drop { after_write: false },
        times: Some(1),
        until: None,
    };
    server.faults.add(drop);
    let reset = format!("{:?}", nodes.get("node01").await.unwrap_err());
    assert!(
        reset.contains("ConnectionReset") || reset.contains("IncompleteMessage"),
        "{reset}"
    );
    server.faults.down(None);
    let refused = loop {
        // The listener closes a moment after the fault is set; until then the connection is reset.
        let error = format!("{:?}", nodes.get("node01").await.unwrap_err());
        if error.contains("ConnectionRefused") {
            break error;
        }
        tokio::task::yield_now().await;
    };
    assert!(refused.contains("ConnectionRefused"));
    server.faults.up();
    while let Err(error) = nodes.get("node01").await {
        assert_eq!(code(&error), None);
        tokio::task::yield_now().await;
    }
    serving.shutdown().await;
}

#[tokio::test]
async fn rotated_files_are_new_credentials() {
    let (server, serving, _dir) = front().await;
    let path = &serving.paths.kubelets["node01"];
    let old = Api::<Node>::all(client(path).await);
    assert!(old.get("node01").await.is_ok());
    server
        .faults
        .rotate_credentials(server.clock().elapsed(), Duration::ZERO);
    assert_eq!(code(&old.get("node01").await.unwrap_err()), Some(401));
    let mut new = Api::<Node>::all(client(path).await);
    while new.get("node01").await.is_err() {
        // The files are written by the front's own task.
        tokio::task::yield_now().await;
        new = Api::<Node>::all(client(path).await);
    }
    serving.shutdown().await;
}
