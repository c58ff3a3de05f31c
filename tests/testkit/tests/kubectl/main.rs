//! Does the real `kubectl` work against the simulated API server?
//!
//! Needs `kubectl` on the PATH. Where it is missing the tests say SKIPPED, and fail when `CI=true`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "this whole file is a test, also its helpers"
)]

mod world;

use serde_json::{Value, json};

use world::{World, kubectl_is_missing, vmi_object};

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
