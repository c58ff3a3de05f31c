//! Does the real `kubectl` work against the simulated API server?
//!
//! Needs `kubectl` on the PATH. Where it is missing the tests say SKIPPED, and fail when `CI=true`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "this whole file is a test, also its helpers"
)]

use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::api::{AllowAll, Options, Rights, Server, Serving, Store, serve_https};
use testkit::clock::SimClock;
use tokio::process::Command;
use tokio::task::JoinHandle;

struct World {
    server: Arc<Server>,
    serving: Serving,
    kubelet: JoinHandle<()>,
    dir: TempDir,
}

/// What one command said.
struct Said {
    ok: bool,
    out: String,
    err: String,
}

/// Whether kubectl is there; tells the reader when it is not.
fn kubectl_is_missing(test: &str) -> bool {
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
    async fn start() -> Self {
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

    async fn kubectl(&self, args: &[&str]) -> Said {
        self.kubectl_as(&self.serving.paths.admin.clone(), args)
            .await
    }

    async fn kubectl_as(&self, kubeconfig: &PathBuf, args: &[&str]) -> Said {
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
    async fn must(&self, args: &[&str]) -> String {
        let said = self.kubectl(args).await;
        assert!(
            said.ok,
            "kubectl {args:?} failed:\n{}\n{}",
            said.out, said.err
        );
        said.out + &said.err
    }

    /// A command that has to succeed and to say this.
    async fn says(&self, args: &[&str], expected: &str) {
        let said = self.must(args).await;
        assert!(
            said.contains(expected),
            "kubectl {args:?} did not say {expected:?}:\n{said}"
        );
    }

    fn file(&self, name: &str, object: &Value) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, object.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn node(&self, name: &str) -> Value {
        self.server.store.get("nodes", "", name).unwrap()
    }

    async fn stop(self) {
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

fn vmi_object() -> Value {
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

#[tokio::test]
async fn get_describe_and_watch() {
    if kubectl_is_missing("get_describe_and_watch") {
        return;
    }
    let world = World::start().await;
    let nodes = world.must(&["get", "nodes"]).await;
    assert!(
        nodes.contains("n1")
            && nodes.contains("Ready")
            && nodes.contains("worker")
            && nodes.contains("v1.34.2"),
        "{nodes}"
    );
    let pods = world
        .must(&[
            "get",
            "pods",
            "-A",
            "-o",
            "wide",
            "-l",
            "kubevirt.io=virt-launcher",
        ])
        .await;
    assert!(
        pods.contains("virt-launcher-a-x") && pods.contains("1/1") && !pods.contains("web-1"),
        "{pods}"
    );
    let none = world
        .must(&["get", "vmi,vmim,vm,kv,vmpool,pdb,events,leases,crd", "-A"])
        .await;
    assert!(none.contains("No resources found"), "{none}");
    let yaml = world.must(&["get", "node", "n1", "-o", "yaml"]).await;
    assert!(yaml.contains("machineID: m"), "{yaml}");
    let node = world.must(&["describe", "node", "n1"]).await;
    assert!(
        node.contains("virt-launcher-a-x") && node.contains("Unschedulable:      false"),
        "{node}"
    );
    let pod = world.must(&["describe", "pod", "-n", "vms", "web-1"]).await;
    assert!(pod.contains("Controlled By:  ReplicaSet/web"), "{pod}");
    let resources = world.must(&["api-resources"]).await;
    assert!(
        resources.contains("virtualmachineinstancemigrations") && resources.contains("vmim,vmims"),
        "{resources}"
    );
    let version = world.must(&["version"]).await;
    assert!(version.contains("Server Version: v1.34.2"), "{version}");
    let ready = world
        .must(&["wait", "node/n1", "--for=condition=Ready", "--timeout=10s"])
        .await;
    assert!(ready.contains("condition met"), "{ready}");
    let may = world
        .must(&["auth", "can-i", "create", "pods", "--subresource=eviction"])
        .await;
    assert!(may.contains("yes"), "{may}");
    let missing = world.kubectl(&["get", "node", "n9"]).await;
    assert!(
        !missing.ok
            && missing
                .err
                .contains("Error from server (NotFound): nodes \"n9\" not found"),
        "{}",
        missing.err
    );
    world.stop().await;
}

#[tokio::test]
async fn cordon_and_uncordon() {
    if kubectl_is_missing("cordon_and_uncordon") {
        return;
    }
    let world = World::start().await;
    assert!(
        world
            .must(&["cordon", "n1"])
            .await
            .contains("node/n1 cordoned")
    );
    assert_eq!(world.node("n1")["spec"]["unschedulable"], true);
    assert!(
        world
            .must(&["cordon", "n1"])
            .await
            .contains("already cordoned")
    );
    let nodes = world.must(&["get", "nodes"]).await;
    assert!(nodes.contains("Ready,SchedulingDisabled"), "{nodes}");
    assert!(
        world
            .must(&["uncordon", "n1"])
            .await
            .contains("node/n1 uncordoned")
    );
    assert_eq!(world.node("n1")["spec"].get("unschedulable"), None);
    let kubelet = world.serving.paths.kubelets["n1"].clone();
    assert!(world.kubectl_as(&kubelet, &["cordon", "n1"]).await.ok);
    let foreign = world.kubectl_as(&kubelet, &["cordon", "n2"]).await;
    assert!(
        !foreign.ok
            && foreign
                .err
                .contains("cannot read 'n2', only its own Node object"),
        "{}",
        foreign.err
    );
    world.stop().await;
}

#[tokio::test]
async fn create_and_apply() {
    if kubectl_is_missing("create_and_apply") {
        return;
    }
    let world = World::start().await;
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "vms"}, "data": {"a": "1"},
    });
    let settings = world.file("settings.json", &settings);
    world
        .says(&["apply", "-f", &settings], "configmap/c created")
        .await;
    world.says(&["apply", "-f", &settings], "unchanged").await;
    world
        .says(&["create", "namespace", "more"], "namespace/more created")
        .await;
    for (least, word) in [(1, "created"), (2, "configured")] {
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "vms"},
            "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}},
        });
        let file = world.file("pdb.json", &budget);
        world.says(&["apply", "-f", &file], word).await;
    }
    let stored = world
        .server
        .store
        .get("poddisruptionbudgets", "vms", "web")
        .unwrap();
    assert_eq!(stored["spec"]["minAvailable"], 2);
    assert_eq!(stored["metadata"]["generation"], 2);
    let vmi = world.file("vmi.json", &vmi_object());
    world
        .says(
            &["create", "-f", &vmi],
            "virtualmachineinstance.kubevirt.io/a created",
        )
        .await;
    world
        .says(
            &["apply", "--server-side", "-f", &vmi],
            "serverside-applied",
        )
        .await;
    world.says(&["get", "vmi", "-n", "vms"], "Running").await;
    world.stop().await;
}

#[tokio::test]
async fn patch_annotate_label_taint_and_delete() {
    if kubectl_is_missing("patch_annotate_label_taint_and_delete") {
        return;
    }
    let world = World::start().await;
    world
        .server
        .store
        .create("virtualmachineinstances", vmi_object())
        .unwrap();
    world
        .says(
            &["annotate", "node", "n1", "vmdrain.io/request=drain"],
            "annotated",
        )
        .await;
    world
        .says(&["label", "node", "n1", "zone=a"], "labeled")
        .await;
    world
        .says(
            &["taint", "node", "n1", "kubevirt.io/drain=:NoSchedule"],
            "tainted",
        )
        .await;
    let merge = r#"{"spec":{"x":1}}"#;
    world
        .says(
            &[
                "patch",
                "vmi",
                "a",
                "-n",
                "vms",
                "--type=merge",
                "-p",
                merge,
            ],
            "patched",
        )
        .await;
    let add = r#"[{"op":"add","path":"/metadata/labels/x","value":"y"}]"#;
    world
        .says(
            &["patch", "node", "n1", "--type=json", "-p", add],
            "patched",
        )
        .await;
    let node = world.node("n1");
    assert_eq!(node["metadata"]["labels"]["x"], "y");
    assert_eq!(node["metadata"]["labels"]["zone"], "a");
    assert_eq!(
        node["metadata"]["annotations"]["vmdrain.io/request"],
        "drain"
    );
    assert_eq!(node["spec"]["taints"][0]["key"], "kubevirt.io/drain");
    world
        .says(&["delete", "vmi", "a", "-n", "vms"], "deleted")
        .await;
    world
        .says(&["delete", "pod", "alone", "-n", "vms"], "deleted")
        .await;
    assert!(world.server.store.get("pods", "vms", "alone").is_none());
    world.stop().await;
}

#[tokio::test]
async fn drain_of_the_launchers_and_of_everything() {
    if kubectl_is_missing("drain_of_the_launchers_and_of_everything") {
        return;
    }
    let world = World::start().await;
    let args = [
        "drain",
        "n1",
        "--pod-selector=kubevirt.io=virt-launcher",
        "--delete-emptydir-data",
        "--force",
    ];
    let said = world.must(&args).await;
    assert!(
        said.contains("evicting pod vms/virt-launcher-a-x") && said.contains("node/n1 drained"),
        "{said}"
    );
    assert!(!said.contains("evicting pod vms/web-1"), "{said}");
    let refused = world.kubectl(&["drain", "n1"]).await;
    assert!(
        !refused.ok && refused.err.contains("cannot delete"),
        "{}",
        refused.err
    );
    let said = world
        .must(&[
            "drain",
            "n1",
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--force",
        ])
        .await;
    assert!(
        said.contains("evicting pod vms/web-1") && said.contains("evicting pod vms/alone"),
        "{said}"
    );
    let left: Vec<Value> = world
        .server
        .store
        .list("pods")
        .iter()
        .map(|pod| pod["metadata"]["name"].clone())
        .collect();
    assert_eq!(left, ["virt-handler-1"]);
    assert_eq!(world.node("n1")["spec"]["unschedulable"], true);
    world.stop().await;
}
