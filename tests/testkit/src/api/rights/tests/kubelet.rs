//! The kubelet's own rights, row by row of the table of control-plane.md 6.a.

use http::Method;
use serde_json::{Value, json};

use super::{node, refused};
use crate::api::tests::{get, send, send_as, world};

/// The Node of the kubelet.
const OWN: &str = "/api/v1/nodes/node01";

#[tokio::test(start_paused = true)]
async fn a_kubelet_reads_its_own_node_and_pods() {
    let server = world();
    let pods = "/api/v1/pods?fieldSelector=spec.nodeName%3D";
    for allowed in [
        "/api/v1/nodes/node01",
        "/api/v1/nodes?fieldSelector=metadata.name%3Dnode01",
        "/api/v1/nodes?fieldSelector=metadata.name%3Dnode01&watch=true&timeoutSeconds=1",
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode01&labelSelector=kubevirt.io%3Dvirt-launcher",
        "/api/v1/namespaces/vms/pods?fieldSelector=spec.nodeName%3Dnode01",
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode01&watch=true&timeoutSeconds=1",
        "/api/v1/namespaces/vms/pods/a",
        "/api/v1/services",
        "/apis/kubevirt.io/v1/kubevirts",
        "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts",
        "/apis/subresources.kubevirt.io/v1",
        "/version",
        "/readyz",
        "/openapi/v2",
    ] {
        assert_eq!(get(&server, &node(), allowed).await.code, 200, "{allowed}");
    }
    let own_node_only = "only its own Node object";
    refused(
        &get(&server, &node(), "/api/v1/nodes/node02").await,
        &format!("at the cluster scope: node 'node01' cannot read 'node02', {own_node_only}"),
    );
    refused(
        &get(&server, &node(), "/api/v1/nodes").await,
        &format!("node 'node01' cannot read all nodes, {own_node_only}"),
    );
    refused(
        &get(
            &server,
            &node(),
            "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Dnode02",
        )
        .await,
        own_node_only,
    );
    refused(
        &get(&server, &node(), "/api/v1/pods").await,
        "can only list/watch pods with spec.nodeName field selector",
    );
    refused(
        &get(&server, &node(), &format!("{pods}node02")).await,
        "can only list/watch pods with spec.nodeName field selector",
    );
    let unrelated = "cannot get resource \"pods\" in API group \"\" in the namespace \"vms\": no relationship found between node 'node01' and this object";
    refused(
        &get(&server, &node(), "/api/v1/namespaces/vms/pods/b").await,
        unrelated,
    );
    refused(
        &get(&server, &node(), "/api/v1/namespaces/vms/pods/nosuch").await,
        unrelated,
    );
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_does_not_see_the_rest() {
    let server = world();
    for (uri, ending) in [
        (
            "/apis/policy/v1/poddisruptionbudgets",
            "cannot list resource \"poddisruptionbudgets\" in API group \"policy\" at the cluster scope",
        ),
        (
            "/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstances",
            "cannot list resource \"virtualmachineinstances\" in API group \"kubevirt.io\" in the namespace \"vms\"",
        ),
        (
            "/apis/kubevirt.io/v1/virtualmachineinstancemigrations",
            "at the cluster scope",
        ),
        (
            "/apis/kubevirt.io/v1/virtualmachines",
            "at the cluster scope",
        ),
        (
            "/apis/kubevirt.io/v1/kubevirts?watch=true",
            "cannot watch resource \"kubevirts\" in API group \"kubevirt.io\" at the cluster scope",
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "at the cluster scope",
        ),
        ("/apis/apps/v1/replicasets", "at the cluster scope"),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            "at the cluster scope",
        ),
        ("/api/v1/namespaces", "at the cluster scope"),
        (
            "/api/v1/namespaces/vms",
            "cannot get resource \"namespaces\" in API group \"\" in the namespace \"vms\"",
        ),
        (
            "/api/v1/namespaces/default/events",
            "in the namespace \"default\"",
        ),
        ("/apis/events.k8s.io/v1/events", "at the cluster scope"),
        (
            "/apis/subresources.kubevirt.io/v1/healthz",
            "at the cluster scope",
        ),
        (
            "/apis/coordination.k8s.io/v1/leases",
            "can only get, create, update, patch, or delete a node lease",
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/vmdrain/leases/slot",
            "can only access leases in the \"kube-node-lease\" system namespace",
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node02",
            "can only access node lease with the same name as the requesting node",
        ),
    ] {
        refused(&get(&server, &node(), uri).await, ending);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_writes_its_own_node() {
    let server = world();
    let patch = |uri: &'static str, body: Value| {
        let server = server.clone();
        async move { send(&server, &node(), Method::PATCH, uri, body).await }
    };
    server.store.update("nodes", "", "node01", |node| {
        node["spec"]["taints"] =
            json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
    });
    for body in [
        json!({"spec": {"unschedulable": true}}),
        json!({"spec": {"unschedulable": null}}),
        json!({"metadata": {"annotations": {"vmdrain.io/cordon": "{}"}}}),
        json!({"metadata": {"labels": {"vmdrain.io/state": "draining", "kubevirt.io/schedulable": "false"}}}),
        json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "big"}}}),
    ] {
        assert_eq!(patch(OWN, body.clone()).await.code, 200, "{body}");
    }
    let condition =
        json!({"status": {"conditions": [{"type": "VmdrainShutdownHeld", "status": "True"}]}});
    assert_eq!(
        patch("/api/v1/nodes/node01/status", condition).await.code,
        200
    );
    let label = |label: &str| json!({"metadata": {"labels": {label: "x"}}});
    refused(
        &patch(OWN, label("node-role.kubernetes.io/worker")).await,
        "is not allowed to modify labels: node-role.kubernetes.io/worker",
    );
    refused(
        &patch(OWN, label("node-restriction.kubernetes.io/a")).await,
        "is not allowed to modify labels: node-restriction.kubernetes.io/a",
    );
    refused(
        &patch(OWN, json!({"spec": {"taints": []}})).await,
        "node \"node01\" is not allowed to modify taints",
    );
    refused(
        &patch(
            "/api/v1/nodes/node02",
            json!({"spec": {"unschedulable": true}}),
        )
        .await,
        "node \"node01\" is not allowed to modify node \"node02\"",
    );
    assert_eq!(
        patch(OWN, json!({"metadata": {"resourceVersion": "1"}}))
            .await
            .code,
        409
    );
    let test = json!([{"op": "test", "path": "/spec/unschedulable", "value": 7}]);
    assert_eq!(
        send_as(
            &server,
            &node(),
            Method::PATCH,
            OWN,
            "application/json-patch+json",
            &test
        )
        .await
        .code,
        422
    );
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_ends_and_reports_only_its_own_pods() {
    let server = world();
    let pod = |name: &str| format!("/api/v1/namespaces/vms/pods/{name}");
    let delete = |name: &str, options: Value| {
        let (server, uri) = (server.clone(), pod(name));
        async move { send(&server, &node(), Method::DELETE, &uri, options).await }
    };
    refused(
        &delete("b", Value::Null).await,
        "node \"node01\" can only delete pods with spec.nodeName set to itself",
    );
    assert_eq!(
        delete("nosuch", Value::Null).await.message(),
        "pods \"nosuch\" not found"
    );
    assert_eq!(
        delete("a", json!({"preconditions": {"uid": "x"}}))
            .await
            .code,
        409
    );
    refused(
        &send(&server, &node(), Method::PATCH, &pod("a"), json!({})).await,
        "cannot patch resource \"pods\" in API group \"\" in the namespace \"vms\"",
    );
    refused(
        &send(
            &server,
            &node(),
            Method::DELETE,
            "/api/v1/namespaces/vms/pods",
            Value::Null,
        )
        .await,
        "in the namespace \"vms\"",
    );
    let status = json!({"status": {"phase": "Running"}, "metadata": {"annotations": {"x": "y"}}});
    let written = send(
        &server,
        &node(),
        Method::PATCH,
        &format!("{}/status", pod("a")),
        status.clone(),
    )
    .await;
    assert_eq!(
        (
            written.code,
            written.body["metadata"]["annotations"]["x"].as_str()
        ),
        (200, Some("y"))
    );
    refused(
        &send(
            &server,
            &node(),
            Method::PATCH,
            &format!("{}/status", pod("b")),
            status,
        )
        .await,
        "with spec.nodeName set to itself",
    );
    for options in [
        json!({"dryRun": ["All"]}),
        json!({"gracePeriodSeconds": 20}),
        json!({"gracePeriodSeconds": 0}),
    ] {
        assert_eq!(delete("a", options).await.code, 200);
    }
    assert_eq!(server.store.get("pods", "vms", "a"), None);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_writes_events_and_its_lease() {
    let server = world();
    let event = |name: &str, kind: &str, namespace: &str| json!({"metadata": {"name": name}, "involvedObject": {"kind": kind, "name": "x", "namespace": namespace}});
    let post = |uri: &'static str, body: Value| {
        let server = server.clone();
        async move { send(&server, &node(), Method::POST, uri, body).await }
    };
    assert_eq!(
        post("/api/v1/namespaces/default/events", event("n", "Node", ""))
            .await
            .code,
        201
    );
    assert_eq!(
        post(
            "/api/v1/namespaces/vms/events",
            event("v", "VirtualMachineInstance", "vms")
        )
        .await
        .code,
        201
    );
    let counted = send(
        &server,
        &node(),
        Method::PATCH,
        "/api/v1/namespaces/vms/events/v",
        json!({"count": 2}),
    )
    .await;
    assert_eq!(counted.code, 200);
    let lease = json!({"metadata": {"name": "node01"}, "spec": {"holderIdentity": "node01"}});
    assert_eq!(
        post(
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            lease
        )
        .await
        .code,
        201
    );
    let uri = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node01";
    assert_eq!(
        send(
            &server,
            &node(),
            Method::PATCH,
            uri,
            json!({"metadata": {"annotations": {"a": "b"}}})
        )
        .await
        .code,
        200
    );
    assert_eq!(get(&server, &node(), uri).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_review_knows_the_authorizer_only() {
    let server = world();
    let may = |attributes: Value| {
        let server = server.clone();
        async move {
            let review = json!({"spec": {"resourceAttributes": attributes}});
            let answer = send(
                &server,
                &node(),
                Method::POST,
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                review,
            )
            .await;
            assert_eq!(answer.code, 201);
            answer.body["status"]["allowed"] == json!(true)
        }
    };
    assert!(may(json!({"verb": "patch", "resource": "nodes", "name": "node02"})).await);
    assert!(!may(json!({"verb": "list", "resource": "nodes", "fieldSelector": {"rawSelector": "metadata.name=node01"}})).await);
    assert!(may(json!({"verb": "list", "resource": "nodes", "name": "node01"})).await);
    let selector =
        json!({"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["node01"]}]});
    assert!(may(json!({"verb": "list", "resource": "pods", "fieldSelector": selector})).await);
    assert!(may(json!({"verb": "create", "resource": "pods", "subresource": "eviction", "namespace": "vms", "name": "a"})).await);
    assert!(
        !may(
            json!({"verb": "list", "group": "kubevirt.io", "resource": "virtualmachineinstances"})
        )
        .await
    );
    assert!(!may(json!({"verb": "update", "group": "subresources.kubevirt.io", "resource": "virtualmachineinstances", "subresource": "evacuate"})).await);
    let me = send(
        &server,
        &node(),
        Method::POST,
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        json!({}),
    )
    .await;
    assert_eq!(
        me.body["status"]["userInfo"]["username"],
        "system:node:node01"
    );
    let rules = send(
        &server,
        &node(),
        Method::POST,
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        json!({"spec": {"namespace": "vms"}}),
    )
    .await;
    assert_eq!(
        (rules.code, &rules.body["status"]["incomplete"]),
        (201, &json!(true))
    );
}
