//! Drains of all pods: turns, consent, budgets, the end with pods left, volumes.

use super::*;
use crate::drain::others::Scope;
use crate::drain::status::PodState;
use crate::drain::trigger::Then;

fn story() -> Story {
    let mut policy = policy();
    policy.others.scope = Scope::AllPods;
    Story::with(policy, true)
}

impl Story {
    /// A managed pod, uid = name.
    fn other(&mut self, name: &str) -> &mut OtherPod {
        self.others.push(OtherPod {
            pod: object(name, name),
            owner: Some(("ReplicaSet".into(), "web".into())),
            phase: PodPhase::Running,
            grace: Duration::from_secs(30),
            ..OtherPod::default()
        });
        self.others.last_mut().unwrap()
    }

    fn other_leaves(&mut self, name: &str) {
        self.others.retain(|pod| pod.pod.uid != name);
        self.show();
    }

    fn posted(&self) -> Vec<&str> {
        self.posts.iter().map(|(_, uid, _)| uid.as_str()).collect()
    }

    fn answer_all(&mut self, code: u16, message: &str) {
        self.answer_all_with(&reply(code, message));
    }

    fn answer_all_with(&mut self, answer: &Reply) {
        for sent in std::mem::take(&mut self.waiting) {
            let outcome = Outcome::Reply(Ok(answer.clone()));
            self.input(Input::Done(sent.id, outcome));
        }
    }

    fn other_row(&self, name: &str) -> (PodState, String) {
        let status = self.status();
        let row = status
            .pods
            .into_iter()
            .find(|pod| pod.name == name)
            .unwrap();
        (row.phase, row.says)
    }
}

#[test]
fn the_vms_first_then_the_others_and_kubevirt_last() {
    let mut story = story();
    story.vm("a");
    story.other("web");
    story.other("virt-api").component = "virt-api".into();
    story.trigger().show();
    assert_eq!(story.posted(), ["a-pod"]);
    assert_eq!(story.other_row("web").0, PodState::Queued);
    story.answer_all(429, TRIGGERED);
    story.moves("a");
    assert_eq!(story.phase(), Phase::OtherPods);
    assert_eq!(story.posted(), ["a-pod", "web"]);
    assert!(story.other_row("virt-api").1.contains("part of KubeVirt"));
    story.answer_all(201, "");
    story.other_leaves("web");
    assert_eq!(story.posted(), ["a-pod", "web", "virt-api"]);
    story.answer_all(201, "");
    story.other_leaves("virt-api");
    assert_eq!(story.phase(), Phase::Drained);
    assert_eq!(story.exit(), Some(0));
    assert_eq!(story.other_row("web").0, PodState::Gone);
}

#[test]
fn with_scope_vms_nobody_looks_at_them() {
    let mut story = Story::full();
    story.other("web");
    story.trigger().show();
    assert_eq!(story.phase(), Phase::Drained);
    assert!(story.posts.is_empty() && story.status().pods.is_empty());
}

#[test]
fn a_trigger_may_ask_for_all_pods() {
    let mut story = Story::full();
    story.other("web");
    story.trigger_with(Trigger {
        scope: Some(Scope::AllPods),
        ..Trigger::default()
    });
    story.show();
    assert_eq!(story.posted(), ["web"]);
}

#[test]
fn without_consent_a_pod_stays_and_the_drain_ends_without_it() {
    let mut story = story();
    story.other("cache").empty_dir = true;
    story.other("lone").owner = None;
    story.other("web");
    story.trigger().show();
    assert_eq!(story.posted(), ["web"]);
    assert_eq!(story.other_row("cache").0, PodState::Blocked);
    story.answer_all(201, "");
    story.other_leaves("web");
    assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(3)));
    let (phase, says) = story.other_row("lone");
    assert_eq!(phase, PodState::Left);
    assert!(says.contains("drain.allow_unmanaged_pods"), "{says}");
    let end = story.status().says;
    assert!(
        end.contains("2 other pod(s)") && end.contains("vms/cache"),
        "{end}"
    );
}

#[test]
fn a_host_that_nobody_has_asked_down_stays_up_over_them() {
    let mut policy = policy();
    policy.others.scope = Scope::AllPods;
    policy.on_deadline = OnDeadline::ShutdownVms;
    let mut story = Story::with(policy, true);
    story.other("lone").owner = None;
    story.trigger_with(Trigger {
        then: Some(Then::Reboot),
        ..Trigger::default()
    });
    story.show();
    assert_eq!(story.asked_logind, 0);
    assert_eq!((story.phase(), story.exit()), (Phase::Deadline, Some(3)));
    assert_eq!(story.uncordons, 1);
}

#[test]
fn a_budget_is_waited_for_until_the_deadline_says_which_pod_is_left() {
    let mut story = story();
    story.other("web");
    story.trigger().show();
    let refusal = Reply {
        code: 429,
        causes: vec![(
            "DisruptionBudget".into(),
            "The disruption budget web needs 2 healthy pods and has 2 currently".into(),
        )],
        ..Reply::default()
    };
    story.answer_all_with(&refusal);
    let (phase, says) = story.other_row("web");
    assert_eq!(phase, PodState::Waiting);
    assert!(says.contains("disruption budget vms/web"), "{says}");
    story.wait(20);
    assert_eq!(story.posted().len(), 2, "asked again after some seconds");
    while story.phase() == Phase::OtherPods {
        story.answer_all_with(&refusal);
        story.wait(20);
    }
    assert!(story.now > 1_800_000, "{}", story.now);
    assert_eq!((story.phase(), story.exit()), (Phase::Deadline, Some(3)));
    let told: Vec<_> = story.told.iter().map(|n| n.text.as_str()).collect();
    assert!(
        told.iter()
            .any(|text| text.contains("deadline passed")
                && text.contains("vms/web: disruption budget")),
        "{told:?}"
    );
}

#[test]
fn a_pod_of_the_same_name_elsewhere_counts_as_gone() {
    let mut story = story();
    story.other("db-0").owner = Some(("StatefulSet".into(), "db".into()));
    story.trigger().show();
    // Its successor is on another node: the eviction of the old one meets another UID.
    story.answer_all(409, "the UID in the precondition does not match");
    assert_eq!(story.phase(), Phase::OtherPods);
    story.other_leaves("db-0");
    assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(0)));
    assert_eq!(story.posted(), ["db-0"]);
}

#[test]
fn in_a_terminating_namespace_the_deletion_is_waited_for() {
    let mut story = story();
    story.other("web");
    story.trigger().show();
    story.answer_all_with(&Reply {
        code: 403,
        causes: vec![(
            "NamespaceTerminating".into(),
            "namespace is being terminated".into(),
        )],
        ..Reply::default()
    });
    assert!(
        story
            .other_row("web")
            .1
            .contains("namespace is being deleted")
    );
    story.others[0].deleting = true;
    story.show().wait(60);
    assert_eq!(
        story.posted(),
        ["web"],
        "one that is being deleted is not asked about"
    );
    story.other_leaves("web");
    assert_eq!(story.phase(), Phase::Drained);
}

#[test]
fn a_vm_that_comes_in_the_middle_goes_before_the_rest() {
    let mut story = story();
    story.other("web");
    story.other("late").priority = 5;
    story.trigger().show();
    story.answer_all(201, "");
    story.vm("a");
    story.show();
    assert_eq!(story.phase(), Phase::Evacuating);
    assert_eq!(story.posted(), ["web", "late", "a-pod"]);
}

#[test]
fn volumes_are_waited_for_and_what_stays_is_named() {
    let mut policy = policy();
    policy.volume_wait = Duration::from_secs(30);
    let volume = AttachedVolume {
        volume: "pv-1".into(),
        attacher: "csi.example".into(),
    };
    let mut story = Story::with(policy.clone(), true);
    story.volumes = Ok(vec![volume.clone()]);
    story.trigger().show();
    assert_eq!(story.phase(), Phase::Gates);
    let says = story.status().says;
    assert!(says.contains("pv-1"), "{says}");
    story.volumes = Ok(Vec::new());
    story.wait(4);
    assert_eq!((story.phase(), story.volume_looks), (Phase::Drained, 2));

    let mut story = Story::with(policy.clone(), true);
    story.volumes = Ok(vec![volume]);
    story.trigger().show();
    story.wait(31);
    assert_eq!((story.phase(), story.exit()), (Phase::Drained, Some(0)));
    assert!(
        story
            .told
            .iter()
            .any(|n| n.text.contains("pv-1 (csi.example)"))
    );

    let mut story = Story::with(policy, true);
    story.volumes = Err(Fault {
        class: FaultClass::Denied,
        text: "no right; rbac/volumes.yaml gives it".into(),
    });
    story.trigger().show();
    assert_eq!((story.phase(), story.volume_looks), (Phase::Drained, 1));
    assert!(story.told.iter().any(|n| n.reason == "VolumesUnseen"));
}
