//! create, update, patch and delete, with conflicts, dry runs and subresources.

use http::Method;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::{get, send, send_as, world};
use crate::api::Identity;

const NODE: &str = "/api/v1/nodes/node01";

#[tokio::test(start_paused = true)]
async fn a_kube_client_writes() {
    let server = world();
    let client = server.client(Identity::admin());
    let nodes = Api::<Node>::all(client.clone());
    let version = nodes
        .get("node01")
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let patch = json!({"metadata": {"resourceVersion": version, "annotations": {"vmdrain.io/cordon": "{}"}}, "spec": {"unschedulable": true}});
    let node = nodes
        .patch("node01", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    assert_eq!(node.spec.unwrap().unschedulable, Some(true));
    let stale = nodes
        .patch("node01", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap_err();
    let kube::Error::Api(status) = stale else {
        panic!("{stale:?}")
    };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        status.message,
        "Operation cannot be fulfilled on nodes \"node01\": the object has been modified; please apply your changes to the latest version and try again"
    );

    let pods = Api::<Pod>::namespaced(client, "vms");
    let made: Pod = serde_json::from_value(
        json!({"metadata": {"generateName": "new-"}, "spec": {"containers": []}}),
    )
    .unwrap();
    let made = pods.create(&PostParams::default(), &made).await.unwrap();
    assert!(made.metadata.name.unwrap().starts_with("new-"));
    let wrong = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some("u".into()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let refused = pods.delete("a", &wrong).await.unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(status.code, 409);
    assert!(status.message.starts_with("Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (u) does not match the UID in record ("), "{}", status.message);
    let ending = pods
        .delete("a", &DeleteParams::default().grace_period(7))
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(ending.metadata.deletion_grace_period_seconds, Some(7));
}

#[tokio::test(start_paused = true)]
async fn an_update_with_an_old_revision_conflicts() {
    let (server, admin) = (world(), Identity::admin());
    let mut node = get(&server, &admin, NODE).await.body;
    server
        .store
        .update("nodes", "", "node01", |node| node["spec"]["x"] = json!(1));
    node["spec"]["y"] = json!(2);
    assert_eq!(
        send(&server, &admin, Method::PUT, NODE, node.clone())
            .await
            .code,
        409
    );
    node["metadata"]["resourceVersion"] = Value::Null;
    assert_eq!(
        send(&server, &admin, Method::PUT, NODE, node.clone())
            .await
            .code,
        200
    );
    node["metadata"]["name"] = json!("other");
    assert_eq!(
        send(&server, &admin, Method::PUT, NODE, node).await.code,
        400
    );
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_patch() {
    let (server, admin) = (world(), Identity::admin());
    let patch = |media: &'static str, body: Value| {
        let (server, admin) = (server.clone(), admin.clone());
        async move { send_as(&server, &admin, Method::PATCH, NODE, media, &body).await }
    };
    let test = json!([{"op": "test", "path": "/spec/unschedulable", "value": true}, {"op": "remove", "path": "/spec/unschedulable"}]);
    let failed = patch("application/json-patch+json", test.clone()).await;
    assert_eq!(
        (failed.code, failed.body["reason"].as_str()),
        (422, Some("Invalid"))
    );
    assert_eq!(
        failed.message(),
        "the server rejected our request due to an error in our request"
    );
    assert_eq!(failed.body["details"], json!({}));
    let strategic = patch(
        "application/strategic-merge-patch+json",
        json!({"spec": {"unschedulable": true}}),
    )
    .await;
    assert_eq!(
        (strategic.code, &strategic.body["spec"]["unschedulable"]),
        (200, &json!(true))
    );
    assert_eq!(patch("application/json-patch+json", test).await.code, 200);
    let merge = patch(
        "application/merge-patch+json",
        json!({"metadata": {"labels": {"x": "y", "kubernetes.io/hostname": null}}}),
    )
    .await;
    assert_eq!(merge.body["metadata"]["labels"], json!({"x": "y"}));
    assert_eq!(
        patch(
            "application/apply-patch+yaml",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"annotations": {"a": "b"}}})
        )
        .await
        .code,
        200
    );
    assert_eq!(patch("text/plain", json!({})).await.code, 415);
    let vmi = "/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstances/v";
    assert_eq!(
        send_as(
            &server,
            &admin,
            Method::PATCH,
            vmi,
            "application/strategic-merge-patch+json",
            &json!({})
        )
        .await
        .code,
        415
    );
}

#[tokio::test(start_paused = true)]
async fn an_apply_patch_creates() {
    let (server, admin) = (world(), Identity::admin());
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "slot"}, "spec": {"holderIdentity": "n1"}});
    let uri = "/apis/coordination.k8s.io/v1/namespaces/default/leases/slot?fieldManager=t";
    let made = send_as(
        &server,
        &admin,
        Method::PATCH,
        uri,
        "application/apply-patch+yaml",
        &lease,
    )
    .await;
    assert_eq!(
        (made.code, made.body["metadata"]["namespace"].as_str()),
        (201, Some("default"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing() {
    let (server, admin) = (world(), Identity::admin());
    let before = server.store.revision();
    let created = send(
        &server,
        &admin,
        Method::POST,
        "/api/v1/namespaces/vms/pods?dryRun=All",
        json!({"metadata": {"generateName": "x-"}}),
    )
    .await;
    assert_eq!(created.code, 201);
    assert!(created.body["metadata"]["uid"].is_string());
    let patched = send(
        &server,
        &admin,
        Method::PATCH,
        &format!("{NODE}?dryRun=All"),
        json!({"spec": {"unschedulable": true}}),
    )
    .await;
    assert_eq!(patched.body["spec"]["unschedulable"], true);
    assert_eq!(
        send(
            &server,
            &admin,
            Method::DELETE,
            "/api/v1/namespaces/vms/pods/a",
            json!({"dryRun": ["All"]})
        )
        .await
        .code,
        200
    );
    assert_eq!(server.store.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn status_is_a_part_of_its_own() {
    let (server, admin) = (world(), Identity::admin());
    let status = json!({"status": {"conditions": [{"type": "VmdrainShutdownHeld", "status": "True"}]}, "spec": {"unschedulable": true}});
    let through_main = send(&server, &admin, Method::PATCH, NODE, status.clone()).await;
    assert_eq!(
        (through_main.code, through_main.body.get("status")),
        (200, None)
    );
    send(
        &server,
        &admin,
        Method::PATCH,
        NODE,
        json!({"spec": {"unschedulable": null}}),
    )
    .await;
    let through_status = send(
        &server,
        &admin,
        Method::PATCH,
        &format!("{NODE}/status"),
        status,
    )
    .await
    .body;
    assert_eq!(through_status["status"]["conditions"][0]["status"], "True");
    assert_eq!(through_status["spec"]["unschedulable"], Value::Null);
    let vmi =
        json!({"metadata": {"name": "v", "namespace": "vms"}, "status": {"phase": "Running"}});
    let made = send(
        &server,
        &admin,
        Method::POST,
        "/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstances",
        vmi,
    )
    .await
    .body;
    assert_eq!(made["status"]["phase"], "Running");
    let none = send(
        &server,
        &admin,
        Method::PATCH,
        "/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstances/v/status",
        json!({}),
    )
    .await;
    assert_eq!(none.code, 404);
}

#[tokio::test(start_paused = true)]
async fn namespaces_that_end_or_do_not_exist() {
    let (server, admin) = (world(), Identity::admin());
    let missing = send(
        &server,
        &admin,
        Method::POST,
        "/api/v1/namespaces/nowhere/pods",
        json!({"metadata": {"name": "x"}}),
    )
    .await;
    assert_eq!(
        (missing.code, missing.message()),
        (404, "namespaces \"nowhere\" not found")
    );
    assert_eq!(
        send(
            &server,
            &admin,
            Method::DELETE,
            "/api/v1/namespaces/vms",
            Value::Null
        )
        .await
        .code,
        200
    );
    let ending = send(
        &server,
        &admin,
        Method::POST,
        "/api/v1/namespaces/vms/pods",
        json!({"metadata": {"name": "x"}}),
    )
    .await;
    assert_eq!(ending.code, 403);
    assert_eq!(
        ending.message(),
        "pods \"x\" is forbidden: unable to create new content in namespace vms because it is being terminated"
    );
    assert_eq!(
        ending.body["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_selector() {
    let (server, admin) = (world(), Identity::admin());
    let gone = send(
        &server,
        &admin,
        Method::DELETE,
        "/api/v1/namespaces/vms/pods?labelSelector=app%3Da",
        json!({"gracePeriodSeconds": 0}),
    )
    .await;
    assert_eq!(gone.body["items"].as_array().unwrap().len(), 1);
    assert_eq!(server.store.list("pods").len(), 1);
    let lease = json!({"metadata": {"name": "l"}});
    send(
        &server,
        &admin,
        Method::POST,
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        lease,
    )
    .await;
    let done = send(
        &server,
        &admin,
        Method::DELETE,
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
        Value::Null,
    )
    .await;
    assert_eq!(
        (done.code, done.body["status"].as_str()),
        (200, Some("Success"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_about_a_node_belongs_in_default() {
    let (server, admin) = (world(), Identity::admin());
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Node", "name": "node01"}, "reason": "R"});
    let wrong = send(
        &server,
        &admin,
        Method::POST,
        "/api/v1/namespaces/vms/events",
        event.clone(),
    )
    .await;
    assert_eq!(wrong.code, 422);
    assert!(wrong.message().ends_with("does not match event.namespace"));
    assert_eq!(
        send(
            &server,
            &admin,
            Method::POST,
            "/api/v1/namespaces/default/events",
            event
        )
        .await
        .code,
        201
    );
}
