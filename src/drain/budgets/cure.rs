//! The budget that was meant, written in the only form that works for VMs.

use crate::drain::world::{Amount, PdbView, Rule};
use std::fmt::Write as _;

/// A corrected budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cure {
    /// The value chosen.
    pub min_available: i64,
    /// Why this one.
    pub why: String,
    /// The whole object in YAML, for `kubectl apply -f -`.
    pub manifest: String,
}

/// The corrected manifest of a budget that Kubernetes cannot count. `vms`: how many VMs it selects in the cluster, where
/// that can be seen. `None`: its rule is of the kind that works.
pub fn cure(pdb: &PdbView, vms: Option<usize>) -> Option<Cure> {
    if matches!(
        pdb.rule,
        Rule::Unset | Rule::MinAvailable(Amount::Number(_))
    ) {
        return None;
    }
    let counted = vms
        .and_then(|vms| i64::try_from(vms).ok())
        .filter(|vms| *vms > 0);
    let (min_available, why) = match counted {
        Some(vms) => explained(&pdb.rule, keeps(&pdb.rule, vms)?, vms),
        None => (
            1,
            format!(
                "how many VMs it covers cannot be seen from here (`kubectl get vmi -n {} -l '{}'` counts them); 1 keeps one of them running, raise it to the number that has to stay, and use 0 if there is only one",
                pdb.pdb.namespace, pdb.selector
            ),
        ),
    };
    Some(Cure {
        min_available,
        manifest: manifest(pdb, min_available),
        why,
    })
}

/// How many of `vms` have to stay by this rule, as Kubernetes would reckon if it could count them: shares are rounded up.
fn keeps(rule: &Rule, vms: i64) -> Option<i64> {
    let share = |text: &str| {
        let percent: i64 = text.strip_suffix('%')?.trim().parse().ok()?;
        Some(vms.checked_mul(percent)?.checked_add(99)? / 100)
    };
    let amount = |amount: &Amount| match amount {
        Amount::Number(number) => Some(*number),
        Amount::Share(text) => share(text),
    };
    let keeps = match rule {
        Rule::MinAvailable(least) => amount(least)?,
        Rule::MaxUnavailable(most) => vms.saturating_sub(amount(most)?),
        Rule::Unset => return None,
    };
    Some(keeps.clamp(0, vms))
}

/// The value and what it does.
fn explained(rule: &Rule, keeps: i64, vms: i64) -> (i64, String) {
    let moves = vms - keeps;
    let why = if vms == 1 && keeps > 0 {
        "it covers one VM, so any minAvailable above 0 refuses every eviction, and that is what it asks for; with 0 (or without the budget) the VM may be shut down".to_owned()
    } else if vms == 1 {
        "it covers one VM and lets that one go, so it protects nothing; it may as well be deleted"
            .to_owned()
    } else if moves == 0 {
        format!(
            "`{rule}` asks that none of its {vms} VMs is ever gone, so this still refuses every eviction; the owner has to say how many may be gone at a time"
        )
    } else {
        format!(
            "`{rule}` of {vms} VMs means that {keeps} stay and {moves} may be gone at a time; the number does not follow when VMs are added or removed"
        )
    };
    (keeps, why)
}

/// Ready for `kubectl apply`. `null` takes the old field away even where `apply` has not set it.
fn manifest(pdb: &PdbView, min_available: i64) -> String {
    let mut text = String::new();
    let mut line = |indent: usize, what: &str| {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{:indent$}{what}", "");
    };
    line(0, "apiVersion: policy/v1");
    line(0, "kind: PodDisruptionBudget");
    line(0, "metadata:");
    line(2, &format!("name: {}", quoted(&pdb.pdb.name)));
    line(2, &format!("namespace: {}", quoted(&pdb.pdb.namespace)));
    line(0, "spec:");
    line(2, &format!("minAvailable: {min_available}"));
    if matches!(pdb.rule, Rule::MaxUnavailable(_)) {
        line(2, "maxUnavailable: null");
    }
    if let Some(policy) = &pdb.unhealthy_policy {
        line(
            2,
            &format!("unhealthyPodEvictionPolicy: {}", quoted(policy)),
        );
    }
    let selector = &pdb.selector;
    if selector.labels.is_empty() && selector.expressions.is_empty() {
        line(2, "selector: {}");
        return text;
    }
    line(2, "selector:");
    if !selector.labels.is_empty() {
        line(4, "matchLabels:");
        for (key, value) in &selector.labels {
            line(6, &format!("{}: {}", quoted(key), quoted(value)));
        }
    }
    if !selector.expressions.is_empty() {
        line(4, "matchExpressions:");
        for e in &selector.expressions {
            line(4, &format!("- key: {}", quoted(&e.key)));
            line(6, &format!("operator: {}", quoted(&e.operator)));
            if !e.values.is_empty() {
                let values: Vec<String> = e.values.iter().map(|value| quoted(value)).collect();
                line(6, &format!("values: [{}]", values.join(", ")));
            }
        }
    }
    text
}

/// A YAML scalar that is read as text whatever it looks like. Names and labels have no character that needs more.
fn quoted(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'/' | b'_'))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    if plain {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
