//! The whole timeline in lines: events of the story, requests of the agent, changes of objects, the host, the journal.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::observer::text;
use super::scene::Scene;
use crate::api::log::Entry;
use crate::api::{Change, ChangeKind};
use crate::host::Moment;

/// Collects lines; does nothing unless it is on.
#[derive(Debug, Default)]
pub struct Trace {
    on: bool,
    origin: Duration,
    lines: Vec<(Duration, String)>,
    requests: usize,
    moments: usize,
    journal: usize,
    state: String,
    vms: BTreeMap<String, String>,
}

impl Trace {
    /// A trace that collects or not. The story began at `origin`.
    pub fn new(on: bool, origin: Duration) -> Self {
        Self {
            on,
            origin,
            ..Self::default()
        }
    }

    /// An event of the story.
    pub fn event(&mut self, at: Duration, what: &str) {
        if self.on {
            self.lines.push((at, format!("STORY    {what}")));
        }
    }

    /// What is new in a scene.
    pub fn step(&mut self, scene: &Scene<'_>, changes: &[Change], history: &[Moment]) {
        if !self.on {
            return;
        }
        let at = self.origin + scene.now;
        for change in changes {
            if let Some(line) = object(change) {
                self.lines.push((at, format!("OBJECT   {line}")));
            }
        }
        for entry in scene.log.entries_from(self.requests) {
            self.requests += 1;
            if scene.from_agent(&entry) {
                self.lines
                    .push((entry.at, format!("REQUEST  {}", request(&entry))));
            }
        }
        for moment in history.get(self.moments..).unwrap_or_default() {
            self.lines
                .push((moment.at, format!("HOST     {:?}", moment.change)));
        }
        self.moments = history.len();
        for line in scene.journal.lines_from(self.journal) {
            self.journal += 1;
            self.lines
                .push((line.at, format!("JOURNAL  {} {}", line.level, line.text)));
        }
        self.status(scene, at);
    }

    fn status(&mut self, scene: &Scene<'_>, at: Duration) {
        let Some(status) = &scene.glance.status else {
            return;
        };
        let state = format!("{}: {}", status.state, status.says);
        if state != self.state {
            self.lines.push((at, format!("STATUS   {state}")));
            self.state = state;
        }
        for vm in &status.vms {
            let line = format!("{:?}: {}", vm.phase, vm.says);
            let name = format!("{}/{}", vm.namespace, vm.name);
            if self.vms.get(&name) != Some(&line) {
                self.lines.push((at, format!("VM       {name} {line}")));
                self.vms.insert(name, line);
            }
        }
    }

    /// All lines in order of time; answers of requests are filled in.
    pub fn finish(mut self, scene: &Scene<'_>) -> Vec<String> {
        if !self.on {
            return Vec::new();
        }
        for entry in scene
            .log
            .entries()
            .iter()
            .filter(|entry| scene.from_agent(entry))
        {
            if let (Some(answered), Some(status)) = (entry.answered, entry.status)
                && entry.verb != "watch"
            {
                let text = format!("ANSWER   {status} to {} {}", request(entry), entry.message);
                self.lines.push((answered, text));
            }
        }
        self.lines.sort_by_key(|(at, _)| *at);
        let origin = self.origin;
        let show = |(at, line): (Duration, String)| {
            format!("{:>10.3}  {line}", at.saturating_sub(origin).as_secs_f64())
        };
        self.lines.into_iter().map(show).collect()
    }
}

fn request(entry: &Entry) -> String {
    let mut text = format!("{} {}", entry.verb, entry.resource);
    for part in [&entry.subresource, &entry.namespace, &entry.name] {
        if !part.is_empty() {
            text.push(' ');
            text += part;
        }
    }
    if entry.dry_run {
        text += " (dry run)";
    }
    text
}

fn object(change: &Change) -> Option<String> {
    let object = &change.object;
    if matches!(change.resource.as_str(), "leases" | "events") {
        return None;
    }
    let name = text(object, &["metadata", "name"]);
    let what = match change.kind {
        ChangeKind::Added => "added",
        ChangeKind::Modified => "changed",
        ChangeKind::Deleted => "deleted",
    };
    let now = summary(&change.resource, object);
    let before = change
        .previous
        .as_ref()
        .map(|before| summary(&change.resource, before));
    if change.kind == ChangeKind::Modified && before.as_ref() == Some(&now) {
        return None;
    }
    Some(format!("{} {name} {what}: {now}", change.resource))
}

/// The fields that tell the story.
fn summary(resource: &str, object: &Value) -> String {
    let get = |path: &[&str]| text(object, path).to_owned();
    match resource {
        "pods" => format!(
            "{} on {}{}{}",
            get(&["status", "phase"]),
            get(&["spec", "nodeName"]),
            if object["metadata"]["deletionTimestamp"].is_string() { ", terminating" } else { "" },
            if object["metadata"]["annotations"]["descheduler.alpha.kubernetes.io/eviction-in-progress"].is_string() {
                ", eviction in progress"
            } else {
                ""
            },
        ),
        "virtualmachineinstances" => format!(
            "{} on {}, mark '{}'",
            get(&["status", "phase"]),
            get(&["status", "nodeName"]),
            get(&["status", "evacuationNodeName"])
        ),
        "virtualmachineinstancemigrations" => {
            format!("{} of {}", get(&["status", "phase"]), get(&["spec", "vmiName"]))
        }
        "nodes" => format!(
            "unschedulable {}, ours {}",
            object["spec"]["unschedulable"],
            object["metadata"]["annotations"]["vmdrain.io/cordon"].is_string()
        ),
        "poddisruptionbudgets" => format!("allowed {}", object["status"]["disruptionsAllowed"]),
        _ => get(&["status", "phase"]),
    }
}
