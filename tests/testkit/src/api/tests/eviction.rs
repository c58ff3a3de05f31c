//! pods/eviction: the order of the checks, and the words of the disruption budgets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use serde_json::{Value, json};

use super::{Wire, pod, send};
use crate::api::{Admission, EvictionRequest, Failure, Identity, Later, Rights, Server, Store};
use crate::clock::SimClock;

/// A webhook that denies pods whose name begins with `virt-launcher`, and counts its calls.
#[derive(Default)]
struct Webhook {
    asked: AtomicUsize,
}

impl Admission for Webhook {
    fn evict<'a>(&'a self, request: &'a EvictionRequest) -> Later<'a, Result<(), Failure>> {
        Box::pin(async {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if request.name.starts_with("virt-launcher") {
                return Err(Failure::webhook(
                    429,
                    "virt-launcher-eviction-interceptor.kubevirt.io",
                    "Eviction triggered evacuation of VMI \"vms/a\"",
                ));
            }
            Ok(())
        })
    }
}

struct World {
    server: Arc<Server>,
    webhook: Arc<Webhook>,
}

fn world(names: &[&str]) -> World {
    let webhook = Arc::new(Webhook::default());
    let server = Server::new(
        Store::new(SimClock::new(1.0), 1),
        webhook.clone(),
        Rights::base(),
    );
    server
        .store
        .create("namespaces", json!({"metadata": {"name": "vms"}}))
        .unwrap();
    for name in names {
        server.store.create("pods", pod(name, "node01")).unwrap();
    }
    World { server, webhook }
}

impl World {
    async fn evict_as(&self, identity: &Identity, name: &str, options: Value) -> Wire {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "vms"}, "deleteOptions": options});
        send(
            &self.server,
            identity,
            Method::POST,
            &format!("/api/v1/namespaces/vms/pods/{name}/eviction"),
            eviction,
        )
        .await
    }

    async fn evict(&self, name: &str) -> Wire {
        self.evict_as(&Identity::admin(), name, Value::Null).await
    }

    fn budget(&self, name: &str, spec: &Value, status: &Value) {
        let mut spec = spec.clone();
        spec["selector"] = json!({"matchLabels": {"kubevirt.io": "virt-launcher"}});
        self.server.store.create("poddisruptionbudgets", json!({"metadata": {"name": name, "namespace": "vms"}, "spec": spec, "status": status})).unwrap();
    }
}

fn cause(wire: &Wire) -> (&str, &str) {
    let cause = &wire.body["details"]["causes"][0];
    (
        cause["reason"].as_str().unwrap_or_default(),
        cause["message"].as_str().unwrap_or_default(),
    )
}

fn status(current: i64, desired: i64, allowed: i64) -> Value {
    json!({"observedGeneration": 1, "currentHealthy": current, "desiredHealthy": desired, "disruptionsAllowed": allowed})
}

#[tokio::test(start_paused = true)]
async fn a_granted_eviction_marks_and_ends_the_pod() {
    let world = world(&["a"]);
    let start = world.server.store.revision();
    let granted = world.evict("a").await;
    assert_eq!(
        (granted.code, granted.body["status"].as_str()),
        (201, Some("Success"))
    );
    let pod = world.server.store.get("pods", "vms", "a").unwrap();
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 30);
    assert!(
        pod["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|condition| condition["type"] == "DisruptionTarget"
                && condition["reason"] == "EvictionByEvictionAPI")
    );
    assert_eq!(world.server.store.changes_since(start).unwrap().len(), 2);
    assert_eq!(world.evict("a").await.code, 201);
    assert_eq!(world.server.store.changes_since(start).unwrap().len(), 2);
    world.server.store.remove("pods", "vms", "a");
    let gone = world.evict("a").await;
    assert_eq!((gone.code, gone.message()), (404, "pods \"a\" not found"));
}

#[tokio::test(start_paused = true)]
async fn the_webhook_denies_without_reason_and_before_the_precondition() {
    let world = world(&["virt-launcher-a-x"]);
    let denied = world
        .evict_as(
            &Identity::admin(),
            "virt-launcher-a-x",
            json!({"preconditions": {"uid": "wrong"}}),
        )
        .await;
    assert_eq!(denied.code, 429);
    assert_eq!(
        denied.message(),
        "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: Eviction triggered evacuation of VMI \"vms/a\""
    );
    assert_eq!(
        (
            denied.body.get("reason"),
            denied.body.get("details"),
            denied.retry_after
        ),
        (None, None, None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_wrong_uid_is_a_conflict_and_a_wrong_name_a_bad_request() {
    let world = world(&["a"]);
    let uid = world.server.store.get("pods", "vms", "a").unwrap()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned();
    let conflict = world
        .evict_as(
            &Identity::admin(),
            "a",
            json!({"preconditions": {"uid": "u-1"}}),
        )
        .await;
    assert_eq!(
        (conflict.code, conflict.body["reason"].as_str()),
        (409, Some("Conflict"))
    );
    let expected = format!(
        "Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (u-1) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!(conflict.message(), expected);
    let uri = "/api/v1/namespaces/vms/pods/a/eviction";
    for body in [json!({"metadata": {"name": "b"}}), json!({"metadata": {}})] {
        let refused = send(&world.server, &Identity::admin(), Method::POST, uri, body).await;
        assert_eq!(
            (refused.code, refused.message()),
            (400, "name in URL does not match name in Eviction object")
        );
    }
    assert_eq!(world.webhook.asked.load(Ordering::SeqCst), 1);
    assert_eq!(
        world
            .evict_as(
                &Identity::admin(),
                "a",
                json!({"preconditions": {"uid": uid}})
            )
            .await
            .code,
        201
    );
}

#[tokio::test(start_paused = true)]
async fn node_restriction_and_terminating_namespaces_come_before_the_webhook() {
    let world = world(&["virt-launcher-a-x"]);
    let foreign = world
        .evict_as(
            &Identity::kubelet("node02"),
            "virt-launcher-a-x",
            Value::Null,
        )
        .await;
    assert_eq!(foreign.code, 403);
    assert!(
        foreign
            .message()
            .ends_with("node node02 can only evict pods with spec.nodeName set to itself"),
        "{}",
        foreign.message()
    );
    let missing = world
        .evict_as(&Identity::kubelet("node02"), "nosuch", Value::Null)
        .await;
    assert_eq!(
        (missing.code, missing.message()),
        (404, "pod \"nosuch\" not found")
    );
    world.server.store.delete("namespaces", "", "vms");
    let ending = world
        .evict_as(
            &Identity::kubelet("node01"),
            "virt-launcher-a-x",
            Value::Null,
        )
        .await;
    assert_eq!(ending.code, 403);
    assert_eq!(
        ending.body["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );
    assert_eq!(world.webhook.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_nobody_looked_at_asks_for_ten_seconds() {
    let world = world(&["a"]);
    world.budget(
        "b1",
        &json!({"maxUnavailable": 1}),
        &json!({"expectedPods": 0}),
    );
    let denied = world.evict("a").await;
    assert_eq!(
        (denied.code, denied.body["reason"].as_str()),
        (429, Some("TooManyRequests"))
    );
    assert_eq!(
        denied.message(),
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    assert_eq!(
        cause(&denied),
        (
            "DisruptionBudget",
            "The disruption budget b1 is still being processed by the server."
        )
    );
    assert_eq!(denied.retry_after.as_deref(), Some("10"));
    assert_eq!(denied.body["details"]["retryAfterSeconds"], 10);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_used_up_says_its_counts() {
    let world = world(&["a"]);
    world.budget("b1b", &json!({"maxUnavailable": 1}), &status(0, 0, 0));
    let denied = world.evict("a").await;
    assert_eq!(
        cause(&denied),
        (
            "DisruptionBudget",
            "The disruption budget b1b needs 0 healthy pods and has 0 currently"
        )
    );
    assert_eq!(denied.retry_after, None);
}

#[tokio::test(start_paused = true)]
async fn a_budget_gives_one_disruption_at_a_time() {
    let world = world(&["a", "b"]);
    world.budget("b3", &json!({"minAvailable": 3}), &status(4, 3, 1));
    assert_eq!(
        world
            .evict_as(&Identity::admin(), "a", json!({"dryRun": ["All"]}))
            .await
            .code,
        201
    );
    assert_eq!(world.evict("a").await.code, 201);
    let budget = world
        .server
        .store
        .get("poddisruptionbudgets", "vms", "b3")
        .unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert_eq!(
        budget["status"]["disruptedPods"]["a"],
        "2026-01-01T00:00:00Z"
    );
    assert_eq!(
        budget["status"]["conditions"][0]["reason"],
        "InsufficientPods"
    );
    world
        .server
        .store
        .update("poddisruptionbudgets", "vms", "b3", |budget| {
            budget["status"]["currentHealthy"] = json!(3);
        });
    assert_eq!(
        cause(&world.evict("b").await).1,
        "The disruption budget b3 needs 3 healthy pods and has 3 currently"
    );
    assert_eq!(world.evict("a").await.code, 201);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_uid_costs_a_disruption() {
    // As kube-apiserver 1.34.2: the budget is asked, and pays, before the precondition is looked at.
    let world = world(&["a"]);
    world.budget("b", &json!({"minAvailable": 1}), &status(2, 1, 1));
    let wrong = json!({"preconditions": {"uid": "u-1"}});
    let conflict = world.evict_as(&Identity::admin(), "a", wrong.clone()).await;
    assert_eq!(conflict.code, 409);
    let budget = world
        .server
        .store
        .get("poddisruptionbudgets", "vms", "b")
        .unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    let pod = world.server.store.get("pods", "vms", "a").unwrap();
    assert_eq!(pod["status"]["conditions"].as_array().unwrap().len(), 1);
    let denied = world.evict_as(&Identity::admin(), "a", wrong).await;
    assert_eq!(
        cause(&denied).1,
        "The disruption budget b needs 1 healthy pods and has 2 currently"
    );
}

#[tokio::test(start_paused = true)]
async fn two_budgets_are_an_error_without_a_reason() {
    let world = world(&["a"]);
    world.budget("x", &json!({}), &status(9, 1, 8));
    world.budget("y", &json!({}), &status(9, 1, 8));
    let failed = world
        .evict_as(&Identity::admin(), "a", json!({"dryRun": ["All"]}))
        .await;
    assert_eq!((failed.code, failed.body.get("reason")), (500, None));
    assert_eq!(
        failed.message(),
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
}

#[tokio::test(start_paused = true)]
async fn unhealthy_and_ended_pods() {
    let unready = |world: &World, name: &str| {
        world.server.store.update("pods", "vms", name, |pod| {
            pod["status"]["conditions"] = json!([]);
        });
    };
    let met = world(&["sick", "well"]);
    unready(&met, "sick");
    met.budget("b", &json!({"minAvailable": 2}), &status(2, 2, 0));
    assert_eq!(met.evict("well").await.code, 429);
    assert_eq!(met.evict("sick").await.code, 201);
    let unmet = world(&["sick", "well"]);
    unready(&unmet, "sick");
    unmet.budget("b", &json!({"minAvailable": 3}), &status(2, 3, 0));
    assert_eq!(
        cause(&unmet.evict("sick").await).1,
        "The disruption budget b needs 3 healthy pods and has 2 currently"
    );
    unmet
        .server
        .store
        .update("poddisruptionbudgets", "vms", "b", |budget| {
            budget["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
            budget["status"]["observedGeneration"] = json!(2);
        });
    assert_eq!(unmet.evict("well").await.code, 429);
    assert_eq!(unmet.evict("sick").await.code, 201);
    unmet.server.store.update("pods", "vms", "well", |pod| {
        pod["status"]["phase"] = json!("Succeeded");
    });
    assert_eq!(unmet.evict("well").await.code, 201);
    assert_eq!(unmet.server.store.get("pods", "vms", "well"), None);
}
