//! What people are told of the hold while nothing is drained.

use super::*;
use crate::drain::action::{Holder, Level};

fn told(story: &mut Story) -> Vec<(Level, &'static str)> {
    let told = story.told.drain(..);
    told.filter(|n| n.event)
        .map(|n| (n.level, n.reason))
        .collect()
}

fn trouble(limit: Option<u64>, trouble: &str) -> Input {
    Input::Hold(HoldView {
        held: limit.is_some(),
        limit: limit.map(Duration::from_secs),
        trouble: trouble.into(),
        ..HoldView::default()
    })
}

#[test]
fn a_bad_limit_is_told_at_once_and_once() {
    let mut story = Story::full();
    story
        .input(trouble(Some(5), "InhibitDelayMaxSec is 5 s"))
        .wait(120);
    story
        .input(trouble(Some(5), "InhibitDelayMaxSec is 5 s"))
        .wait(120);
    assert_eq!(told(&mut story), [(Level::Warn, "HoldTrouble")]);
    assert!(
        story.status().says.contains("is 5 s"),
        "{}",
        story.status().says
    );
    assert_eq!(story.status().warnings, ["InhibitDelayMaxSec is 5 s"]);
    story.input(trouble(Some(2700), ""));
    assert_eq!(told(&mut story), [(Level::Info, "ProtectionBack")]);
    // A limit that shrinks while nothing happens is news again.
    story.input(trouble(Some(30), "InhibitDelayMaxSec is 30 s"));
    assert_eq!(told(&mut story), [(Level::Warn, "HoldTrouble")]);
}

#[test]
fn a_logind_that_is_away_for_good_is_lost_protection() {
    let mut story = Story::full();
    story.input(trouble(None, "no logind")).wait(29);
    assert_eq!(told(&mut story), [], "it may only be restarted");
    story.input(trouble(Some(2700), "")).wait(60);
    assert_eq!(told(&mut story), []);
    story.input(trouble(None, "no logind")).wait(31);
    assert_eq!(told(&mut story), [(Level::Error, "ProtectionLost")]);
    story.wait(3600);
    assert_eq!(told(&mut story), []);
    story.input(trouble(Some(2700), ""));
    assert_eq!(told(&mut story), [(Level::Info, "ProtectionBack")]);
}

/// logind ends with the host: that is no lost protection.
#[test]
fn a_host_that_goes_down_says_nothing_of_its_logind() {
    let mut story = Story::full();
    story.vm("a").shutdown();
    story.input(trouble(None, "no logind")).wait(60);
    assert!(
        !told(&mut story)
            .iter()
            .any(|(_, reason)| *reason == "ProtectionLost")
    );
}

#[test]
fn other_holders_are_told_once_and_shown() {
    let mut story = Story::full();
    let holder = |who: &str| Holder {
        who: who.into(),
        why: "a reason".into(),
        mode: "delay".into(),
        uid: 0,
    };
    let seen = |story: &mut Story, who: &[&str]| {
        story.input(Input::Hold(HoldView {
            others: who.iter().map(|who| holder(who)).collect(),
            ..story.hold()
        }));
        told(story)
    };
    assert_eq!(
        seen(&mut story, &["kubelet", "fwupd"]),
        [(Level::Warn, "OtherHolder")]
    );
    assert_eq!(seen(&mut story, &["kubelet"]), []);
    let status = story.status();
    assert_eq!(status.hold.others.len(), 1);
    assert!(status.hold.others[0].says.contains("shutdownGracePeriod"));
    assert!(
        status.warnings[0].contains("shutdownGracePeriod"),
        "{:?}",
        status.warnings
    );
    assert_eq!(seen(&mut story, &[]), []);
    assert_eq!(
        seen(&mut story, &["kubelet"]),
        [(Level::Warn, "OtherHolder")]
    );
}

/// kubelet's graceful node shutdown ends a pod that we had asked KubeVirt to move: that is no migration, in both tiers.
#[test]
fn a_vm_that_kubelet_stopped_is_reported_as_such() {
    for mut story in [Story::full(), Story::base()] {
        story.vm("a").shutdown();
        if story.asked() == ["a?"] {
            story.answer("a", 429, TRIGGERED);
        }
        story.accepted("a");
        if story.full {
            story.vmi("a").phase = VmiPhase::Succeeded;
        }
        story.pod("a").stopped_by = Some("kubelet".into());
        story.pod_ends("a");
        story.show();
        assert_eq!(story.phase(), Phase::Drained);
        let row = story.row("a");
        assert_eq!(row.phase, crate::drain::status::VmPhase::ShutDown);
        assert_eq!(row.says, "stopped by kubelet, not by this drain");
        assert!(
            story.status().says.contains("stopped by others, not moved"),
            "{}",
            story.status().says
        );
        // The line that says that the node is empty must not read like a success.
        assert!(story.was_told("; 1 of them were stopped by others, not moved"));
        assert!(told(&mut story).contains(&(Level::Warn, "VmStoppedByOthers")));
    }
}

/// virt-handler ended in the same wave, so the VMI says for ever that it runs, and KubeVirt asks for its migration again.
#[test]
fn a_vm_that_kubelet_stopped_is_not_waited_for_because_its_vmi_was_left_behind() {
    for restarted in [false, true] {
        let mut story = Story::full();
        story.vm("a").vm("b").shutdown().accepted("a").accepted("b");
        story.pod("a").stopped_by = Some("kubelet".into());
        story.pod_ends("a");
        story.migration("a", "m1", MigrationPhase::Pending);
        story.show();
        assert_eq!(story.row("a").says, "stopped by kubelet, not by this drain");
        assert_eq!(story.phase(), Phase::Evacuating, "b has not left");
        if restarted {
            story.crash();
            story.signal(2700).show();
        }
        story.moves("b");
        assert_eq!(story.phase(), Phase::Drained, "restarted: {restarted}");
    }
}

/// Another pod of the VM still has its guest: it is not over.
#[test]
fn a_pod_that_kubelet_ended_says_nothing_about_another_one_of_the_vm() {
    let mut story = Story::full();
    story.vm("a").shutdown().accepted("a");
    let mut old = story.pod("a").clone();
    old.pod.uid = "old-pod".into();
    old.stopped_by = Some("kubelet".into());
    old.phase = PodPhase::Failed;
    story.pods.push(old);
    story.show().wait(60);
    assert_eq!(story.phase(), Phase::Evacuating);
    assert_eq!(story.status().vms_remaining, 1);
}

/// A guest that ends while somebody is known to power guests off: it is said who it probably was.
#[test]
fn a_guest_that_ends_by_itself_names_the_suspect() {
    let mut story = Story::full();
    story.input(Input::Hold(HoldView {
        others: vec![Holder {
            who: "vm-shutdown-hook".into(),
            mode: "delay".into(),
            ..Holder::default()
        }],
        ..story.hold()
    }));
    story.vm("a").signal(2700).show().accepted("a");
    // Its work is done, it has let go.
    let hold = story.hold();
    story.input(Input::Hold(hold));
    // As the owner's controller does with a guest that has ended.
    story.pod("a").deleting = true;
    story.show();
    story.vmi("a").phase = VmiPhase::Succeeded;
    story.pod_ends("a");
    story.show();
    let row = story.row("a");
    assert_eq!(row.phase, crate::drain::status::VmPhase::ShutDown);
    assert_eq!(
        row.says,
        "guest has ended, probably stopped by vm-shutdown-hook"
    );
    let says = story.status().says;
    assert!(says.contains("stopped by others, not moved"), "{says}");
}

/// Scenario 2d: the shutdown is called off, kubelet does not notice, and somebody has to be told.
#[test]
fn a_kubelet_that_stays_behind_after_a_cancel_is_named_with_its_cure() {
    let mut story = Story::full();
    story.vm("a").shutdown().accepted("a");
    story.node.not_ready = "KubeletNotReady: node is shutting down".into();
    story.input(Input::ShutdownVanished {
        why: "called off".into(),
    });
    assert_eq!(story.phase(), Phase::Cancelled);
    assert!(!story.node.unschedulable);
    let warnings = story.status().warnings;
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("systemctl restart kubelet")),
        "{warnings:?}"
    );
    assert!(story.was_told("systemctl restart kubelet"));
}

/// Its pod is taken away by force, and KubeVirt says a moment later how its guest ended.
#[test]
fn a_guest_that_others_have_killed_was_not_shut_down() {
    let mut story = Story::full();
    story.vm("a").shutdown().accepted("a");
    story.pods.clear();
    story.show();
    story.vmi("a").phase = VmiPhase::Failed;
    story.show();
    assert!(story.was_told("not by this drain and not in order (its VMI is Failed)"));
    assert!(!story.was_told("guest was shut down"));
    assert!(story.was_told("; 1 of them were stopped by others, not moved"));
    assert_eq!(story.phase(), Phase::Drained);
    // One that ends in order leaves `Succeeded`.
    let mut story = Story::full();
    story.vm("a").shutdown().accepted("a");
    story.vmi("a").phase = VmiPhase::Succeeded;
    story.pods.clear();
    story.show();
    assert!(!story.was_told("Failed") && story.was_told("guest was shut down"));
}
