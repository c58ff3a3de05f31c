//! In which order do the real controllers write, and does the model keep to it?
//!
//! A story is played several times on the real servers. What came before something else every time is taken for an order that clients
//! may rely on; the model has to keep to it every time. What was seen both ways round is a race, and the model may do either.
//! Changes that came with one write have no order among them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::changes::{Change, Changes};
use super::scene::Told;
use super::table::{Difference, Scene};
use super::verdict;

/// One change that both sides make, by name: field and value.
type Step = String;

/// What was seen in one play: for each step the writes with which it came first.
#[derive(Clone, Debug, Default)]
pub struct Order {
    first: BTreeMap<Step, usize>,
    /// The steps in the order in which they were seen, with their times in seconds.
    pub told: Vec<(f64, Step)>,
}

impl Order {
    /// The order of the changes that tell the story; what only describes (labels copied, messages) is left out.
    pub fn of(changes: &Changes) -> Self {
        let mut order = Self::default();
        for change in changes.all.iter().filter(|change| tells(change)) {
            let step = name(change);
            if !order.first.contains_key(&step) {
                order.first.insert(step.clone(), change.write);
                order.told.push((change.at.as_secs_f64(), step));
            }
        }
        order
    }

    /// Which steps were seen.
    pub fn steps(&self) -> BTreeSet<Step> {
        self.first.keys().cloned().collect()
    }

    fn before(&self, one: &Step, other: &Step) -> Option<bool> {
        let (one, other) = (self.first.get(one)?, self.first.get(other)?);
        (one != other).then(|| one < other)
    }
}

/// Fields whose changes a client follows.
fn tells(change: &Change) -> bool {
    const TELLING: [&str; 22] = [
        "exists",
        "/spec/nodeName",
        "/spec/minAvailable",
        "/status/phase",
        "/status/nodeName",
        "/status/evacuationNodeName",
        "/status/conditions/Ready/status",
        "/status/conditions/EvictionRequested/status",
        "/status/conditions/DisruptionTarget/status",
        "/status/conditions/kubevirt.io/virtual-machine-unpaused/status",
        "/status/conditions/migrationAbortRequested/status",
        "/status/migrationState/migrationUid",
        "/status/migrationState/targetNodeAddress",
        "/status/migrationState/startTimestamp",
        "/status/migrationState/endTimestamp",
        "/status/migrationState/completed",
        "/status/migrationState/failed",
        "/status/migrationState/abortRequested",
        "/metadata/deletionTimestamp",
        "/metadata/annotations/descheduler.alpha.kubernetes.io/eviction-in-progress",
        "/metadata/annotations/kubevirt.io/migration-target-ready-timestamp",
        "/metadata/labels/kubevirt.io/migrationTargetNodeName",
    ];
    let finalizer = change.field.ends_with("/metadata/finalizers/0") && change.value.is_null();
    finalizer
        || TELLING
            .iter()
            .any(|field| change.field.ends_with(&format!(" {field}")))
}

fn name(change: &Change) -> Step {
    let value = match &change.value {
        Value::Null => "gone".to_owned(),
        Value::String(text) => text.clone(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    };
    // The uid of a later VMIM is a later one all the same.
    format!("{} = {value}", change.field)
}

/// An order that the real servers keep and the model does not, or a step that only one side has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach(pub String);

/// What was found out about one story.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The story.
    pub name: String,
    /// How often it was played on each side.
    pub plays: usize,
    /// Pairs of steps with a fixed order.
    pub fixed: usize,
    /// Pairs that were seen both ways round.
    pub races: usize,
    /// Fixed orders that the model breaks, in pairs that are listed as races.
    pub allowed: usize,
    /// What the model does otherwise.
    pub breaches: Vec<Breach>,
    /// The first play on the real servers.
    pub real: Order,
    /// The first play of the model.
    pub model: Order,
}

/// Compares several plays of both sides.
pub fn judge(name: &str, real: &[Order], model: &[Order], known: &[Difference]) -> Finding {
    let always = |orders: &[Order]| -> BTreeSet<Step> {
        let mut all = orders
            .iter()
            .map(|order| order.first.keys().cloned().collect::<BTreeSet<_>>());
        let first = all.next().unwrap_or_default();
        all.fold(first, |common, one| {
            common.intersection(&one).cloned().collect()
        })
    };
    let (ours, theirs) = (always(model), always(real));
    let mut breaches: Vec<Breach> = ours
        .symmetric_difference(&theirs)
        .map(|step| {
            let side = if theirs.contains(step) {
                "only the real servers"
            } else {
                "only the model"
            };
            Breach(format!("{side}: {step}"))
        })
        .collect();
    let steps: Vec<&Step> = ours.intersection(&theirs).collect();
    let (mut fixed, mut races, mut allowed) = (0, 0, 0);
    for (index, one) in steps.iter().enumerate() {
        for other in &steps[index + 1..] {
            let seen: BTreeSet<bool> = real
                .iter()
                .filter_map(|order| order.before(one, other))
                .collect();
            let tied = real.iter().any(|order| order.before(one, other).is_none());
            match (seen.len(), tied) {
                (1, false) => fixed += 1,
                (2, _) => {
                    races += 1;
                    continue;
                }
                _ => continue,
            }
            let first = seen.contains(&true);
            if model
                .iter()
                .any(|order| order.before(one, other) == Some(!first))
            {
                let (one, other) = if first { (one, other) } else { (other, one) };
                let pair = format!("{one}, then {other}");
                if known.iter().any(|race| verdict::covers(&race.what, &pair)) {
                    allowed += 1;
                } else {
                    breaches.push(Breach(format!(
                        "the real servers: {pair}; the model the other way round"
                    )));
                }
            }
        }
    }
    Finding {
        name: name.to_owned(),
        plays: real.len(),
        fixed,
        races,
        allowed,
        breaches,
        real: real.first().cloned().unwrap_or_default(),
        model: model.first().cloned().unwrap_or_default(),
    }
}

/// Compares the plays of one story that were played to their end; what was not tells nothing about the order.
pub fn find(story: &Scene, plays: &[(Told, Told)], races: &[Difference]) -> Finding {
    let problems: Vec<Breach> = plays
        .iter()
        .enumerate()
        .flat_map(|(number, (model, real))| {
            let of = |side: &str, told: &Told| {
                let problem = told.problem.as_ref()?;
                Some(Breach(format!("play {number}, {side}: {problem}")))
            };
            [of("model", model), of("real", real)]
        })
        .flatten()
        .collect();
    let of = |side: fn(&(Told, Told)) -> &Told| -> Vec<Order> {
        plays
            .iter()
            .map(|play| Order::of(&side(play).changes))
            .collect()
    };
    let mut finding = judge(&story.name, &of(|play| &play.1), &of(|play| &play.0), races);
    if !problems.is_empty() {
        finding.breaches = problems;
    }
    finding
}

impl Finding {
    /// For people.
    pub fn text(&self) -> String {
        use std::fmt::Write as _;
        let mut text = format!(
            "\n{}: {} plays on each side, {} fixed orders, {} races seen, {} listed races the other way round, {} differences\n",
            self.name,
            self.plays,
            self.fixed,
            self.races,
            self.allowed,
            self.breaches.len()
        );
        for (title, order) in [("real servers", &self.real), ("model", &self.model)] {
            let _ = writeln!(text, "  {title}, seconds from the recording's begin:");
            for (at, step) in &order.told {
                let _ = writeln!(text, "    {at:7.2}  {step}");
            }
        }
        for Breach(what) in &self.breaches {
            let _ = writeln!(text, "  ! {what}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(steps: &[(&str, usize)]) -> Order {
        Order {
            first: steps
                .iter()
                .map(|(step, write)| ((*step).to_owned(), *write))
                .collect(),
            told: Vec::new(),
        }
    }

    #[test]
    fn what_races_is_free_and_what_never_races_is_not() {
        let real = [
            order(&[("a", 1), ("b", 2), ("c", 3)]),
            order(&[("a", 1), ("c", 2), ("b", 3)]),
        ];
        let free = judge("x", &real, &[order(&[("a", 1), ("c", 2), ("b", 3)])], &[]);
        assert_eq!((free.fixed, free.races, free.breaches.len()), (2, 1, 0));
        let wrong = judge("x", &real, &[order(&[("b", 1), ("a", 2), ("c", 3)])], &[]);
        assert_eq!(wrong.breaches.len(), 1);
        let missing = judge("x", &real, &[order(&[("a", 1), ("b", 2)])], &[]);
        assert_eq!(
            missing.breaches,
            [Breach("only the real servers: c".to_owned())]
        );
    }
}
