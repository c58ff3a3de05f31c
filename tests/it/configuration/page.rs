//! The page: sections, introductions and tables, from types, comments and defaults.

use super::source::{Field, Shape, Table, Types, Word};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Where the sections go in the text around them.
const PLACE: &str = "{{sections}}\n";
/// A field that is no key: another key sets it.
const SET_ELSEWHERE: [&str; 1] = ["timing.request"];

/// A page being written.
pub(super) struct Page<'a> {
    types: &'a Types,
    /// Every key with its default.
    defaults: &'a BTreeMap<String, Value>,
    text: String,
    told: BTreeSet<String>,
}

/// The whole page, or what is missing in it.
pub(super) fn make(
    types: &Types,
    defaults: &BTreeMap<String, Value>,
    around: &str,
) -> Result<String, String> {
    let Some((before, after)) = around.split_once(PLACE) else {
        return Err(format!("the text around the sections has no {PLACE:?}"));
    };
    let mut page = Page {
        types,
        defaults,
        text: before.to_owned(),
        told: BTreeSet::new(),
    };
    for field in &table(types, &named("Settings"))?.fields {
        page.top(field)?;
    }
    let keys: BTreeSet<String> = defaults.keys().cloned().collect();
    if page.told != keys {
        let missing: Vec<_> = keys.symmetric_difference(&page.told).collect();
        return Err(format!(
            "keys that only the page or only the configuration knows: {missing:?}"
        ));
    }
    Ok(page.text.trim_end().to_owned() + "\n" + after)
}

impl Page<'_> {
    /// A section of the first level.
    fn top(&mut self, field: &Field) -> Result<(), String> {
        let (title, rest) = split(&field.doc);
        if field.shape.name == "Vec" {
            self.told.insert(field.name.clone());
            self.heading(&format!("[[{}]]", field.name), &title);
            self.paragraphs(&rest);
            return self.entries(&field.shape.inner[0]);
        }
        self.section(&field.name, &title, &field.shape)
    }

    /// The keys of one table; tables in it follow as sections of their own.
    fn section(&mut self, name: &str, title: &str, shape: &Shape) -> Result<(), String> {
        let types = self.types;
        let table = table(types, shape)?;
        let is_table = |field: &&Field| types.table(&field.shape).is_some();
        let keys: Vec<&Field> = table.fields.iter().filter(|f| !is_table(f)).collect();
        if !keys.is_empty() {
            self.heading(&format!("[{name}]"), title);
            self.paragraphs(&split(&table.doc).1);
            self.head("key");
            for field in &keys {
                self.key(&format!("{name}.{}", field.name), field)?;
            }
            self.text.push('\n');
        }
        for field in keys.iter().filter(|f| f.shape.name == "Vec") {
            if types.table(&field.shape.inner[0]).is_some() {
                let _ = writeln!(self.text, "Keys of one `[[{name}.{}]]`:\n", field.name);
                self.entries(&field.shape.inner[0])?;
            }
        }
        for field in table.fields.iter().filter(is_table) {
            let title = split(&field.doc).0;
            if field.serde.contains("flatten") {
                self.section(name, &title, &field.shape)?;
            } else {
                self.section(&format!("{name}.{}", field.name), &title, &field.shape)?;
            }
        }
        Ok(())
    }

    /// One key with its default.
    fn key(&mut self, key: &str, field: &Field) -> Result<(), String> {
        let Some(default) = self.defaults.get(key) else {
            return if SET_ELSEWHERE.contains(&key) {
                Ok(())
            } else {
                Err(format!("{key} has no default"))
            };
        };
        self.told.insert(key.to_owned());
        self.row(key, &format!("`{default}`"), field)
    }

    /// The keys of a table that can stand there several times.
    fn entries(&mut self, shape: &Shape) -> Result<(), String> {
        let table = table(self.types, shape)?;
        self.head("key of an entry");
        for field in &table.fields {
            let usual = self.types.words(&field.shape).and_then(usual);
            let default = match usual {
                Some(word) if field.serde.contains("default") => format!("`\"{word}\"`"),
                _ if table.optional || field.serde.contains("default") => "none".to_owned(),
                _ => "required".to_owned(),
            };
            self.row(&field.name, &default, field)?;
        }
        self.text.push('\n');
        Ok(())
    }

    fn heading(&mut self, name: &str, title: &str) {
        let title = lower(title.trim_end_matches('.'));
        let _ = writeln!(self.text, "## `{name}`: {title}\n");
    }

    fn paragraphs(&mut self, lines: &[String]) {
        if !lines.is_empty() {
            let _ = writeln!(self.text, "{}\n", lines.join("\n"));
        }
    }

    fn head(&mut self, key: &str) {
        let _ = writeln!(
            self.text,
            "| {key} | default | type | meaning |\n| --- | --- | --- | --- |"
        );
    }

    fn row(&mut self, key: &str, default: &str, field: &Field) -> Result<(), String> {
        if field.doc.is_empty() {
            return Err(format!("{key} has no comment that says what it means"));
        }
        let kind = self.kind(key, &field.shape, &field.serde)?;
        let mut meaning = one_line(&field.doc);
        for word in self.types.words(&field.shape).unwrap_or_default() {
            let told = lower(&one_line(&word.doc));
            let _ = write!(meaning, " `\"{}\"`: {told}", word.text);
        }
        let meaning = meaning.replace('|', "\\|");
        let _ = writeln!(self.text, "| `{key}` | {default} | {kind} | {meaning} |");
        Ok(())
    }

    /// What can be written there.
    fn kind(&self, key: &str, shape: &Shape, serde: &str) -> Result<String, String> {
        if self.types.words(shape).is_some() {
            return Ok("word".into());
        }
        let inner = |at: usize| shape.inner.get(at).map(|it| it.name.as_str());
        Ok(match (shape.name.as_str(), inner(0)) {
            ("Option", _) if serde.contains("auto_span") => "`\"auto\"` or duration".into(),
            ("Option", _) if serde.contains("auto_rate") => "`\"auto\"` or rate".into(),
            ("Option", Some(_)) => self.kind(key, &shape.inner[0], serde)?,
            ("Duration", _) => "duration".into(),
            ("bool", _) => "`true`, `false`".into(),
            ("u32" | "u64" | "usize" | "i64", _) => "number".into(),
            ("String" | "Glob", _) => "text".into(),
            ("PathBuf", _) => "path".into(),
            ("Vec", Some(_)) if self.types.table(&shape.inner[0]).is_some() => {
                "list of tables".into()
            }
            ("Vec", Some("String" | "Selector")) => "list of texts".into(),
            ("BTreeMap", _) => "table".into(),
            (other, _) => {
                return Err(format!(
                    "{key}: tests/it/configuration does not know how a {other} is written in a file"
                ));
            }
        })
    }
}

fn named(name: &str) -> Shape {
    Shape {
        module: String::new(),
        name: name.to_owned(),
        inner: Vec::new(),
    }
}

fn table<'a>(types: &'a Types, shape: &Shape) -> Result<&'a Table, String> {
    types.table(shape).ok_or_else(|| {
        format!(
            "the type {} is in none of the files that are read",
            shape.name
        )
    })
}

fn usual(words: &[Word]) -> Option<&str> {
    let word = words.iter().find(|word| word.usual)?;
    Some(&word.text)
}

/// The first paragraph as one line, and what follows it.
fn split(doc: &[String]) -> (String, Vec<String>) {
    let end = doc.iter().position(String::is_empty).unwrap_or(doc.len());
    let rest = doc.iter().skip(end + 1).cloned().collect();
    (one_line(&doc[..end]), rest)
}

fn one_line(doc: &[String]) -> String {
    let words = doc.iter().filter(|line| !line.is_empty());
    words.cloned().collect::<Vec<_>>().join(" ")
}

/// A sentence as it goes on after a colon; a name keeps its capital.
fn lower(text: &str) -> String {
    let first = text.split(' ').next().unwrap_or_default();
    let name = first.chars().skip(1).any(char::is_uppercase);
    let mut letters = text.chars();
    match letters.next() {
        Some(letter) if !name => letter.to_lowercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}
