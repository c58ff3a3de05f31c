//! Does every expectation compare exactly one thing, at one time?

use super::super::expect::{
    Bounds, DiskExpect, Expect, NodeExpect, PodExpect, Raw, SavedExpect, VmExpect, What, When,
};
use super::super::problem::{Problem, Source};
use super::super::read::Placed;
use super::names::Names;

/// Every name that `state` can have, now or in a later version.
const STATES: [&str; 15] = [
    "idle",
    "preparing",
    "evacuating",
    "falling_back",
    "confirming",
    "other_pods",
    "gates",
    "drained",
    "holding",
    "deadline",
    "cancelling",
    "cancelled",
    "restoring",
    "aborted",
    "failed",
];

/// Phases of a VM in the agent's status.
const PHASES: [&str; 12] = [
    "queued",
    "marked",
    "scheduling",
    "migrating",
    "arriving",
    "shutting_down",
    "blocked",
    "waiting",
    "migrated",
    "shut_down",
    "gone",
    "left",
];

/// Phases of a pod in the agent's status.
const POD_PHASES: [&str; 6] = ["queued", "going", "waiting", "blocked", "gone", "left"];

/// Sorts the keys of all expectations.
pub(super) fn check(
    source: Source<'_>,
    names: &Names<'_>,
    raws: Vec<Placed<(Raw, String)>>,
) -> Result<Vec<Expect>, Problem> {
    raws.into_iter()
        .map(|raw| {
            let (line, (keys, text)) = (raw.line, raw.what);
            let sorted = when(&keys).and_then(|when| Ok((when, what(keys)?)));
            let (when, what) = sorted.map_err(|text| source.problem_at(line, text))?;
            known(names, &what, line)?;
            Ok(Expect {
                line,
                when,
                what,
                text,
            })
        })
        .collect()
}

fn when(raw: &Raw) -> Result<When, String> {
    let mut times = Vec::new();
    times.extend(raw.at.map(|at| When::At(at.0)));
    times.extend(raw.by.map(|by| When::By(by.0)));
    times.extend(raw.never_before.map(|at| When::NeverBefore(at.0)));
    match raw.always {
        Some(true) => times.push(When::Always),
        Some(false) => return Err("`always = false` says nothing: leave it out".into()),
        None => {}
    }
    match times.as_slice() {
        [] => Ok(When::End),
        [one] => Ok(*one),
        _ => Err("give one of `at`, `by`, `never_before` and `always`".into()),
    }
}

fn what(mut raw: Raw) -> Result<What, String> {
    let heads = heads(&raw);
    let head = match heads.as_slice() {
        [head] => *head,
        [] => return Err("nothing is expected: which of state, hold, host, vm, pod, node, requests, event, journal, saved, status, report, disk?".into()),
        several => return Err(format!("compare one thing, not {}", several.join(" and "))),
    };
    belongs(&raw, head)?;
    let bounds = Bounds {
        min: raw.min.unwrap_or(u64::from(raw.max.is_none())),
        max: raw.max,
    };
    if bounds.max.is_some_and(|max| max < bounds.min) {
        return Err("`max` is less than `min`".into());
    }
    if let Some(state) = &raw.state
        && !STATES.contains(&state.as_str())
    {
        return Err(format!(
            "there is no state `{state}`, only {}",
            STATES.join(", ")
        ));
    }
    let missing = || "nothing is compared".to_owned();
    Ok(match head {
        "state" => What::State(raw.state.ok_or_else(missing)?),
        "hold" => What::Hold(raw.hold.ok_or_else(missing)?),
        "host" => What::Host(raw.host.ok_or_else(missing)?),
        "vm" => What::Vm(vm(raw)?),
        "pod" => What::Pod(pod(raw)?),
        "node" => What::Node(node(raw)?),
        "requests" => What::Requests(raw.requests.unwrap_or_default(), bounds),
        "event" => What::Event(raw.event.unwrap_or_default(), bounds),
        "journal" => What::Journal(raw.journal.unwrap_or_default(), bounds),
        "saved" => What::Saved(saved(raw)?),
        "report" => What::Report(raw.report.ok_or_else(missing)?),
        "disk" => What::Disk(disk(raw)?),
        _ => What::Status(raw.status.take().unwrap_or_default(), raw.contains.take()),
    })
}

/// The keys that say what is compared. `contains` alone is a text in the status.
fn heads(raw: &Raw) -> Vec<&'static str> {
    let mut heads = Vec::new();
    let mut head = |there: bool, name| {
        if there {
            heads.push(name);
        }
    };
    head(raw.state.is_some(), "state");
    head(raw.hold.is_some(), "hold");
    head(raw.host.is_some(), "host");
    head(raw.vm.is_some(), "vm");
    head(raw.pod.is_some(), "pod");
    head(raw.node.is_some(), "node");
    head(raw.requests.is_some(), "requests");
    head(raw.event.is_some(), "event");
    head(raw.journal.is_some(), "journal");
    head(raw.saved.is_some(), "saved");
    head(raw.status.is_some(), "status");
    head(raw.report.is_some(), "report");
    head(raw.disk.is_some(), "disk");
    if heads.is_empty() && raw.contains.is_some() {
        heads.push("status");
    }
    heads
}

/// Every other key belongs to the head.
fn belongs(raw: &Raw, head: &str) -> Result<(), String> {
    let keys: [(&str, bool, &[&str]); 18] = [
        ("namespace", raw.namespace.is_some(), &["vm", "pod"]),
        ("here", raw.here.is_some(), &["pod"]),
        ("running_on", raw.running_on.is_some(), &["vm"]),
        ("phase", raw.phase.is_some(), &["vm", "pod"]),
        ("outcome", raw.outcome.is_some(), &["vm"]),
        ("attempts", raw.attempts.is_some(), &["vm"]),
        ("marked", raw.marked.is_some(), &["vm"]),
        ("says", raw.says.is_some(), &["vm", "pod"]),
        ("unschedulable", raw.unschedulable.is_some(), &["node"]),
        ("ours", raw.ours.is_some(), &["node"]),
        ("annotation", raw.annotation.is_some(), &["node"]),
        ("taint", raw.taint.is_some(), &["node"]),
        ("min", raw.min.is_some(), &["requests", "event", "journal"]),
        ("max", raw.max.is_some(), &["requests", "event", "journal"]),
        ("exit", raw.exit.is_some(), &["saved"]),
        ("json", raw.json.is_some(), &["saved"]),
        (
            "contains",
            raw.contains.is_some(),
            &["saved", "status", "disk"],
        ),
        ("exists", raw.exists.is_some(), &["disk"]),
    ];
    for (key, there, owners) in keys {
        if there && !owners.contains(&head) {
            return Err(format!(
                "`{key}` does not go with `{head}` but with {}",
                owners.join(", ")
            ));
        }
    }
    Ok(())
}

fn vm(raw: Raw) -> Result<VmExpect, String> {
    if let Some(phase) = &raw.phase
        && !phase.starts_with(char::is_uppercase)
        && !PHASES.contains(&phase.as_str())
    {
        return Err(format!(
            "there is no phase `{phase}`, only {}",
            PHASES.join(", ")
        ));
    }
    let vm = VmExpect {
        vm: raw.vm.unwrap_or_default(),
        namespace: raw.namespace,
        running_on: raw.running_on,
        phase: raw.phase,
        outcome: raw.outcome,
        attempts: raw.attempts,
        marked: raw.marked,
        says: raw.says,
    };
    let nothing = vm.running_on.is_none()
        && vm.phase.is_none()
        && vm.outcome.is_none()
        && vm.attempts.is_none()
        && vm.marked.is_none()
        && vm.says.is_none();
    if nothing {
        return Err(
            "nothing is compared: running_on, phase, outcome, attempts, marked or says?".into(),
        );
    }
    Ok(vm)
}

fn pod(raw: Raw) -> Result<PodExpect, String> {
    if let Some(phase) = &raw.phase
        && !POD_PHASES.contains(&phase.as_str())
    {
        return Err(format!(
            "there is no phase `{phase}` of a pod, only {}",
            POD_PHASES.join(", ")
        ));
    }
    let pod = PodExpect {
        pod: raw.pod.unwrap_or_default(),
        namespace: raw.namespace,
        here: raw.here,
        phase: raw.phase,
        says: raw.says,
    };
    if pod.here.is_none() && pod.phase.is_none() && pod.says.is_none() {
        return Err("nothing is compared: here, phase or says?".into());
    }
    Ok(pod)
}

fn node(raw: Raw) -> Result<NodeExpect, String> {
    let node = NodeExpect {
        node: raw.node.unwrap_or_default(),
        unschedulable: raw.unschedulable,
        ours: raw.ours,
        annotation: raw.annotation,
        taint: raw.taint,
    };
    let nothing = node.unschedulable.is_none()
        && node.ours.is_none()
        && node.annotation.is_none()
        && node.taint.is_none();
    if nothing {
        return Err("nothing is compared: unschedulable, ours, annotation or taint?".into());
    }
    Ok(node)
}

fn saved(raw: Raw) -> Result<SavedExpect, String> {
    let saved = SavedExpect {
        name: raw.saved.unwrap_or_default(),
        exit: raw.exit,
        contains: raw.contains,
        json: raw.json.unwrap_or_default(),
    };
    if saved.exit.is_none() && saved.contains.is_none() && saved.json.is_empty() {
        return Err("nothing is compared: exit, contains or json?".into());
    }
    Ok(saved)
}

fn disk(raw: Raw) -> Result<DiskExpect, String> {
    let disk = DiskExpect {
        path: raw.disk.unwrap_or_default(),
        exists: raw.exists,
        contains: raw.contains,
    };
    if disk.exists.is_none() && disk.contains.is_none() {
        return Err("nothing is compared: exists or contains?".into());
    }
    Ok(disk)
}

fn known(names: &Names<'_>, what: &What, line: usize) -> Result<(), Problem> {
    match what {
        What::Vm(vm) if vm.vm != "*" => {
            names.vm(vm.namespace.as_deref(), &vm.vm, line)?;
            names.node(
                vm.running_on.as_deref().filter(|node| !node.is_empty()),
                line,
            )
        }
        What::Vm(vm) => names.node(
            vm.running_on.as_deref().filter(|node| !node.is_empty()),
            line,
        ),
        What::Pod(pod) => names.pod(pod.namespace.as_deref(), &pod.pod, line),
        What::Node(node) => names.node(Some(&node.node), line),
        What::Saved(saved) => names.saved(&saved.name, line),
        What::State(_)
        | What::Hold(_)
        | What::Host(_)
        | What::Requests(..)
        | What::Event(..)
        | What::Journal(..)
        | What::Status(..)
        | What::Report(_)
        | What::Disk(_) => Ok(()),
    }
}
