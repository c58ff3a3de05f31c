//! watch: order, selectors, bookmarks, ends, 410 in both forms.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};

use super::{get, pod, world};
use crate::api::{Effect, Failure, Filter, Identity, Rule, Server};

/// The events of a watch, one by one.
async fn watch(server: &Arc<Server>, uri: &str) -> impl Stream<Item = Value> + use<> {
    let request = Request::get(uri).body(Bytes::new()).unwrap();
    let body = server
        .handle(request, &Identity::admin())
        .await
        .unwrap()
        .into_body();
    body.into_data_stream()
        .map(|line| serde_json::from_slice(&line.unwrap()).unwrap())
}

fn summary(event: &Value) -> (&str, &str) {
    (
        event["type"].as_str().unwrap(),
        event["object"]["metadata"]["name"]
            .as_str()
            .unwrap_or_default(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_watch_starts_with_what_is_there_or_after_a_revision() {
    let server = world();
    let mut all = pin!(watch(&server, "/api/v1/pods?watch=true").await);
    let start = server.store.revision();
    let mut later = pin!(
        watch(
            &server,
            &format!("/api/v1/pods?watch=1&resourceVersion={start}")
        )
        .await
    );
    server
        .store
        .update("pods", "vms", "b", |pod| pod["spec"]["x"] = json!(1));
    server.store.remove("pods", "vms", "a");
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(all.next().await.unwrap());
    }
    let seen: Vec<_> = seen.iter().map(summary).collect();
    assert_eq!(
        seen,
        [
            ("ADDED", "a"),
            ("ADDED", "b"),
            ("MODIFIED", "b"),
            ("DELETED", "a")
        ]
    );
    assert_eq!(summary(&later.next().await.unwrap()), ("MODIFIED", "b"));
    assert_eq!(summary(&later.next().await.unwrap()), ("DELETED", "a"));
}

#[tokio::test(start_paused = true)]
async fn leaving_the_selection_is_deleted_with_the_old_object() {
    let server = world();
    let vmi = json!({"metadata": {"name": "v", "namespace": "vms", "labels": {"kubevirt.io/nodeName": "node01"}}, "status": {"nodeName": "node01", "evacuationNodeName": "node01"}});
    server.store.create("virtualmachineinstances", vmi).unwrap();
    let start = server.store.revision();
    let uri = |node: &str| {
        format!(
            "/apis/kubevirt.io/v1/virtualmachineinstances?watch=true&resourceVersion={start}&labelSelector=kubevirt.io%2FnodeName%3D{node}"
        )
    };
    let mut source = pin!(watch(&server, &uri("node01")).await);
    let mut target = pin!(watch(&server, &uri("node02")).await);
    server
        .store
        .update("virtualmachineinstances", "vms", "v", |vmi| {
            vmi["metadata"]["labels"]["kubevirt.io/nodeName"] = json!("node02");
            vmi["status"] = json!({"nodeName": "node02"});
        });
    let gone = source.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["status"]["evacuationNodeName"], "node01");
    assert_eq!(
        gone["object"]["metadata"]["resourceVersion"],
        server.store.revision().to_string()
    );
    let come = target.next().await.unwrap();
    assert_eq!(
        (
            come["type"].as_str(),
            come["object"]["status"]["nodeName"].as_str()
        ),
        (Some("ADDED"), Some("node02"))
    );
}

#[tokio::test(start_paused = true)]
async fn bookmarks_streamed_lists_and_the_timeout() {
    let server = world();
    let uri = "/api/v1/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=90";
    let events: Vec<Value> = watch(&server, uri).await.collect().await;
    assert_eq!(server.clock().elapsed(), Duration::from_secs(90));
    let seen: Vec<_> = events.iter().map(summary).collect();
    assert_eq!(
        seen,
        [
            ("ADDED", "a"),
            ("ADDED", "b"),
            ("BOOKMARK", ""),
            ("BOOKMARK", ""),
            ("BOOKMARK", ""),
        ]
    );
    assert_eq!(
        events[2]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(
        events[3]["object"]["metadata"]["resourceVersion"],
        server.store.revision().to_string()
    );
    let refused = get(
        &server,
        &Identity::admin(),
        "/api/v1/pods?watch=true&sendInitialEvents=true",
    )
    .await;
    assert_eq!(refused.code, 422);
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_gets_410_in_the_stream() {
    let server = world();
    let mut open = pin!(
        watch(
            &server,
            "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dnode09"
        )
        .await
    );
    let past = server.store.revision();
    server.expire_watches();
    let error = open.next().await.unwrap();
    assert_eq!(
        (error["type"].as_str(), error["object"]["code"].as_i64()),
        (Some("ERROR"), Some(410))
    );
    assert!(open.next().await.is_none());
    server.store.create("pods", pod("c", "node01")).unwrap();
    server.store.compact();
    let mut late = pin!(
        watch(
            &server,
            &format!("/api/v1/pods?watch=true&resourceVersion={past}")
        )
        .await
    );
    assert_eq!(late.next().await.unwrap()["object"]["reason"], "Expired");
    assert!(late.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_kube_watcher_recovers_from_close_expiry_and_reset() {
    let server = world();
    let pods = Api::<Pod>::all(server.client(Identity::kubelet("node01")));
    let config = watcher::Config::default()
        .fields("spec.nodeName=node01")
        .timeout(30);
    let mut events = pin!(watcher(pods, config).default_backoff());
    let mut inits = 0;
    let mut step = 0;
    while inits < 3 {
        let Ok(event) = events.next().await.unwrap() else {
            continue;
        };
        match event {
            watcher::Event::InitDone => {
                inits += 1;
                server.faults.close_watches();
                server
                    .store
                    .create("pods", pod(&format!("new-{inits}"), "node01"))
                    .unwrap();
            }
            watcher::Event::Apply(pod) => {
                step += 1;
                assert_eq!(pod.metadata.name.unwrap(), format!("new-{inits}"));
                server.expire_watches();
            }
            watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::Delete(_) => {}
        }
    }
    assert_eq!(step, 2);
    let now = server.clock().elapsed();
    server.faults.down(Some(now + Duration::from_secs(20)));
    assert!(events.next().await.unwrap().is_err());
    server.faults.up();
}

#[tokio::test(start_paused = true)]
async fn a_410_as_the_status_of_the_request() {
    let server = world();
    server.faults.add(Rule {
        filter: Filter {
            verb: "watch".into(),
            resource: "pods".into(),
            ..Filter::default()
        },
        effect: Effect::Answer(Failure::expired("too old resource version")),
        times: Some(1),
        until: None,
    });
    let admin = Identity::admin();
    assert_eq!(
        get(&server, &admin, "/api/v1/pods?watch=true").await.code,
        410
    );
    let lines: Vec<Value> = watch(&server, "/api/v1/pods?watch=true&timeoutSeconds=1")
        .await
        .collect()
        .await;
    assert_eq!(lines.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_says_nothing_until_it_wakes() {
    let server = world();
    let start = server.store.revision();
    let mut open = pin!(
        watch(
            &server,
            &format!("/api/v1/pods?watch=true&resourceVersion={start}")
        )
        .await
    );
    server.faults.add(Rule {
        filter: Filter::default(),
        effect: Effect::Hang { after_write: false },
        times: None,
        until: Some(Duration::from_secs(50)),
    });
    server.store.create("pods", pod("c", "node01")).unwrap();
    assert_eq!(summary(&open.next().await.unwrap()), ("ADDED", "c"));
    assert_eq!(server.clock().elapsed(), Duration::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn metadata_and_table_watches() {
    let server = world();
    let request = Request::get("/api/v1/pods?watch=true&timeoutSeconds=1")
        .header(
            "accept",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        )
        .body(Bytes::new())
        .unwrap();
    let body = server
        .handle(request, &Identity::admin())
        .await
        .unwrap()
        .into_body();
    let lines: Vec<Bytes> = body.into_data_stream().try_collect().await.unwrap();
    let first: Value = serde_json::from_slice(&lines[0]).unwrap();
    assert_eq!(first["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(first["object"].get("spec"), None);
}
