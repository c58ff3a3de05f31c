//! What would go wrong in a drain, before there is one? Facts in, findings out; every finding that is not good has its
//! cure and the page that explains it.
//!
//! Pure: the facts are collected by `cli::doctor` (host and units over the bus, cluster through the adapter), or by a
//! test. What could not be looked at is a finding as well: nothing is well because nobody looked.

mod cluster;
mod facts;
mod host;
mod units;

pub use facts::{ClusterFacts, Facts, LogindFacts, Right, Scope, UnitFacts, UnitState};

use serde::{Deserialize, Serialize};

/// How bad it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// As it should be.
    #[default]
    Ok,
    /// Worth knowing; nothing to do.
    Note,
    /// Could not be looked at.
    Unknown,
    /// A drain works, but not as well as it could, or not for every VM.
    Warning,
    /// A shutdown would cost VMs, or a drain cannot work.
    Failure,
}

/// One finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// What was looked at, e.g. `logind.limit`: a name that stays.
    pub check: String,
    /// How bad it is.
    pub grade: Grade,
    /// What was found, as a sentence.
    pub says: String,
    /// What to do; empty when there is nothing to do.
    pub cure: String,
    /// The page that explains it, below `/usr/share/doc/vmdrain-agent/`; empty when there is nothing to explain.
    pub page: String,
}

/// All findings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Version of the agent.
    pub version: String,
    /// The node; empty when not known.
    pub node: String,
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
    /// How many warnings there are.
    pub warnings: usize,
    /// How many failures there are.
    pub failures: usize,
    /// How many things could not be looked at.
    pub unknown: usize,
}

impl Report {
    /// Exit code of the command (design section 7): 0, 11 warnings, 12 failures. What could not be looked at counts as a
    /// warning: a script must not take blindness for health.
    pub fn exit(&self) -> u8 {
        match (self.failures, self.warnings + self.unknown) {
            (0, 0) => 0,
            (0, _) => 11,
            _ => 12,
        }
    }
}

/// Judges the facts.
pub fn judge(facts: &Facts) -> Report {
    let mut list = List::default();
    host::judge(facts, &mut list);
    units::judge(facts, &mut list);
    cluster::judge(facts, &mut list);
    let findings = list.0;
    let count = |grade| findings.iter().filter(|f| f.grade == grade).count();
    Report {
        version: env!("CARGO_PKG_VERSION").into(),
        node: facts.cluster.node_name.clone(),
        warnings: count(Grade::Warning),
        failures: count(Grade::Failure),
        unknown: count(Grade::Unknown),
        findings,
    }
}

/// Findings as they come.
#[derive(Debug, Default)]
struct List(Vec<Finding>);

/// A check and the page that explains it.
#[derive(Clone, Copy, Debug)]
struct Check(&'static str, &'static str);

impl List {
    fn ok(&mut self, check: Check, says: impl Into<String>) {
        self.add(check, Grade::Ok, says, "");
    }

    fn note(&mut self, check: Check, says: impl Into<String>) {
        self.add(check, Grade::Note, says, "");
    }

    fn warn(&mut self, check: Check, says: impl Into<String>, cure: impl Into<String>) {
        self.add(check, Grade::Warning, says, cure);
    }

    fn fail(&mut self, check: Check, says: impl Into<String>, cure: impl Into<String>) {
        self.add(check, Grade::Failure, says, cure);
    }

    fn unknown(&mut self, check: Check, says: impl Into<String>, cure: impl Into<String>) {
        self.add(check, Grade::Unknown, says, cure);
    }

    fn add(
        &mut self,
        Check(check, page): Check,
        grade: Grade,
        says: impl Into<String>,
        cure: impl Into<String>,
    ) {
        let explained = if grade == Grade::Ok { "" } else { page };
        self.0.push(Finding {
            check: check.into(),
            grade,
            says: says.into(),
            cure: cure.into(),
            page: explained.into(),
        });
    }
}

#[cfg(test)]
mod tests;
