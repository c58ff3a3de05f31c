//! What was measured, what was aimed at, and was it reached? As a table for people and as JSON.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Seconds, shown in milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Bytes, shown in MiB.
    Bytes,
    /// Anything that is counted.
    Count,
    /// A ratio.
    Times,
    /// A share of a hundred.
    Percent,
}

/// What is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The agent's figure is at most this.
    AtMost(f64),
    /// The agent's figure is at least this.
    AtLeast(f64),
    /// The agent's figure is so many times smaller than kubectl's.
    TimesLess(f64),
    /// As [`Goal::AtMost`], but only to go by: milliseconds depend on the machine, ratios do not.
    Guide(f64),
}

/// Whether a goal was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All goals were reached.
    Pass,
    /// One was not.
    Miss,
    /// There is no goal, or only one to go by.
    None,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Heading that it belongs to.
    pub group: &'static str,
    /// What was measured.
    pub what: String,
    /// What the numbers count.
    pub unit: Unit,
    /// The agent's.
    pub agent: f64,
    /// kubectl's, where it has one.
    pub kubectl: Option<f64>,
    /// kubectl's divided by the agent's.
    pub ratio: Option<f64>,
    /// What is aimed at.
    pub goals: Vec<Goal>,
    /// Whether it was reached.
    pub verdict: Verdict,
}

impl Figure {
    /// A figure with its verdict. A goal that compares with kubectl is missed when kubectl has no figure.
    pub fn new(
        group: &'static str,
        what: impl Into<String>,
        unit: Unit,
        agent: f64,
        kubectl: Option<f64>,
        goals: &[Goal],
    ) -> Self {
        let verdicts: Vec<bool> = goals
            .iter()
            .filter_map(|goal| reached(*goal, agent, kubectl))
            .collect();
        let verdict = if verdicts.is_empty() {
            Verdict::None
        } else if verdicts.iter().all(|reached| *reached) {
            Verdict::Pass
        } else {
            Verdict::Miss
        };
        Self {
            group,
            what: what.into(),
            unit,
            agent,
            kubectl,
            ratio: kubectl.and_then(|kubectl| (agent > 0.0).then(|| kubectl / agent)),
            goals: goals.to_vec(),
            verdict,
        }
    }
}

/// Whether a goal was reached; `None` for one that is only to go by.
fn reached(goal: Goal, agent: f64, kubectl: Option<f64>) -> Option<bool> {
    match goal {
        Goal::AtMost(limit) => Some(agent <= limit),
        Goal::AtLeast(limit) => Some(agent >= limit),
        // Multiplied instead of divided, so that nothing at all passes too.
        Goal::TimesLess(times) => Some(kubectl.is_some_and(|kubectl| kubectl >= times * agent)),
        Goal::Guide(_) => None,
    }
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Under which circumstances.
    pub about: Vec<String>,
    /// In the order of the groups.
    pub figures: Vec<Figure>,
    /// What could not be measured, and why.
    pub failed: Vec<String>,
}

impl Report {
    /// How many figures missed a goal.
    pub fn misses(&self) -> usize {
        let missed = |figure: &&Figure| figure.verdict == Verdict::Miss;
        self.figures.iter().filter(missed).count()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table
            .load_preset(NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(["figure", "agent", "kubectl", "ratio", "target", "result"]);
        let mut group = "";
        for figure in &self.figures {
            if figure.group != group {
                group = figure.group;
                table.add_row([group, "", "", "", "", ""]);
            }
            table.add_row(cells(figure));
        }
        for column in 1..=3 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let judged = |figure: &&Figure| figure.verdict != Verdict::None;
        let count = self.figures.iter().filter(judged).count();
        let missed = self.misses();
        let reached = count - missed;
        let about = self.about.join("\n");
        let failed: Vec<String> = self
            .failed
            .iter()
            .map(|why| format!("NOT MEASURED: {why}\n"))
            .collect();
        let failed = failed.concat();
        format!("{about}\n{table}\n{failed}{reached} of {count} targets reached, {missed} missed\n")
    }
}

fn cells(figure: &Figure) -> [String; 6] {
    let shown = |value: f64| show(value, figure.unit);
    let goals: Vec<String> = figure
        .goals
        .iter()
        .map(|goal| match *goal {
            Goal::AtMost(limit) => format!("≤ {}", shown(limit)),
            Goal::AtLeast(limit) => format!("≥ {}", shown(limit)),
            Goal::TimesLess(times) => format!("≥ {times}× less"),
            Goal::Guide(limit) => format!("(guide ≤ {})", shown(limit)),
        })
        .collect();
    [
        format!("  {}", figure.what),
        shown(figure.agent),
        figure.kubectl.map(shown).unwrap_or_default(),
        figure
            .ratio
            .map(|ratio| format!("{ratio:.1}×"))
            .unwrap_or_default(),
        goals.join(", "),
        match figure.verdict {
            Verdict::Pass => "pass".to_owned(),
            Verdict::Miss => "MISS".to_owned(),
            Verdict::None => String::new(),
        },
    ]
}

fn show(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Milliseconds => format!("{:.1} ms", value * 1000.0),
        Unit::Seconds => format!("{value:.2} s"),
        Unit::Bytes => format!("{:.1} MiB", value / 1_048_576.0),
        Unit::Count => format!("{}", (value * 10.0).round() / 10.0),
        Unit::Times => format!("{value:.3}"),
        Unit::Percent => format!("{value:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(agent: f64, kubectl: Option<f64>, goals: &[Goal]) -> Verdict {
        Figure::new("g", "w", Unit::Count, agent, kubectl, goals).verdict
    }

    #[test]
    fn a_miss_is_a_miss() {
        assert_eq!(verdict(2.0, None, &[Goal::AtMost(2.0)]), Verdict::Pass);
        assert_eq!(verdict(2.1, None, &[Goal::AtMost(2.0)]), Verdict::Miss);
        assert_eq!(verdict(7.9, None, &[Goal::AtLeast(8.0)]), Verdict::Miss);
        let both = [Goal::Guide(1.0), Goal::TimesLess(10.0)];
        assert_eq!(verdict(2.0, Some(20.0), &both), Verdict::Pass);
        assert_eq!(verdict(2.0, Some(19.0), &both), Verdict::Miss);
        assert_eq!(verdict(2.0, None, &both), Verdict::Miss);
        assert_eq!(verdict(0.0, Some(0.1), &both), Verdict::Pass);
        assert_eq!(verdict(2.0, Some(1.0), &[Goal::Guide(1.0)]), Verdict::None);
    }

    #[test]
    fn the_table_tells_what_missed() {
        let report = Report {
            failed: vec!["drains: no time".into()],
            about: vec!["here".into()],
            figures: vec![
                Figure::new(
                    "signal",
                    "cordon",
                    Unit::Milliseconds,
                    0.004,
                    Some(0.1),
                    &[Goal::TimesLess(10.0)],
                ),
                Figure::new(
                    "size",
                    "binary",
                    Unit::Bytes,
                    9e7,
                    None,
                    &[Goal::AtMost(9e6)],
                ),
            ],
        };
        let text = report.text();
        assert!(text.contains("4.0 ms") && text.contains("25.0×"), "{text}");
        assert!(text.contains("1 of 2 targets reached, 1 missed"), "{text}");
        assert!(text.contains("MISS"), "{text}");
        assert!(text.contains("NOT MEASURED: drains"), "{text}");
    }
}
