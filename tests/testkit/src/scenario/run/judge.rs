//! Is one expectation true in one scene? `Err` says what is there instead.

use std::collections::BTreeMap;

use serde_json::Value;

use super::observer::{Key, Story, text};
use super::scene::{Line, Scene};
use crate::api::log::{Entry, wildcard};
use crate::scenario::expect::{
    Bounds, EventMatch, Fate, HostState, JournalMatch, NodeExpect, PodExpect, RequestMatch,
    SavedExpect, VmExpect, What,
};

/// True, or what is there instead.
pub type Judgement = Result<(), String>;

/// Compares.
pub fn judge(what: &What, scene: &Scene<'_>) -> Judgement {
    match what {
        What::State(wanted) => same(wanted, state(scene)),
        What::Hold(wanted) => same(&yes(*wanted), yes(scene.glance.hold)),
        What::Host(wanted) => {
            let wanted_up = *wanted == HostState::Up;
            let word = if scene.glance.up { "up" } else { "down" };
            (wanted_up == scene.glance.up)
                .then_some(())
                .ok_or_else(|| format!("the host is {word}"))
        }
        What::Vm(vm) => vms(vm, scene),
        What::Pod(pod) => self::pod(pod, scene),
        What::Node(node) => self::node(node, scene),
        What::Requests(which, bounds) => {
            let hits = scene.asked.iter().filter(|entry| request(which, entry));
            count(hits.count(), *bounds, "requests")
        }
        What::Event(which, bounds) => {
            let events = scene.store.list_shared("events");
            let hits = events.iter().filter(|event| self::event(which, event));
            let times: u64 = hits.map(|event| event["count"].as_u64().unwrap_or(1)).sum();
            count(
                usize::try_from(times).unwrap_or(usize::MAX),
                *bounds,
                "events",
            )
        }
        What::Journal(which, bounds) => {
            let lines = scene.journal.lines();
            let hits = lines.iter().filter(|line| journal(which, line));
            count(hits.count(), *bounds, "lines")
        }
        What::Saved(saved) => self::saved(saved, scene),
        What::Status(paths, contains) => {
            let json = status(scene);
            self::paths(paths, &json)?;
            contains
                .as_deref()
                .map_or(Ok(()), |text| holds(text, &json.to_string()))
        }
        What::Report(_) => Err("not yet: there are no reports".into()),
        What::Disk(_) => Err("not yet: the host has no disk to look at".into()),
    }
}

fn state<'a>(scene: &'a Scene<'_>) -> &'a str {
    let status = scene.glance.status.as_ref();
    status.map_or("no status", |status| &status.state)
}

fn status(scene: &Scene<'_>) -> Value {
    let status = scene.glance.status.as_deref();
    status
        .and_then(|status| serde_json::to_value(status).ok())
        .unwrap_or(Value::Null)
}

fn same(wanted: &str, is: impl AsRef<str>) -> Judgement {
    let is = is.as_ref();
    if wanted == is {
        return Ok(());
    }
    Err(format!(
        "it is {}",
        if is.is_empty() { "nothing" } else { is }
    ))
}

fn yes(value: bool) -> String {
    value.to_string()
}

fn holds(wanted: &str, text: &str) -> Judgement {
    if text.contains(wanted) {
        return Ok(());
    }
    Err(format!("it says {text:?}"))
}

fn count(count: usize, bounds: Bounds, of: &str) -> Judgement {
    if bounds.hold(count as u64) {
        return Ok(());
    }
    Err(format!("there are {count} {of}"))
}

fn request(which: &RequestMatch, entry: &Entry) -> bool {
    let fits = |wanted: &Option<String>, is: &str| {
        wanted.as_ref().is_none_or(|wanted| wildcard(wanted, is))
    };
    fits(&which.verb, &entry.verb)
        && fits(&which.resource, &entry.resource)
        && fits(&which.subresource, &entry.subresource)
        && fits(&which.namespace, &entry.namespace)
        && fits(&which.name, &entry.name)
}

fn event(which: &EventMatch, event: &Value) -> bool {
    let fits =
        |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
    fits(&which.reason, text(event, &["reason"]))
        && fits(&which.object, text(event, &["involvedObject", "name"]))
        && which
            .contains
            .as_ref()
            .is_none_or(|part| text(event, &["message"]).contains(part))
}

fn journal(which: &JournalMatch, line: &Line) -> bool {
    let field = |field: &String| match field.split_once('=') {
        Some((key, value)) => line.fields.get(key).is_some_and(|is| is == value),
        None => line.fields.contains_key(field),
    };
    which
        .level
        .as_ref()
        .is_none_or(|level| *level == line.level)
        && which
            .contains
            .as_ref()
            .is_none_or(|part| line.text.contains(part))
        && which.field.as_ref().is_none_or(field)
}

fn saved(wanted: &SavedExpect, scene: &Scene<'_>) -> Judgement {
    let Some(saved) = scene.results.get(&wanted.name) else {
        return Err(format!("`{}` has not ended", wanted.name));
    };
    if let Some(exit) = wanted.exit
        && exit != saved.exit
    {
        return Err(format!(
            "it ended with {}: {}",
            saved.exit,
            saved.output.trim()
        ));
    }
    if let Some(part) = &wanted.contains {
        holds(part, saved.output.trim())?;
    }
    paths(&wanted.json, &saved.json)
}

/// Compares values at `path.in.json`; a number is an index of a list.
fn paths(wanted: &BTreeMap<String, toml::Value>, json: &Value) -> Judgement {
    for (path, wanted) in wanted {
        let found = path
            .split('.')
            .try_fold(json, |at, step| match step.parse::<usize>() {
                Ok(index) if at.is_array() => at.get(index),
                Ok(_) | Err(_) => at.get(step),
            });
        let found = found.unwrap_or(&Value::Null);
        if !equal(wanted, found) {
            return Err(format!("{path} is {found}"));
        }
    }
    Ok(())
}

fn equal(wanted: &toml::Value, found: &Value) -> bool {
    match wanted {
        toml::Value::String(text) => found.as_str() == Some(text),
        toml::Value::Boolean(yes) => found.as_bool() == Some(*yes),
        toml::Value::Integer(number) => {
            found.as_i64() == Some(*number)
                || found.to_string().strip_suffix(".0") == Some(&number.to_string())
        }
        toml::Value::Float(number) => found.as_f64().is_some_and(|is| (is - number).abs() < 1e-9),
        toml::Value::Datetime(_) => false,
        toml::Value::Array(list) => found.as_array().is_some_and(|found| {
            found.len() == list.len()
                && list.iter().zip(found).all(|(wanted, is)| equal(wanted, is))
        }),
        toml::Value::Table(table) => table
            .iter()
            .all(|(key, wanted)| found.get(key).is_some_and(|is| equal(wanted, is))),
    }
}

fn vms(wanted: &VmExpect, scene: &Scene<'_>) -> Judgement {
    let named = |key: &&Key| {
        (wanted.vm == "*" || key.1 == wanted.vm)
            && wanted
                .namespace
                .as_ref()
                .is_none_or(|space| *space == key.0)
    };
    let keys: Vec<&Key> = scene.observer.vms.keys().filter(named).collect();
    if keys.is_empty() {
        return Err(format!("there is no vm {}", wanted.vm));
    }
    for key in keys {
        let story = &scene.observer.vms[key];
        vm(wanted, key, story, scene).map_err(|why| format!("{}: {why}", key.1))?;
    }
    Ok(())
}

fn vm(wanted: &VmExpect, key: &Key, story: &Story, scene: &Scene<'_>) -> Judgement {
    if let Some(node) = &wanted.running_on {
        let runs = if story.phase == "Running" {
            story.node.as_str()
        } else {
            ""
        };
        if node != runs {
            return Err(match runs {
                "" => "it does not run".into(),
                node => format!("it runs on {node}"),
            });
        }
    }
    if let Some(outcome) = wanted.outcome
        && story.fate() != Some(outcome)
    {
        return Err(fate(story));
    }
    if let Some(attempts) = wanted.attempts
        && story.attempts.len() as u64 != attempts
    {
        return Err(format!("there were {} attempts", story.attempts.len()));
    }
    if let Some(marked) = wanted.marked
        && story.mark.is_some() != marked
    {
        return Err(match &story.mark {
            Some(node) => format!("it is marked for {node}"),
            None => "it is not marked".into(),
        });
    }
    let status = scene.glance.status.as_deref();
    let line = status.and_then(|status| {
        let mut vms = status.vms.iter();
        vms.find(|vm| vm.namespace == key.0 && vm.name == key.1)
    });
    if let Some(phase) = &wanted.phase {
        let is = if phase.starts_with(char::is_uppercase) {
            story.phase.clone()
        } else {
            let phase = line.and_then(|vm| serde_json::to_value(vm.phase).ok());
            phase
                .and_then(|phase| phase.as_str().map(str::to_owned))
                .unwrap_or_default()
        };
        same(phase, is)?;
    }
    match (&wanted.says, line) {
        (Some(text), Some(line)) => holds(text, &line.says),
        (Some(_), None) => Err("status does not name it".into()),
        (None, _) => Ok(()),
    }
}

fn fate(story: &Story) -> String {
    match (story.fate(), &story.killed) {
        (Some(Fate::Killed), Some(how)) => format!("it was killed: {how}"),
        (Some(fate), _) => format!("it is {fate:?}").to_lowercase(),
        (None, _) => format!(
            "it neither runs nor ended in order (phase {})",
            if story.phase.is_empty() {
                "none"
            } else {
                &story.phase
            }
        ),
    }
}

fn pod(wanted: &PodExpect, scene: &Scene<'_>) -> Judgement {
    let named = |space: &str, name: &str| {
        name == wanted.pod && wanted.namespace.as_deref().is_none_or(|at| at == space)
    };
    if let Some(here) = wanted.here {
        let mut first = scene.observer.pods.values();
        let first = first.find(|pod| {
            let (space, name) = pod.name.split_once('/').unwrap_or_default();
            pod.first_here && named(space, name)
        });
        let Some(first) = first else {
            return Err("it never was on the host".into());
        };
        if first.gone == here {
            let is = if first.gone {
                "it is gone"
            } else {
                "it is still there"
            };
            return Err(is.into());
        }
    }
    if wanted.phase.is_none() && wanted.says.is_none() {
        return Ok(());
    }
    let status = scene.glance.status.as_deref();
    let line = status.and_then(|status| {
        let mut pods = status.pods.iter();
        pods.find(|pod| named(&pod.namespace, &pod.name))
    });
    let Some(line) = line else {
        return Err("status does not name it".into());
    };
    if let Some(phase) = &wanted.phase {
        let is = serde_json::to_value(line.phase).unwrap_or_default();
        same(phase, is.as_str().unwrap_or_default())?;
    }
    wanted
        .says
        .as_ref()
        .map_or(Ok(()), |text| holds(text, &line.says))
}

fn node(wanted: &NodeExpect, scene: &Scene<'_>) -> Judgement {
    let Some(node) = scene.store.get_shared("nodes", "", &wanted.node) else {
        return Err(format!("there is no node {}", wanted.node));
    };
    let annotations = &node["metadata"]["annotations"];
    if let Some(wanted) = wanted.unschedulable {
        let is = node["spec"]["unschedulable"] == true;
        if is != wanted {
            return Err(if is {
                "it is cordoned"
            } else {
                "it is not cordoned"
            }
            .into());
        }
    }
    if let Some(wanted) = wanted.ours {
        let is = annotations["vmdrain.io/cordon"].is_string();
        if is != wanted {
            return Err(if is {
                "our marker is on it"
            } else {
                "our marker is not on it"
            }
            .into());
        }
    }
    if let Some(wanted) = &wanted.annotation {
        let (key, value) = wanted
            .split_once('=')
            .map_or((wanted.as_str(), None), |(key, value)| (key, Some(value)));
        match (annotations.get(key).and_then(Value::as_str), value) {
            (Some(is), Some(value)) => same(value, is)?,
            (Some(_), None) => {}
            (None, _) => return Err(format!("it has no annotation {key}")),
        }
    }
    if let Some(wanted) = &wanted.taint {
        let (key, effect) = wanted
            .split_once(':')
            .map_or((wanted.as_str(), None), |(key, effect)| (key, Some(effect)));
        let taints = node["spec"]["taints"].as_array();
        let there = taints.into_iter().flatten().any(|taint| {
            taint["key"] == key && effect.is_none_or(|effect| taint["effect"] == effect)
        });
        if !there {
            return Err(format!("it has no taint {wanted}"));
        }
    }
    Ok(())
}
