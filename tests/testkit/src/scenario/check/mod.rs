//! Does the story make sense: are all names known, can every event happen, does every expectation compare one thing?

mod events;
mod expectations;
mod names;

use super::event::host::{DownKind, HostDo, Via, Way};
use super::event::{Do, Event};
use super::problem::{Problem, Source};
use super::read::{Draft, Placed};
use super::values::Span;
use super::world::{Node, Pdb, Vm};
use super::{Rule, Scenario};
use names::Names;
use std::collections::BTreeSet;
use vmdrain_agent::config::Settings;

/// Turns a draft into a scenario, or names the first thing that is wrong.
pub(super) fn check(source: Source<'_>, draft: Draft) -> Result<Scenario, Problem> {
    if draft.name.what.trim().is_empty() {
        return Err(source.problem_at(draft.name.line, "`name` is empty"));
    }
    let allow = allowed(source, &draft.allow)?;
    check_host(source, &draft)?;
    check_agent(source, &draft.agent)?;
    let mut names = Names::new(source);
    names.host(&draft.host.what.node);
    for node in &draft.nodes {
        names.add_node(&node.what.name, node.line)?;
    }
    let mut vms = Vec::new();
    for table in &draft.vms {
        names.node(table.what.node.as_deref(), table.line)?;
        makes_sense(source, table)?;
        let vm = placed(&table.what, &draft.host.what.node);
        for name in vm.names() {
            names.add_vm(&vm.namespace, &name, table.line)?;
        }
        vms.push(vm);
    }
    for pod in &draft.pods {
        names.node(pod.what.node.as_deref(), pod.line)?;
        names.add_pod(&pod.what, pod.line)?;
    }
    for pdb in &draft.pdbs {
        one_rule(source, &pdb.what, pdb.line)?;
        names.add_pdb(&pdb.what, pdb.line)?;
    }
    for attachment in &draft.volume_attachments {
        names.node(Some(&attachment.what.node), attachment.line)?;
    }
    check_hooks(source, &draft)?;
    let timeline = events::check(source, &mut names, timeline(draft.timeline))?;
    let expectations = expectations::check(source, &names, draft.expectations)?;
    Ok(Scenario {
        file: source.file.to_path_buf(),
        name: draft.name.what,
        about: draft.about,
        issue: draft.issue,
        allow,
        kubevirt: draft.kubevirt,
        nodes: nodes(&draft.host.what.node, draft.nodes),
        host: draft.host.what,
        agent_line: draft.agent.line,
        agent: draft.agent.what,
        vms,
        pods: draft.pods.into_iter().map(|pod| pod.what).collect(),
        pdbs: draft.pdbs.into_iter().map(|pdb| pdb.what).collect(),
        hooks: draft.hooks.into_iter().map(|hook| hook.what).collect(),
        volume_attachments: draft
            .volume_attachments
            .into_iter()
            .map(|it| it.what)
            .collect(),
        timeline,
        expectations,
    })
}

fn allowed(source: Source<'_>, allow: &Placed<Vec<String>>) -> Result<Vec<Rule>, Problem> {
    allow
        .what
        .iter()
        .map(|name| {
            Rule::by_name(name).ok_or_else(|| {
                let known: Vec<&str> = Rule::ALL.iter().map(|(_, name)| *name).collect();
                let text = format!(
                    "there is no rule `{name}` to allow, only {}",
                    known.join(", ")
                );
                source.problem_at(allow.line, text)
            })
        })
        .collect()
}

fn check_host(source: Source<'_>, draft: &Draft) -> Result<(), Problem> {
    let host = &draft.host;
    if !(250..=270).contains(&host.what.systemd) {
        let text = format!("systemd {} is not modelled (250 to 270)", host.what.systemd);
        return Err(source.problem_at(host.line, text));
    }
    if host.what.node.is_empty() {
        return Err(source.problem_at(host.line, "`host.node` is empty"));
    }
    Ok(())
}

/// Names that the agent would run, each once, and a directory that is the story's own.
fn check_hooks(source: Source<'_>, draft: &Draft) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    for hook in &draft.hooks {
        let name = &hook.what.name;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || !name.bytes().all(plain) {
            let text = format!("hook `{name}`: letters, digits, '-' and '_' make a name");
            return Err(source.problem_at(hook.line, text));
        }
        if !seen.insert((hook.what.gate, name)) {
            let text = format!("there are two hooks {}.d/{name}", hook.what.gate);
            return Err(source.problem_at(hook.line, text));
        }
    }
    let elsewhere = draft.agent.what.get("gates");
    if elsewhere.is_some_and(|gates| gates.get("hooks").is_some()) {
        let text = "`gates.hooks` is the front's: say what lies there with [[hook]]";
        return Err(source.problem_at(draft.agent.line, text));
    }
    Ok(())
}

/// The agent's own keys, judged by the agent itself.
fn check_agent(source: Source<'_>, agent: &Placed<toml::Table>) -> Result<(), Problem> {
    let settings: Result<Settings, toml::de::Error> =
        toml::Value::Table(agent.what.clone()).try_into();
    match settings {
        Ok(_) => Ok(()),
        Err(error) => {
            let text = format!("[agent]: {}", error.message());
            Err(source.problem_at(agent.line, text))
        }
    }
}

/// The whole cluster: the host's node first unless the file describes it.
fn nodes(host: &str, named: Vec<Placed<Node>>) -> Vec<Node> {
    let mut nodes: Vec<Node> = named.into_iter().map(|node| node.what).collect();
    if nodes.iter().all(|node| node.name != host) {
        nodes.insert(0, Node::plain(host));
    }
    nodes
}

/// A story without a timeline is the plain one: the host is powered off.
fn timeline(events: Vec<Event>) -> Vec<Event> {
    if !events.is_empty() {
        return events;
    }
    vec![Event {
        time: Span::default(),
        line: 1,
        name: "host.poweroff",
        what: Do::Host(HostDo::Down(DownKind::Poweroff, Via { with: Way::Logind })),
    }]
}

fn makes_sense(source: Source<'_>, vm: &Placed<Vm>) -> Result<(), Problem> {
    let fail = |text: &str| Err(source.problem_at(vm.line, format!("vm {}: {text}", vm.what.name)));
    if vm.what.name.is_empty() {
        return fail("its name is empty");
    }
    if vm.what.rate.is_some() && vm.what.migration_time.is_some() {
        return fail("`rate` and `migration_time` say the same thing: give one of them");
    }
    if vm.what.migration.is_empty() {
        return fail("`migration` needs at least one outcome");
    }
    Ok(())
}

/// A VM with its `node` filled in.
fn placed(vm: &Vm, host: &str) -> Vm {
    Vm {
        node: Some(vm.node.clone().unwrap_or_else(|| host.to_owned())),
        ..vm.clone()
    }
}

fn one_rule(source: Source<'_>, pdb: &Pdb, line: usize) -> Result<(), Problem> {
    if pdb.min_available.is_some() == pdb.max_unavailable.is_some() {
        let text = format!(
            "pdb {}: give exactly one of `min_available` and `max_unavailable`",
            pdb.name
        );
        return Err(source.problem_at(line, text));
    }
    Ok(())
}
