//! The target pod of a migration: how is it asked for, and what is made of the answers?

use super::fake::{Fake, Play, forbidden, listed};
use crate::agent::ports::Cluster;
use crate::drain::action::FaultClass;
use crate::drain::world::ObjectRef;
use serde_json::{Value, json};

const PODS: &str = "GET /api/v1/namespaces/vms/pods";

fn vmim() -> ObjectRef {
    ObjectRef {
        namespace: "vms".into(),
        name: "kubevirt-evacuation-a".into(),
        uid: "7f0c".into(),
    }
}

fn target(name: &str, conditions: &Value) -> Value {
    json!({
        "metadata": {"namespace": "vms", "name": name, "uid": name, "resourceVersion": "5"},
        "spec": {"containers": []}, "status": {"phase": "Pending", "conditions": conditions},
    })
}

fn refused(message: &Value) -> Value {
    json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}])
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_for_by_the_uid_of_its_migration_and_its_words_are_taken_as_they_are() {
    let fake = Fake::new();
    let full = json!("0/2 nodes are available: 2 Insufficient memory.");
    fake.play(
        PODS,
        [
            listed("1", [target("b", &json!([])), target("a", &refused(&full))]),
            listed(
                "1",
                [target(
                    "a",
                    &json!([{"type": "PodScheduled", "status": "True"}]),
                )],
            ),
            listed("1", []),
        ],
    );
    let cluster = fake.cluster();
    let says = cluster.target(&vmim()).await.unwrap();
    assert_eq!(says.as_deref(), full.as_str());
    assert_eq!(cluster.target(&vmim()).await.unwrap(), None);
    assert_eq!(cluster.target(&vmim()).await.unwrap(), None);
    let asked = fake.asked_for(PODS);
    assert_eq!(asked.len(), 3);
    let query = asked[0].uri.replace("%2F", "/").replace("%3D", "=");
    assert!(
        query.contains("labelSelector=kubevirt.io/migrationJobUID=7f0c"),
        "{query}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_manifest_and_a_malformed_pod_its_field() {
    let fake = Fake::new();
    fake.play(
        PODS,
        [
            forbidden(),
            listed("1", [target("a", &refused(&json!(5)))]),
            Play::Text(200, "<html>"),
        ],
    );
    let cluster = fake.cluster();
    let fault = cluster.target(&vmim()).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Denied);
    assert_eq!(
        fault.text,
        "no right to list and watch target pods in namespace vms; rbac/targets.yaml gives it to this node"
    );
    let fault = cluster.target(&vmim()).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Fatal);
    assert!(
        fault
            .text
            .contains("pod vms/a cannot be read: status.conditions[0].message: "),
        "{}",
        fault.text
    );
    let fault = cluster.target(&vmim()).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Transient);
}
