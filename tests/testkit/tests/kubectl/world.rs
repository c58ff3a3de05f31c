//! A small cluster behind the HTTPS front, and kubectl as a child process.

use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::api::{AllowAll, Options, Rights, Server, Serving, Store, serve_https};
use testkit::clock::SimClock;
use tokio::process::Command;
use tokio::task::JoinHandle;

pub(crate) struct World {
    pub(crate) server: Arc<Server>,
    pub(crate) serving: Serving,
    kubelet: JoinHandle<()>,
    dir: TempDir,
}

/// What one command said.
pub(crate) struct Said {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Whether kubectl is there; tells the reader when it is not.
pub(crate) fn kubectl_is_missing(test: &str) -> bool {
    let found = std::process::Command::new("kubectl")
        .args(["version", "--client"])
        .output()
        .is_ok_and(|output| output.status.success());
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(
        found || !ci,
        "kubectl is missing, and CI=true wants every test to run"
    );
    if !found {
        println!("SKIPPED {test}: kubectl is missing");
    }
    !found
}

impl World {
    /// Two nodes; on n1 a launcher pod, a replica set's pod with an emptyDir, a DaemonSet pod and an unmanaged pod.
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::new(
            Store::new(SimClock::from_wall(1.0), 1),
            Arc::new(AllowAll),
            Rights::base(),
        );
        let store = &server.store;
        store
            .create("namespaces", json!({"metadata": {"name": "vms"}}))
            .unwrap();
        for node in ["n1", "n2"] {
            store.create("nodes", node_object(node)).unwrap();
        }
        store
            .create(
                "replicasets",
                json!({"metadata": {"name": "web", "namespace": "vms"}, "spec": {"replicas": 1}}),
            )
            .unwrap();
        store
            .create(
                "daemonsets",
                json!({"metadata": {"name": "virt-handler", "namespace": "vms"}, "spec": {}}),
            )
            .unwrap();
        for (name, kind, labels) in [
            (
                "virt-launcher-a-x",
                "VirtualMachineInstance",
                json!({"kubevirt.io": "virt-launcher"}),
            ),
            ("web-1", "ReplicaSet", json!({"app": "web"})),
            ("virt-handler-1", "DaemonSet", json!({"app": "handler"})),
            ("alone", "", json!({})),
        ] {
            store
                .create("pods", pod_object(name, kind, &labels))
                .unwrap();
        }
        let serving = serve_https(server.clone(), Options::in_dir(dir.path()))
            .await
            .unwrap();
        let kubelet = tokio::spawn(end_deleted_pods(server.store.clone()));
        Self {
            server,
            serving,
            kubelet,
            dir,
        }
    }

    pub(crate) async fn kubectl(&self, args: &[&str]) -> Said {
        self.kubectl_as(&self.serving.paths.admin.clone(), args)
            .await
    }

    pub(crate) async fn kubectl_as(&self, kubeconfig: &PathBuf, args: &[&str]) -> Said {
        let command = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--cache-dir")
            .arg(self.dir.path().join("cache"))
            .args(args)
            .env("HOME", self.dir.path())
            .kill_on_drop(true)
            .output();
        let Output {
            status,
            stdout,
            stderr,
        } = tokio::time::timeout(std::time::Duration::from_secs(60), command)
            .await
            .unwrap()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said {
            ok: status.success(),
            out: text(stdout),
            err: text(stderr),
        }
    }

    /// A command that has to succeed; its output.
    pub(crate) async fn must(&self, args: &[&str]) -> String {
        let said = self.kubectl(args).await;
        assert!(
            said.ok,
            "kubectl {args:?} failed:\n{}\n{}",
            said.out, said.err
        );
        said.out + &said.err
    }

    /// A command that has to succeed and to say this.
    pub(crate) async fn says(&self, args: &[&str], expected: &str) {
        let said = self.must(args).await;
        assert!(
            said.contains(expected),
            "kubectl {args:?} did not say {expected:?}:\n{said}"
        );
    }

    pub(crate) fn file(&self, name: &str, object: &Value) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, object.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn node(&self, name: &str) -> Value {
        self.server.store.get("nodes", "", name).unwrap()
    }

    pub(crate) async fn stop(self) {
        self.kubelet.abort();
        self.serving.shutdown().await;
    }
}

fn node_object(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "node-role.kubernetes.io/worker": ""}},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "capacity": {"cpu": "8", "memory": "64Gi", "pods": "110"}, "allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"},
            "nodeInfo": {"kubeletVersion": "v1.34.2", "machineID": "m", "systemUUID": "s", "bootID": "b", "kernelVersion": "6", "osImage": "x",
                "containerRuntimeVersion": "c", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"},
        },
    })
}

fn pod_object(name: &str, owner: &str, labels: &Value) -> Value {
    let owner_name = match owner {
        "ReplicaSet" => "web",
        "DaemonSet" => "virt-handler",
        _ => "a",
    };
    let version = if owner == "VirtualMachineInstance" {
        "kubevirt.io/v1"
    } else {
        "apps/v1"
    };
    let owners = if owner.is_empty() {
        json!([])
    } else {
        json!([{"apiVersion": version, "kind": owner, "name": owner_name, "uid": "u", "controller": true}])
    };
    json!({
        "metadata": {"name": name, "namespace": "vms", "labels": labels, "ownerReferences": owners},
        "spec": {"nodeName": "n1", "containers": [{"name": "compute", "image": "i"}], "volumes": [{"name": "tmp", "emptyDir": {}}], "terminationGracePeriodSeconds": 5},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "compute", "ready": true}]},
    })
}

pub(crate) fn vmi_object() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "a", "namespace": "vms"},
        "spec": {"evictionStrategy": "LiveMigrate"}, "status": {"phase": "Running", "nodeName": "n1"},
    })
}

/// The last thing a kubelet does for a deleted pod.
async fn end_deleted_pods(store: Store) {
    let mut changed = store.changed();
    loop {
        for pod in store.list("pods") {
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                store.delete_with_grace(
                    "pods",
                    "vms",
                    pod["metadata"]["name"].as_str().unwrap(),
                    Some(0),
                );
            }
        }
        changed.changed().await.unwrap();
    }
}
