//! `plan`: how is it shown what would become of every VM, and with which number does the command end?

use super::args::Format;
use super::daemon::Daemon;
use super::exit::Exit;
use super::failure::Failure;
use super::look::{Look, Tone, clock, size};
use super::screen::Screen;
use super::table::arrange;
use crate::drain::plan::{PLAN_EXIT, Plan, PlanBudget, PlanPod, PlanVm};
use comfy_table::{Table, presets};

/// Below this many columns the sentences get lines of their own.
const NARROW: usize = 90;

/// Carries out the command.
///
/// # Errors
/// When the daemon cannot be reached, or makes no plan.
pub(super) async fn show(
    daemon: &impl Daemon,
    output: Format,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let plan = daemon.plan().await?;
    let text = match output {
        Format::Table => table(&plan, screen.look()),
        Format::Json => serde_json::to_string_pretty(&plan).map_err(|why| {
            Failure::new(Exit::Failed, format!("cannot write JSON: {why}"), "", "")
        })?,
    };
    screen.line(text.trim_end())?;
    Ok(exit(&plan))
}

/// How the command ends.
pub fn exit(plan: &Plan) -> Exit {
    match plan.exit() {
        0 => Exit::Done,
        PLAN_EXIT => Exit::NotSafe,
        _ => Exit::NoCluster,
    }
}

/// How a fate is shown, and how much it needs a reader (small first).
fn face(vm: &PlanVm) -> (&'static str, Tone, u8) {
    match vm.fate.as_str() {
        "migrates" => ("✓ migrates", Tone::Good, 5),
        "external" => ("✓ external", Tone::Good, 4),
        "restarted_elsewhere" => ("● restarts elsewhere", Tone::Busy, 3),
        "shut_down" => ("● is shut down", Tone::Bad, 1),
        "blocked" => ("✗ blocked", Tone::Bad, 0),
        "left" => ("✗ left", Tone::Bad, 0),
        _ => ("? not known", Tone::Faint, 2),
    }
}

/// For people: head, VMs, budgets, and the corrected manifests at the end.
pub fn table(plan: &Plan, look: Look) -> String {
    let mut text = String::new();
    let title = look.paint(Tone::Strong.style(), &plan.node);
    line(&mut text, &format!("{title}: {}", plan.says));
    let mut fact = |name: &str, tone: Tone, what: &str| {
        let what = look.paint(tone.style(), what);
        line(&mut text, &format!("  {name:<9} {what}"));
    };
    if plan.seen {
        let tone = match plan.time.fits.as_str() {
            "yes" => Tone::Good,
            "no" => Tone::Bad,
            _ => Tone::Busy,
        };
        fact("time", tone, &plan.time.says);
    }
    if !plan.unreachable.is_empty() {
        fact("alone", Tone::Faint, &plan.unreachable);
    }
    for blind in &plan.blind {
        fact("not seen", Tone::Faint, blind);
    }
    for odd in &plan.malformed {
        let what = format!("{} {}: {}", odd.resource, odd.object, odd.why);
        fact("malformed", Tone::Bad, &what);
    }
    if !plan.vms.is_empty() {
        text.push('\n');
        text.push_str(&rows(plan, look));
    }
    if !plan.pods.is_empty() {
        text.push('\n');
        for pod in &plan.pods {
            pod_line(&mut text, pod, look);
        }
    }
    let faults: Vec<&PlanBudget> = plan.budgets.iter().collect();
    if !faults.is_empty() {
        text.push('\n');
        for budget in faults {
            budget_lines(&mut text, budget, look);
        }
    }
    manifests(&mut text, plan, look);
    text
}

fn line(text: &mut String, what: &str) {
    text.push_str(what.trim_end());
    text.push('\n');
}

/// One row per VM, those that need somebody first; what else is to be said stands below.
fn rows(plan: &Plan, look: Look) -> String {
    let narrow = look.width.is_some_and(|width| width < NARROW);
    let mut vms: Vec<&PlanVm> = plan.vms.iter().collect();
    vms.sort_by_key(|vm| face(vm).2);
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let mut header = vec!["VM", "FATE", "MEMORY", "GONE IN"];
    if !narrow {
        header.push("WHY");
    }
    let columns = header.len();
    table.set_header(header);
    for vm in &vms {
        let mut cells = vec![
            format!("{}/{}", vm.namespace, vm.name),
            face(vm).0.to_owned(),
            vm.memory.map_or_else(|| "-".into(), size),
            vm.eta.map_or_else(
                || "-".into(),
                |span| format!("~{}", clock(span.likely.as_secs_f64().max(5.0))),
            ),
        ];
        if !narrow {
            let hints = vm.hints.iter().map(|hint| format!("; hint: {hint}"));
            cells.push(vm.says.clone() + &hints.collect::<String>());
        }
        table.add_row(cells);
    }
    arrange(&mut table, columns, narrow, look);
    let mut text = String::new();
    let mut left = vms.iter();
    for (at, row) in table.lines().enumerate() {
        let row = row.trim_end();
        let vm = if at > 0 && !row.starts_with("   ") {
            left.next()
        } else {
            None
        };
        let painted = match vm {
            None if at == 0 => look.paint(Tone::Strong.style(), row),
            None => row.to_owned(),
            Some(vm) => {
                let (words, tone, _) = face(vm);
                row.replacen(words, &look.paint(tone.style(), words), 1)
            }
        };
        line(&mut text, &painted);
        if let (Some(vm), true) = (vm, narrow) {
            line(&mut text, &format!("     {}", vm.says));
            for hint in &vm.hints {
                line(&mut text, &format!("     hint: {hint}"));
            }
        }
    }
    text
}

fn pod_line(text: &mut String, pod: &PlanPod, look: Look) {
    let (word, tone) = if pod.is_blocked() {
        ("✗", Tone::Bad)
    } else {
        ("✓", Tone::Good)
    };
    let word = look.paint(tone.style(), word);
    let what = format!("{word} pod {}/{} {}", pod.namespace, pod.name, pod.says);
    line(text, &what);
}

fn budget_lines(text: &mut String, budget: &PlanBudget, look: Look) {
    let tone = if budget.is_fault() {
        Tone::Bad
    } else if budget.stops.is_empty() {
        Tone::Faint
    } else {
        Tone::Busy
    };
    let name = format!("budget {}/{}", budget.namespace, budget.name);
    let allowed = format!("ALLOWED DISRUPTIONS {}", budget.allowed);
    let since = match budget.since.as_str() {
        "" => String::new(),
        since => format!(", since {since}"),
    };
    let name = look.paint(tone.style(), &name);
    line(text, &format!("{name} ({}): {allowed}{since}", budget.rule));
    line(text, &format!("  {}", budget.says));
    if budget.stops.is_empty() {
        line(
            text,
            "  stops no VM of this node: it plays no part in live migrations",
        );
    } else {
        line(text, &format!("  stops: {}", budget.stops.join(", ")));
    }
    if !budget.with.is_empty() {
        let with = budget.with.join(", ");
        line(
            text,
            &format!(
                "  selects a pod together with {with}: Kubernetes refuses such evictions, remove one of them"
            ),
        );
    }
    if let Some(cure) = &budget.cure {
        line(
            text,
            &format!(
                "  cure: minAvailable: {} ({})",
                cure.min_available, cure.why
            ),
        );
    }
}

fn manifests(text: &mut String, plan: &Plan, look: Look) {
    let cures = plan
        .budgets
        .iter()
        .filter_map(|budget| budget.cure.as_ref());
    for (at, cure) in cures.enumerate() {
        if at == 0 {
            text.push('\n');
            let head = "# corrected budgets, for `kubectl apply -f -`; afterwards ALLOWED DISRUPTIONS in `kubectl get pdb` tells whether it worked";
            line(text, &look.paint(Tone::Strong.style(), head));
        }
        line(text, "---");
        text.push_str(&cure.manifest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::plan::{PlanCure, PlanTime};

    fn vm(name: &str, fate: &str) -> PlanVm {
        PlanVm {
            namespace: "vms".into(),
            name: name.into(),
            fate: fate.into(),
            says: format!("{fate} for a reason"),
            ..PlanVm::default()
        }
    }

    fn plan(vms: Vec<PlanVm>) -> Plan {
        Plan {
            node: "n1".into(),
            says: "so many".into(),
            seen: true,
            vms,
            time: PlanTime {
                says: "needs about 1m".into(),
                ..PlanTime::default()
            },
            ..Plan::default()
        }
    }

    #[test]
    fn the_exit_code_says_whether_every_vm_keeps_running() {
        assert_eq!(exit(&plan(vec![vm("a", "migrates")])), Exit::Done);
        for fate in [
            "restarted_elsewhere",
            "shut_down",
            "blocked",
            "left",
            "unknown",
        ] {
            let both = plan(vec![vm("a", "migrates"), vm("b", fate)]);
            assert_eq!(exit(&both), Exit::NotSafe, "{fate}");
        }
        assert_eq!(exit(&Plan::default()), Exit::NoCluster);
    }

    #[test]
    fn what_needs_somebody_comes_first_and_the_manifest_last() {
        let mut plan = plan(vec![vm("a", "migrates"), vm("b", "blocked")]);
        plan.vms[0].hints = vec!["no other node seems to fit".into()];
        plan.budgets = vec![PlanBudget {
            namespace: "vms".into(),
            name: "web".into(),
            rule: "maxUnavailable: 1".into(),
            class: "never_satisfiable".into(),
            says: "can never allow it".into(),
            stops: vec!["vms/b".into()],
            since: "2026-11-30T17:00:00Z".into(),
            cure: Some(PlanCure {
                min_available: 3,
                why: "3 stay".into(),
                manifest: "apiVersion: policy/v1\n".into(),
            }),
            ..PlanBudget::default()
        }];
        for width in [None, Some(70)] {
            let look = Look {
                width,
                ..Look::plain()
            };
            let text = table(&plan, look);
            let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
            assert!(at("vms/b") < at("vms/a"), "{text}");
            assert!(at("no other node") < at("budget vms/web"), "{text}");
            assert!(
                at("ALLOWED DISRUPTIONS 0, since 2026") < at("stops: vms/b"),
                "{text}"
            );
            assert!(
                at("cure: minAvailable: 3 (3 stay)") < at("---\napiVersion"),
                "{text}"
            );
        }
    }
}
