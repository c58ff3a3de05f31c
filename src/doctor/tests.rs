//! A healthy host, and everything that can be wrong with one.

use super::*;
use crate::drain::action::Holder;
use crate::drain::plan::{Plan, PlanBudget, PlanCure, PlanTime, PlanVm};
use crate::drain::world::{CordonMark, KubeVirtView, NodeView, Sight};
use std::time::Duration;

fn unit() -> UnitState {
    UnitState {
        active: "active".into(),
        file: "enabled".into(),
        ..UnitState::default()
    }
}

fn healthy() -> Facts {
    let half_an_hour = Some(Duration::from_secs(1800));
    Facts {
        root: true,
        daemon: Ok(("0.1.0".into(), "idle".into())),
        logind: Ok(LogindFacts {
            limit: Duration::from_secs(2700),
            limit_by: "/usr/lib/x/zz-vmdrain-agent.conf".into(),
            held: true,
            ..LogindFacts::default()
        }),
        units: Ok(UnitFacts {
            agent: unit(),
            hold: unit(),
            stop_limit: Some(Duration::from_secs(28 * 60)),
            job_limits: [("poweroff.target".to_owned(), half_an_hour)].into(),
            scopes: vec![Scope {
                name: "cri-containerd-a.scope".into(),
                after_hold: true,
            }],
        }),
        machine_id: "abc".into(),
        cluster: ClusterFacts {
            node_name: "n1".into(),
            node: Some(Ok(NodeView {
                name: "n1".into(),
                ready: true,
                machine_id: "abc".into(),
                ..NodeView::default()
            })),
            rights: vec![right("create pods/eviction", true, Ok(true))],
            kubevirt: Sight::Seen {
                value: KubeVirtView {
                    version: Some((1, 7)),
                    ..KubeVirtView::default()
                },
                fresh: crate::drain::time::Mono::default(),
            },
            plan: Some(Plan {
                seen: true,
                says: "no VM runs on this node".into(),
                time: PlanTime {
                    fits: "yes".into(),
                    ..PlanTime::default()
                },
                ..Plan::default()
            }),
            others: Some((2, 2)),
            ..ClusterFacts::default()
        },
        ..Facts::default()
    }
}

fn right(what: &str, vital: bool, allowed: Result<bool, String>) -> Right {
    Right {
        what: what.into(),
        costs: "something".into(),
        manifest: if vital {
            String::new()
        } else {
            "rbac/cancel.yaml".into()
        },
        vital,
        allowed,
    }
}

fn with(change: impl FnOnce(&mut Facts)) -> Report {
    let mut facts = healthy();
    change(&mut facts);
    judge(&facts)
}

/// The worst finding of a check.
fn worst<'a>(report: &'a Report, check: &str) -> &'a Finding {
    let of_it = report.findings.iter().filter(|f| f.check == check);
    of_it
        .max_by_key(|finding| finding.grade)
        .unwrap_or_else(|| panic!("no finding {check}: {report:#?}"))
}

#[track_caller]
fn finds(check: &str, grade: Grade, part: &str, change: impl FnOnce(&mut Facts)) {
    let report = with(change);
    let finding = worst(&report, check);
    assert_eq!(finding.grade, grade, "{finding:?}");
    let text = format!("{} {}", finding.says, finding.cure);
    assert!(text.contains(part), "{part}: {text}");
}

fn logind(facts: &mut Facts) -> &mut LogindFacts {
    facts.logind.as_mut().unwrap()
}

fn units(facts: &mut Facts) -> &mut UnitFacts {
    facts.units.as_mut().unwrap()
}

fn plan(facts: &mut Facts) -> &mut Plan {
    facts.cluster.plan.as_mut().unwrap()
}

fn node(facts: &mut Facts) -> &mut NodeView {
    facts.cluster.node.as_mut().unwrap().as_mut().unwrap()
}

#[test]
fn a_healthy_host_has_nothing_to_cure() {
    let report = judge(&healthy());
    assert_eq!(report.exit(), 0, "{report:#?}");
    assert!(report.findings.iter().all(|f| f.grade <= Grade::Note));
    assert!(report.findings.len() > 10);
}

#[test]
fn nothing_seen_is_not_health() {
    let report = judge(&Facts::default());
    assert_eq!(report.exit(), 12, "no daemon");
    assert!(report.unknown >= 2, "{report:#?}");
}

#[test]
fn exit_codes() {
    let code = |grades: &[Grade]| {
        let count = |grade| grades.iter().filter(|g| **g == grade).count();
        Report {
            warnings: count(Grade::Warning),
            failures: count(Grade::Failure),
            unknown: count(Grade::Unknown),
            ..Report::default()
        }
        .exit()
    };
    assert_eq!(code(&[]), 0);
    assert_eq!(code(&[Grade::Warning]), 11);
    assert_eq!(code(&[Grade::Unknown]), 11);
    assert_eq!(code(&[Grade::Warning, Grade::Failure]), 12);
}

#[test]
fn the_host() {
    use Grade::{Failure, Note, Unknown, Warning};
    let holder = |who: &str, mode: &str| Holder {
        who: who.into(),
        mode: mode.into(),
        ..Holder::default()
    };
    finds("agent", Failure, "does not answer", |f| {
        f.daemon = Err("x".into());
    });
    finds("config", Failure, "config check", |f| {
        f.config = Err("unknown key".into());
    });
    finds("config.consent", Note, "never", |f| {
        f.guests_never_stopped = true;
    });
    finds("logind", Unknown, "cannot be asked", |f| {
        f.logind = Err("x".into());
    });
    finds("logind.limit", Failure, "zz-vmdrain-agent.conf", |f| {
        logind(f).trouble = "InhibitDelayMaxSec is 5 s".into();
    });
    finds("logind.lock", Failure, "would not wait", |f| {
        logind(f).held = false;
    });
    finds("kubelet.race", Failure, "shutdownGracePeriod", |f| {
        logind(f).others = vec![holder("kubelet", "delay")];
    });
    finds("logind.others", Warning, "powers every guest off", |f| {
        logind(f).others = vec![holder("vm-shutdown-hook", "delay")];
    });
    finds("logind.others", Note, "forbids", |f| {
        logind(f).others = vec![holder("fwupd", "block")];
    });
    finds("logind.others", Note, "unattended", |f| {
        logind(f).others = vec![holder("unattended-upgrades", "delay")];
    });
}

#[test]
fn the_units() {
    use Grade::{Failure, Note, Unknown, Warning};
    finds("units", Unknown, "PID 1", |f| f.units = Err("x".into()));
    finds("units.hold", Failure, "enable --now", |f| {
        units(f).hold.active = "inactive".into();
    });
    finds("units.hold", Failure, "no unit", |f| {
        units(f).hold = UnitState::default();
    });
    finds("units.agent", Warning, "next boot", |f| {
        units(f).agent.file = "disabled".into();
    });
    finds("units.agent", Warning, "daemon-reload", |f| {
        units(f).agent.needs_reload = true;
    });
    finds("units.job_timeout", Warning, "poweroff.target", |f| {
        units(f).stop_limit = Some(Duration::from_secs(3600));
    });
    finds("units.job_timeout", Note, "no time limit", |f| {
        units(f).stop_limit = None;
    });
    finds("units.containers", Failure, "1 of 2 running", |f| {
        units(f).scopes.push(Scope {
            name: "cri-containerd-b.scope".into(),
            after_hold: false,
        });
    });
    finds("units.containers", Note, "cgroupfs", |f| {
        units(f).scopes.clear();
    });
}

#[test]
fn the_cluster() {
    use Grade::{Failure, Note, Unknown, Warning};
    finds("cluster.credentials", Failure, "no kubeconfig", |f| {
        f.cluster.unconnected = "no kubeconfig was found".into();
    });
    finds("cluster.credentials", Unknown, "as root", |f| {
        f.cluster.unconnected = "permission denied".into();
        f.root = false;
    });
    finds("cluster.node", Failure, "refused", |f| {
        f.cluster.node = Some(Err("connection refused".into()));
    });
    finds("cluster.identity", Failure, "another machine", |f| {
        node(f).machine_id = "xyz".into();
    });
    finds("cluster.identity", Unknown, "as root", |f| {
        f.machine_id.clear();
    });
    finds("cluster.node", Warning, "not Ready", |f| {
        node(f).ready = false;
    });
    finds("cluster.cordon", Note, "somebody else", |f| {
        node(f).unschedulable = true;
    });
    finds("cluster.cordon", Warning, "vmdrain.io/cordon-", |f| {
        node(f).cordon = CordonMark::Damaged("x".into());
    });
    finds(
        "cluster.rights",
        Failure,
        "may not create pods/eviction",
        |f| {
            f.cluster.rights = vec![right("create pods/eviction", true, Ok(false))];
        },
    );
    finds("cluster.rights", Note, "rbac/cancel.yaml", |f| {
        f.cluster
            .rights
            .push(right("update evacuate", false, Ok(false)));
    });
    finds("cluster.rights", Unknown, "no answer", |f| {
        f.cluster
            .rights
            .push(right("x", false, Err("no answer".into())));
    });
    finds("cluster.sight", Warning, "rbac", |f| {
        plan(f).blind = vec!["VMIs cannot be seen".into()];
    });
    finds("cluster.sight", Note, "other nodes", |f| {
        plan(f).blind = vec!["other nodes cannot be seen".into()];
    });
    finds("kubevirt", Failure, "not installed", |f| {
        f.cluster.kubevirt = Sight::Missing;
    });
    finds("kubevirt", Unknown, "no right", |f| {
        f.cluster.kubevirt = Sight::Forbidden {
            why: "no right".into(),
        };
    });
    finds("room", Warning, "uncordon", |f| {
        f.cluster.others = Some((0, 3));
    });
}

#[test]
fn kubevirts_settings() {
    let set = |change: &dyn Fn(&mut KubeVirtView)| {
        let mut facts = healthy();
        if let Sight::Seen { value, .. } = &mut facts.cluster.kubevirt {
            change(value);
        }
        judge(&facts)
    };
    let taint = set(&|k| k.drain_taint_key = "node.kubernetes.io/unschedulable".into());
    assert_eq!(worst(&taint, "kubevirt.drain_taint").grade, Grade::Warning);
    let old = set(&|k| k.version = Some((1, 6)));
    assert_eq!(worst(&old, "kubevirt").grade, Grade::Note);
    assert!(worst(&old, "kubevirt").says.contains("before 1.7"));
}

#[test]
fn vms_budgets_and_time() {
    use Grade::{Failure, Unknown, Warning};
    let vm = |fate: &str| PlanVm {
        name: "db".into(),
        fate: fate.into(),
        hints: vec!["no other node seems to fit".into()],
        ..PlanVm::default()
    };
    finds("vms", Warning, "would not leave", |f| {
        plan(f).vms = vec![vm("blocked")];
    });
    finds("vms", Warning, "runStrategy Always", |f| {
        plan(f).vms = vec![vm("shut_down")];
    });
    finds("vms", Unknown, "answers", |f| plan(f).seen = false);
    finds("room", Warning, "no other node", |f| {
        plan(f).vms = vec![vm("migrates")];
    });
    let budget = |class: &str| PlanBudget {
        name: "web".into(),
        class: class.into(),
        stops: vec!["vms/db".into()],
        ..PlanBudget::default()
    };
    finds("budgets", Warning, "instead of", |f| {
        let mut broken = budget("never_satisfiable");
        broken.cure = Some(PlanCure {
            min_available: 3,
            ..PlanCure::default()
        });
        plan(f).budgets = vec![broken];
    });
    finds("budgets", Warning, "add a VM", |f| {
        plan(f).budgets = vec![budget("no_room")];
    });
    finds("budgets", Warning, "heal", |f| {
        plan(f).budgets = vec![budget("unhealthy_peers")];
    });
    finds("budgets", Warning, "remove one of", |f| {
        let mut two = budget("allows");
        two.with = vec!["other".into()];
        plan(f).budgets = vec![two];
    });
    let waits = with(|f| plan(f).budgets = vec![budget("waits_for_peers")]);
    assert_eq!(
        worst(&waits, "budgets").grade,
        Grade::Ok,
        "it clears by itself"
    );
    for (fits, grade) in [("tight", Warning), ("no", Failure), ("unknown", Unknown)] {
        finds("time", grade, "", |f| plan(f).time.fits = fits.into());
    }
}

/// Everything that is not good has a cure and a page that exists, with that heading.
#[test]
fn every_finding_has_its_cure_and_its_page() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut sick = healthy();
    sick.daemon = Err("x".into());
    sick.config = Err("x".into());
    sick.guests_never_stopped = true;
    logind(&mut sick).held = false;
    logind(&mut sick).trouble = "x".into();
    logind(&mut sick).others = ["kubelet", "vm-shutdown-hook", "x"]
        .map(|who| Holder {
            who: who.into(),
            mode: "delay".into(),
            ..Holder::default()
        })
        .into();
    units(&mut sick).hold.active = "inactive".into();
    units(&mut sick).scopes[0].after_hold = false;
    units(&mut sick).stop_limit = Some(Duration::from_secs(9999));
    node(&mut sick).machine_id = "other".into();
    node(&mut sick).unschedulable = true;
    sick.cluster.rights = vec![right("x", true, Ok(false))];
    sick.cluster.others = Some((0, 1));
    plan(&mut sick).blind = vec!["VMIs".into()];
    plan(&mut sick).vms = vec![PlanVm {
        fate: "blocked".into(),
        ..PlanVm::default()
    }];
    plan(&mut sick).time.fits = "no".into();
    plan(&mut sick).budgets = vec![PlanBudget {
        class: "never_satisfiable".into(),
        ..PlanBudget::default()
    }];
    if let Sight::Seen { value, .. } = &mut sick.cluster.kubevirt {
        value.drain_taint_key = "node.kubernetes.io/unschedulable".into();
    }
    let mut blind = healthy();
    blind.logind = Err("x".into());
    blind.units = Err("x".into());
    blind.cluster.unconnected = "x".into();
    let mut seen = 0;
    for finding in judge(&sick)
        .findings
        .into_iter()
        .chain(judge(&blind).findings)
    {
        let bad = finding.grade >= Grade::Unknown;
        assert!(!bad || !finding.cure.is_empty(), "{finding:?}");
        if finding.grade == Grade::Ok {
            continue;
        }
        seen += 1;
        let (page, heading) = finding.page.split_once('#').unwrap_or((&finding.page, ""));
        let text =
            std::fs::read_to_string(folder.join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        let anchor = |line: &str| -> String {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = words
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        };
        let found = text
            .lines()
            .any(|line| line.starts_with('#') && anchor(line) == heading);
        assert!(
            heading.is_empty() || found,
            "{page} has no heading #{heading}"
        );
    }
    assert!(seen > 15, "{seen}");
}

#[test]
fn a_virt_handler_that_is_not_known_to_be_alive() {
    use crate::drain::stop::HandlerDoubt;
    let silent = HandlerDoubt::Silent {
        since: Duration::from_secs(600),
    };
    let found = |doubt: Option<Result<(), HandlerDoubt>>, vms: usize| {
        let report = with(|f| {
            f.cluster.handler = doubt;
            if let Some(plan) = &mut f.cluster.plan {
                plan.vms = vec![PlanVm::default(); vms];
            }
        });
        let finding = report
            .findings
            .iter()
            .find(|f| f.check == "kubevirt.handler");
        finding.map(|f| (f.grade, f.cure.contains("spec.nodeName=n1"), f.page.clone()))
    };
    let page = "operating.md#without-virt-handler".to_owned();
    assert_eq!(found(None, 1), None);
    assert_eq!(
        found(Some(Ok(())), 1),
        Some((Grade::Ok, false, String::new()))
    );
    for doubt in [
        silent,
        HandlerDoubt::NotSchedulable,
        HandlerDoubt::NeverReported,
    ] {
        let expected = Some((Grade::Failure, true, page.clone()));
        assert_eq!(found(Some(Err(doubt)), 1), expected, "{doubt:?}");
    }
    // A host that never took a VM.
    let never = Some(Err(HandlerDoubt::NeverReported));
    assert_eq!(found(never, 0), Some((Grade::Note, false, page)));
}

#[test]
fn the_hint_about_virt_handler_is_no_hint_about_room() {
    let hints = |all: &[&str]| {
        let report = with(|f| {
            if let Some(plan) = &mut f.cluster.plan {
                plan.vms = vec![PlanVm {
                    hints: all.iter().map(|&hint| hint.into()).collect(),
                    ..PlanVm::default()
                }];
            }
        });
        let of_room = report.findings.iter().filter(|f| f.check == "room");
        of_room.filter(|f| f.grade == Grade::Warning).count()
    };
    let of_handler = format!("{}: x", crate::drain::plan::HANDLER_HINT);
    assert_eq!(hints(&[&of_handler]), 0);
    assert_eq!(hints(&[&of_handler, "no other node fits"]), 1);
}
