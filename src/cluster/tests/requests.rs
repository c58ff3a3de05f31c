//! The single requests: what goes over the wire, and what comes back whatever the answer.

use super::fake::{Fake, Play, all_settled, node, pass, status, until, watched};
use crate::agent::ports::Cluster;
use crate::drain::action::{FaultClass, Level, Notice};
use crate::drain::world::{CordonMark, CordonNote, ObjectRef};
use serde_json::{Value, json};

fn pod() -> ObjectRef {
    ObjectRef {
        namespace: "vms".into(),
        name: "virt-launcher-a-abcde".into(),
        uid: "pod-a".into(),
    }
}

fn body(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

const EVICTION: &str = "POST /api/v1/namespaces/vms/pods/virt-launcher-a-abcde/eviction";

#[tokio::test(start_paused = true)]
async fn the_node_is_read_with_its_marker() {
    let fake = Fake::new();
    let note = CordonNote {
        drain: "d1".into(),
        boot: "b1".into(),
        reason: "why".into(),
        ..CordonNote::default()
    };
    let marked = |annotation: &str| {
        let mut node = node("7");
        node["metadata"]["annotations"] = json!({"vmdrain.io/cordon": annotation});
        Play::Say(200, node)
    };
    let text = r#"{"drain":"d1","boot":"b1","reason":"why"}"#;
    let answers = [
        Play::Say(200, node("7")),
        marked(text),
        marked("{}"),
        marked("mine"),
    ];
    fake.play("GET /api/v1/nodes/n1", answers);
    let cluster = fake.cluster();
    let seen = cluster.read_node().await.unwrap();
    assert_eq!(
        (seen.resource_version.as_str(), seen.cordon),
        ("7", CordonMark::Absent)
    );
    assert_eq!(
        (seen.boot_id.as_str(), seen.ready, seen.unschedulable),
        ("b", true, false)
    );
    assert_eq!(
        cluster.read_node().await.unwrap().cordon,
        CordonMark::Note(note)
    );
    for _ in 0..2 {
        let damaged = cluster.read_node().await.unwrap().cordon;
        assert!(matches!(damaged, CordonMark::Damaged(_)), "{damaged:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cordon_and_note_are_one_merge_patch() {
    let fake = Fake::new();
    let mut cordoned = node("8");
    cordoned["spec"]["unschedulable"] = json!(true);
    cordoned["spec"]["taints"] = json!([
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"}]);
    fake.play("PATCH /api/v1/nodes/n1", [Play::Say(200, cordoned)]);
    let cluster = fake.cluster();
    let note = CordonNote {
        drain: "d1".into(),
        boot: "b1".into(),
        reason: "say \"hi\"".into(),
        keep: true,
        ..CordonNote::default()
    };
    let seen = cluster.cordon("7", Some(&note)).await.unwrap();
    assert!(seen.unschedulable);
    assert_eq!(seen.taints, ["node.kubernetes.io/unschedulable:NoSchedule"]);
    let asked = fake.asked().remove(0);
    assert_eq!(asked.content_type, "application/merge-patch+json");
    let sent = body(&asked.body);
    assert_eq!(sent["metadata"]["resourceVersion"], "7");
    assert_eq!(sent["spec"], json!({"unschedulable": true}));
    let written = sent["metadata"]["annotations"]["vmdrain.io/cordon"].as_str();
    assert_eq!(
        serde_json::from_str::<CordonNote>(written.unwrap()).unwrap(),
        note
    );
    // Somebody else's cordon: no marker.
    cluster.cordon("9", None).await.unwrap();
    let sent = body(&fake.asked()[1].body);
    assert_eq!(
        sent,
        json!({"metadata": {"resourceVersion": "9"}, "spec": {"unschedulable": true}})
    );
    cluster.uncordon("10").await.unwrap();
    let sent = body(&fake.asked()[2].body);
    let expected = json!({"metadata": {"resourceVersion": "10", "annotations": {"vmdrain.io/cordon": null}},
        "spec": {"unschedulable": null}});
    assert_eq!(sent, expected);
    // The marker alone: what cordon there is stays.
    cluster.unmark("11").await.unwrap();
    let sent = body(&fake.asked()[3].body);
    let expected =
        json!({"metadata": {"resourceVersion": "11", "annotations": {"vmdrain.io/cordon": null}}});
    assert_eq!(sent, expected);
}

#[tokio::test(start_paused = true)]
async fn a_cordon_without_precondition_is_not_sent() {
    let fake = Fake::new();
    let fault = fake.cluster().cordon("", None).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Conflict);
    assert!(fake.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn failures_have_a_class_and_a_sentence() {
    let fake = Fake::new();
    let cluster = fake.cluster();
    for (play, class, text) in [
        (
            Play::Refuse,
            FaultClass::Transient,
            "cannot cordon node n1: connection refused",
        ),
        (
            Play::Say(409, status(409, "Conflict", "the object has been modified")),
            FaultClass::Conflict,
            "cannot cordon node n1: the object has been modified (409)",
        ),
        (
            Play::Say(403, status(403, "Forbidden", "not yours")),
            FaultClass::Denied,
            "cannot cordon node n1: not yours (403)",
        ),
        (
            Play::Say(401, status(401, "Unauthorized", "Unauthorized")),
            FaultClass::Unauthorized,
            "cannot cordon node n1: Unauthorized (401)",
        ),
        (
            Play::Text(503, "upstream gone\n"),
            FaultClass::Transient,
            "cannot cordon node n1: upstream gone (503)",
        ),
        (
            Play::Text(200, "<html>"),
            FaultClass::Transient,
            "cannot cordon node n1: the server's answer cannot be read: expected value at line 1 column 1",
        ),
    ] {
        fake.play("PATCH /api/v1/nodes/n1", [play]);
        let before = fake.asked().len();
        let fault = cluster.cordon("7", None).await.unwrap_err();
        assert_eq!((fault.class, fault.text.as_str()), (class, text));
        assert_eq!(fake.asked().len() - before, 1, "sent once");
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_carries_name_and_uid() {
    let fake = Fake::new();
    fake.play(
        EVICTION,
        [Play::Say(
            201,
            json!({"kind": "Status", "status": "Success"}),
        )],
    );
    let cluster = fake.cluster();
    let reply = cluster.evict(&pod(), false).await.unwrap();
    assert_eq!((reply.code, reply.message.as_str()), (201, ""));
    cluster.evict(&pod(), true).await.unwrap();
    let [real, dry]: [_; 2] = fake.asked().try_into().unwrap();
    let expected = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "virt-launcher-a-abcde", "namespace": "vms"},
        "deleteOptions": {"preconditions": {"uid": "pod-a"}},
    });
    assert_eq!(body(&real.body), expected);
    assert!(!real.uri.contains("dryRun"));
    assert_eq!(body(&dry.body), expected);
    assert!(dry.uri.ends_with("?&dryRun=All"), "{}", dry.uri);
}

#[tokio::test(start_paused = true)]
async fn every_answer_to_an_eviction_is_a_reply_and_none_is_repeated() {
    let fake = Fake::new();
    let cluster = fake.cluster();
    let webhook = "admission webhook \"w\" denied the request: Eviction triggered evacuation of VMI \"vms/a\"";
    let denial = json!({"kind": "Status", "status": "Failure", "message": webhook, "code": 429});
    for (play, code, message, retry_after) in [
        (Play::Say(429, denial), 429, webhook, None),
        (
            Play::With(
                "Retry-After",
                "3",
                Box::new(Play::Text(429, "Too many requests")),
            ),
            429,
            "Too many requests",
            Some(3),
        ),
        (
            Play::Say(500, status(500, "InternalError", "failed calling webhook")),
            500,
            "failed calling webhook",
            None,
        ),
        (
            Play::Say(404, status(404, "NotFound", "gone")),
            404,
            "gone",
            None,
        ),
        (
            Play::Say(401, status(401, "Unauthorized", "Unauthorized")),
            401,
            "Unauthorized",
            None,
        ),
        (Play::Text(503, ""), 503, "", None),
    ] {
        fake.play(EVICTION, [play]);
        let before = fake.asked().len();
        let reply = cluster.evict(&pod(), false).await.unwrap();
        assert_eq!((reply.code, reply.message.as_str()), (code, message));
        assert_eq!(reply.retry_after, retry_after);
        assert_eq!(fake.asked().len() - before, 1);
    }
    fake.play(EVICTION, [Play::Refuse]);
    let fault = cluster.evict(&pod(), false).await.unwrap_err();
    assert_eq!(
        fault.text,
        "cannot evict pod vms/virt-launcher-a-abcde: connection refused"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_a_budget_has_the_budgets_looked_at() {
    let fake = Fake::new();
    let (cluster, _pictures) = watched(&fake).await;
    pass(200).await;
    assert_eq!(fake.asked_for("list budgets").len(), 1, "nobody is blocked");
    let mut denial = status(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    denial["details"] = json!({"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 3"}]});
    fake.play(EVICTION, [Play::Say(429, denial)]);
    let reply = cluster.evict(&pod(), false).await.unwrap();
    assert_eq!(reply.causes[0].0, "DisruptionBudget");
    pass(1).await;
    assert_eq!(fake.asked_for("list budgets").len(), 2, "at once");
    pass(100).await;
    assert_eq!(fake.asked_for("list budgets").len(), 5, "every 30 s");
    pass(600).await;
    assert!(fake.asked_for("list budgets").len() <= 7, "not for ever");
}

#[tokio::test(start_paused = true)]
async fn evacuations_are_cancelled_by_name_of_the_node() {
    let fake = Fake::new();
    let key = "PUT /apis/subresources.kubevirt.io/v1/namespaces/vms/virtualmachineinstances/a/evacuate/cancel";
    let vmi = ObjectRef {
        namespace: "vms".into(),
        name: "a".into(),
        uid: "vmi-a".into(),
    };
    fake.play(
        key,
        [Play::Text(200, ""), Play::Text(404, "404: Page Not Found")],
    );
    let cluster = fake.cluster();
    assert_eq!(cluster.cancel_evacuation(&vmi).await.unwrap().code, 200);
    let sent = fake.asked().remove(0);
    assert_eq!(body(&sent.body), json!({"evacuationNodeName": "n1"}));
    assert_eq!(sent.content_type, "application/json");
    let old = cluster.cancel_evacuation(&vmi).await.unwrap();
    assert_eq!(
        (old.code, old.message.as_str()),
        (404, "404: Page Not Found")
    );
}

#[tokio::test(start_paused = true)]
async fn migrations_are_deleted_by_uid() {
    let fake = Fake::new();
    let key = "DELETE /apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstancemigrations/m";
    fake.play(
        key,
        [Play::Say(
            200,
            json!({"kind": "Status", "status": "Success"}),
        )],
    );
    let migration = ObjectRef {
        namespace: "vms".into(),
        name: "m".into(),
        uid: "u-m".into(),
    };
    assert_eq!(
        fake.cluster()
            .delete_migration(&migration)
            .await
            .unwrap()
            .code,
        200
    );
    let sent = body(&fake.asked()[0].body);
    assert_eq!(sent["preconditions"], json!({"uid": "u-m"}));
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_stopped_by_uid_and_with_its_own_grace_period() {
    let fake = Fake::new();
    let key = "DELETE /api/v1/namespaces/vms/pods/virt-launcher-a-x";
    fake.play(
        key,
        [Play::Say(200, json!({"kind": "Pod", "metadata": {}}))],
    );
    let pod = ObjectRef {
        namespace: "vms".into(),
        name: "virt-launcher-a-x".into(),
        uid: "u-pod".into(),
    };
    assert_eq!(fake.cluster().stop_guest(&pod).await.unwrap().code, 200);
    let sent = body(&fake.asked()[0].body);
    assert_eq!(sent["preconditions"], json!({"uid": "u-pod"}));
    assert_eq!(sent.get("gracePeriodSeconds"), None);
}

#[tokio::test(start_paused = true)]
async fn events_about_the_node_live_in_default() {
    let fake = Fake::new();
    let date = Play::With(
        "Date",
        "Mon, 30 Nov 2026 07:00:00 GMT",
        Box::new(Play::Say(200, node("7"))),
    );
    fake.play("GET /api/v1/nodes/n1", [date]);
    fake.play(
        "POST /api/v1/namespaces/default/events",
        [Play::Say(201, json!({"kind": "Event"}))],
    );
    fake.play(
        "POST /api/v1/namespaces/vms/events",
        [Play::Say(403, status(403, "Forbidden", "no"))],
    );
    let cluster = fake.cluster();
    cluster.read_node().await.unwrap();
    pass(60).await;
    let mut notice = Notice {
        level: Level::Warn,
        reason: "DrainStarted",
        text: "moving 3 VMs".into(),
        vm: None,
        event: true,
    };
    cluster.event(&notice).await.unwrap();
    cluster.event(&notice).await.unwrap();
    let asked = fake.asked_for("POST /api/v1/namespaces/default/events");
    assert_eq!(asked.len(), 1, "the same is not said twice");
    let sent = body(&asked[0].body);
    assert_eq!(sent["involvedObject"]["kind"], "Node");
    assert_eq!(sent["involvedObject"]["name"], "n1");
    assert_eq!(sent["metadata"]["generateName"], "n1.");
    assert_eq!(
        (&sent["type"], &sent["reason"]),
        (&json!("Warning"), &json!("DrainStarted"))
    );
    assert_eq!(
        sent["lastTimestamp"], "2026-11-30T07:01:00Z",
        "by the server's clock"
    );
    notice.vm = Some(ObjectRef {
        namespace: "vms".into(),
        name: "a".into(),
        uid: "vmi-a".into(),
    });
    let fault = cluster.event(&notice).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Denied);
    let sent = body(&fake.asked().pop().unwrap().body);
    assert_eq!(sent["involvedObject"]["kind"], "VirtualMachineInstance");
    assert_eq!(sent["involvedObject"]["uid"], "vmi-a");
}

#[tokio::test(start_paused = true)]
async fn requests_and_watches_share_nothing_that_could_block() {
    let fake = Fake::new();
    fake.play("list pods", [Play::Hang]);
    let cluster = fake.cluster();
    let mut pictures = cluster.watch();
    fake.play("GET /api/v1/nodes/n1", [Play::Say(200, node("7"))]);
    pass(1).await;
    cluster.read_node().await.unwrap();
    assert_eq!(fake.now().0, 1000);
    until(&mut pictures, 12, all_settled).await;
}
