//! How is each server started, and when does it answer?

use serde_json::Value;

use super::children::Line;
use super::{Caller, ControlPlane, Who};

/// One of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// virt-api.
    VirtApi,
    /// virt-controller.
    VirtController,
}

impl Server {
    /// The program's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::VirtApi => "virt-api",
            Self::VirtController => "virt-controller",
        }
    }
}

const LOOPBACK: &str = "127.0.0.1";

/// Everything that an evicted, restarted or migrated VM, its node and its budgets depend on; nothing that needs a cloud or a network.
const CONTROLLERS: [&str; 16] = [
    // A real kubelet renews its certificate.
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "daemonset-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "validatingadmissionpolicy-status-controller",
];

pub(super) fn command_line(plane: &ControlPlane, server: Server) -> anyhow::Result<Line> {
    let arguments = match server {
        Server::Etcd => etcd(plane),
        Server::ApiServer => api_server(plane),
        Server::ControllerManager => controller_manager(plane)?,
        Server::Scheduler => vec![
            option(
                "kubeconfig",
                path(&plane.kubeconfig(&user("system:kube-scheduler"))?),
            ),
            option("secure-port", 0),
            option("leader-elect", false),
        ],
        Server::VirtApi => virt_api(plane),
        Server::VirtController => virt_controller(plane),
    };
    Ok(Line {
        program: plane.binaries.program(server.name()),
        arguments,
    })
}

/// Nothing is worth waiting for the disk: the data dies with the control plane.
fn etcd(plane: &ControlPlane) -> Vec<String> {
    let client = format!("http://{LOOPBACK}:{}", plane.ports.etcd);
    let peer = format!("http://{LOOPBACK}:{}", plane.ports.etcd_peer);
    vec![
        option("name", "plane"),
        option("data-dir", path(&plane.dir().join("etcd"))),
        option("listen-client-urls", &client),
        option("advertise-client-urls", &client),
        option("listen-peer-urls", &peer),
        option("initial-advertise-peer-urls", &peer),
        option("initial-cluster", format!("plane={peer}")),
        "--unsafe-no-fsync".into(),
        option("log-level", "warn"),
    ]
}

fn api_server(plane: &ControlPlane) -> Vec<String> {
    let file = |name: &str| path(&plane.credentials.file(name));
    let bind = if plane.options.addresses.is_empty() {
        LOOPBACK
    } else {
        "0.0.0.0"
    };
    vec![
        option(
            "etcd-servers",
            format!("http://{LOOPBACK}:{}", plane.ports.etcd),
        ),
        option("bind-address", bind),
        option("secure-port", plane.ports.api_server),
        // Without the reconciler nobody minds that the address that is told to others is loopback.
        option("advertise-address", LOOPBACK),
        option("endpoint-reconciler-type", "none"),
        option("service-cluster-ip-range", "10.96.0.0/16"),
        option("client-ca-file", file("ca.crt")),
        option("tls-cert-file", file("apiserver.crt")),
        option("tls-private-key-file", file("apiserver.key")),
        option("authorization-mode", "Node,RBAC"),
        option("enable-admission-plugins", "NodeRestriction"),
        option("service-account-issuer", "https://kubernetes.default.svc"),
        option("service-account-key-file", file("tokens.pub")),
        option("service-account-signing-key-file", file("tokens.key")),
        // The aggregator's own identity. virt-api reads these from a ConfigMap that the server makes of them.
        option("requestheader-client-ca-file", file("front-proxy-ca.crt")),
        option("requestheader-allowed-names", "front-proxy-client"),
        option("requestheader-username-headers", "X-Remote-User"),
        option("requestheader-group-headers", "X-Remote-Group"),
        option("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        option("proxy-client-cert-file", file("front-proxy.crt")),
        option("proxy-client-key-file", file("front-proxy.key")),
    ]
}

fn controller_manager(plane: &ControlPlane) -> anyhow::Result<Vec<String>> {
    let kubeconfig = plane.kubeconfig(&user("system:kube-controller-manager"))?;
    Ok(vec![
        option("kubeconfig", path(&kubeconfig)),
        option("secure-port", 0),
        option("leader-elect", false),
        option("controllers", CONTROLLERS.join(",")),
        // Each controller has rights of its own.
        "--use-service-account-credentials".into(),
        option(
            "service-account-private-key-file",
            path(&plane.credentials.file("tokens.key")),
        ),
        option("root-ca-file", path(&plane.ca())),
        option("cluster-signing-cert-file", path(&plane.ca())),
        option(
            "cluster-signing-key-file",
            path(&plane.credentials.file("ca.key")),
        ),
    ])
}

fn virt_api(plane: &ControlPlane) -> Vec<String> {
    let file = |name: &str| path(&plane.credentials.file(name));
    vec![
        option("kubeconfig", path(&account(plane, "kubevirt-apiserver"))),
        option("listen", LOOPBACK),
        option("port", plane.ports.virt_api),
        option("tls-cert-file", file("virt-api.crt")),
        option("tls-key-file", file("virt-api.key")),
        option("handler-cert-file", file("virt-api.crt")),
        option("handler-key-file", file("virt-api.key")),
        option("v", 2),
    ]
}

fn virt_controller(plane: &ControlPlane) -> Vec<String> {
    let file = |name: &str| path(&plane.credentials.file(name));
    vec![
        option("kubeconfig", path(&account(plane, "kubevirt-controller"))),
        option("listen", LOOPBACK),
        option("port", plane.ports.virt_controller),
        option("prom-cert-file", file("virt-controller.crt")),
        option("prom-key-file", file("virt-controller.key")),
        option("launcher-image", "virt-launcher"),
        option("v", 2),
    ]
}

/// The kubeconfig of a KubeVirt service account; [`super::install`] writes it.
pub(super) fn account(plane: &ControlPlane, name: &str) -> std::path::PathBuf {
    plane.dir().join("kubeconfig").join(name)
}

fn user(name: &str) -> Who {
    Who::User(name.into(), None)
}

fn option(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

fn path(path: &std::path::Path) -> String {
    path.display().to_string()
}

/// Whether a server does its work now.
pub(super) async fn answers(plane: &ControlPlane, server: Server) -> bool {
    let admin = &plane.admin;
    let ask = async |path: &str| {
        let reply = admin.ask("GET", path, &Value::Null).await.ok();
        reply.filter(super::Reply::is_success)
    };
    match server {
        Server::Etcd | Server::ApiServer => {
            ask("/readyz").await.is_some_and(|reply| reply.text == "ok")
        }
        Server::ControllerManager => ask("/api/v1/namespaces/default/serviceaccounts/default")
            .await
            .is_some(),
        Server::Scheduler => true,
        Server::VirtApi => healthy(plane).await.unwrap_or(false),
        Server::VirtController => {
            let lease =
                ask("/apis/coordination.k8s.io/v1/namespaces/kubevirt/leases/virt-controller")
                    .await;
            let leads = lease.is_some_and(|lease| lease.json()["spec"]["holderIdentity"] != "");
            leads && aggregated(plane).await
        }
    }
}

/// virt-api says that it is well, to whoever asks directly.
async fn healthy(plane: &ControlPlane) -> anyhow::Result<bool> {
    let url = format!("https://{LOOPBACK}:{}", plane.ports.virt_api);
    let mut config = kube::Config::new(url.parse()?);
    let ca = std::fs::read(plane.credentials.file("kubevirt-ca.crt"))?;
    config.root_cert = Some(certificates(&ca)?);
    let caller = Caller::of(kube::Client::try_from(config)?);
    let path = "/apis/subresources.kubevirt.io/v1/healthz";
    Ok(caller.ask("GET", path, &Value::Null).await?.is_success())
}

fn certificates(pem: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    let all = CertificateDer::pem_slice_iter(pem).map(|one| one.map(|one| one.to_vec()));
    Ok(all.collect::<Result<_, _>>()?)
}

/// The API server reaches virt-api as an aggregated server.
async fn aggregated(plane: &ControlPlane) -> bool {
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1.subresources.kubevirt.io";
    let Ok(reply) = plane.admin.ask("GET", path, &Value::Null).await else {
        return false;
    };
    let conditions = reply.json()["status"]["conditions"].clone();
    conditions
        .as_array()
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Available" && one["status"] == "True")
}
