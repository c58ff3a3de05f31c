//! Pictures and answers, and the plan that is made of them.

use super::*;
use crate::drain::policy::OnDeadline;
use crate::drain::world::{
    Amount, Compute, KubeVirtView, PdbView, PodPhase, Requirement, Rule, Strategy, VmName, VmiPhase,
};

const GIB: u64 = 1 << 30;

fn pod(name: &str) -> PodView {
    PodView {
        pod: ObjectRef {
            namespace: "vms".into(),
            name: format!("virt-launcher-{name}"),
            uid: format!("pod-{name}"),
        },
        vm: VmName {
            namespace: "vms".into(),
            name: name.into(),
        },
        vmi_uid: format!("vmi-{name}"),
        phase: PodPhase::Running,
        compute: Compute::Running,
        memory: Some(8 * GIB),
        grace: Duration::from_secs(90),
        vmi_node_label: Some("n1".into()),
        ..PodView::default()
    }
}

fn vmi(name: &str, strategy: Strategy, migratable: bool) -> VmiView {
    VmiView {
        vmi: ObjectRef {
            namespace: "vms".into(),
            name: name.into(),
            uid: format!("vmi-{name}"),
        },
        phase: VmiPhase::Running,
        node: "n1".into(),
        live_migratable: Some(migratable),
        not_migratable: if migratable {
            String::new()
        } else {
            "HostDeviceNotLiveMigratable".into()
        },
        strategy: Some(strategy),
        memory: Some(8 * GIB),
        grace: Duration::from_secs(60),
        owner_kind: "VirtualMachine".into(),
        ..VmiView::default()
    }
}

fn seen<T>(value: T) -> Sight<T> {
    Sight::Seen {
        value,
        fresh: crate::drain::time::Mono::default(),
    }
}

fn full(vms: &[(&str, Strategy, bool)]) -> Survey {
    let mut survey = Survey::default();
    survey.picture.pods = seen(vms.iter().map(|(name, ..)| pod(name)).collect());
    survey.picture.vmis = seen(vms.iter().map(|(name, s, m)| vmi(name, *s, *m)).collect());
    survey.picture.pdbs = seen(Vec::new());
    survey.picture.kubevirt = seen(KubeVirtView::default());
    survey.nodes = seen(vec![room("n1"), room("n2")]);
    survey
}

fn base(names: &[&str]) -> Survey {
    let why = || "no right".to_owned();
    let mut survey = Survey::default();
    survey.picture.pods = seen(names.iter().map(|name| pod(name)).collect());
    survey.picture.vmis = Sight::Forbidden { why: why() };
    survey.picture.pdbs = Sight::Forbidden { why: why() };
    survey.picture.kubevirt = seen(KubeVirtView::default());
    survey.nodes = Sight::Forbidden { why: why() };
    survey
}

fn scene() -> Scene {
    let hold = HoldView {
        held: true,
        limit: Some(Duration::from_secs(2700)),
        ..HoldView::default()
    };
    Scene::at_rest(Policy::for_node("n1"), hold)
}

/// Nobody is shut down at the deadline.
fn holding() -> Scene {
    let mut scene = scene();
    scene.policy.on_deadline = OnDeadline::Hold;
    scene
}

fn answers<const N: usize>(all: [(&str, Answer); N]) -> Answers {
    all.into_iter()
        .map(|(name, answer)| (format!("pod-{name}"), Ok(answer)))
        .collect()
}

fn fates(plan: &Plan) -> Vec<(&str, &str)> {
    plan.vms
        .iter()
        .map(|vm| (vm.name.as_str(), vm.fate.as_str()))
        .collect()
}

fn room(name: &str) -> NodeRoom {
    NodeRoom {
        name: name.into(),
        ready: true,
        labels: [("kubevirt.io/schedulable".to_owned(), "true".to_owned())].into(),
        allocatable: [("memory".to_owned(), 64 * GIB), ("cpu".to_owned(), 16_000)].into(),
        ..NodeRoom::default()
    }
}

fn budget(name: &str, rule: Rule, pods: &[&str]) -> PdbView {
    PdbView {
        pdb: ObjectRef {
            namespace: "vms".into(),
            name: name.into(),
            uid: name.into(),
        },
        selects: pods.iter().map(|name| format!("pod-{name}")).collect(),
        rule,
        processed: true,
        ..PdbView::default()
    }
}

#[test]
fn the_full_tier_knows_without_asking() {
    let survey = full(&[
        ("a", Strategy::LiveMigrate, true),
        ("b", Strategy::LiveMigrate, false),
        ("c", Strategy::None, true),
        ("d", Strategy::External, true),
        ("e", Strategy::LiveMigrateIfPossible, false),
    ]);
    let plan = plan(&survey, &Answers::new(), &scene());
    let expected = [
        ("a", "migrates"),
        ("b", "shut_down"),
        ("c", "shut_down"),
        ("d", "external"),
        ("e", "shut_down"),
    ];
    assert_eq!(fates(&plan), expected);
    assert!(plan.vms.iter().all(|vm| vm.known_by == "picture"));
    let held = super::plan(&survey, &Answers::new(), &holding());
    assert_eq!(held.vms[1].fate, "blocked");
    assert!(held.vms[1].says.contains("HostDeviceNotLiveMigratable"));
    assert_eq!(plan.exit(), PLAN_EXIT);
    assert!(
        plan.says.starts_with("5 VM(s): 1 live-migrate"),
        "{}",
        plan.says
    );
    assert_eq!(plan.blind, Vec::<String>::new());
}

#[test]
fn the_base_tier_asks_and_believes_the_answers() {
    let survey = base(&["a", "b", "c", "d"]);
    assert_eq!(asks(&survey, "n1").len(), 4);
    let mut told = answers([
        ("a", Answer::Marked),
        ("b", Answer::NotMigratable),
        ("c", Answer::Granted),
    ]);
    told.insert("pod-d".into(), Err("no answer within 12.5 s".into()));
    let plan = plan(&survey, &told, &scene());
    let expected = [
        ("a", "migrates"),
        ("b", "shut_down"),
        ("c", "shut_down"),
        ("d", "unknown"),
    ];
    assert_eq!(fates(&plan), expected);
    assert!(plan.vms[3].says.contains("no answer within"));
    assert_eq!(
        (plan.vms[0].known_by.as_str(), plan.vms[3].known_by.as_str()),
        ("dry_run", "none")
    );
    assert!(plan.blind[0].contains("VMIs cannot be seen (no right)"));
    assert_eq!(plan.blind.len(), 3, "{:?}", plan.blind);
}

#[test]
fn exit_codes() {
    let safe = full(&[
        ("a", Strategy::LiveMigrate, true),
        ("d", Strategy::External, true),
    ]);
    assert_eq!(plan(&safe, &Answers::new(), &scene()).exit(), 0);
    assert_eq!(plan(&full(&[]), &Answers::new(), &scene()).exit(), 0);
    let blind = Survey::default();
    assert_eq!(plan(&blind, &Answers::new(), &scene()).exit(), 7);
}

#[test]
fn who_is_not_asked_about() {
    let mut survey = full(&[
        ("moved", Strategy::LiveMigrate, true),
        ("ended", Strategy::None, true),
        ("comes", Strategy::LiveMigrate, true),
        ("stays", Strategy::LiveMigrate, true),
    ]);
    if let Sight::Seen { value: vmis, .. } = &mut survey.picture.vmis {
        vmis[0].node = "n2".into();
        vmis[2].node = "n2".into();
        vmis[2].target_node_label = Some("n1".into());
    }
    if let Sight::Seen { value: pods, .. } = &mut survey.picture.pods {
        pods[1].compute = Compute::Terminated;
        pods[2].migration_job = Some("m".into());
        pods[2].vmi_node_label = Some("n2".into());
    }
    let asked: Vec<String> = asks(&survey, "n1").into_iter().map(|pod| pod.uid).collect();
    assert_eq!(asked, ["pod-stays"]);
    let plan = plan(&survey, &Answers::new(), &scene());
    assert_eq!(fates(&plan), [("comes", "unknown"), ("stays", "migrates")]);
    assert!(plan.vms[0].says.contains("arrives"));
}

#[test]
fn consent_and_starting_vms() {
    let mut survey = full(&[
        ("a", Strategy::None, true),
        ("b", Strategy::LiveMigrate, false),
    ]);
    let mut never = scene();
    never.policy.consent = Consent::Never;
    assert_eq!(
        plan(&survey, &Answers::new(), &never).vms[0].fate,
        "blocked"
    );
    if let Sight::Seen { value: vmis, .. } = &mut survey.picture.vmis {
        vmis[1].phase = VmiPhase::Starting;
        vmis[1].live_migratable = None;
    }
    let told = answers([("b", Answer::NotMigratable)]);
    let plan = plan(&survey, &told, &scene());
    assert_eq!(plan.vms[1].fate, "unknown");
    assert!(plan.vms[1].says.contains("still starting"));
}

#[test]
fn budgets_are_found_before_anything_is_stuck() {
    let mut survey = full(&[
        ("legacy", Strategy::None, true),
        ("web", Strategy::LiveMigrate, true),
    ]);
    let mut broken = budget(
        "all",
        Rule::MaxUnavailable(Amount::Number(1)),
        &["legacy", "web"],
    );
    broken.sync_failed = Some("no scale".into());
    survey.picture.pdbs = seen(vec![broken.clone()]);
    survey.covered.insert("vms/all".into(), 4);
    let says = "The disruption budget all is still being processed by the server.";
    let refused = Answer::Budget {
        name: "all".into(),
        says: says.into(),
    };
    for told in [answers([("legacy", refused)]), Answers::new()] {
        let plan = plan(&survey, &told, &scene());
        assert_eq!(fates(&plan), [("legacy", "blocked"), ("web", "migrates")]);
        assert!(
            plan.vms[0].says.contains("can never allow it"),
            "{}",
            plan.vms[0].says
        );
        let budget = &plan.budgets[0];
        assert_eq!(budget.class, "never_satisfiable");
        assert_eq!(
            budget.stops,
            ["vms/legacy"],
            "it plays no part in a migration"
        );
        let cure = budget.cure.as_ref().unwrap();
        assert_eq!(cure.min_available, 3);
        assert!(cure.manifest.contains("minAvailable: 3"));
        assert!(budget.is_fault());
    }
    // Two over one pod.
    let second = budget("second", Rule::MinAvailable(Amount::Number(0)), &["legacy"]);
    survey.picture.pdbs = seen(vec![broken, second]);
    let plan = plan(
        &survey,
        &answers([("legacy", Answer::SeveralBudgets)]),
        &scene(),
    );
    assert!(
        plan.vms[0].says.contains("two PDBs: all, second"),
        "{}",
        plan.vms[0].says
    );
    assert_eq!(plan.budgets[1].with, ["all"]);
}

#[test]
fn need_against_limit() {
    let survey = full(&[
        ("a", Strategy::LiveMigrate, true),
        ("b", Strategy::LiveMigrate, false),
    ]);
    let at = |scene: &Scene| plan(&survey, &Answers::new(), scene).time;
    let time = at(&holding());
    assert_eq!(
        (time.fits.as_str(), time.grace, time.unknown),
        ("yes", 60.0, 1)
    );
    assert_eq!(time.limit, Some(2670.0));
    let mut short = holding();
    short.hold.limit = Some(Duration::from_secs(30));
    assert_eq!(at(&short).fits, "no");
    short.hold.held = false;
    assert_eq!(
        (at(&short).limit, at(&short).fits.as_str()),
        (Some(0.0), "no")
    );
    short.left = Some(Duration::from_secs(85));
    assert_eq!(at(&short).fits, "tight");
    let unknown = Scene {
        hold: HoldView::default(),
        ..holding()
    };
    assert_eq!(at(&unknown).fits, "unknown");
    let plan = plan(&survey, &Answers::new(), &holding());
    assert!(plan.vms[0].eta.is_some() && plan.vms[1].eta.is_none());
}

/// A word of the hint, and what makes a node say it.
type Case<'a> = (&'a str, &'a dyn Fn(&mut NodeRoom));

#[test]
fn where_no_other_node_fits() {
    let needs = Needs {
        selector: [("kubevirt.io/schedulable".to_owned(), "true".to_owned())].into(),
        requests: [("memory".to_owned(), 8 * GIB)].into(),
        ..Needs::default()
    };
    let nodes = |change: &dyn Fn(&mut NodeRoom)| {
        let mut other = room("n2");
        change(&mut other);
        [room("n1"), other]
    };
    let says = |needs: &Needs, change: &dyn Fn(&mut NodeRoom)| {
        hint(needs, &nodes(change), "n1").unwrap_or_default()
    };
    assert_eq!(hint(&needs, &nodes(&|_| {}), "n1"), None);
    assert_eq!(
        says(&Needs::default(), &|n| n.name = "n1".into()),
        "there is no other node"
    );
    let table: [Case<'_>; 5] = [
        ("are not Ready", &|n| n.ready = false),
        ("are cordoned", &|n| n.unschedulable = true),
        ("too little memory", &|n| n.allocatable.clear()),
        ("no virt-handler", &|n| n.labels.clear()),
        ("have the taint gpu", &|n| {
            n.taints = vec![("gpu".into(), String::new(), "NoSchedule".into())];
        }),
    ];
    for (part, change) in table {
        let text = says(&needs, change);
        assert!(text.contains(part) && text.contains("1 of 1"), "{text}");
    }
    let with = |change: &dyn Fn(&mut Needs)| {
        let mut needs = needs.clone();
        change(&mut needs);
        says(&needs, &|_| {})
    };
    let label = |key: &'static str| {
        move |needs: &mut Needs| {
            needs.selector.insert(key.into(), "true".into());
        }
    };
    assert!(with(&label("cpumanager")).contains("dedicated CPUs"));
    assert!(with(&label("cpu-model.node.kubevirt.io/Zen5")).contains("CPU model Zen5"));
    assert!(with(&label("zone")).contains("label zone=true"));
    let huge = |needs: &mut Needs| {
        needs.requests.insert("hugepages-1Gi".into(), GIB);
    };
    assert!(with(&huge).contains("too few hugepages-1Gi"));
    let affinity = |operator: &'static str| {
        move |needs: &mut Needs| {
            needs.affinity = vec![vec![Requirement {
                key: "kubevirt.io/schedulable".into(),
                operator: operator.into(),
                values: vec!["true".into()],
            }]];
        }
    };
    assert!(with(&affinity("NotIn")).contains("node affinity"));
    assert_eq!(with(&affinity("In")), "");
    assert_eq!(with(&affinity("SomethingNew")), "");
    let tolerant = Needs {
        tolerations: vec![Toleration {
            exists: true,
            ..Toleration::default()
        }],
        ..needs.clone()
    };
    let tainted: &dyn Fn(&mut NodeRoom) = &|n| {
        n.taints = vec![("gpu".into(), String::new(), "NoSchedule".into())];
    };
    assert_eq!(says(&tolerant, tainted), "");
    let mut survey = full(&[("a", Strategy::LiveMigrate, true)]);
    survey.needs.insert("pod-a".into(), needs);
    survey.nodes = seen(vec![room("n1")]);
    let plan = plan(&survey, &Answers::new(), &scene());
    assert_eq!(plan.vms[0].hints, ["there is no other node"]);
}

#[test]
fn owners_and_policies_decide() {
    use crate::drain::world::{RunStrategy, VmView};
    let mut survey = full(&[
        ("always", Strategy::None, true),
        ("manual", Strategy::None, true),
        ("stays", Strategy::LiveMigrate, true),
    ]);
    let vm = |name: &str, run| VmView {
        vm: VmName {
            namespace: "vms".into(),
            name: name.into(),
        },
        run: Some(run),
        ..VmView::default()
    };
    survey.picture.vms = seen(vec![
        vm("always", RunStrategy::Always),
        vm("manual", RunStrategy::Manual),
        VmView {
            policy: Some("leave".into()),
            ..vm("stays", RunStrategy::Always)
        },
    ]);
    let plan = plan(&survey, &Answers::new(), &scene());
    let expected = [
        ("always", "restarted_elsewhere"),
        ("manual", "shut_down"),
        ("stays", "left"),
    ];
    assert_eq!(fates(&plan), expected);
    assert_eq!(plan.vms[0].owner, "VirtualMachine (Always)");
    assert_eq!(plan.vms[2].policy, "leave");
    assert!(plan.vms[2].policy_from.contains("annotation"));
}

#[test]
fn what_this_host_would_do_alone_is_said() {
    let survey = full(&[("a", Strategy::LiveMigrate, true)]);
    let has = |scene: &Scene, words: &str| {
        let said = plan(&survey, &Answers::new(), scene).unreachable;
        assert!(said.contains(words), "{said}");
    };
    has(
        &scene(),
        "not reached for 2m 0s, the guests that are left of 1 VM(s) are told",
    );
    // A host that goes down is not held.
    has(&holding(), "are told on this host itself");
    let mut short = scene();
    short.left = Some(Duration::from_secs(120));
    has(&short, "is not reached for 30s");
    let mut never = scene();
    never.policy.consent = Consent::Never;
    has(
        &never,
        "no guest is shut down (drain.allow_guest_shutdown is",
    );
    let mut proceed = scene();
    proceed.policy.on_deadline = OnDeadline::Proceed;
    has(&proceed, "no guest is shut down (on_deadline is");
    let nobody = plan(&full(&[]), &Answers::new(), &scene());
    assert_eq!(nobody.unreachable, "");
}

#[test]
fn a_dead_virt_handler_is_in_the_plan() {
    use crate::drain::time::Mono;
    use crate::drain::world::NodeView;
    let mut survey = full(&[
        ("a", Strategy::LiveMigrate, true),
        ("b", Strategy::None, true),
    ]);
    let answers = answers([("a", Answer::Marked), ("b", Answer::Granted)]);
    let reported = |ago: i64| Sight::Seen {
        value: NodeView {
            heartbeat: Some(3_600_000 - ago * 1000),
            schedulable: true,
            ..NodeView::default()
        },
        fresh: Mono(3_600_000),
    };
    survey.picture.node = reported(130);
    let well = plan(&survey, &answers, &scene());
    assert_eq!(fates(&well), [("a", "migrates"), ("b", "shut_down")]);
    assert!(well.vms.iter().all(|vm| vm.hints.is_empty()));

    survey.picture.node = reported(600);
    let dead = plan(&survey, &answers, &scene());
    assert_eq!(fates(&dead), [("a", "migrates"), ("b", "blocked")]);
    assert!(
        dead.vms[0].hints[0].starts_with(HANDLER_HINT),
        "{:?}",
        dead.vms[0]
    );
    assert!(
        dead.vms[1].says.contains("virt-handler"),
        "{}",
        dead.vms[1].says
    );
}

#[test]
fn a_guest_that_has_to_be_told_before_it_could_move_is_shut_down() {
    let mut survey = full(&[
        ("long", Strategy::LiveMigrate, true),
        ("web", Strategy::LiveMigrate, true),
    ]);
    if let Sight::Seen { value: vmis, .. } = &mut survey.picture.vmis {
        vmis[0].grace = Duration::from_secs(350);
    }
    let mut short = scene();
    short.hold.limit = Some(Duration::from_secs(360));
    let found = plan(&survey, &Answers::new(), &short);
    assert_eq!(fates(&found), [("long", "shut_down"), ("web", "migrates")]);
    assert!(found.vms[0].says.contains("no time for its migration"));
    assert_eq!((found.exit(), found.time.fits.as_str()), (PLAN_EXIT, "no"));
    assert!(found.time.says.contains("1 VM(s)"), "{}", found.time.says);
    // Nobody is shut down for that.
    short.policy.on_deadline = OnDeadline::Hold;
    let held = plan(&survey, &Answers::new(), &short);
    assert_eq!((fates(&held)[0].1, held.exit()), ("migrates", 0));
}
