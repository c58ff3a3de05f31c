//! Plays one scene on one side.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::answer::Answer;
use super::changes::{Changes, Recorder};
use super::names::Names;
use super::side::{Ask, LOOK, NODES, Reply, Side, Who, get};
use super::states::{PATIENCE, State, spec};
use super::table::{Scene, Step, Vm};
use crate::clock::SimClock;
use crate::world::objects;

const JSON: &str = "application/json";

/// What one side told.
#[derive(Debug, Default)]
pub struct Told {
    /// Titles and answers of the compared requests, in order.
    pub cases: Vec<(String, Answer)>,
    /// What happened to the objects.
    pub changes: Changes,
    /// Why the scene could not be played to its end.
    pub problem: Option<String>,
    /// How long it was played.
    pub took: Duration,
}

impl Told {
    /// Whether a webhook or the aggregated API did not answer in time.
    pub fn is_late(&self) -> bool {
        let late = |text: &str| text.contains("context deadline exceeded");
        self.problem.as_deref().is_some_and(late)
            || self.cases.iter().any(|(_, answer)| {
                let message = answer.fields.get("message").and_then(Value::as_str);
                message.is_some_and(late)
            })
    }
}

/// A scene whose steps were played on one side; what they caused may still go on.
pub struct Played<'a> {
    scene: &'a Scene,
    stage: Stage<'a>,
    told: Told,
    clock: SimClock,
}

impl<'a> Played<'a> {
    /// Plays a scene's steps; no two plays may have the same number.
    pub async fn begin(scene: &'a Scene, side: &'a Side, number: usize) -> Self {
        let clock = SimClock::new(1.0);
        let mut stage = Stage::new(scene, side, number);
        let mut told = Told::default();
        if let Err(error) = stage.play(scene, &mut told).await {
            told.problem = Some(format!("{error:#}"));
        }
        Self {
            scene,
            stage,
            told,
            clock,
        }
    }

    /// Whether the steps were played to their end, and changes are recorded.
    pub fn goes_on(&self) -> bool {
        self.told.problem.is_none() && self.stage.recorder.is_some()
    }

    /// For how long nothing has changed.
    pub fn quiet(&self) -> Duration {
        let recorder = self.stage.recorder.as_ref();
        recorder.map_or(Duration::MAX, Recorder::quiet)
    }

    /// What has happened to the objects so far.
    pub fn changes(&self) -> Changes {
        let recorder = self.stage.recorder.as_ref();
        let records = recorder.map(Recorder::records).unwrap_or_default();
        Changes::of(records, &self.stage.names)
    }

    /// It cannot be compared.
    pub fn fail(&mut self, why: &str) {
        self.told.problem.get_or_insert_with(|| why.to_owned());
    }

    /// Cleans up behind it.
    pub async fn end(mut self) -> Told {
        self.told.changes = self.changes();
        self.stage.recorder = None;
        self.stage.clear().await;
        if let Err(error) = self.stage.side.revoke(&self.scene.rights).await {
            self.told.problem.get_or_insert(format!("{error:#}"));
        }
        self.told.took = self.clock.elapsed();
        self.told
    }
}

struct Stage<'a> {
    side: &'a Side,
    names: Names,
    /// What `${…}` stands for.
    words: BTreeMap<String, String>,
    recorder: Option<Recorder>,
}

/// A name that no other scene and no other run has.
fn namespace_of(scene: &Scene, number: usize) -> String {
    let slug: String = scene
        .name
        .chars()
        .map(|char| {
            if char.is_ascii_alphanumeric() {
                char.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .take(40)
        .collect();
    let process = std::process::id();
    format!("{}-{number}-{process:05x}", slug.trim_matches('-'))
}

impl<'a> Stage<'a> {
    fn new(scene: &Scene, side: &'a Side, number: usize) -> Self {
        let words = BTreeMap::from([("ns".to_owned(), namespace_of(scene, number))]);
        Self {
            side,
            names: Names::default(),
            words,
            recorder: None,
        }
    }

    async fn play(&mut self, scene: &Scene, told: &mut Told) -> anyhow::Result<()> {
        self.side.grant(&scene.rights).await?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.words["ns"]}});
        self.side
            .must(
                "POST /api/v1/namespaces",
                &namespace.to_string(),
                "application/json",
            )
            .await?;
        for vm in &scene.vms {
            self.make(vm).await?;
        }
        for vm in scene.vms.iter().filter(|vm| !vm.not_running) {
            self.meet(vm).await?;
        }
        self.settle_nodes();
        if scene.changes {
            let namespace = self.words["ns"].clone();
            self.recorder = Some(Recorder::start(self.side, &namespace).await?);
        }
        for step in scene
            .steps
            .iter()
            .filter(|step| step.concerns(self.side.kubevirt))
        {
            self.step(step, told)
                .await
                .with_context(|| format!("{}: {}", self.side.name, title(step)))?;
        }
        Ok(())
    }

    /// Creates a VMI, or a VM that makes one.
    async fn make(&self, vm: &Vm) -> anyhow::Result<()> {
        let namespace = &self.words["ns"];
        let spec = spec(vm, namespace);
        let (plural, object) = if let Some(strategy) = &vm.run_strategy {
            let mut object = objects::vm(&spec, &vm.name, strategy);
            object["metadata"]["finalizers"] = Value::Null;
            object["status"] = Value::Null;
            ("virtualmachines", object)
        } else {
            let mut object = objects::template(&spec);
            object["apiVersion"] = json!("kubevirt.io/v1");
            object["kind"] = json!("VirtualMachineInstance");
            object["metadata"]["name"] = json!(vm.name);
            object["metadata"]["namespace"] = json!(namespace);
            ("virtualmachineinstances", object)
        };
        let line = format!("POST /apis/kubevirt.io/v1/namespaces/{namespace}/{plural}");
        let clock = SimClock::new(1.0);
        loop {
            let made = self.side.must(&line, &object.to_string(), JSON).await;
            match made {
                // A busy virt-api does not answer in time.
                Err(error)
                    if error.to_string().contains("failed calling webhook")
                        && clock.elapsed() < PATIENCE =>
                {
                    tokio::time::sleep(5 * LOOK).await;
                }
                made => return made.map(|_| ()),
            }
        }
    }

    /// Waits until a VM runs, and learns its names.
    async fn meet(&mut self, vm: &Vm) -> anyhow::Result<()> {
        let namespace = self.words["ns"].clone();
        let path = format!(
            "/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{}",
            vm.name
        );
        State::of(&path, "/status/conditions/type=Ready/status", Some("True"))
            .wait(self.side)
            .await?;
        State::of(&path, "/status/conditions/type=LiveMigratable/status", None)
            .wait(self.side)
            .await?;
        let vmi = self.side.ask(&Who::Admin, &get(&path)).await?.json();
        let uid = vmi["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let pods = format!(
            "/api/v1/namespaces/{namespace}/pods?labelSelector=kubevirt.io/created-by={uid}"
        );
        let pod = State::of(&pods, "/items/0/metadata/name", None)
            .wait(self.side)
            .await?;
        let node = vmi["status"]["nodeName"].as_str().unwrap_or_default();
        self.words
            .entry("here".to_owned())
            .or_insert_with(|| node.to_owned());
        self.name(&format!("node.{}", vm.name), node);
        self.name(&format!("uid.{}", vm.name), &uid);
        self.name(&format!("pod.{}", vm.name), &pod);
        Ok(())
    }

    /// `here` is where the first VM runs, `there` the node after it.
    fn settle_nodes(&mut self) {
        let here = self
            .words
            .entry("here".to_owned())
            .or_insert_with(|| NODES[0].to_owned())
            .clone();
        let index = NODES.iter().position(|node| **node == here).unwrap_or(0);
        let there = NODES[(index + 1) % NODES.len()];
        self.words.insert("there".to_owned(), there.to_owned());
        self.names.learn(&here, "here");
        for node in NODES {
            self.names.learn(node, "elsewhere");
        }
    }

    fn name(&mut self, token: &str, value: &str) {
        self.words.insert(token.to_owned(), value.to_owned());
        if !NODES.contains(&value) {
            self.names.learn(value, token);
        }
    }

    async fn step(&mut self, step: &Step, told: &mut Told) -> anyhow::Result<()> {
        if let Some(seconds) = step.pause {
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            return Ok(());
        }
        if let Some(state) = &step.virt_api {
            return self.side.reach_virt_api(state == "up").await;
        }
        if let Some(path) = &step.wait {
            let is = step.is.as_deref().map(|text| self.fill(text)).transpose()?;
            let state = State {
                path: &self.fill(path)?,
                field: step.field.as_deref(),
                is: is.as_deref(),
                gone: step.gone,
            };
            return state.wait(self.side).await.map(|_| ());
        }
        if let Some(name) = &step.name {
            let from = self.fill(step.from.as_deref().unwrap_or_default())?;
            let field = self.fill(step.field.as_deref().unwrap_or_default())?;
            let value = State::of(&from, &field, None).wait(self.side).await?;
            self.name(name, &value);
            return Ok(());
        }
        let ask = self.request(step)?;
        let who = self.fill(step.who.as_deref().unwrap_or("admin"))?;
        let who = Who::parse(&who, &self.words)?;
        let reply = self.side.ask(&who, &ask).await;
        match (&step.case, reply) {
            (Some(title), Ok(reply)) => {
                let answer = Answer::read(&reply, step.compare, &self.names);
                told.cases.push((title.clone(), answer));
            }
            (Some(title), Err(error)) => {
                told.cases
                    .push((title.clone(), Answer::none(&format!("{error:#}"))));
            }
            (None, reply) => expect(&reply?, step.code)?,
        }
        Ok(())
    }

    fn request(&self, step: &Step) -> anyhow::Result<Ask> {
        let mut headers = vec![(
            "content-type",
            step.content_type
                .clone()
                .unwrap_or_else(|| "application/json".to_owned()),
        )];
        if let Some(accept) = &step.accept {
            headers.push(("accept", accept.clone()));
        }
        if let Some(pod) = &step.evict {
            let (line, body) = self.eviction(&self.fill(pod)?, step)?;
            return Ok(Ask {
                line,
                body,
                headers,
            });
        }
        let line = step.line.as_deref().context("a step that does nothing")?;
        Ok(Ask {
            line: self.fill(line)?,
            body: self.fill(step.body.as_deref().unwrap_or_default())?,
            headers,
        })
    }

    fn eviction(&self, pod: &str, step: &Step) -> anyhow::Result<(String, String)> {
        let namespace = &self.words["ns"];
        let mut body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}});
        let mut line = format!("POST /api/v1/namespaces/{namespace}/pods/{pod}/eviction");
        match step.dry.as_deref() {
            Some("query") => line.push_str("?dryRun=All"),
            Some(_) => body["deleteOptions"]["dryRun"] = json!(["All"]),
            None => {}
        }
        if let Some(uid) = &step.uid {
            body["deleteOptions"]["preconditions"]["uid"] = json!(self.fill(uid)?);
        }
        Ok((line, body.to_string()))
    }

    /// A text with its `${…}` filled in.
    fn fill(&self, text: &str) -> anyhow::Result<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (word, after) = after.split_once('}').context("a ${ without its }")?;
            let value = self.words.get(word);
            out.push_str(before);
            out.push_str(value.with_context(|| format!("what is ${{{word}}}?"))?);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    /// VMs, then the namespace with everything else. What is left does not disturb other scenes.
    async fn clear(&self) {
        let namespace = &self.words["ns"];
        for line in [
            format!("DELETE /apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines"),
            format!("DELETE /apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances"),
            format!("DELETE /api/v1/namespaces/{namespace}"),
        ] {
            let _ = self.side.must(&line, "", "application/json").await;
        }
    }
}

fn title(step: &Step) -> String {
    let what = [&step.case, &step.wait, &step.name, &step.line, &step.evict];
    what.into_iter()
        .flatten()
        .next()
        .cloned()
        .unwrap_or_default()
}

fn expect(reply: &Reply, code: Option<u16>) -> anyhow::Result<()> {
    let fine = code.map_or(reply.code < 300, |code| reply.code == code);
    anyhow::ensure!(
        fine,
        "{} {}",
        reply.code,
        String::from_utf8_lossy(&reply.body)
    );
    Ok(())
}
