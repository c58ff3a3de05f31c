//! What is printed side by side, and what the agent has to reach.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use super::super::super::Verdict;
use super::super::super::observer::Story;
use crate::scenario::expect::Fate;

/// The host may go so many seconds after the last VM's pod has ended.
const AT_ONCE: f64 = 0.5;

/// Where a VM ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// What became of it, in one word.
    pub fate: String,
    /// Its node; empty when it runs nowhere.
    pub node: String,
    /// Migrations that were begun for it.
    pub migrations: usize,
}

impl Place {
    /// `host`: the node that is emptied.
    pub(super) fn of(story: &Story, host: &str) -> Self {
        let fate = match story.fate() {
            // It came from elsewhere, and is not here.
            Some(Fate::Left) if story.node != host => "elsewhere",
            Some(Fate::Migrated) => "migrated",
            Some(Fate::Restarted) => "restarted",
            Some(Fate::ShutDown) => "shut down",
            Some(Fate::Left) => "left",
            Some(Fate::Killed) => "killed with the host",
            None => "nowhere yet",
        };
        Self {
            fate: fate.into(),
            node: if story.phase == "Running" {
                story.node.clone()
            } else {
                String::new()
            },
            migrations: story.attempts.len(),
        }
    }

    fn text(&self) -> String {
        let mut text = self.fate.clone();
        if !self.node.is_empty() {
            let _ = write!(text, ", on {}", self.node);
        }
        if self.migrations > 1 {
            let _ = write!(text, " ({} migrations)", self.migrations);
        }
        text
    }
}

/// How one of the two has emptied the node. Times are real seconds from the order to drain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Until the host may go, or the command has ended.
    pub took: f64,
    /// Until no launcher pod ran there any more; nothing: one still runs.
    pub emptied: Option<f64>,
    /// Requests to the API server.
    pub requests: usize,
    /// Evictions among them, dry runs included.
    pub evictions: usize,
    /// How it ended, in words.
    pub ended: String,
    /// The node is cordoned at the end of the story.
    pub cordoned: bool,
    /// By VM.
    pub places: BTreeMap<String, Place>,
    /// Ordinary pods that were there, where all pods are drained: whether each is gone.
    pub pods: BTreeMap<String, bool>,
}

/// How a figure of one side is shown.
type Shown<'a> = &'a dyn Fn(&Side) -> String;

/// Both.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Title of the world.
    pub story: String,
    /// Its file.
    pub file: PathBuf,
    /// Which KubeVirt.
    pub version: String,
    /// How much faster than in the story.
    pub speed: f64,
    /// The story's own verdict on the agent.
    pub verdict: Verdict,
    /// The agent.
    pub agent: Side,
    /// `kubectl drain`.
    pub kubectl: Side,
}

impl Comparison {
    /// How much shorter than kubectl's the agent's drain was, in percent.
    pub fn shorter(&self) -> f64 {
        shorter_over(std::slice::from_ref(self))
    }

    /// What did not hold: the story's expectations, and in real time the end right after the last VM.
    fn misses(&self) -> Vec<String> {
        let mut misses = Vec::new();
        if !self.verdict.passed {
            misses.push(format!(
                "the agent's drain: {}",
                self.verdict.text().trim_end()
            ));
        }
        let after = self.agent.emptied.map(|emptied| self.agent.took - emptied);
        let real_time = self.speed <= 1.0;
        if let Some(after) = after.filter(|after| real_time && *after > AT_ONCE) {
            misses.push(format!(
                "the agent ended {after:.2} s after the last VM; at most {AT_ONCE} s"
            ));
        }
        let pods = self.agent.pods.keys().chain(self.kubectl.pods.keys());
        for pod in pods.collect::<BTreeSet<_>>() {
            let is = |side: &Side| side.pods.get(pod).map_or("never seen", |gone| word(*gone));
            let (own, peer) = (is(&self.agent), is(&self.kubectl));
            if own != peer {
                misses.push(format!("pod {pod} is {own}; with kubectl it is {peer}"));
            }
        }
        misses
    }

    fn title(&self) -> String {
        let pace = if self.speed > 1.0 {
            format!(
                "world {} times as fast, kubectl's pauses are not",
                self.speed
            )
        } else {
            "real time".into()
        };
        format!(
            "{} — {} (KubeVirt {}, {pace})\n",
            self.file.display(),
            self.story,
            self.version
        )
    }

    /// Side by side.
    pub fn text(&self) -> String {
        let mut text = self.title();
        let mut row = |name: &str, own: &str, peer: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {name:<22}  {own:<34}  {peer}");
        };
        row("", "vmdrain-agent", "kubectl drain");
        let both = |show: Shown| (show(&self.agent), show(&self.kubectl));
        let rows: [(&str, Shown); 6] = [
            ("took", &|side| format!("{:.1} s", side.took)),
            ("last VM gone", &|side| match side.emptied {
                Some(emptied) => format!("{emptied:.1} s"),
                None => "VMs are still there".into(),
            }),
            ("ended after that", &|side| match side.emptied {
                Some(emptied) => format!("{:.2} s", (side.took - emptied).max(0.0)),
                None => "-".into(),
            }),
            ("requests, evictions", &|side| {
                format!("{}, {}", side.requests, side.evictions)
            }),
            ("node at the end", &|side| {
                if side.cordoned {
                    "cordoned"
                } else {
                    "not cordoned"
                }
                .to_owned()
            }),
            ("how it ended", &|side| side.ended.clone()),
        ];
        for (name, show) in rows {
            let (own, peer) = both(show);
            row(name, &own, &peer);
        }
        let places = |side: &Side, name: &str| match side.places.get(name) {
            Some(place) => place.text(),
            None => "-".into(),
        };
        let names: BTreeSet<&String> = self
            .agent
            .places
            .keys()
            .chain(self.kubectl.places.keys())
            .collect();
        for name in names {
            row(
                name,
                &places(&self.agent, name),
                &places(&self.kubectl, name),
            );
        }
        let pods = self.agent.pods.keys().chain(self.kubectl.pods.keys());
        for pod in pods.collect::<BTreeSet<_>>() {
            let is = |side: &Side| {
                side.pods
                    .get(pod)
                    .map_or("-", |gone| word(*gone))
                    .to_owned()
            };
            row(&format!("pod {pod}"), &is(&self.agent), &is(&self.kubectl));
        }
        // Whoever leaves VMs behind is done sooner, or has waited for them.
        if self.agent.emptied.is_some() && self.kubectl.emptied.is_some() {
            let shorter = self.shorter();
            let word = if shorter < 0.0 { "longer" } else { "shorter" };
            let _ = writeln!(
                text,
                "  the agent's drain was {:.1} % {word}",
                shorter.abs()
            );
        }
        text
    }
}

fn word(gone: bool) -> &'static str {
    if gone { "gone" } else { "still there" }
}

/// How much shorter all drains of the agent together were than those of kubectl, in percent. One round says little: kubectl asks every
/// 5 s, and where in that the migrations end is chance (seen: 8.1 and 15.3 % on the same idle machine).
fn shorter_over(rounds: &[Comparison]) -> f64 {
    let both = |of: fn(&Comparison) -> f64| rounds.iter().map(of).sum::<f64>();
    (1.0 - both(|round| round.agent.took) / both(|round| round.kubectl.took)) * 100.0
}

/// All rounds of a world together were not shorter than kubectl's by so many percent.
pub fn is_slow(rounds: &[Comparison], shorter: Option<f64>) -> bool {
    shorter.is_some_and(|wanted| shorter_over(rounds) < wanted)
}

/// What did not hold in the rounds of one world: in each of them, and in the time of all. `shorter`: so many percent at least.
pub fn misses(rounds: &[Comparison], shorter: Option<f64>) -> Vec<String> {
    let mut misses: Vec<String> = rounds.iter().flat_map(Comparison::misses).collect();
    if let Some(wanted) = shorter.filter(|_| is_slow(rounds, shorter)) {
        misses.push(format!(
            "the agent was {:.1} % faster than kubectl over {} round(s); at least {wanted} %",
            shorter_over(rounds),
            rounds.len(),
        ));
    }
    misses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(took: f64, emptied: Option<f64>) -> Side {
        Side {
            took,
            emptied,
            requests: 7,
            evictions: 2,
            ended: "exit 0".into(),
            cordoned: true,
            places: [(
                "db".to_owned(),
                Place {
                    fate: "migrated".into(),
                    node: "n2".into(),
                    migrations: 1,
                },
            )]
            .into(),
            pods: BTreeMap::new(),
        }
    }

    fn comparison(agent: Side, kubectl: Side, speed: f64) -> Comparison {
        let mut verdict = Verdict::skipped(PathBuf::new(), "a world", String::new());
        verdict.passed = true;
        verdict.skipped = None;
        Comparison {
            story: "a world".into(),
            file: "x.toml".into(),
            version: "1.7.0".into(),
            speed,
            verdict,
            agent,
            kubectl,
        }
    }

    #[test]
    fn both_are_shown_and_the_figures_judged() {
        let seen = comparison(side(90.0, Some(89.9)), side(100.0, Some(95.0)), 1.0);
        let round = std::slice::from_ref(&seen);
        assert_eq!(misses(round, Some(8.0)), Vec::<String>::new());
        let text = seen.text();
        for words in [
            "90.0 s",
            "100.0 s",
            "migrated, on n2",
            "10.0 % shorter",
            "7, 2",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn late_and_slow_are_misses_in_real_time_only() {
        let slow = comparison(side(93.0, Some(92.0)), side(100.0, Some(95.0)), 1.0);
        assert_eq!(misses(&[slow], Some(8.0)).len(), 2);
        let fast = comparison(side(93.0, Some(92.0)), side(100.0, Some(95.0)), 4.0);
        assert!(misses(&[fast], None).is_empty());
    }

    #[test]
    fn rounds_count_by_their_time() {
        let round = |own, peer| comparison(side(own, None), side(peer, None), 1.0);
        let over = shorter_over(&[round(90.0, 100.0), round(120.0, 200.0)]);
        assert!((over - 30.0).abs() < 1e-9, "{over}");
        let slow_first = [round(93.0, 100.0), round(80.0, 100.0)];
        assert!(is_slow(&slow_first[..1], Some(8.0)));
        assert!(misses(&slow_first, Some(8.0)).is_empty());
    }

    #[test]
    fn the_same_pods_have_to_be_gone() {
        let mut seen = comparison(side(1.0, None), side(2.0, None), 4.0);
        for (side, gone) in [(&mut seen.agent, false), (&mut seen.kubectl, true)] {
            side.pods = [("a/web".to_owned(), gone), ("a/db".to_owned(), true)].into();
        }
        let misses = seen.misses();
        assert_eq!(misses.len(), 1, "{misses:?}");
        assert!(misses[0].contains("pod a/web is still there"), "{misses:?}");
        assert!(seen.text().contains("pod a/db"));
    }

    #[test]
    fn what_the_story_wants_is_part_of_it() {
        let mut seen = comparison(side(1.0, None), side(2.0, None), 4.0);
        seen.verdict.passed = false;
        assert_eq!(misses(&[seen], None).len(), 1);
    }
}
