//! Requests on the own Node: taken once, told, and never more than they may.

use super::*;

fn listening() -> Story {
    let mut policy = policy();
    policy.requests = true;
    let mut story = Story::with(policy, true);
    // As the driver does it at the start.
    story.machine.handle_timeout(Mono(story.now));
    story.settle();
    story
}

impl Story {
    /// Somebody annotates the Node.
    fn requests(&mut self, text: &str) -> &mut Self {
        self.node.request = text.into();
        self.bump();
        self.show()
    }

    fn reasons(&self) -> Vec<(&'static str, bool)> {
        self.told.iter().map(|n| (n.reason, n.event)).collect()
    }
}

#[test]
fn off_by_default_nothing_is_watched_and_nothing_obeyed() {
    let mut story = Story::full();
    story.vm("a").wait(10);
    assert!(!story.watching);
    story.requests("drain").wait(60);
    assert_eq!(
        (story.phase(), story.node.handled.as_str()),
        (Phase::Idle, "")
    );
}

#[test]
fn a_request_is_taken_once_and_said_to_be() {
    let mut story = listening();
    story.vm("a").wait(1);
    assert!(story.watching);
    story.requests("drain");
    assert_eq!(story.node.handled, "drain");
    assert_eq!(story.phase(), Phase::Preparing);
    assert!(story.reasons().contains(&("RequestTaken", true)));
    story.show().accepted("a").moves("a");
    assert_eq!(story.phase(), Phase::Drained);
    assert!(story.watching, "the next request is listened for");
    let reason = story.status().drain.unwrap().reason;
    assert_eq!(reason, "requested on the Node (vmdrain.io/request)");
    // Seen again and again, and by the next process too.
    story.show().wait(30);
    story.starts().show().wait(30);
    assert_ne!(story.phase(), Phase::Preparing);
    assert_eq!(story.real("a"), 1);
    story.requests("restore").show();
    assert!(!story.node.unschedulable);
    assert_eq!(story.node.handled, "restore");
}

#[test]
fn a_cancel_is_heard_in_the_middle_of_a_drain() {
    let mut story = listening();
    story.vm("a").trigger().accepted("a");
    story.requests("cancel");
    assert_eq!(story.phase(), Phase::Cancelled);
    assert_eq!(story.cancels.len(), 1);
}

#[test]
fn what_is_no_request_is_an_event_and_nothing_else() {
    let mut story = listening();
    story.vm("a").wait(1);
    for text in ["poweroff", r#"{"action":"drain","then":"reboot"}"#] {
        story.requests(text).wait(5);
        assert_eq!(
            (story.phase(), story.node.handled.as_str()),
            (Phase::Idle, text)
        );
    }
    let refused = |r: &&(&str, bool)| **r == ("RequestRefused", true);
    assert_eq!(story.reasons().iter().filter(refused).count(), 2);
    assert!(story.posts.is_empty() && !story.node.unschedulable);
    // A cancel without a drain is refused, with the reason.
    story.requests("cancel");
    assert!(
        story
            .told
            .last()
            .unwrap()
            .text
            .contains("nothing to cancel")
    );
}

#[test]
fn what_cannot_be_marked_as_taken_is_not_carried_out() {
    let mut story = listening();
    story.vm("a").wait(1);
    story.node_fault = Some(FaultClass::Denied);
    story.requests("drain").wait(60);
    assert_eq!(story.phase(), Phase::Idle);
    assert!(story.reasons().contains(&("RequestRefused", true)));
    story.node_fault = None;
    story.wait(20);
    assert_eq!(story.node.handled, "drain");
    assert_ne!(story.phase(), Phase::Idle);
}

#[test]
fn the_node_of_another_machine_is_not_obeyed() {
    let mut story = listening();
    story.node.machine_id = "BBBB".into();
    story.wait(1).requests("drain").wait(10);
    assert_eq!(
        (story.phase(), story.node.handled.as_str()),
        (Phase::Idle, "")
    );
    assert!(
        story
            .told
            .last()
            .unwrap()
            .text
            .contains("is another machine")
    );
}

#[test]
fn switched_off_by_a_reload_it_is_no_longer_watched_for() {
    let mut story = listening();
    story.vm("a").wait(1);
    assert!(story.watching);
    let off = policy();
    story.machine.set_policy(off);
    story.settle();
    assert!(!story.watching);
    story.requests("drain");
    assert_eq!(story.phase(), Phase::Idle);
}
