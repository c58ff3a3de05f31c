//! `config show` and `config check`: what is in force, and who set it?

use super::args::Format;
use super::exit::Exit;
use super::failure::Failure;
use super::look::pad;
use super::screen::Screen;
use crate::config::Sources;
use crate::config::load::Shown;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Prints every setting with its origin.
///
/// # Errors
/// When the configuration is not valid.
pub(super) fn show(
    sources: &Sources,
    output: Format,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let shown = sources.load()?.shown();
    let text = match output {
        Format::Table => as_toml(&shown),
        Format::Json => serde_json::to_string_pretty(&shown).map_err(|why| {
            Failure::new(
                Exit::Failed,
                format!("cannot be written as JSON: {why}"),
                "",
                "",
            )
        })?,
    };
    screen.line(text.trim_end())?;
    Ok(Exit::Done)
}

/// Says whether the configuration is valid.
///
/// # Errors
/// When it is not: every complaint.
pub(super) fn check(sources: &Sources, screen: &mut Screen) -> Result<Exit, Failure> {
    let loaded = sources.load()?;
    for file in &loaded.files {
        screen.line(&format!("read {file}"))?;
    }
    if loaded.files.is_empty() {
        screen.line("no configuration file was found; the packaged defaults are in force")?;
    }
    screen.line("the configuration is valid")?;
    Ok(Exit::Done)
}

/// A file that could be used as it is, with the origin beside each value.
fn as_toml(shown: &[Shown]) -> String {
    let mut sections: BTreeMap<&str, Vec<(String, &str)>> = BTreeMap::new();
    let mut tables = String::new();
    for one in shown {
        if let Some(entries) = entries(one) {
            for entry in entries {
                let _ = write!(tables, "\n{entry}");
            }
            continue;
        }
        let (section, name) = one.key.rsplit_once('.').unwrap_or(("", &one.key));
        sections
            .entry(section)
            .or_default()
            .push((format!("{name} = {}", one.value), &one.origin));
    }
    let width = sections
        .values()
        .flatten()
        .map(|(text, _)| text.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for (section, keys) in sections {
        if !text.is_empty() {
            text.push('\n');
        }
        if !section.is_empty() {
            let _ = writeln!(text, "[{section}]");
        }
        for (setting, origin) in keys {
            let _ = writeln!(text, "{}  # {origin}", pad(&setting, width));
        }
    }
    text.push_str(&tables);
    text
}

/// A list of tables as TOML, each in a block of its own, with the origin in its first line.
fn entries(one: &Shown) -> Option<Vec<String>> {
    let list = one.value.as_array().filter(|list| !list.is_empty())?;
    list.iter()
        .map(|entry| {
            entry.as_object()?;
            // With its whole name, so that a table inside it keeps its place.
            let nest = |inner: serde_json::Value, name: &str| serde_json::json!({ name: inner });
            let alone = one.key.rsplit('.').fold(serde_json::json!([entry]), nest);
            let text = toml::to_string(&alone).ok()?;
            let (head, rest) = text.split_once('\n')?;
            Some(format!("{head}  # {}\n{rest}", one.origin))
        })
        .collect()
}
