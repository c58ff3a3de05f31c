//! After the boot: what is waited for, what is given back, and what is never touched.

use super::*;
use crate::drain::action::Level;
use crate::drain::boot::Userspace;
use crate::drain::trigger::Then;
use crate::drain::world::CordonNote;

/// What the host was like when it was cordoned.
const BEFORE: &str = "b1";

impl Story {
    /// The node stands as a drain of boot `b1` has left it, and the host has booted: nothing has come up yet.
    pub(super) fn rebooted() -> Self {
        let mut story = Self::full();
        story.node.boot_id = BEFORE.into();
        story.node.unschedulable = true;
        story.node.cordon = CordonMark::Note(CordonNote {
            drain: "d1".into(),
            boot: BEFORE.into(),
            reason: "the host is going down (reboot)".into(),
            ..CordonNote::default()
        });
        // A fast reboot: nobody has noticed that the node was away.
        story.node.ready = true;
        story.node.schedulable = true;
        story.node.kvm = 1000;
        story.node.heartbeat = Some(-30_000);
        story
    }

    /// A process of the agent starts.
    pub(super) fn starts(&mut self) -> &mut Self {
        self.crash();
        self.input(Input::HostReady).wait(0)
    }

    /// The process dies at its action of this number, which has `arrived` by then or not.
    pub(super) fn dies_after(&mut self, number: usize, arrived: bool) {
        for step in 0.. {
            let Some(action) = self.machine.poll_action() else {
                break;
            };
            if step == number && !arrived {
                break;
            }
            let done = self.act(action);
            if step == number {
                break;
            }
            if let Some((id, outcome)) = done {
                self.machine
                    .handle(Input::Done(id, outcome), Mono(self.now));
            }
        }
    }

    /// kubelet and virt-handler come up.
    pub(super) fn comes_up(&mut self) -> &mut Self {
        self.kubelet_reports();
        self.handler_reports()
    }

    pub(super) fn kubelet_reports(&mut self) -> &mut Self {
        self.change(|node, now| {
            node.boot_id = "boot".into();
            node.reported = Some(now);
            node.kvm = 0;
            node.ready = true;
        })
    }

    pub(super) fn handler_reports(&mut self) -> &mut Self {
        self.change(|node, now| {
            node.heartbeat = Some(now);
            node.schedulable = true;
            node.kvm = 1000;
        })
    }

    /// Something changes about the Node, and the watch shows it.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut NodeView, i64)) -> &mut Self {
        let now = i64::try_from(self.now).unwrap();
        change(&mut self.node, now);
        self.bump();
        if self.watching { self.show() } else { self }
    }

    pub(super) fn waits(&self) -> Vec<String> {
        self.status().restore.map(|r| r.waits).unwrap_or_default()
    }

    pub(super) fn is_cordoned(&self) -> bool {
        self.node.unschedulable && matches!(self.node.cordon, CordonMark::Note(_))
    }

    /// Given back, once, and nothing is left behind.
    pub(super) fn assert_restored(&self) {
        assert_eq!(self.phase(), Phase::Idle);
        assert_eq!((self.uncordons, self.unmarks), (1, 0));
        assert!(!self.node.unschedulable && self.node.cordon == CordonMark::Absent);
        assert!(!self.watching && self.record.is_none());
        assert_eq!(self.status().restore, None);
    }
}

#[test]
fn a_node_is_given_back_when_everything_is_there_and_not_before() {
    let mut story = Story::rebooted();
    story.starts();
    assert_eq!((story.phase(), story.watching), (Phase::Restoring, true));
    let waits = story.waits();
    assert_eq!(waits.len(), 2, "{waits:?}");
    assert!(
        waits[0].contains("kubelet") && waits[1].contains("virt-handler"),
        "{waits:?}"
    );
    let says = story.status().says;
    assert!(waits.iter().all(|wait| says.contains(wait)), "{says}");
    story.change(|node, _| node.ready = false);
    assert_eq!(story.waits().len(), 3);
    story.kubelet_reports();
    assert_eq!(story.waits().len(), 2, "{:?}", story.waits());
    // virt-handler starts: label false first, then plugins, then label and heartbeat.
    story.change(|node, _| node.schedulable = false);
    assert_eq!(story.waits().len(), 3);
    story.change(|node, _| node.kvm = 1000);
    assert_eq!((story.waits().len(), story.uncordons), (2, 0));
    story.handler_reports();
    story.assert_restored();
    let events: Vec<_> = story
        .told
        .iter()
        .filter(|n| n.event)
        .map(|n| n.reason)
        .collect();
    assert_eq!(events, ["Restoring", "Restored"]);
}

#[test]
fn any_order_of_coming_up_gives_it_back_once_and_only_at_the_end() {
    type Step = fn(&mut NodeView, i64);
    let steps: [Step; 5] = [
        |n, _| n.boot_id = "boot".into(),
        |n, _| n.ready = true,
        |n, now| n.heartbeat = Some(now),
        |n, _| n.schedulable = true,
        |n, _| n.kvm = 1,
    ];
    // All orders of five: Heap's algorithm would be shorter than a crate, counting in the factorial system is shorter still.
    for number in 0..120_usize {
        let (mut left, mut rest) = (steps.to_vec(), number);
        let mut story = Story::rebooted();
        story.node.ready = false;
        story.node.schedulable = false;
        story.node.kvm = 0;
        story.starts();
        for size in (1..=5).rev() {
            assert_eq!(story.uncordons, 0, "order {number}");
            assert_eq!(story.waits().len(), size, "order {number}");
            let step = left.remove(rest % size);
            rest /= size;
            story.wait(3).change(step);
        }
        story.assert_restored();
    }
}

#[test]
fn what_is_not_ours_or_was_to_be_kept_or_was_not_down_stays() {
    type Change = fn(&mut Story);
    let cases: [(&str, Change, &str); 7] = [
        ("foreign", |s| s.node.cordon = CordonMark::Absent, ""),
        (
            "damaged",
            |s| s.node.cordon = CordonMark::Damaged("no JSON".into()),
            "cannot be read",
        ),
        ("kept", |s| s.note().keep = true, "--keep-cordoned"),
        (
            "same boot",
            |s| s.note().boot = "boot".into(),
            "has not been down",
        ),
        (
            "boot unknown then",
            |s| s.note().boot = String::new(),
            "cannot be told",
        ),
        (
            "boot unknown now",
            |s| s.policy.boot_id = String::new(),
            "cannot be told",
        ),
        (
            "another machine",
            |s| s.node.machine_id = "bbbb".into(),
            "another machine",
        ),
    ];
    for (case, change, says) in cases {
        let mut story = Story::rebooted();
        change(&mut story);
        let before = story.node.clone();
        story.starts().comes_up().wait(7200);
        assert_eq!(story.phase(), Phase::Idle, "{case}");
        assert_eq!(
            (story.uncordons, story.unmarks, story.watching),
            (0, 0, false),
            "{case}"
        );
        assert_eq!(story.node.cordon, before.cordon, "{case}");
        assert!(story.node.unschedulable, "{case}");
        assert!(
            says.is_empty() || story.was_told(says),
            "{case}: {:?}",
            story.told
        );
        assert!(
            !story.told.iter().any(|n| n.level == Level::Error),
            "{case}"
        );
    }
}

impl Story {
    pub(super) fn note(&mut self) -> &mut CordonNote {
        match &mut self.node.cordon {
            CordonMark::Note(note) => note,
            CordonMark::Absent | CordonMark::Damaged(_) => panic!("no marker"),
        }
    }
}

#[test]
fn a_node_that_was_not_cordoned_is_asked_about_once_and_left_alone() {
    let mut story = Story::full();
    story.starts().wait(7200);
    assert_eq!((story.phase(), story.watching), (Phase::Idle, false));
    assert!(story.told.is_empty(), "{:?}", story.told);
    assert_eq!(
        story.machine.poll_timeout(),
        None,
        "and nobody is woken again"
    );
}

#[test]
fn switched_off_nothing_is_looked_at_until_it_is_switched_on() {
    let mut story = Story::rebooted();
    story.policy.restore = false;
    story.starts().comes_up().wait(7200);
    assert_eq!((story.phase(), story.uncordons), (Phase::Idle, 0));
    story.policy.restore = true;
    let policy = story.policy.clone();
    story.machine.set_policy(policy);
    story.settle();
    story.assert_restored();
}

#[test]
fn switched_off_in_the_middle_it_stops() {
    let mut story = Story::rebooted();
    story.starts();
    story.policy.restore = false;
    let policy = story.policy.clone();
    story.machine.set_policy(policy);
    story.settle().comes_up().wait(7200);
    assert_eq!(
        (story.phase(), story.uncordons, story.watching),
        (Phase::Idle, 0, false)
    );
    assert!(story.is_cordoned());
}

#[test]
fn after_a_soft_reboot_only_reports_of_the_new_user_space_count() {
    for (then, now) in [
        (
            Userspace {
                soft_reboots: Some(0),
                started: Some(5),
            },
            Userspace {
                soft_reboots: Some(1),
                started: Some(900),
            },
        ),
        (
            Userspace {
                soft_reboots: None,
                started: Some(5),
            },
            Userspace {
                soft_reboots: None,
                started: Some(900),
            },
        ),
    ] {
        let mut story = Story::rebooted();
        story.now = 500_000;
        story.node.boot_id = "boot".into();
        story.node.reported = Some(400_000);
        story.node.heartbeat = Some(390_000);
        let note = story.note();
        (note.boot, note.userspace) = ("boot".into(), then);
        story.policy.userspace = now;
        story.policy.up_since = Mono(480_000);
        story.starts();
        let waits = story.waits();
        assert_eq!(waits.len(), 2, "{waits:?}");
        story.comes_up();
        story.assert_restored();
        assert!(story.was_told("soft-reboot"));
    }
}

#[test]
fn a_record_of_before_a_soft_reboot_is_old() {
    let mut story = Story::full();
    story.policy.userspace = Userspace {
        soft_reboots: Some(0),
        started: None,
    };
    let policy = story.policy.clone();
    story.machine.set_policy(policy);
    story.vm("a").shutdown().accepted("a").moves("a");
    story.policy.userspace = Userspace {
        soft_reboots: Some(1),
        started: None,
    };
    story.policy.up_since = Mono(story.now);
    story.wait(60);
    (story.pods, story.vmis) = (Vec::new(), Vec::new());
    story.held = true;
    story.starts();
    assert_eq!(
        (story.phase(), story.releases),
        (Phase::Restoring, 1),
        "the old drain lets nobody go again"
    );
    story.comes_up();
    story.assert_restored();
}

#[test]
fn what_the_record_says_of_keeping_counts_as_much_as_the_marker() {
    let mut story = Story::full();
    story.vm("a").trigger_with(Trigger {
        then: Some(Then::Reboot),
        keep_cordoned: true,
        ..Trigger::default()
    });
    story.accepted("a").moves("a");
    story.note().keep = false;
    story.policy.boot_id = "b2".into();
    for _ in 0..2 {
        story.starts().comes_up().wait(100);
        assert_eq!((story.phase(), story.uncordons), (Phase::Idle, 0));
        assert!(story.is_cordoned());
        assert!(
            story.status().says.contains("stays cordoned"),
            "{}",
            story.status().says
        );
    }
    story.input(Input::Restore(Token(5)));
    assert!(!story.node.unschedulable);
}

#[test]
fn a_kept_node_is_kept_by_the_drains_that_follow_too() {
    let mut story = Story::rebooted();
    story.note().keep = true;
    story.starts().shutdown();
    assert_eq!(story.phase(), Phase::Drained);
    assert!(story.note().keep && story.note().drain != "d1");
    // Called off: what this drain did is undone, and the cordon was there before.
    story
        .input(Input::ShutdownVanished {
            why: "shutdown -c".into(),
        })
        .show()
        .wait(5);
    assert_eq!((story.phase(), story.uncordons), (Phase::Cancelled, 0));
    assert!(story.is_cordoned() && story.was_told("was cordoned to stay so"));
}

#[test]
fn a_shutdown_or_a_trigger_begins_a_new_drain() {
    for by_signal in [true, false] {
        let mut story = Story::rebooted();
        story.starts();
        assert_eq!(story.phase(), Phase::Restoring);
        story.vm("a");
        if by_signal {
            story.shutdown();
        } else {
            story.trigger();
        }
        assert_eq!(story.phase(), Phase::Evacuating);
        let id = story.machine.drain_id().unwrap().to_owned();
        assert!(story.is_cordoned() && story.note().drain == id && story.note().boot == "boot");
        story.comes_up();
        assert_eq!((story.uncordons, story.asked()), (0, vec!["a".to_owned()]));
        assert_eq!(story.status().restore, None);
    }
}

#[test]
fn by_hand_it_goes_at_once_and_says_what_it_did_not_wait_for() {
    let mut story = Story::rebooted();
    story.starts();
    story.input(Input::Restore(Token(5)));
    story.assert_restored();
    let Some((Token(5), Ok(text))) = story.answers.pop() else {
        panic!("no answer");
    };
    assert!(
        text.contains("not waited for: kubelet") && text.contains("virt-handler"),
        "{text}"
    );
    story.comes_up().wait(100);
    assert_eq!(story.uncordons, 1);
}

#[test]
fn what_takes_too_long_is_told_again_and_again_and_goes_on() {
    let mut story = Story::rebooted();
    story.starts().kubelet_reports().wait(890);
    let late = |story: &Story| {
        story
            .told
            .iter()
            .filter(|n| n.reason == "RestoreLate")
            .cloned()
            .collect::<Vec<_>>()
    };
    assert!(late(&story).is_empty() && story.status().warnings.is_empty());
    story.wait(20);
    let told = late(&story);
    assert_eq!(told.len(), 1);
    assert!(told[0].event && told[0].level == Level::Warn, "{told:?}");
    assert!(
        told[0].text.contains("virt-handler") && told[0].text.contains("kvm"),
        "{told:?}"
    );
    assert!(story.status().restore.unwrap().late);
    assert!(
        story.status().warnings[0].contains("still cordoned"),
        "{:?}",
        story.status().warnings
    );
    story.wait(1800);
    assert_eq!(late(&story).len(), 3);
    story.handler_reports();
    story.assert_restored();
}

#[test]
fn an_api_server_that_is_away_is_waited_for() {
    for class in [
        FaultClass::Transient,
        FaultClass::Denied,
        FaultClass::Unauthorized,
    ] {
        let mut story = Story::rebooted();
        story.node_fault = Some(class);
        story.starts().wait(1000);
        assert_eq!(
            (story.phase(), story.uncordons),
            (Phase::Idle, 0),
            "{class:?}"
        );
        assert!(
            story.was_told("not known whether node n1 has to be given back"),
            "{class:?}"
        );
        assert!(story.status().warnings[0].contains("says no"), "{class:?}");
        story.node_fault = None;
        story.wait(20);
        assert_eq!(story.phase(), Phase::Restoring);
        // And away again at the moment of the patch.
        story.node_fault = Some(class);
        story.comes_up().wait(100);
        assert!(
            story.is_cordoned() && story.phase() == Phase::Restoring,
            "{class:?}"
        );
        story.node_fault = None;
        story.wait(20);
        assert_eq!(story.phase(), Phase::Idle);
        assert!(!story.node.unschedulable, "{class:?}");
    }
}

#[test]
fn a_watch_that_breaks_is_told_and_goes_on() {
    let mut story = Story::rebooted();
    story.starts();
    let mut picture = story.picture();
    picture.node = Sight::Broken {
        why: "connection refused".into(),
        since: Mono(story.now),
    };
    story.input(Input::Picture(Box::new(picture)));
    assert!(
        story
            .waits()
            .iter()
            .any(|wait| wait.contains("connection refused"))
    );
    story.comes_up();
    story.assert_restored();
}

#[test]
fn an_administrators_cordon_after_the_boot_is_not_undone() {
    // Uncordoned by somebody, seen: only the marker goes.
    let mut story = Story::rebooted();
    story.starts();
    story.change(|node, _| node.unschedulable = false);
    assert_eq!(
        (story.uncordons, story.unmarks, story.phase()),
        (0, 1, Phase::Idle)
    );
    story.change(|node, _| node.unschedulable = true);
    story.comes_up().starts().comes_up().wait(100);
    assert_eq!((story.uncordons, story.node.unschedulable), (0, true));

    // Uncordoned and cordoned again before our patch arrived: it is refused, and the cordon is known to be new.
    let mut story = Story::rebooted();
    story.starts();
    story.node_fault = Some(FaultClass::Conflict);
    story.change(|node, _| node.unschedulable = false);
    story.node_fault = None;
    story.change(|node, _| node.unschedulable = true);
    story.comes_up().wait(100);
    assert_eq!((story.uncordons, story.unmarks), (0, 2));
    assert!(story.node.unschedulable && story.node.cordon == CordonMark::Absent);

    // The marker taken away: whoever did it wants the cordon.
    let mut story = Story::rebooted();
    story.starts();
    story.change(|node, _| node.cordon = CordonMark::Absent);
    story.comes_up().wait(100);
    assert_eq!((story.phase(), story.uncordons), (Phase::Idle, 0));
    assert!(story.node.unschedulable && story.was_told("not ours and stays"));
}

#[test]
fn a_node_without_virt_handler_or_kvm_does_not_wait_for_them() {
    let mut story = Story::rebooted();
    story.note().handler = false;
    (story.node.heartbeat, story.node.schedulable, story.node.kvm) = (None, false, 0);
    story.starts().kubelet_reports();
    story.assert_restored();

    let mut story = Story::rebooted();
    story.note().kvm = false;
    story.starts().comes_up();
    story.node.kvm = 0;
    story.assert_restored();
}

#[test]
fn the_marker_says_what_the_node_had_and_takes_it_over_from_an_earlier_one() {
    let mut story = Story::full();
    story.node.heartbeat = Some(500);
    story.node.schedulable = true;
    story.trigger();
    assert_eq!(
        (story.note().handler, story.note().kvm),
        (true, false),
        "emulation"
    );
    let text = serde_json::to_string(story.note()).unwrap();
    assert_eq!(
        serde_json::from_str::<CordonNote>(&text).unwrap(),
        *story.note()
    );
    // A marker of an older version, and one of a newer.
    let old: CordonNote = serde_json::from_str(r#"{"drain":"d","boot":"b","reason":"r"}"#).unwrap();
    assert!(old.handler && old.kvm && !old.keep && old.userspace.is_unknown());
    let new = r#"{"drain":"d","boot":"b","reason":"r","userspace":{"moons":2},"colour":"red"}"#;
    assert_eq!(serde_json::from_str::<CordonNote>(new).unwrap(), old);

    let mut story = Story::rebooted();
    story.starts().kubelet_reports().handler_reports();
    story.assert_restored();
    let mut story = Story::rebooted();
    story.starts().kubelet_reports();
    story.shutdown();
    assert!(
        story.note().handler && story.note().kvm,
        "it is only coming up"
    );
}

/// Dies after each of its actions in turn; what was sent arrives or does not.
#[test]
fn a_crash_between_any_two_steps_has_no_second_effect() {
    for arrives in [true, false] {
        for die_after in 0..12 {
            let mut story = Story::rebooted();
            story.record = Some(Record {
                format: crate::drain::record::FORMAT,
                drain: "d1".into(),
                boot: BEFORE.into(),
                phase: "drained".into(),
                shutting_down: true,
                cordon_ours: true,
                ..Record::default()
            });
            story.node.boot_id = "boot".into();
            story.node.heartbeat = Some(500);
            story.machine = Machine::start(policy(), 5, story.record.clone(), Mono(story.now));
            story.machine.handle_timeout(Mono(story.now));
            story.dies_after(die_after, arrives);
            story.starts().show().wait(30);
            story.assert_restored();
        }
    }
}
