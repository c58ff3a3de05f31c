//! The comparison as one table, with a count.

use comfy_table::{Table, presets};

use super::orders::Finding;
use super::table::Difference;
use super::verdict::{Outcome, Verdict};

/// What is told while it goes on.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// A scene was compared.
    Judged(&'a Verdict),
    /// Something is played again, and why.
    Again(&'a str),
}

/// Everything that was compared.
#[derive(Clone, Debug)]
pub struct Report {
    /// KubeVirt's version.
    pub kubevirt: (u8, u8),
    /// The scenes.
    pub verdicts: Vec<Verdict>,
    /// Listed for every scene, found in none.
    pub unused: Vec<String>,
    /// The order of the changes in the stories.
    pub orders: Vec<Finding>,
}

impl Report {
    /// A report of these scenes.
    pub fn new(kubevirt: (u8, u8), verdicts: Vec<Verdict>) -> Self {
        Self {
            kubevirt,
            verdicts,
            unused: Vec::new(),
            orders: Vec::new(),
        }
    }

    /// After a whole run: what is listed for every scene and was found in none.
    pub fn forget_nothing(&mut self, everywhere: &[Difference]) {
        let found = |what: &String| {
            self.verdicts
                .iter()
                .any(|verdict| verdict.used.contains(what))
        };
        self.unused = everywhere
            .iter()
            .filter(|one| one.concerns(self.kubevirt) && !one.race && !found(&one.what))
            .map(|one| one.what.clone())
            .collect();
    }

    /// Whether there is no unexplained difference.
    pub fn passed(&self) -> bool {
        self.unused.is_empty()
            && self.orders.iter().all(|one| one.breaches.is_empty())
            && !self.verdicts.is_empty()
            && self.verdicts.iter().all(Verdict::passed)
    }

    /// The whole table, what differs, and the count.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["SCENE", "REQUEST", "ANSWER", "MODEL"]);
        for verdict in &self.verdicts {
            for line in &verdict.lines {
                let word = match &line.outcome {
                    Outcome::Same => "same".to_owned(),
                    Outcome::Listed(why) => format!("known: {}", why.join("; ")),
                    Outcome::Wrong(_) => "DIFFERS".to_owned(),
                };
                table.add_row([verdict.scene.as_str(), &line.case, &line.code, &word]);
            }
        }
        let wrong: String = self
            .verdicts
            .iter()
            .filter(|verdict| !verdict.passed())
            .map(wrong)
            .collect();
        let unused = self.unused.iter().fold(String::new(), |text, what| {
            format!("{text}! {what} is listed for every scene and differs in none any more\n")
        });
        let orders: String = self.orders.iter().map(Finding::text).collect();
        format!("{table}\n{wrong}{unused}{orders}\n{}\n", self.count())
    }

    fn count(&self) -> String {
        let lines = || self.verdicts.iter().flat_map(|verdict| &verdict.lines);
        let requests = lines().filter(|line| line.case != "(changes)").count();
        let of =
            |wanted: fn(&Outcome) -> bool| lines().filter(|line| wanted(&line.outcome)).count();
        let orders: usize = self.orders.iter().map(|one| one.breaches.len()).sum();
        format!(
            "KubeVirt {}.{}: {requests} requests, the changes of {} scenes, the order of {} stories: {} same, {} known differences, {} unexplained; {} scenes could not be played",
            self.kubevirt.0,
            self.kubevirt.1,
            lines().count() - requests,
            self.orders.len(),
            of(|outcome| *outcome == Outcome::Same),
            of(|outcome| matches!(outcome, Outcome::Listed(_))),
            of(|outcome| matches!(outcome, Outcome::Wrong(_))) + orders,
            self.verdicts
                .iter()
                .filter(|verdict| !verdict.problems.is_empty())
                .count(),
        )
    }
}

/// What is wrong with a scene.
pub fn wrong(verdict: &Verdict) -> String {
    let mut text = format!("{}\n", verdict.scene);
    for problem in &verdict.problems {
        text.extend(["! ", problem.as_str(), "\n"]);
    }
    for line in &verdict.lines {
        if let Outcome::Wrong(differences) = &line.outcome {
            text.extend(["- ", &line.case, " (", &line.code, ")\n"]);
            for difference in differences {
                text.extend(["  ", difference.as_str(), "\n"]);
            }
        }
    }
    text
}
