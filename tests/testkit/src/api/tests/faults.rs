//! Faults as a kube client meets them, and the request log.

use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{get, send, world};
use crate::api::{Effect, Failure, Filter, Identity, Rule};

fn on(verb: &str, effect: Effect) -> Rule {
    Rule {
        filter: Filter {
            verb: verb.into(),
            resource: "nodes".into(),
            ..Filter::default()
        },
        effect,
        times: Some(1),
        until: None,
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_replaces_the_request() {
    let (server, admin) = (world(), Identity::admin());
    server.faults.add(on(
        "patch",
        Effect::Answer(Failure::new(429, "TooManyRequests", "too many").with_retry_after(3)),
    ));
    let before = server.store.revision();
    let refused = send(
        &server,
        &admin,
        Method::PATCH,
        "/api/v1/nodes/node01",
        json!({"spec": {"unschedulable": true}}),
    )
    .await;
    assert_eq!(
        (refused.code, refused.retry_after.as_deref()),
        (429, Some("3"))
    );
    assert_eq!(server.store.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_answer_may_have_written() {
    let server = world();
    let nodes = Api::<Node>::all(server.client(Identity::admin()));
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    for (after_write, written) in [(false, false), (true, true)] {
        server.faults.add(on("patch", Effect::Drop { after_write }));
        let lost = nodes
            .patch("node01", &PatchParams::default(), &cordon)
            .await
            .unwrap_err();
        assert!(matches!(lost, kube::Error::Service(_)), "{lost:?}");
        let node = server.store.get("nodes", "", "node01").unwrap();
        assert_eq!(node["spec"]["unschedulable"] == json!(true), written);
    }
    let last = server.log.entries().pop().unwrap();
    assert_eq!(
        (last.verb.as_str(), last.status, last.body),
        (
            "patch",
            None,
            Some(json!({"spec": {"unschedulable": true}}))
        )
    );
}

#[tokio::test(start_paused = true)]
async fn slow_and_hanging_answers() {
    let (server, admin) = (world(), Identity::admin());
    server
        .faults
        .add(on("get", Effect::Delay(Duration::from_secs(4))));
    get(&server, &admin, "/api/v1/nodes/node01").await;
    assert_eq!(server.clock().elapsed(), Duration::from_secs(4));
    server.faults.add(Rule {
        until: Some(Duration::from_secs(60)),
        ..on("get", Effect::Hang { after_write: false })
    });
    let hung = tokio::time::timeout(
        Duration::from_secs(10),
        get(&server, &admin, "/api/v1/nodes/node01"),
    )
    .await;
    assert!(hung.is_err());
    assert_eq!(server.log.entries().pop().unwrap().answered, None);
    server.faults.clear();
    server.faults.add(Rule {
        until: Some(Duration::from_secs(60)),
        ..on("get", Effect::Hang { after_write: true })
    });
    assert_eq!(get(&server, &admin, "/api/v1/nodes/node01").await.code, 200);
    assert_eq!(server.clock().elapsed(), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_comes_back() {
    let server = world();
    let nodes = Api::<Node>::all(server.client(Identity::admin()));
    server.faults.down(Some(Duration::from_secs(20)));
    assert!(matches!(
        nodes.get("node01").await.unwrap_err(),
        kube::Error::Service(_)
    ));
    server.clock().sleep(Duration::from_secs(20)).await;
    assert!(nodes.get("node01").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn rotated_credentials_are_refused_after_the_grace_time() {
    let server = world();
    let old = Api::<Node>::all(server.client(Identity::kubelet("node01")));
    server
        .faults
        .rotate_credentials(server.clock().elapsed(), Duration::from_secs(5));
    assert!(old.get("node01").await.is_ok());
    server.clock().sleep(Duration::from_secs(5)).await;
    let refused = old.get("node01").await.unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(
        (status.code, status.reason.as_str(), status.message.as_str()),
        (401, "Unauthorized", "Unauthorized")
    );
    let new = Api::<Node>::all(server.client(Identity::kubelet("node01")));
    assert!(new.get("node01").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_log_says_what_was_asked() {
    let (server, node) = (world(), Identity::kubelet("node01"));
    let eviction = json!({"metadata": {"name": "a"}, "deleteOptions": {"preconditions": {"uid": "u-1"}, "dryRun": ["All"]}});
    send(
        &server,
        &node,
        Method::POST,
        "/api/v1/namespaces/vms/pods/a/eviction",
        eviction,
    )
    .await;
    get(&server, &node, "/api/v1/nodes/node02").await;
    let filter = Filter {
        verb: "create".into(),
        resource: "pods".into(),
        subresource: "eviction".into(),
        name: "a*".into(),
        ..Filter::default()
    };
    let found = server.log.find(&filter);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].uid.as_deref(), found[0].dry_run, found[0].status),
        (Some("u-1"), true, Some(409))
    );
    assert_eq!(found[0].user, "system:node:node01");
    let refused = server.log.entries().pop().unwrap();
    assert_eq!(refused.status, Some(403));
    assert!(refused.message.contains("only its own Node object"));
}
