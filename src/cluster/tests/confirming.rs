//! Emptiness is confirmed by fresh lists.

use super::fake::{Fake, Play, forbidden, launcher, listed, migration, status, vmi};
use crate::agent::ports::Cluster;
use crate::drain::action::FaultClass;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn confirm_lists_everything_afresh_at_once() {
    let fake = Fake::new();
    let first = json!({"kind": "PodList", "metadata": {"resourceVersion": "10", "continue": "more"}, "items": [launcher("a", "1")]});
    fake.play(
        "list pods",
        [Play::Say(200, first), listed("10", [launcher("b", "2")])],
    );
    fake.play("list vmis here", [listed("10", [vmi("a", "1")])]);
    fake.play(
        "list vmis coming",
        [listed("10", [vmi("a", "1"), vmi("c", "1")])],
    );
    fake.play(
        "list migrations",
        [listed("10", [migration("a", "Succeeded")])],
    );
    let fresh = fake.cluster().confirm(false).await.unwrap();
    assert_eq!(fresh.pods.len(), 2, "both pages");
    let names: Vec<String> = fresh
        .vmis
        .unwrap()
        .into_iter()
        .map(|vmi| vmi.vmi.name)
        .collect();
    assert_eq!(names, ["a", "c"], "each once");
    assert_eq!(fresh.migrations.unwrap().len(), 1);
    assert!(fresh.malformed.is_empty());
    let asked = fake.asked();
    assert_eq!(asked.len(), 5);
    assert!(fake.asked_for("list pods")[1].uri.contains("continue=more"));
    assert!(
        asked
            .iter()
            .all(|asked| asked.at.0 == 0 && !asked.uri.contains("resourceVersion="))
    );
}

#[tokio::test(start_paused = true)]
async fn confirm_in_the_base_tier_and_without_kubevirt() {
    let fake = Fake::new();
    fake.play("list vmis here", [forbidden()]);
    fake.play("list vmis coming", [forbidden()]);
    fake.play("list migrations", [Play::Text(404, "404 page not found")]);
    let fresh = fake.cluster().confirm(false).await.unwrap();
    assert_eq!((fresh.vmis, fresh.migrations), (None, None));
}

/// Why a list counts for nothing: without the pods there is no answer at all, another kind is named as unread.
async fn refused(fake: &std::sync::Arc<Fake>, key: &str) -> String {
    let answer = fake.cluster().confirm(false).await;
    if key == "list pods" {
        let fault = answer.expect_err(key);
        assert_eq!(fault.class, FaultClass::Transient);
        return fault.text;
    }
    let fresh = answer.expect(key);
    let seen = if key == "list migrations" {
        fresh.migrations.is_some()
    } else {
        fresh.vmis.is_some()
    };
    assert!(!seen, "{key}");
    assert_eq!(fresh.unread.len(), 1, "{key}");
    fresh.unread.into_iter().next().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn confirm_believes_nothing_when_a_list_fails() {
    for key in [
        "list pods",
        "list vmis here",
        "list vmis coming",
        "list migrations",
    ] {
        let fake = Fake::new();
        fake.play(
            key,
            [Play::Say(500, status(500, "InternalError", "etcd is away"))],
        );
        let why = refused(&fake, key).await;
        assert!(why.ends_with("etcd is away (500)"));
    }
    // Pods must be readable.
    let fake = Fake::new();
    fake.play("list pods", [forbidden()]);
    assert_eq!(
        fake.cluster().confirm(false).await.unwrap_err().class,
        FaultClass::Denied
    );
}

#[tokio::test(start_paused = true)]
async fn confirm_reports_unreadable_objects_that_may_be_ours() {
    let fake = Fake::new();
    let mut bad_pod = launcher("x", "1");
    bad_pod["status"]["phase"] = json!([]);
    fake.play("list pods", [listed("10", [launcher("a", "1"), bad_pod])]);
    let bad_migration = |name: &str| {
        let mut bad = migration(name, "Running");
        bad["status"] = json!("running");
        bad
    };
    let elsewhere = bad_migration("of-another-node");
    fake.play(
        "list migrations",
        [listed("10", [bad_migration("a"), elsewhere])],
    );
    let fresh = fake.cluster().confirm(false).await.unwrap();
    let named: Vec<&str> = fresh
        .malformed
        .iter()
        .map(|bad| bad.object.as_str())
        .collect();
    assert_eq!(
        named,
        ["vms/virt-launcher-x-abcde", "vms/kubevirt-evacuation-a"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_between_its_pages_is_read_again() {
    let fake = Fake::new();
    let first = json!({"kind": "PodList", "metadata": {"resourceVersion": "10", "continue": "more"}, "items": [launcher("a", "1")]});
    let expired = Play::Say(
        410,
        status(410, "Expired", "the provided continue parameter is too old"),
    );
    let again = listed("20", [launcher("c", "11")]);
    fake.play("list pods", [Play::Say(200, first), expired, again]);
    let fresh = fake.cluster().confirm(false).await.unwrap();
    assert_eq!(fresh.pods.len(), 1);
    assert_eq!(fresh.pods[0].vm.name, "c");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_list_is_not_an_empty_node() {
    let answers = [
        json!({}),
        json!([]),
        json!(null),
        json!({"metadata": {}}),
        json!({"kind": "PodList", "metadata": {}}),
        json!({"items": []}),
        json!({"kind": "SecretList", "items": []}),
        json!({"kind": "Pod", "items": []}),
        status(200, "", "welcome to the proxy"),
    ];
    for answer in answers {
        for key in ["list pods", "list vmis here", "list migrations"] {
            let fake = Fake::new();
            fake.play(key, [Play::Say(200, answer.clone())]);
            let why = refused(&fake, key).await;
            assert!(!why.is_empty(), "{key} {answer}");
        }
    }
    // What a server writes for a list without objects.
    let fake = Fake::new();
    let none = json!({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": null});
    fake.play("list pods", [Play::Say(200, none)]);
    assert!(fake.cluster().confirm(false).await.unwrap().pods.is_empty());
}

#[tokio::test(start_paused = true)]
async fn pages_that_lead_back_to_themselves_end() {
    let fake = Fake::new();
    let page =
        json!({"kind": "PodList", "metadata": {"continue": "more"}, "items": [launcher("a", "1")]});
    fake.play("list pods", [Play::Say(200, page)]);
    let fault = fake.cluster().confirm(false).await.unwrap_err();
    assert!(fault.text.contains("again and again"), "{}", fault.text);
    assert_eq!(fake.asked_for("list pods").len(), 2);
}
