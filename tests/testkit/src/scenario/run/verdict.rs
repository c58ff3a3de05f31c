//! How did a story end: what held, what did not, and when?

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::estimates::Estimate;
use super::rules::Breach;
use super::tracker::Miss;
use crate::scenario::values::show;

/// What a story took in real seconds, where that is no matter of the machine alone: on a real control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Took {
    /// Until its objects had settled and the agent ran.
    pub set_up: f64,
    /// From its first moment to its last.
    pub played: f64,
    /// Until the control plane was empty again.
    pub cleared: f64,
}

/// The end of a story.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// The file.
    pub file: PathBuf,
    /// The story's title.
    pub name: String,
    /// Everything held.
    pub passed: bool,
    /// Why the story is not for the front that was chosen; it then counts neither as held nor as failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// How many expectations the file has.
    pub expectations: usize,
    /// Length of the story in simulated seconds.
    pub seconds: f64,
    /// What it took in real time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took: Option<Took>,
    /// Expectations that did not hold.
    pub misses: Vec<Miss>,
    /// Rules of every story that were broken.
    pub breaches: Vec<Breach>,
    /// Why the story could not be played, or not to its end.
    pub problems: Vec<String>,
    /// What the agent said about its drains at half time, and what came.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub estimates: Vec<Estimate>,
    /// The timeline, when it was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<String>,
}

impl Verdict {
    /// A story that could not be played at all.
    pub fn unplayed(file: PathBuf, name: &str, problem: String) -> Self {
        Self {
            file,
            name: name.into(),
            problems: vec![problem],
            ..Self::default()
        }
    }

    /// A story that is not for this front.
    pub fn skipped(file: PathBuf, name: &str, why: String) -> Self {
        Self {
            file,
            name: name.into(),
            passed: true,
            skipped: Some(why),
            ..Self::default()
        }
    }

    /// Something else went wrong.
    #[must_use]
    pub fn and_problem(mut self, problem: String) -> Self {
        self.passed = false;
        self.problems.push(problem);
        self
    }

    /// For people: one line when everything held, else what failed and when.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.trace {
            let _ = writeln!(text, "{line}");
        }
        if let Some(why) = &self.skipped {
            let file = self.file.display();
            return format!("--   {file} — not for this front: {why}\n");
        }
        let word = if self.passed { "ok  " } else { "FAIL" };
        let length = show(Duration::try_from_secs_f64(self.seconds).unwrap_or_default());
        let took = self.took.map_or_else(String::new, |took| {
            format!(
                "; {:.0} + {:.0} + {:.0} real seconds",
                took.set_up, took.played, took.cleared
            )
        });
        let _ = writeln!(
            text,
            "{word} {} — {} ({} expectations, {length}{took})",
            self.file.display(),
            self.name,
            self.expectations
        );
        let file = self.file.display();
        for problem in &self.problems {
            let _ = writeln!(text, "     {problem}");
        }
        for miss in &self.misses {
            let _ = writeln!(text, "     {file}:{}: {}", miss.line, miss.expected);
            let _ = writeln!(text, "          at {}: {}", at(miss.at), miss.but);
        }
        for breach in &self.breaches {
            let _ = writeln!(
                text,
                "     rule {} broken at {}: {}",
                breach.rule,
                at(breach.at),
                breach.what
            );
        }
        text
    }
}

fn at(seconds: f64) -> String {
    format!("{seconds:.3}s")
}
