//! Which pods go, which stay, whose turn comes first.

use super::*;
use crate::drain::world::{ObjectRef, PodPhase};

fn pod(name: &str, owner: Option<&str>) -> OtherPod {
    OtherPod {
        pod: ObjectRef {
            namespace: "shop".into(),
            name: name.into(),
            uid: format!("{name}-uid"),
        },
        owner: owner.map(|kind| (kind.to_owned(), "web".to_owned())),
        phase: PodPhase::Running,
        ..OtherPod::default()
    }
}

fn allowed(empty_dir: bool, unmanaged: bool) -> Rules {
    Rules {
        empty_dir,
        unmanaged,
        ..Rules::default()
    }
}

#[test]
fn what_goes_and_what_stays() {
    let strict = allowed(false, false);
    let managed = pod("a", Some("ReplicaSet"));
    assert_eq!(stance(&managed, &strict), Stance::Goes);
    let stays = |change: fn(&mut OtherPod)| {
        let mut pod = pod("a", Some("ReplicaSet"));
        change(&mut pod);
        stance(&pod, &allowed(true, true))
    };
    assert_eq!(stays(|p| p.mirror = true), Stance::Stays(Stay::Mirror));
    assert_eq!(
        stays(|p| p.owner = Some(("DaemonSet".into(), "cni".into()))),
        Stance::Stays(Stay::Daemon)
    );
    for phase in [PodPhase::Succeeded, PodPhase::Failed] {
        let mut over = pod("a", None);
        over.phase = phase;
        over.empty_dir = true;
        assert_eq!(stance(&over, &strict), Stance::Stays(Stay::Finished));
    }
    let unreadable = stays(|p| p.unreadable = "spec.volumes: no list".into());
    assert!(matches!(unreadable, Stance::Blocked(Block::Unreadable(_))));
    // Whoever deletes it has decided that already.
    assert_eq!(
        stays(|p| {
            p.unreadable = "x".into();
            p.deleting = true;
        }),
        Stance::Goes
    );
}

#[test]
fn data_and_orphans_need_consent_each_their_own() {
    let mut both = pod("a", None);
    both.empty_dir = true;
    let mut data = pod("b", Some("StatefulSet"));
    data.empty_dir = true;
    let orphan = pod("c", None);
    let table = [
        (&both, false, false, Stance::Blocked(Block::Both)),
        (&both, true, false, Stance::Blocked(Block::Unmanaged)),
        (&both, false, true, Stance::Blocked(Block::EmptyDir)),
        (&both, true, true, Stance::Goes),
        (&data, false, true, Stance::Blocked(Block::EmptyDir)),
        (&data, true, false, Stance::Goes),
        (&orphan, true, false, Stance::Blocked(Block::Unmanaged)),
        (&orphan, false, true, Stance::Goes),
    ];
    for (pod, empty_dir, unmanaged, wanted) in table {
        let found = stance(pod, &allowed(empty_dir, unmanaged));
        assert_eq!(found, wanted, "{} {empty_dir} {unmanaged}", pod.pod.name);
        if let Stance::Blocked(why) = found {
            assert!(why.to_string().contains("drain.allow_"), "{why}");
        }
    }
}

#[test]
fn skip_keeps_a_pod_out() {
    let mut rules = allowed(true, true);
    rules.skip = vec![Selector::try_from("pinned".to_owned()).expect("a selector")];
    let mut pinned = pod("a", Some("ReplicaSet"));
    assert_eq!(stance(&pinned, &rules), Stance::Goes);
    pinned.labels.insert("pinned".into(), String::new());
    assert_eq!(stance(&pinned, &rules), Stance::Stays(Stay::Skipped));
}

#[test]
fn kubevirt_goes_last_whatever_the_rules_say() {
    let mut rules = allowed(true, true);
    let glob = |text: &str| Some(Glob(text.to_owned()));
    rules.order = vec![
        Turn {
            name: glob("db-*"),
            priority: 10,
            ..Turn::default()
        },
        Turn {
            namespace: glob("shop"),
            priority: -5,
            ..Turn::default()
        },
    ];
    let mut virt = pod("virt-api-1", Some("ReplicaSet"));
    virt.component = "virt-api".into();
    let mut other = pod("x", Some("ReplicaSet"));
    other.pod.namespace = "elsewhere".into();
    let (db, web) = (
        pod("db-0", Some("StatefulSet")),
        pod("web", Some("ReplicaSet")),
    );
    let mut all = [&virt, &db, &other, &web];
    all.sort_by_key(|pod| group(pod, &rules));
    let names: Vec<&str> = all.iter().map(|pod| pod.pod.name.as_str()).collect();
    assert_eq!(names, ["web", "x", "db-0", "virt-api-1"]);
}

#[test]
fn within_a_group_the_less_important_first() {
    let mut important = pod("a", Some("ReplicaSet"));
    important.priority = 1000;
    let plain = pod("b", Some("ReplicaSet"));
    assert!(turn(&plain) < turn(&important));
}

#[test]
fn a_plan_says_what_is_lost() {
    let says =
        |pod: &OtherPod, rules: &Rules| sentence(pod, &stance(pod, rules), group(pod, rules));
    let rules = allowed(true, true);
    let mut data = pod("a", Some("ReplicaSet"));
    data.empty_dir = true;
    assert!(says(&data, &rules).contains("its emptyDir data is lost"));
    assert!(says(&pod("a", None), &rules).contains("gone for good"));
    assert!(says(&pod("a", None), &Rules::default()).starts_with("stays: no controller"));
}
