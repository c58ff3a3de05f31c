//! Does the store behave like etcd and the registry above it?

use std::time::Duration;

use serde_json::{Value, json};

use super::{ChangeKind, Store};
use crate::clock::SimClock;

fn store() -> Store {
    Store::new(SimClock::new(1.0), 7)
}

fn pod(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "vms"}, "spec": {"nodeName": node, "terminationGracePeriodSeconds": 40}})
}

fn kinds_since(store: &Store, revision: u64) -> Vec<ChangeKind> {
    store
        .changes_since(revision)
        .unwrap()
        .iter()
        .map(|change| change.kind)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn create_fills_in_what_the_server_fills_in() {
    let store = store();
    let made = store
        .create(
            "pods",
            json!({"metadata": {"generateName": "virt-launcher-a-", "namespace": "vms"}}),
        )
        .unwrap();
    assert_eq!(made["kind"], "Pod");
    assert_eq!(made["apiVersion"], "v1");
    assert_eq!(
        made["metadata"]["creationTimestamp"],
        "2026-01-01T00:00:00Z"
    );
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(
        made["metadata"]["resourceVersion"],
        store.revision().to_string()
    );
    let name = made["metadata"]["name"].as_str().unwrap();
    assert_eq!(name.len(), "virt-launcher-a-".len() + 5);
    assert_eq!(made["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert_eq!(store.get("pods", "vms", name), Some(made.clone()));

    let again = store
        .create(
            "pods",
            json!({"metadata": {"name": name, "namespace": "vms"}}),
        )
        .unwrap_err();
    assert_eq!(
        (again.code, again.reason.as_deref()),
        (409, Some("AlreadyExists"))
    );
    assert_eq!(again.message, format!("pods {name:?} already exists"));
    assert_eq!(
        store
            .create("pods", json!({"metadata": {}}))
            .unwrap_err()
            .code,
        422
    );
}

#[test]
fn the_same_seed_gives_the_same_names_and_uids() {
    let make = |seed| {
        let store = Store::new(SimClock::new(1.0), seed);
        let made = store
            .create(
                "pods",
                json!({"metadata": {"generateName": "p-", "namespace": "d"}}),
            )
            .unwrap();
        (
            made["metadata"]["name"].clone(),
            made["metadata"]["uid"].clone(),
        )
    };
    assert_eq!(make(1), make(1));
    assert_ne!(make(1), make(2));
}

#[test]
fn an_update_is_one_event_and_none_when_nothing_changed() {
    let store = store();
    let made = store.create("pods", pod("a", "n1")).unwrap();
    let start = store.revision();
    let seen = store.changed();
    store.update("pods", "vms", "a", |object| {
        object["metadata"]["uid"] = json!("other");
    });
    assert_eq!(store.revision(), start);
    assert!(!seen.has_changed().unwrap());
    let after = store
        .update("pods", "vms", "a", |object| object["spec"]["x"] = json!(1))
        .unwrap();
    assert_eq!(after["metadata"]["generation"], 2);
    assert_eq!(after["metadata"]["uid"], made["metadata"]["uid"]);
    assert!(seen.has_changed().unwrap());
    let changes = store.changes_since(start).unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].kind, ChangeKind::Modified);
    assert_eq!(changes[0].previous.as_deref(), Some(&made));
    assert_eq!(store.update("pods", "vms", "missing", |_| ()), None);
}

#[test]
fn finalizers_keep_an_object_until_the_last_is_gone() {
    let store = store();
    let vmim = json!({"metadata": {"name": "m", "namespace": "vms", "finalizers": ["kubevirt.io/migrationJobFinalize"]}});
    store
        .create("virtualmachineinstancemigrations", vmim)
        .unwrap();
    let start = store.revision();
    let gone = store
        .delete("virtualmachineinstancemigrations", "vms", "m")
        .unwrap();
    assert!(gone["metadata"]["deletionTimestamp"].is_string());
    store
        .delete("virtualmachineinstancemigrations", "vms", "m")
        .unwrap();
    store
        .update("virtualmachineinstancemigrations", "vms", "m", |object| {
            object["metadata"]["finalizers"] = json!([]);
        })
        .unwrap();
    assert_eq!(
        kinds_since(&store, start),
        [ChangeKind::Modified, ChangeKind::Deleted]
    );
    assert_eq!(
        store.get("virtualmachineinstancemigrations", "vms", "m"),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_gets_its_grace_period_and_a_second_delete_ends_it() {
    let store = store();
    store.create("pods", pod("a", "n1")).unwrap();
    store.clock().sleep(Duration::from_secs(5)).await;
    let start = store.revision();
    let marked = store.delete("pods", "vms", "a").unwrap();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 40);
    assert_eq!(
        marked["metadata"]["deletionTimestamp"],
        "2026-01-01T00:00:45Z"
    );
    store.delete("pods", "vms", "a").unwrap();
    assert_eq!(kinds_since(&store, start), [ChangeKind::Modified]);
    let shorter = store
        .delete_with_grace("pods", "vms", "a", Some(10))
        .unwrap();
    assert_eq!(
        shorter["metadata"]["deletionTimestamp"],
        "2026-01-01T00:00:15Z"
    );
    store
        .delete_with_grace("pods", "vms", "a", Some(0))
        .unwrap();
    assert_eq!(
        kinds_since(&store, start),
        [
            ChangeKind::Modified,
            ChangeKind::Modified,
            ChangeKind::Modified,
            ChangeKind::Deleted
        ]
    );
}

#[test]
fn an_unbound_or_ended_pod_is_gone_at_once() {
    let store = store();
    store.create("pods", pod("a", "")).unwrap();
    store.create("pods", pod("b", "n1")).unwrap();
    store.update("pods", "vms", "b", |object| {
        object["status"]["phase"] = json!("Succeeded");
    });
    store.delete("pods", "vms", "a").unwrap();
    store.delete("pods", "vms", "b").unwrap();
    assert!(store.list("pods").is_empty());
}

#[test]
fn lists_of_the_past_and_compaction() {
    let store = store();
    store.create("pods", pod("a", "n1")).unwrap();
    store.create("pods", pod("b", "n1")).unwrap();
    let past = store.revision();
    let before = store.list("pods");
    store.update("pods", "vms", "a", |object| object["spec"]["x"] = json!(1));
    store.remove("pods", "vms", "b");
    store.create("pods", pod("c", "n1")).unwrap();
    let then: Vec<Value> = store
        .list_at("pods", past)
        .unwrap()
        .iter()
        .map(|object| (**object).clone())
        .collect();
    assert_eq!(then, before);
    assert_eq!(store.list("pods").len(), 2);
    store.compact();
    assert_eq!(store.list_at("pods", past).unwrap_err().asked, past);
    assert!(store.changes_since(past).is_err());
    assert!(store.changes_since(store.revision()).unwrap().is_empty());
}

#[test]
fn a_namespace_stays_while_its_finalizer_stays() {
    let store = store();
    store
        .create("namespaces", json!({"metadata": {"name": "vms"}}))
        .unwrap();
    let ending = store.delete("namespaces", "", "vms").unwrap();
    assert_eq!(ending["status"]["phase"], "Terminating");
    store.update("namespaces", "", "vms", |object| {
        object["spec"]["finalizers"] = json!([]);
    });
    assert_eq!(store.get("namespaces", "", "vms"), None);
}

#[tokio::test(start_paused = true)]
async fn events_are_counted() {
    let store = store();
    let made = store.create("pods", pod("a", "n1")).unwrap();
    store.record_event(&made, "Warning", "MigrationBackoff", "wait");
    store.clock().sleep(Duration::from_secs(9)).await;
    store.record_event(&made, "Warning", "MigrationBackoff", "wait");
    store.record_event(&made, "Warning", "MigrationBackoff", "wait more");
    let events = store.list("events");
    assert_eq!(events.len(), 2);
    let counted = events
        .iter()
        .find(|event| event["message"] == "wait")
        .unwrap();
    assert_eq!(counted["count"], 2);
    assert_eq!(counted["firstTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(counted["lastTimestamp"], "2026-01-01T00:00:09Z");
    assert_eq!(counted["involvedObject"]["kind"], "Pod");
}

#[test]
fn a_mirror_keeps_what_is_the_others() {
    let store = Store::new(SimClock::new(1.0), 1);
    let pod = |uid: &str, version: &str| json!({"metadata": {"name": "a", "namespace": "x", "uid": uid, "resourceVersion": version}});
    let first = store.mirror("pods", pod("u1", "77")).unwrap();
    assert_eq!(first["metadata"]["uid"], "u1");
    assert_ne!(first["metadata"]["resourceVersion"], "77");
    let revision = store.revision();
    // Seen again, in a version in which nothing else is new.
    assert!(store.mirror("pods", pod("u1", "78")).is_none());
    assert_eq!(store.revision(), revision);
    // Another object of the same name.
    store.mirror("pods", pod("u2", "79")).unwrap();
    store.forget("pods", "x", "a");
    store.forget("pods", "x", "a");
    let kinds: Vec<ChangeKind> = store
        .changes_since(revision)
        .unwrap()
        .iter()
        .map(|change| change.kind)
        .collect();
    assert_eq!(
        kinds,
        [ChangeKind::Deleted, ChangeKind::Added, ChangeKind::Deleted]
    );
}
