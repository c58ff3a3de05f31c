//! Does `docs/status.schema.json` describe what `status -o json` prints? Both ways: what is printed
//! fits, and nothing is described that is not printed.

use super::tests::{drain, vm};
use crate::doctor::{Finding, Grade, Report};
use crate::drain::eta::Span;
use crate::drain::phase::Phase;
use crate::drain::plan::{Plan, PlanBudget, PlanCure, PlanPod, PlanVm};
use crate::drain::status::{
    DrainStatus, HolderStatus, MaintenanceStatus, MalformedStatus, PodState, PodStatus,
    RestoreStatus, ScheduledStatus, Status, VmPhase,
};
use crate::drain::trigger::Then;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../docs/status.schema.json")).expect("JSON")
}

/// The part of JSON Schema that the file uses; a keyword beyond it is an error.
fn check(root: &Value, rule: &Value, value: &Value, at: &str) -> Result<(), String> {
    let wrong = |what: String| Err(format!("{at}: {what}"));
    for (keyword, wanted) in rule.as_object().expect("a rule is an object") {
        match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" => {}
            "$ref" => {
                let place = wanted.as_str().expect("a place").trim_start_matches('#');
                check(root, root.pointer(place).expect("it exists"), value, at)?;
            }
            "type" => {
                let list = wanted
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![wanted.clone()]);
                if !list
                    .iter()
                    .any(|t| has_type(value, t.as_str().expect("a word")))
                {
                    return wrong(format!("{value} is not of type {wanted}"));
                }
            }
            "enum" => {
                if !wanted.as_array().expect("a list").contains(value) {
                    return wrong(format!("{value} is not one of {wanted}"));
                }
            }
            "anyOf" => {
                let rules = wanted.as_array().expect("a list");
                if !rules
                    .iter()
                    .any(|rule| check(root, rule, value, at).is_ok())
                {
                    return wrong(format!("{value} fits none of {wanted}"));
                }
            }
            "required" => {
                for key in wanted.as_array().expect("a list") {
                    if value.get(key.as_str().expect("a key")).is_none() {
                        return wrong(format!("{key} is missing"));
                    }
                }
            }
            "properties" => {
                for (key, rule) in wanted.as_object().expect("an object") {
                    if let Some(value) = value.get(key) {
                        check(root, rule, value, &format!("{at}.{key}"))?;
                    }
                }
            }
            "items" => {
                for value in value.as_array().into_iter().flatten() {
                    check(root, wanted, value, &format!("{at}[]"))?;
                }
            }
            "minimum" | "maximum" => {
                let limit = wanted.as_f64().expect("a number");
                let fits = value.as_f64().is_none_or(|number| {
                    if keyword == "minimum" {
                        number >= limit
                    } else {
                        number <= limit
                    }
                });
                if !fits {
                    return wrong(format!("{value} is beyond the {keyword} {limit}"));
                }
            }
            other => return wrong(format!("the keyword {other} is not known here")),
        }
    }
    Ok(())
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

/// A status in which every optional value is there.
fn full() -> Status {
    let mut one = vm("a", VmPhase::Migrating, "copying");
    one.target = Some("n2".into());
    one.memory = Some(1 << 30);
    one.took = Some(1.5);
    one.fate = "migrates".into();
    one.policy = "migrate".into();
    let mut status = drain("evacuating", 1.0, None, vec![one]);
    status.vms[0].eta = Some(Span::default());
    status.drain = Some(DrainStatus {
        eta: Some(Span::default()),
        deadline_in: Some(-1.5),
        then: Some(Then::SoftReboot),
        exit: Some(3),
        ..DrainStatus::default()
    });
    status.hold.limit = Some(30.0);
    status.hold.others = vec![HolderStatus::default()];
    status.scheduled = Some(ScheduledStatus {
        kind: Some(Then::Halt),
        due_in: -1.0,
    });
    status.cordon.unschedulable = Some(true);
    status.restore = Some(RestoreStatus {
        waits: vec!["kubelet".into()],
        ..RestoreStatus::default()
    });
    status.blind = vec!["VMIs".into()];
    status.volumes = vec!["pv-1 (csi)".into()];
    status.pods = vec![PodStatus::default()];
    status.malformed = vec![MalformedStatus::default()];
    status.warnings = vec!["look".into()];
    status.maintenance = vec![MaintenanceStatus::default()];
    status
}

fn value(status: &Status) -> Value {
    serde_json::to_value(status).expect("JSON")
}

#[test]
fn what_is_printed_fits_the_schema() {
    let idle = Status {
        state: "idle".into(),
        ..Status::default()
    };
    for status in [idle, full()] {
        assert_eq!(
            check(&schema(), &schema(), &value(&status), "status"),
            Ok(())
        );
    }
}

#[test]
fn the_check_can_fail() {
    let broken = [
        ("/state", json!("asleep")),
        ("/vms_total", json!(-1)),
        ("/vms/0/phase", json!("Migrating")),
        ("/vms/0/memory", json!("1Gi")),
        ("/drain/exit", json!(256)),
        ("/drain/then", json!("explode")),
        ("/hold", json!({"held": true})),
    ];
    for (place, bad) in broken {
        let mut status = value(&full());
        *status.pointer_mut(place).expect("it exists") = bad;
        let checked = check(&schema(), &schema(), &status, "status");
        assert!(checked.is_err(), "{place}");
    }
}

fn keys(value: &Value) -> BTreeSet<String> {
    value
        .as_object()
        .expect("an object")
        .keys()
        .cloned()
        .collect()
}

#[test]
fn every_key_is_described_and_required_and_no_other() {
    let (schema, status) = (schema(), value(&full()));
    for (rule, part) in [
        ("", ""),
        ("/$defs/drain", "/drain"),
        ("/$defs/hold", "/hold"),
        ("/$defs/cordon", "/cordon"),
        ("/$defs/restore", "/restore"),
        ("/$defs/vm", "/vms/0"),
        ("/$defs/pod", "/pods/0"),
        ("/$defs/malformed", "/malformed/0"),
        ("/$defs/maintenance", "/maintenance/0"),
    ] {
        let rule = schema.pointer(rule).expect("it exists");
        let printed = keys(status.pointer(part).expect("it exists"));
        assert_eq!(keys(&rule["properties"]), printed, "{part}");
        let required: BTreeSet<String> = rule["required"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|key| key.as_str().expect("a key").to_owned())
            .collect();
        assert_eq!(required, printed, "{part}");
    }
}

#[test]
fn every_phase_has_its_word() {
    let words = |place: &str| schema().pointer(place).cloned().expect("it exists");
    let states = [
        Phase::Idle,
        Phase::Preparing,
        Phase::Evacuating,
        Phase::FallingBack,
        Phase::Holding,
        Phase::Confirming,
        Phase::OtherPods,
        Phase::Gates,
        Phase::Drained,
        Phase::Deadline,
        Phase::Cancelling,
        Phase::Cancelled,
        Phase::Refused,
        Phase::Restoring,
    ];
    let names: Vec<&str> = states.into_iter().map(Phase::name).collect();
    assert_eq!(words("/properties/state/enum"), json!(names));
    let phases = [
        VmPhase::Queued,
        VmPhase::Marked,
        VmPhase::Scheduling,
        VmPhase::Migrating,
        VmPhase::Arriving,
        VmPhase::ShuttingDown,
        VmPhase::Blocked,
        VmPhase::Waiting,
        VmPhase::Migrated,
        VmPhase::ShutDown,
        VmPhase::Gone,
        VmPhase::Left,
    ];
    assert_eq!(words("/$defs/vm/properties/phase/enum"), json!(phases));
    let states = [
        PodState::Queued,
        PodState::Going,
        PodState::Waiting,
        PodState::Blocked,
        PodState::Gone,
        PodState::Left,
    ];
    assert_eq!(words("/$defs/pod/properties/phase/enum"), json!(states));
}

fn described(schema: &Value, value: &Value, parts: &[(&str, &str)]) {
    assert_eq!(check(schema, schema, value, "it"), Ok(()));
    for (rule, part) in parts {
        let rule = schema.pointer(rule).expect("it exists");
        let printed = keys(value.pointer(part).expect("it exists"));
        assert_eq!(keys(&rule["properties"]), printed, "{part}");
        let required = rule["required"].as_array().expect("a list");
        assert_eq!(required.len(), printed.len(), "{part}");
    }
}

#[test]
fn a_plan_fits_its_schema_and_nothing_else_does() {
    let text = include_str!("../../docs/plan.schema.json");
    let schema: Value = serde_json::from_str(text).expect("JSON");
    let mut plan = Plan {
        vms: vec![PlanVm {
            fate: "migrates".into(),
            known_by: "dry_run".into(),
            policy: "migrate".into(),
            memory: Some(1),
            eta: Some(Span::default()),
            hints: vec!["a".into()],
            ..PlanVm::default()
        }],
        pods: vec![PlanPod {
            fate: "evicted".into(),
            budgets: vec!["a/b".into()],
            ..PlanPod::default()
        }],
        budgets: vec![PlanBudget {
            class: "no_room".into(),
            cure: Some(PlanCure::default()),
            ..PlanBudget::default()
        }],
        malformed: vec![MalformedStatus::default()],
        ..Plan::default()
    };
    plan.time.fits = "yes".into();
    plan.time.limit = Some(1.0);
    let value = serde_json::to_value(&plan).expect("JSON");
    let parts = [
        ("", ""),
        ("/$defs/vm", "/vms/0"),
        ("/$defs/pod", "/pods/0"),
        ("/$defs/budget", "/budgets/0"),
        ("/$defs/cure", "/budgets/0/cure"),
        ("/$defs/time", "/time"),
        ("/$defs/span", "/time/need"),
        ("/$defs/malformed", "/malformed/0"),
    ];
    described(&schema, &value, &parts);
    for place in [
        "/vms/0/fate",
        "/pods/0/fate",
        "/budgets/0/class",
        "/time/fits",
    ] {
        let mut bad = value.clone();
        *bad.pointer_mut(place).expect("it exists") = json!("something else");
        assert!(check(&schema, &schema, &bad, "it").is_err(), "{place}");
    }
}

#[test]
fn a_check_up_fits_its_schema() {
    let text = include_str!("../../docs/doctor.schema.json");
    let schema: Value = serde_json::from_str(text).expect("JSON");
    let grades = [
        Grade::Ok,
        Grade::Note,
        Grade::Unknown,
        Grade::Warning,
        Grade::Failure,
    ];
    let report = Report {
        findings: grades
            .map(|grade| Finding {
                grade,
                ..Finding::default()
            })
            .into(),
        ..Report::default()
    };
    let value = serde_json::to_value(&report).expect("JSON");
    described(
        &schema,
        &value,
        &[("", ""), ("/$defs/finding", "/findings/0")],
    );
    let words = schema
        .pointer("/$defs/finding/properties/grade/enum")
        .expect("it exists");
    assert_eq!(words, &json!(grades));
}
