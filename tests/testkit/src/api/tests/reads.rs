//! get, list, selectors, pages, tables, discovery.

use http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{get, pod, world};
use crate::api::Identity;

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_kube_client_reads() {
    let server = world();
    let client = server.client(Identity::admin());
    let node = Api::<Node>::all(client.clone())
        .get("node01")
        .await
        .unwrap();
    assert_eq!(node.metadata.name.as_deref(), Some("node01"));
    let pods = Api::<Pod>::all(client.clone());
    let found = pods
        .list(
            &ListParams::default()
                .fields("spec.nodeName=node01")
                .labels("kubevirt.io=virt-launcher"),
        )
        .await
        .unwrap();
    assert_eq!(found.items.len(), 1);
    assert_eq!(
        found.metadata.resource_version,
        Some(server.store.revision().to_string())
    );
    let missing = Api::<Pod>::namespaced(client.clone(), "vms")
        .get("nosuch")
        .await
        .unwrap_err();
    let kube::Error::Api(status) = missing else {
        panic!("{missing:?}")
    };
    assert_eq!(
        (status.code, status.reason.as_str(), status.message.as_str()),
        (404, "NotFound", "pods \"nosuch\" not found")
    );
    assert_eq!(client.apiserver_version().await.unwrap().minor, "34");
}

#[tokio::test(start_paused = true)]
async fn selectors_of_a_list() {
    let (server, admin) = (world(), Identity::admin());
    let list = |query: &str| format!("/api/v1/pods?{query}");
    let app = get(
        &server,
        &admin,
        &list("labelSelector=app%20in%20(a,c),!missing"),
    )
    .await;
    assert_eq!(names(&app.body), ["a"]);
    let other = get(
        &server,
        &admin,
        &list("fieldSelector=spec.nodeName!%3Dnode01,status.phase%3DRunning"),
    )
    .await;
    assert_eq!(names(&other.body), ["b"]);
    let elsewhere = get(&server, &admin, "/api/v1/namespaces/default/pods").await;
    assert!(names(&elsewhere.body).is_empty());
    let refused = get(
        &server,
        &admin,
        "/apis/kubevirt.io/v1/virtualmachineinstances?fieldSelector=status.nodeName%3Dn1",
    )
    .await;
    assert_eq!(
        (refused.code, refused.message()),
        (400, "field label not supported: status.nodeName")
    );
    let watch = get(
        &server,
        &admin,
        "/apis/kubevirt.io/v1/virtualmachineinstances?watch=true&fieldSelector=spec.vmiName%3Dx",
    )
    .await;
    assert_eq!(
        (watch.code, watch.message()),
        (400, "field label not supported: spec.vmiName")
    );
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_moment_and_expire() {
    let (server, admin) = (world(), Identity::admin());
    for name in ["c", "d", "e"] {
        server.store.create("pods", pod(name, "node01")).unwrap();
    }
    let first = get(&server, &admin, "/api/v1/pods?limit=2").await.body;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    server.store.remove("pods", "vms", "c");
    server.store.create("pods", pod("aa", "node01")).unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let second = get(
        &server,
        &admin,
        &format!("/api/v1/pods?limit=2&continue={token}"),
    )
    .await
    .body;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let token = second["metadata"]["continue"].as_str().unwrap().to_owned();
    let third = get(
        &server,
        &admin,
        &format!("/api/v1/pods?limit=2&continue={token}"),
    )
    .await
    .body;
    assert_eq!(names(&third), ["e"]);
    assert_eq!(third["metadata"].get("continue"), None);
    server.store.compact();
    let late = get(
        &server,
        &admin,
        &format!("/api/v1/pods?limit=2&continue={token}"),
    )
    .await;
    assert_eq!(
        (late.code, late.body["reason"].as_str()),
        (410, Some("Expired"))
    );
    assert_eq!(
        get(&server, &admin, "/api/v1/pods?limit=2&continue=x")
            .await
            .code,
        400
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_of_the_past_and_of_the_future() {
    let (server, admin) = (world(), Identity::admin());
    let past = server.store.revision();
    server.store.remove("pods", "vms", "a");
    let exact = get(
        &server,
        &admin,
        &format!("/api/v1/pods?resourceVersion={past}&resourceVersionMatch=Exact"),
    )
    .await;
    assert_eq!(names(&exact.body), ["a", "b"]);
    let future = get(&server, &admin, "/api/v1/pods?resourceVersion=999999").await;
    assert_eq!(
        (future.code, future.body["reason"].as_str()),
        (504, Some("Timeout"))
    );
    assert_eq!(
        future.body["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
}

#[tokio::test(start_paused = true)]
async fn tables_for_people() {
    let (server, admin) = (world(), Identity::admin());
    server.store.update("nodes", "", "node01", |node| {
        node["spec"]["unschedulable"] = json!(true);
    });
    let request = Request::get("/api/v1/nodes")
        .header(
            "accept",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        )
        .body(bytes::Bytes::new())
        .unwrap();
    let body = server
        .handle(request, &admin)
        .await
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    let table: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][0]["cells"][0], "node01");
    assert_eq!(table["rows"][0]["cells"][1], "NotReady,SchedulingDisabled");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test(start_paused = true)]
async fn discovery_of_both_forms_agrees() {
    let (server, admin) = (world(), Identity::admin());
    let listed = get(&server, &admin, "/api/v1").await.body;
    let eviction = listed["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|resource| resource["name"] == "pods/eviction")
        .unwrap();
    assert_eq!(
        (eviction["kind"].as_str(), eviction["group"].as_str()),
        (Some("Eviction"), Some("policy"))
    );
    let discovery = kube::Discovery::new(server.client(Identity::kubelet("node01")))
        .run()
        .await
        .unwrap();
    assert!(
        discovery
            .groups()
            .any(|group| group.name() == "kubevirt.io")
    );
    let subresources = get(
        &server,
        &Identity::kubelet("node01"),
        "/apis/subresources.kubevirt.io/v1",
    )
    .await;
    assert_eq!(
        (
            subresources.code,
            subresources.body["groupVersion"].as_str()
        ),
        (200, Some("subresources.kubevirt.io/v1"))
    );
    assert_eq!(get(&server, &admin, "/readyz").await.text, "ok");
    assert_eq!(
        get(&server, &admin, "/apis/nothing.io/v1/things")
            .await
            .code,
        404
    );
}
