//! All layers together: the settings that result, where each comes from, and how to read them again.

use super::error::{ConfigError, Problem};
use super::keys;
use super::maintenance;
use super::raw::{self, Raw};
use super::settings::Settings;
use super::sources::{Layer, Sources};
use ::config::{Config, File, FileFormat};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Origin of a value that nobody has set.
const DEFAULT: &str = "default";

/// Validated settings with the origin of each value.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// Files that were read, lowest layer first.
    pub files: Vec<String>,
    origins: BTreeMap<String, String>,
}

/// One key, for `config show`.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Shown {
    /// `section.key`.
    pub key: String,
    /// Its value, as it would stand in a file.
    pub value: Value,
    /// Who set it.
    pub origin: String,
}

impl Sources {
    /// Reads, merges and validates.
    ///
    /// # Errors
    /// Every complaint at once, each with its origin and key.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let layers = self.layers()?;
        let (raws, problems) = read_all(&layers);
        if !problems.is_empty() {
            return Err(ConfigError { problems });
        }
        let loaded = Loaded {
            settings: merge(&layers, &raws).map_err(|what| Problem {
                origin: "all layers together".into(),
                key: String::new(),
                what,
            })?,
            files: files(&layers),
            origins: origins(&raws),
        };
        let problems: Vec<Problem> = loaded
            .settings
            .faults()
            .into_iter()
            .map(|(key, what)| loaded.problem(&key, what))
            .collect();
        if problems.is_empty() {
            Ok(loaded)
        } else {
            Err(ConfigError { problems })
        }
    }
}

fn read_all(layers: &[Layer]) -> (Vec<Raw>, Vec<Problem>) {
    let (mut raws, mut problems) = (Vec::new(), Vec::new());
    for layer in layers {
        match raw::read(layer) {
            Ok(raw) => raws.push(raw),
            Err(found) => problems.extend(found),
        }
    }
    (raws, problems)
}

/// The crate `config` lays the layers over each other; files merge table by table, the environment
/// and the command line set single values on top.
fn merge(layers: &[Layer], raws: &[Raw]) -> Result<Settings, String> {
    let mut builder = Config::builder();
    for (layer, raw) in layers.iter().zip(raws) {
        if let Layer::File { text, .. } = layer {
            builder = builder.add_source(File::from_str(text, FileFormat::Toml));
            continue;
        }
        for (key, value) in &raw.values {
            let value =
                ::config::Value::deserialize(value.clone()).map_err(|why| why.to_string())?;
            builder = builder
                .set_override(key, value)
                .map_err(|why| why.to_string())?;
        }
    }
    let mut merged: Value = builder
        .build()
        .and_then(Config::try_deserialize)
        .map_err(|why| why.to_string())?;
    // Every other list is replaced as a whole; a package that adds a signal must not take away another one's.
    let entries = raws
        .iter()
        .filter_map(|raw| raw.values.get(maintenance::KEY));
    if let Some(all) = merged.get_mut(maintenance::KEY) {
        *all = maintenance::merged(entries);
    }
    let mut settings: Settings = serde_json::from_value(merged).map_err(|why| why.to_string())?;
    // The core knows this one under its own name; there is one key for it.
    settings.timing.core.request = settings.cluster.request_timeout;
    Ok(settings)
}

fn files(layers: &[Layer]) -> Vec<String> {
    layers
        .iter()
        .filter_map(|layer| match layer {
            Layer::File { name, .. } => Some(name.clone()),
            Layer::Variable { .. } | Layer::Assignment { .. } => None,
        })
        .collect()
}

fn origins(raws: &[Raw]) -> BTreeMap<String, String> {
    let mut origins: BTreeMap<String, String> = raws
        .iter()
        .flat_map(|raw| {
            let origin = &raw.origin;
            raw.values.keys().map(move |key| (key, origin))
        })
        .map(|(key, origin)| (key.clone(), origin.clone()))
        .collect();
    let of_entries = raws
        .iter()
        .filter(|raw| raw.values.contains_key(maintenance::KEY));
    let all: Vec<&str> = of_entries.map(|raw| raw.origin.as_str()).collect();
    if !all.is_empty() {
        origins.insert(maintenance::KEY.to_owned(), all.join(", "));
    }
    origins
}

impl Loaded {
    /// Who set a key: a file, a variable, `--set`, or `default`.
    pub fn origin(&self, key: &str) -> &str {
        self.origins.get(key).map_or(DEFAULT, String::as_str)
    }

    /// A complaint about a key, for whoever finds one later (an adapter about its own table).
    pub fn problem(&self, key: &str, what: String) -> Problem {
        Problem {
            origin: self.origin(key).to_owned(),
            key: key.to_owned(),
            what,
        }
    }

    /// Every key with value and origin, in the order of the keys.
    pub fn shown(&self) -> Vec<Shown> {
        keys::leaves(&self.settings.tree())
            .into_iter()
            .map(|(key, value)| Shown {
                origin: self.origin(&key).to_owned(),
                key,
                value,
            })
            .collect()
    }
}

/// Settings that can be read again while the program runs.
#[derive(Clone, Debug)]
pub struct Live {
    sources: Sources,
    current: Arc<Loaded>,
}

impl Live {
    /// Reads them for the first time.
    ///
    /// # Errors
    /// As [`Sources::load`].
    pub fn open(sources: Sources) -> Result<Self, ConfigError> {
        let current = Arc::new(sources.load()?);
        Ok(Self { sources, current })
    }

    /// The settings in force.
    pub fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.current)
    }

    /// Reads all layers again and answers the keys whose values changed.
    ///
    /// # Errors
    /// When the new ones are bad; the old ones then stay in force.
    pub fn reload(&mut self) -> Result<Vec<String>, ConfigError> {
        let next = self.sources.load()?;
        let before = keys::leaves(&self.current.settings.tree());
        let after = keys::leaves(&next.settings.tree());
        let mut changed: Vec<String> = after
            .iter()
            .filter(|(key, value)| before.get(*key) != Some(value))
            .map(|(key, _)| key.clone())
            .collect();
        changed.extend(before.into_keys().filter(|key| !after.contains_key(key)));
        self.current = Arc::new(next);
        Ok(changed)
    }
}
