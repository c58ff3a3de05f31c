//! Puts KubeVirt into a cluster that has none, as its operator would: kinds, rights, configuration, webhooks.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use super::servers::account;
use super::{Caller, ControlPlane};

/// Service accounts with a process of their own.
const ACCOUNTS: [&str; 2] = ["kubevirt-apiserver", "kubevirt-controller"];

/// Tokens of a run.
pub(super) const TOKEN: Duration = Duration::from_secs(240 * 3600);

/// What `objects` prints.
fn printed(plane: &ControlPlane) -> anyhow::Result<Value> {
    let port = plane.ports.virt_api;
    let output = Command::new(plane.binaries.program("objects"))
        .args([
            "--url",
            &format!("https://127.0.0.1:{port}"),
            "--port",
            &port.to_string(),
        ])
        .arg("--ca")
        .arg(plane.credentials.file("kubevirt-ca.crt"))
        .stdin(Stdio::null())
        .output()
        .context("cannot print KubeVirt's objects")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "KubeVirt's objects: {complaint}");
    serde_json::from_slice(&output.stdout).context("KubeVirt's objects are no JSON")
}

async fn create(admin: &Caller, objects: &Value) -> anyhow::Result<()> {
    let all = objects.as_array().into_iter().flatten();
    try_join_all(all.map(|object| admin.create(object))).await?;
    Ok(())
}

/// Everything that virt-api needs before it starts.
pub(super) async fn crds_and_rights(plane: &ControlPlane) -> anyhow::Result<()> {
    let admin = &plane.admin;
    let objects = printed(plane)?;
    admin
        .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubevirt"}}))
        .await?;
    // The names of the kinds first: rights may name them, and virt-api waits for nothing else.
    create(admin, &objects["crds"]).await?;
    create(admin, &objects["access"]).await?;
    let ca = std::fs::read_to_string(plane.credentials.file("kubevirt-ca.crt"))?;
    admin
        .create(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubevirt-ca", "namespace": "kubevirt"},
            "data": {"ca-bundle": ca},
        }))
        .await?;
    for name in ACCOUNTS {
        let token = plane.token(("kubevirt", name), None, TOKEN).await?;
        let file = plane.token_kubeconfig(name, &token)?;
        debug_assert_eq!(file, account(plane, name));
    }
    configuration(plane).await
}

/// The KubeVirt object. Its status is the operator's; with an empty phase nobody looks at its spec.
async fn configuration(plane: &ControlPlane) -> anyhow::Result<()> {
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": {"developerConfiguration": {"featureGates": plane.options.gates}}},
    });
    let status = json!({"status": {
        "phase": "Deployed", "observedKubeVirtVersion": format!("v{}", plane.version()), "defaultArchitecture": "amd64",
    }});
    served(&plane.admin).await?;
    plane.admin.create(&kubevirt).await?;
    plane
        .admin
        .done("PATCH", &format!("{KUBEVIRT}/status"), &status)
        .await?;
    Ok(())
}

/// Path of the KubeVirt object.
pub(super) const KUBEVIRT: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";

/// Waits until all new kinds are served.
async fn served(admin: &Caller) -> anyhow::Result<()> {
    let asked = async {
        loop {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let all = admin.done("GET", path, &Value::Null).await?;
            let established = |crd: &Value| {
                let conditions = crd["status"]["conditions"].as_array().into_iter().flatten();
                conditions
                    .into_iter()
                    .any(|one| one["type"] == "Established" && one["status"] == "True")
            };
            let ready = all["items"]
                .as_array()
                .is_some_and(|all| all.iter().all(established));
            let listed = admin
                .ask("GET", "/apis/kubevirt.io/v1/kubevirts", &Value::Null)
                .await?;
            if ready && listed.is_success() {
                return Ok::<(), anyhow::Error>(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), asked)
        .await
        .context("KubeVirt's kinds are not served after two minutes")?
}

/// Webhooks and the aggregated API, once virt-api answers.
pub(super) async fn hooks(plane: &ControlPlane) -> anyhow::Result<()> {
    let admin = &plane.admin;
    // A dotted address passes as a DNS name, and the aggregator dials it without looking for endpoints.
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "virt-api", "namespace": "kubevirt"},
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1", "ports": [{"port": plane.ports.virt_api}]},
    });
    admin.create(&service).await?;
    create(admin, &printed(plane)?["hooks"]).await
}
