//! Reads the text of a scenario into tables, each with its line.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::event::{Event, NAMES, read as read_event};
use super::expect::Raw;
use super::problem::{Problem, Source};
use super::values::Span;
use super::world::{Hook, HostTable, KubeVirt, Node, Pdb, Pod, Vm, VolumeAttachment};

/// Something with the line on which it stands.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) line: usize,
    pub(super) what: T,
}

/// A file that was read but not yet checked against itself.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) name: Placed<String>,
    pub(super) about: String,
    pub(super) issue: Option<String>,
    pub(super) allow: Placed<Vec<String>>,
    pub(super) kubevirt: KubeVirt,
    pub(super) host: Placed<HostTable>,
    pub(super) agent: Placed<toml::Table>,
    pub(super) nodes: Vec<Placed<Node>>,
    pub(super) vms: Vec<Placed<Vm>>,
    pub(super) pods: Vec<Placed<Pod>>,
    pub(super) pdbs: Vec<Placed<Pdb>>,
    pub(super) hooks: Vec<Placed<Hook>>,
    pub(super) volume_attachments: Vec<Placed<VolumeAttachment>>,
    pub(super) timeline: Vec<Event>,
    pub(super) expectations: Vec<Placed<(Raw, String)>>,
}

const TABLES: &str = "name, about, issue, allow, kubevirt, host, agent, node, vm, pod, pdb, hook, volume_attachment, at, expect";

/// Reads a whole file.
pub(super) fn read(source: Source<'_>) -> Result<Draft, Problem> {
    let document = DeTable::parse(source.text)
        .map_err(|error| source.toml_problem(&error, &(0..0)))?
        .into_inner();
    let version_named = document
        .get("kubevirt")
        .and_then(|table| table.get_ref().as_table())
        .is_some_and(|table| table.contains_key("version"));
    let mut reader = Reader { source, document };
    let draft = Draft {
        name: reader.one("name")?.ok_or_else(|| {
            source.problem_at(1, "the key `name` is missing: what is the story called?")
        })?,
        about: reader.or_default("about")?.what,
        issue: reader.one("issue")?.map(|issue| issue.what),
        allow: reader.or_default("allow")?,
        kubevirt: KubeVirt {
            version_named,
            ..reader.or_default("kubevirt")?.what
        },
        host: reader.or_default("host")?,
        agent: reader.or_default("agent")?,
        nodes: reader.many("node")?,
        vms: reader.many("vm")?,
        pods: reader.many("pod")?,
        pdbs: reader.many("pdb")?,
        hooks: reader.many("hook")?,
        volume_attachments: reader.many("volume_attachment")?,
        timeline: reader.timeline()?,
        expectations: reader.expectations()?,
    };
    match reader.document.iter().next() {
        Some((key, _)) => Err(source.problem(
            &key.span(),
            format!("unknown key `{}`, expected one of {TABLES}", key.get_ref()),
        )),
        None => Ok(draft),
    }
}

struct Reader<'a> {
    source: Source<'a>,
    document: DeTable<'a>,
}

impl<'a> Reader<'a> {
    fn value<T: DeserializeOwned>(
        &self,
        place: &Range<usize>,
        value: Spanned<DeValue<'a>>,
    ) -> Result<Placed<T>, Problem> {
        let line = self.source.line(place.start);
        T::deserialize(ValueDeserializer::from(value))
            .map(|what| Placed { line, what })
            .map_err(|error| self.source.toml_problem(&error, place))
    }

    fn one<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<Placed<T>>, Problem> {
        let Some((key, value)) = self.document.remove_entry(key) else {
            return Ok(None);
        };
        self.value(&key.span(), value).map(Some)
    }

    fn or_default<T: DeserializeOwned + Default>(
        &mut self,
        key: &str,
    ) -> Result<Placed<T>, Problem> {
        Ok(self.one(key)?.unwrap_or(Placed {
            line: 1,
            what: T::default(),
        }))
    }

    /// The elements of an array of tables.
    fn elements(&mut self, key: &str) -> Result<Vec<Spanned<DeValue<'a>>>, Problem> {
        let Some((key, value)) = self.document.remove_entry(key) else {
            return Ok(Vec::new());
        };
        let value = value.into_inner();
        if let DeValue::Array(list) = value {
            return Ok(list.into_iter().collect());
        }
        Err(self.source.problem(
            &key.span(),
            format!(
                "`{0}` is a list of tables, written [[{0}]], not {1}",
                key.get_ref(),
                value.type_str()
            ),
        ))
    }

    fn many<T: DeserializeOwned>(&mut self, key: &str) -> Result<Vec<Placed<T>>, Problem> {
        self.elements(key)?
            .into_iter()
            .map(|element| self.value(&element.span(), element))
            .collect()
    }

    fn timeline(&mut self) -> Result<Vec<Event>, Problem> {
        let elements = self.elements("at")?;
        let mut events = Vec::with_capacity(elements.len());
        for element in elements {
            events.push(self.event(element)?);
        }
        events.sort_by_key(|event| event.time);
        Ok(events)
    }

    fn event(&self, element: Spanned<DeValue<'a>>) -> Result<Event, Problem> {
        let place = element.span();
        let DeValue::Table(mut table) = element.into_inner() else {
            return Err(self.source.problem(&place, "an event is a table"));
        };
        let time: Placed<Span> = match table.remove_entry("time") {
            Some((key, value)) => self.value(&key.span(), value)?,
            None => Placed {
                line: 0,
                what: Span::default(),
            },
        };
        let Some((key, value)) = table.remove_entry("do") else {
            let text = "the event has no `do`: what happens?";
            return Err(self.source.problem(&place, text));
        };
        let name: Placed<String> = self.value(&key.span(), value)?;
        let keys = Spanned::new(place.clone(), DeValue::Table(table));
        match read_event(&name.what, keys) {
            Some((known, Ok(what))) => Ok(Event {
                time: time.what,
                line: name.line,
                name: known,
                what,
            }),
            Some((known, Err(error))) => {
                let mut problem = self.source.toml_problem(&error, &place);
                problem.text = format!("{known}: {}", problem.text);
                Err(problem)
            }
            None => Err(self.source.problem_at(name.line, unknown_event(&name.what))),
        }
    }

    fn expectations(&mut self) -> Result<Vec<Placed<(Raw, String)>>, Problem> {
        self.elements("expect")?
            .into_iter()
            .map(|element| {
                let text = one_line(element.get_ref());
                let raw: Placed<Raw> = self.value(&element.span(), element)?;
                Ok(Placed {
                    line: raw.line,
                    what: (raw.what, text),
                })
            })
            .collect()
    }
}

/// A sentence that names the events of the same family.
fn unknown_event(name: &str) -> String {
    let family = name.split('.').next().unwrap_or_default();
    let kin: Vec<&str> = NAMES
        .iter()
        .map(|(known, _)| *known)
        .filter(|known| known.split('.').next() == Some(family))
        .collect();
    if kin.is_empty() {
        let mut families: Vec<&str> = NAMES
            .iter()
            .filter_map(|(known, _)| known.split('.').next())
            .collect();
        families.dedup();
        return format!(
            "there is no event `{name}`: events begin with {}",
            families.join(", ")
        );
    }
    format!("there is no event `{name}`, only {}", kin.join(", "))
}

/// A table in one line, for the verdict: `vm = "db", running_on = "n2"`.
fn one_line(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(list) => {
            let inner: Vec<String> = list.iter().map(|item| one_line(item.get_ref())).collect();
            format!("[{}]", inner.join(", "))
        }
        DeValue::Table(table) => {
            let mut pairs: Vec<(usize, String)> = table
                .iter()
                .map(|(key, value)| {
                    let value = value.get_ref();
                    let inner = if value.is_table() {
                        format!("{{ {} }}", one_line(value))
                    } else {
                        one_line(value)
                    };
                    let name: &Cow<'_, str> = key.get_ref();
                    (key.span().start, format!("{name} = {inner}"))
                })
                .collect();
            pairs.sort();
            let pairs: Vec<String> = pairs.into_iter().map(|(_, pair)| pair).collect();
            pairs.join(", ")
        }
    }
}
