//! Do both sides agree, and if not, is that known?

use std::time::Duration;

use serde_json::Value;

use super::answer::Answer;
use super::changes::Changes;
use super::scene::Told;
use super::table::{Difference, Scene};

/// What became of one request, or of the changes of a scene.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Both sides say the same.
    Same,
    /// They differ, and the table says why.
    Listed(Vec<String>),
    /// They differ, or a listed difference is none.
    Wrong(Vec<String>),
}

/// One line of the report.
#[derive(Clone, Debug)]
pub struct Line {
    /// What was asked.
    pub case: String,
    /// The code of the real servers.
    pub code: String,
    /// Its outcome.
    pub outcome: Outcome,
}

/// A scene, compared.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The scene.
    pub scene: String,
    /// Its requests, then its changes.
    pub lines: Vec<Line>,
    /// Why it could not be played to its end.
    pub problems: Vec<String>,
    /// The differences listed for every scene that this one has.
    pub used: Vec<String>,
    /// How long it was played.
    pub took: Duration,
}

impl Verdict {
    /// Whether nothing is wrong.
    pub fn passed(&self) -> bool {
        self.problems.is_empty()
            && !self
                .lines
                .iter()
                .any(|line| matches!(line.outcome, Outcome::Wrong(_)))
    }
}

/// Compares what both sides told.
pub fn judge(
    scene: &Scene,
    model: &Told,
    real: &Told,
    version: (u8, u8),
    everywhere: &[Difference],
) -> Verdict {
    let mut lines = Vec::new();
    let mut used = Vec::new();
    let mut problems: Vec<String> = [("model", &model.problem), ("real", &real.problem)]
        .into_iter()
        .filter_map(|(side, problem)| Some(format!("{side}: {}", problem.as_ref()?)))
        .collect();
    for step in scene.steps.iter().filter(|step| step.concerns(version)) {
        let Some(title) = &step.case else { continue };
        let of = |told: &Told| {
            told.cases
                .iter()
                .find(|(case, _)| case == title)
                .map(|(_, answer)| answer.clone())
        };
        let ours = if scene.real_only { of(real) } else { of(model) };
        let (Some(ours), Some(theirs)) = (ours, of(real)) else {
            problems.push(format!("{title}: never asked on both sides"));
            continue;
        };
        lines.push(Line {
            case: title.clone(),
            code: theirs.code(),
            outcome: expected(
                step.expect,
                &theirs,
                settle(&differences(&ours, &theirs), &step.differs, version),
            ),
        });
    }
    if scene.changes && problems.is_empty() {
        let (outcome, general) =
            of_changes(scene, &model.changes, &real.changes, version, everywhere);
        used = general;
        lines.push(Line {
            case: "(changes)".to_owned(),
            code: format!("{} fields", real.changes.by_field().len()),
            outcome,
        });
    }
    Verdict {
        scene: scene.name.clone(),
        lines,
        problems,
        used,
        took: Duration::ZERO,
    }
}

/// Compares the changes of a scene, and names the differences listed for every scene that it has.
pub fn of_changes(
    scene: &Scene,
    model: &Changes,
    real: &Changes,
    version: (u8, u8),
    everywhere: &[Difference],
) -> (Outcome, Vec<String>) {
    let mut used = Vec::new();
    let mut own = Vec::new();
    for found in by_field(model, real) {
        let before = used.len();
        let listed = everywhere
            .iter()
            .filter(|one| one.concerns(version) && covers(&one.what, &found.0));
        used.extend(listed.map(|one| one.what.clone()));
        if used.len() == before {
            own.push(found);
        }
    }
    (settle(&own, &scene.differs, version), used)
}

/// Two sides that agree may both be wrong.
fn expected(code: Option<u16>, real: &Answer, outcome: Outcome) -> Outcome {
    match code {
        Some(code) if real.code() != code.to_string() => {
            let said = real
                .fields
                .get("message")
                .map_or(String::new(), Value::to_string);
            Outcome::Wrong(vec![format!(
                "code: expected {code}, the real servers say {} {said}",
                real.code()
            )])
        }
        _ => outcome,
    }
}

/// What differs, and how: a name and a sentence.
type Found = (String, String);

fn differences(model: &Answer, real: &Answer) -> Vec<Found> {
    let mut fields: Vec<_> = model.fields.keys().chain(real.fields.keys()).collect();
    fields.sort();
    fields.dedup();
    fields
        .into_iter()
        .filter(|field| model.fields.get(*field) != real.fields.get(*field))
        .map(|field| {
            let show = |answer: &Answer| {
                answer
                    .fields
                    .get(field)
                    .map_or("(absent)".to_owned(), Value::to_string)
            };
            (
                (*field).to_owned(),
                format!("real {}\n  model {}", show(real), show(model)),
            )
        })
        .collect()
}

fn by_field(model: &Changes, real: &Changes) -> Vec<Found> {
    let (model, real) = (model.by_field(), real.by_field());
    let mut fields: Vec<_> = model.keys().chain(real.keys()).collect();
    fields.sort();
    fields.dedup();
    let show = |values: Option<&Vec<&Value>>| {
        values.map_or("(unchanged)".to_owned(), |values| {
            values
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" → ")
        })
    };
    fields
        .into_iter()
        .filter(|field| model.get(*field) != real.get(*field))
        .map(|field| {
            let text = format!(
                "real {}\n  model {}",
                show(real.get(field)),
                show(model.get(field))
            );
            ((*field).to_owned(), text)
        })
        .collect()
}

/// Whether everything that was found is listed, and everything that is listed was found.
fn settle(found: &[Found], listed: &[Difference], version: (u8, u8)) -> Outcome {
    let listed: Vec<&Difference> = listed.iter().filter(|one| one.concerns(version)).collect();
    let mut wrong: Vec<String> = found
        .iter()
        .filter(|(what, _)| !listed.iter().any(|one| covers(&one.what, what)))
        .map(|(what, how)| format!("{what}: {how}"))
        .collect();
    wrong.extend(
        listed
            .iter()
            .filter(|one| !one.race && !found.iter().any(|(what, _)| covers(&one.what, what)))
            .map(|one| {
                format!(
                    "{}: is listed as a difference and is none any more ({})",
                    one.what, one.why
                )
            }),
    );
    if !wrong.is_empty() {
        return Outcome::Wrong(wrong);
    }
    if found.is_empty() {
        return Outcome::Same;
    }
    Outcome::Listed(
        listed
            .iter()
            .map(|one| format!("{}: {}", one.what, one.why))
            .collect(),
    )
}

/// Each `*` stands for any text.
pub(super) fn covers(listed: &str, what: &str) -> bool {
    let mut parts = listed.split('*');
    let Some(mut rest) = parts.next().and_then(|first| what.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(what: &str) -> Difference {
        Difference {
            what: what.to_owned(),
            why: "known".to_owned(),
            race: false,
            since: None,
            until: None,
        }
    }

    #[test]
    fn a_listed_difference_that_is_none_is_an_error() {
        let found = [("message".to_owned(), "other words".to_owned())];
        assert_eq!(settle(&[], &[], (1, 7)), Outcome::Same);
        assert!(matches!(settle(&found, &[], (1, 7)), Outcome::Wrong(_)));
        assert!(matches!(
            settle(&found, &[listed("message")], (1, 7)),
            Outcome::Listed(_)
        ));
        assert!(matches!(
            settle(&found, &[listed("mess*")], (1, 7)),
            Outcome::Listed(_)
        ));
        assert!(matches!(
            settle(&[], &[listed("message")], (1, 7)),
            Outcome::Wrong(_)
        ));
        assert!(matches!(
            settle(&found, &[listed("message"), listed("code")], (1, 7)),
            Outcome::Wrong(_)
        ));
    }
}
