//! The rules that hold in every story, whatever it expects.
//!
//! Each looks at new requests and changes as they come, because what they speak of is gone at the end.

mod cluster;
mod host;
mod requests;

use std::time::Duration;

use super::scene::Scene;
use super::tracker::Slack;
use crate::host::Moment;
use crate::scenario::{Rule, Scenario};

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Breach {
    /// Its name in `allow`.
    pub rule: &'static str,
    /// Seconds into the story.
    pub at: f64,
    /// What happened.
    pub what: String,
}

/// What a story has allowed to happen, as far as it is known before it runs.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Rules that may be broken.
    pub allow: Vec<Rule>,
    /// The agent may stop guests whatever happens (`drain.allow_guest_shutdown = "always"`).
    pub always_stop: bool,
    /// It never may.
    pub never_stop: bool,
    /// All pods are drained, not the VMs alone.
    pub all_pods: bool,
    /// Pods with emptyDir data may go.
    pub allow_empty_dir: bool,
    /// Pods may go that nobody makes again.
    pub allow_unmanaged: bool,
    /// It may read VMIs.
    pub sees_vmis: bool,
    /// `evacuate/cancel` exists (KubeVirt 1.7 and later) and may be used.
    pub can_unmark: bool,
    /// What the agent keeps free before logind's limit.
    pub margin: Duration,
    /// How far a real clock may be off.
    pub slack: Slack,
}

/// Everything that is watched.
#[derive(Debug)]
pub struct Rules {
    terms: Terms,
    breaches: Vec<Breach>,
    requests: requests::Requests,
    cluster: cluster::Cluster,
    host: host::Host,
    lines_seen: usize,
    /// Errors in the journal for which nothing has failed yet.
    errors: Vec<(Duration, String)>,
}

impl Rules {
    /// Nothing broken yet.
    pub fn new(scenario: &Scenario, terms: Terms) -> Self {
        Self {
            requests: requests::Requests::new(scenario),
            cluster: cluster::Cluster::default(),
            host: host::Host::default(),
            terms,
            breaches: Vec::new(),
            lines_seen: 0,
            errors: Vec::new(),
        }
    }

    /// An operator asked for something that allows guests to be stopped from now on.
    pub fn consent(&mut self) {
        self.requests.consent = true;
    }

    /// An operator cancelled the drain and was not refused.
    pub fn cancelled(&mut self) {
        self.cluster.cancelled = true;
    }

    /// Looks at what is new.
    pub fn step(&mut self, scene: &Scene<'_>, history: &[Moment]) {
        let mut found = Found {
            now: scene.now,
            list: Vec::new(),
        };
        self.host.step(&self.terms, scene, history, &mut found);
        self.requests.consent |= self.host.going_down();
        self.requests.step(&self.terms, scene, &mut found);
        self.cluster.step(scene, &mut found);
        let lines = scene.journal.lines_from(self.lines_seen);
        self.lines_seen += lines.len();
        self.journal(scene, &mut found);
        self.add(found);
    }

    /// The story is over.
    pub fn end(&mut self, scene: &Scene<'_>) {
        let mut found = Found {
            now: scene.now,
            list: Vec::new(),
        };
        self.cluster.end(&self.terms, scene, &mut found);
        self.add(found);
        for (at, text) in std::mem::take(&mut self.errors) {
            self.broken(
                Rule::ErrorLines,
                at,
                format!("the journal has an error: {text}"),
            );
        }
    }

    /// A rule that somebody else watches was broken.
    pub fn broken(&mut self, rule: Rule, at: Duration, how: impl Into<String>) {
        let mut found = Found {
            now: at,
            list: Vec::new(),
        };
        found.add(rule, how);
        self.add(found);
    }

    /// Everything that was broken and not allowed, each sentence once.
    pub fn breaches(&self) -> &[Breach] {
        &self.breaches
    }

    /// A drain that has failed (deadline, another machine, no API) says so as an error, and rightly; nothing else does.
    fn journal(&mut self, scene: &Scene<'_>, found: &mut Found) {
        let lines = scene.journal.lines_from(self.lines_seen);
        self.lines_seen += lines.len();
        for line in lines.into_iter().filter(|line| line.level == "error") {
            if line.text.contains("panicked") {
                found.add(
                    Rule::Panic,
                    format!("the journal has a panic: {}", line.text),
                );
            } else {
                self.errors.push((scene.now, line.text));
            }
        }
        let drain = scene
            .glance
            .status
            .as_ref()
            .and_then(|status| status.drain.as_ref());
        if drain
            .and_then(|drain| drain.exit)
            .is_some_and(|exit| exit != 0 && exit != 5)
        {
            self.errors.clear();
        }
    }

    fn add(&mut self, found: Found) {
        for (rule, what) in found.list {
            let known = self.breaches.iter().any(|breach| breach.what == what);
            if !known && !self.terms.allow.contains(&rule) {
                self.breaches.push(Breach {
                    rule: rule.name(),
                    at: found.now.as_secs_f64(),
                    what,
                });
            }
        }
    }
}

/// What one step found.
#[derive(Debug)]
struct Found {
    now: Duration,
    list: Vec<(Rule, String)>,
}

impl Found {
    fn add(&mut self, rule: Rule, what: impl Into<String>) {
        self.list.push((rule, what.into()));
    }
}
