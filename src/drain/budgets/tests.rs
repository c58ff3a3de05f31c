//! Every class of budget, with the numbers that real servers showed (control-plane.md 6.c), and every cure.

use super::*;
use crate::drain::world::{MigrationState, SelectorView};

fn number(n: i64) -> Rule {
    Rule::MinAvailable(Amount::Number(n))
}

fn pdb(rule: Rule, expected: i64, healthy: i64, desired: i64) -> PdbView {
    PdbView {
        pdb: ObjectRef {
            namespace: "vms".into(),
            name: "web".into(),
            uid: "b".into(),
        },
        selects: vec!["p1".into(), "p2".into()],
        rule,
        selector: SelectorView {
            labels: [("app".to_owned(), "web".to_owned())].into(),
            ..SelectorView::default()
        },
        expected,
        current_healthy: healthy,
        desired_healthy: desired,
        disruptions_allowed: (healthy - desired).max(0),
        processed: true,
        ..PdbView::default()
    }
}

fn pod(uid: &str, not_ready: Option<&str>) -> PodView {
    PodView {
        pod: ObjectRef {
            namespace: "vms".into(),
            name: format!("virt-launcher-{uid}"),
            uid: uid.into(),
        },
        vmi_uid: format!("vmi-{uid}"),
        phase: PodPhase::Running,
        not_ready: not_ready.map(Into::into),
        ..PodView::default()
    }
}

fn vmi(uid: &str) -> VmiView {
    let mut vmi = VmiView {
        phase: VmiPhase::Running,
        ..VmiView::default()
    };
    vmi.vmi.uid = format!("vmi-{uid}");
    vmi
}

fn name(class: &Class) -> String {
    let value = serde_json::to_value(class).unwrap();
    value["class"].as_str().unwrap().to_owned()
}

#[test]
fn what_kubernetes_cannot_count_is_never_satisfiable() {
    let scale = "virtualmachineinstances.kubevirt.io does not implement the scale subresource";
    let all = [
        Rule::MaxUnavailable(Amount::Number(1)),
        Rule::MaxUnavailable(Amount::Share("25%".into())),
        Rule::MinAvailable(Amount::Share("75%".into())),
    ];
    for rule in all {
        let mut seen = pdb(rule.clone(), 0, 0, 0);
        seen.sync_failed = Some(scale.into());
        assert_eq!(
            diagnose(&seen, &[], &[]),
            Class::NeverSatisfiable { why: scale.into() }
        );
        // A fresh one, before the controller has come to it.
        let fresh = PdbView {
            processed: false,
            ..pdb(rule.clone(), 0, 0, 0)
        };
        assert_eq!(name(&diagnose(&fresh, &[], &[])), "never_satisfiable");
        // A KubeVirt that can be counted.
        assert_eq!(diagnose(&pdb(rule, 4, 4, 3), &[], &[]), Class::Allows);
    }
}

#[test]
fn integers_are_judged_by_their_counts() {
    assert_eq!(diagnose(&pdb(number(3), 4, 4, 3), &[], &[]), Class::Allows);
    assert_eq!(diagnose(&pdb(number(1), 1, 1, 1), &[], &[]), Class::NoRoom);
    let fresh = PdbView {
        processed: false,
        ..pdb(number(1), 0, 0, 0)
    };
    assert_eq!(diagnose(&fresh, &[], &[]), Class::Young);
    // One was evicted, its replacement is not up yet: exactly as many as it needs.
    let waits = diagnose(&pdb(number(3), 4, 3, 3), &[], &[]);
    let short = vec!["1 on other nodes".to_owned()];
    assert_eq!(waits, Class::WaitsForPeers { short });
    // Fewer than it needs: no eviction can have done that.
    let broken = diagnose(&pdb(number(3), 3, 2, 3), &[], &[]);
    assert_eq!(name(&broken), "unhealthy_peers");
    assert!(broken.needs_somebody() && !waits.needs_somebody());
    // All of them are healthy, and there are fewer than it needs: "add one", not "it needs every one".
    let short = vec!["1 that do not exist".to_owned()];
    let lacks = diagnose(&pdb(number(3), 2, 2, 3), &[], &[]);
    assert_eq!(lacks, Class::UnhealthyPeers { short });
}

#[test]
fn the_pods_that_are_short_are_named_where_they_can_be_seen() {
    let seen = pdb(number(2), 4, 2, 2);
    let pods = [
        pod("p1", Some("GuestNotRunning")),
        pod("p2", None),
        pod("p3", Some("x")),
    ];
    let Class::UnhealthyPeers { short } = diagnose(&seen, &pods, &[vmi("p1")]) else {
        panic!("a pod that runs and is not ready does not become so by itself")
    };
    assert_eq!(
        short,
        [
            "virt-launcher-p1 here (GuestNotRunning)",
            "1 on other nodes"
        ]
    );
    let coming = |change: &dyn Fn(&mut PodView, &mut VmiView)| {
        let (mut pod, mut vmi) = (pod("p1", Some("x")), vmi("p1"));
        change(&mut pod, &mut vmi);
        name(&diagnose(&pdb(number(3), 4, 3, 3), &[pod], &[vmi]))
    };
    assert_eq!(
        coming(&|_, vmi| vmi.phase = VmiPhase::Starting),
        "waits_for_peers"
    );
    assert_eq!(
        coming(&|_, vmi| vmi.mark = Some("n1".into())),
        "waits_for_peers"
    );
    assert_eq!(coming(&|pod, _| pod.deleting = true), "waits_for_peers");
    let moving = |_: &mut PodView, vmi: &mut VmiView| {
        vmi.migration = Some(MigrationState {
            started: true,
            ..MigrationState::default()
        });
    };
    assert_eq!(coming(&moving), "waits_for_peers");
    assert_eq!(
        coming(&|pod, _| pod.phase = PodPhase::Failed),
        "unhealthy_peers"
    );
}

#[test]
fn a_budget_matters_only_where_the_guest_would_be_shut_down() {
    use Strategy::{External, LiveMigrate, LiveMigrateIfPossible, None as Nothing};
    for (strategy, migratable, expected) in [
        (Nothing, Some(true), true),
        (LiveMigrateIfPossible, Some(false), true),
        (LiveMigrateIfPossible, None, true),
        (LiveMigrateIfPossible, Some(true), false),
        (LiveMigrate, Some(false), false),
        (LiveMigrate, Some(true), false),
        (External, Some(false), false),
    ] {
        assert_eq!(
            matters(Some(strategy), migratable),
            Some(expected),
            "{strategy:?}"
        );
    }
    assert_eq!(matters(None, Some(true)), None);
}

#[test]
fn answers_alone_tell_some_of_it() {
    let says = |text: &str, refusals| {
        from_answer(text, refusals)
            .as_ref()
            .map_or("nothing".into(), name)
    };
    let young = "The disruption budget b1 is still being processed by the server.";
    assert_eq!(says(young, 1), "young");
    assert_eq!(says(young, 2), "never_satisfiable");
    let none = "The disruption budget b1b needs 0 healthy pods and has 0 currently";
    assert_eq!(says(none, 1), "never_satisfiable");
    let below = "The disruption budget b3 needs 3 healthy pods and has 2 currently";
    assert_eq!(says(below, 1), "unhealthy_peers");
    let equal = "The disruption budget b3 needs 3 healthy pods and has 3 currently";
    assert_eq!(
        says(equal, 9),
        "nothing",
        "no room, or waits: the budget would tell"
    );
    assert_eq!(says("something new", 1), "nothing");
}

#[test]
fn the_corrected_manifest_means_what_was_meant() {
    let most = |amount| Rule::MaxUnavailable(amount);
    let share = |text: &str| Amount::Share(text.into());
    for (rule, vms, keeps) in [
        (most(Amount::Number(1)), 4, 3),
        (most(Amount::Number(3)), 4, 1),
        (most(Amount::Number(9)), 4, 0),
        (most(Amount::Number(0)), 4, 4),
        (most(share("25%")), 4, 3),
        (most(share("30%")), 4, 2),
        (Rule::MinAvailable(share("75%")), 4, 3),
        (Rule::MinAvailable(share("51%")), 4, 3),
        (Rule::MinAvailable(share("100%")), 3, 3),
        (most(Amount::Number(1)), 1, 0),
    ] {
        let cure = cure(&pdb(rule.clone(), 0, 0, 0), Some(vms)).unwrap();
        assert_eq!(cure.min_available, keeps, "{rule} of {vms}");
    }
    let told = |rule, vms| cure(&pdb(rule, 0, 0, 0), vms).unwrap().why;
    assert!(told(most(Amount::Number(0)), Some(4)).contains("refuses every eviction"));
    assert!(told(most(Amount::Number(1)), Some(1)).contains("protects nothing"));
    assert!(told(Rule::MinAvailable(share("50%")), Some(1)).contains("covers one VM"));
    assert!(told(most(Amount::Number(1)), None).contains("kubectl get vmi -n vms -l 'app=web'"));
    assert_eq!(cure(&pdb(number(3), 4, 4, 3), Some(4)), None);
    assert_eq!(cure(&pdb(most(share("odd")), 0, 0, 0), Some(4)), None);
}

#[test]
fn the_manifest_is_whole() {
    let mut seen = pdb(Rule::MaxUnavailable(Amount::Number(1)), 0, 0, 0);
    seen.unhealthy_policy = Some("AlwaysAllow".into());
    seen.selector.labels.insert("version".into(), "1.20".into());
    seen.selector.expressions = vec![crate::drain::world::Requirement {
        key: "tier".into(),
        operator: "In".into(),
        values: vec!["a".into(), "true".into()],
    }];
    let text = cure(&seen, Some(3)).unwrap().manifest;
    assert_eq!(
        text,
        "\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: web
  namespace: vms
spec:
  minAvailable: 2
  maxUnavailable: null
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      app: web
      version: \"1.20\"
    matchExpressions:
    - key: tier
      operator: In
      values: [a, \"true\"]
"
    );
    assert_eq!(
        seen.selector.to_string(),
        "app=web,version=1.20,tier in (a,true)"
    );
    seen.selector = SelectorView::default();
    assert!(
        cure(&seen, Some(3))
            .unwrap()
            .manifest
            .ends_with("  selector: {}\n")
    );
}

#[test]
fn every_class_has_its_sentence() {
    let short = vec!["virt-launcher-p1 here (x)".to_owned()];
    let classes = [
        (None, "does not allow it now"),
        (
            Some(Class::NeverSatisfiable {
                why: "no scale".into(),
            }),
            "can never allow it (no scale)",
        ),
        (Some(Class::NoRoom), "never lets one go"),
        (
            Some(Class::WaitsForPeers {
                short: short.clone(),
            }),
            "are healthy: virt-launcher-p1",
        ),
        (
            Some(Class::UnhealthyPeers { short }),
            "heal them: virt-launcher-p1",
        ),
        (Some(Class::UnhealthyPeers { short: vec![] }), "heal them ("),
        (Some(Class::Young), "not looked at"),
    ];
    for (class, part) in classes {
        let text = sentence("web", "needs 1", class.as_ref());
        assert!(
            text.contains(part) && text.contains("budget web") && text.contains("needs 1"),
            "{text}"
        );
    }
}
