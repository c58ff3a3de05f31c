//! Which requests are compared? The scenes of `table/*.toml`.
//!
//! A scene has its own namespace on each side. Its VMs run before the first step; the steps follow one another.
//! Texts may contain `${…}`: `ns`, `here` (node of the first VM), `there` (another node), `pod.<vm>`, `uid.<vm>`, and whatever a `let` named.

use std::path::Path;

use serde::Deserialize;

/// A story of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scene {
    /// What it is about.
    pub name: String,
    /// Nothing else may be played meanwhile: it changes something that belongs to the whole cluster.
    #[serde(default)]
    pub alone: bool,
    /// The changes of the objects are compared as well; then everything has to settle at the end.
    #[serde(default)]
    pub changes: bool,
    /// Parts of `packaging/rbac/` that are applied meanwhile; then it has to be `alone`.
    #[serde(default)]
    pub rights: Vec<String>,
    /// The model has nothing to compare with: only what is expected counts.
    #[serde(default)]
    pub real_only: bool,
    /// First and last KubeVirt version that it concerns, `1.7`.
    #[serde(default)]
    pub since: Option<String>,
    /// See `since`.
    #[serde(default)]
    pub until: Option<String>,
    /// VMs that run at the beginning.
    #[serde(default, rename = "vm")]
    pub vms: Vec<Vm>,
    /// What happens.
    #[serde(rename = "step")]
    pub steps: Vec<Step>,
    /// Differences of the changes that are known.
    #[serde(default)]
    pub differs: Vec<Difference>,
}

/// A standalone VMI.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// `evictionStrategy`; without one the cluster's counts.
    #[serde(default)]
    pub strategy: Option<String>,
    /// Reason of LiveMigratable=False.
    #[serde(default)]
    pub not_migratable: Option<String>,
    /// How long its migration copies.
    #[serde(default = "three")]
    pub migration_seconds: f64,
    /// Outcome of attempt 1, 2, …
    #[serde(default)]
    pub migration: Vec<String>,
    /// What the guest takes to shut down; absent: one second.
    #[serde(default)]
    pub shutdown_seconds: Option<f64>,
    /// The source pod stays after the flip.
    #[serde(default)]
    pub source_stays: bool,
    /// Seconds from the bound pod to the running guest.
    #[serde(default)]
    pub start_seconds: Option<f64>,
    /// It is not waited for.
    #[serde(default)]
    pub not_running: bool,
    /// Labels, copied to its pod.
    #[serde(default)]
    pub labels: std::collections::BTreeMap<String, String>,
    /// The VM, not the VMI, is made, with this run strategy.
    #[serde(default)]
    pub run_strategy: Option<String>,
}

fn three() -> f64 {
    3.0
}

/// One step: a compared request (it has a `case`), a request that sets something up, a wait, or a name that is learned.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// Title of a compared request.
    pub case: Option<String>,
    /// As whom: `admin`, `kubelet` (of `here`), `kubelet there`, `anonymous`, `user NAME`, `account NAMESPACE/NAME`.
    #[serde(rename = "as")]
    pub who: Option<String>,
    /// `METHOD /path?query`.
    #[serde(rename = "do")]
    pub line: Option<String>,
    /// Short for an eviction of this pod.
    pub evict: Option<String>,
    /// With `evict`: `query` or `body`.
    pub dry: Option<String>,
    /// With `evict`: uid precondition.
    pub uid: Option<String>,
    /// Body as it is sent.
    pub body: Option<String>,
    /// `Content-Type`, `application/json` unless said.
    #[serde(rename = "type")]
    pub content_type: Option<String>,
    /// `Accept`.
    pub accept: Option<String>,
    /// What of the body counts besides a Status; see [`Compare`].
    pub compare: Compare,
    /// The code that both sides have to answer.
    pub expect: Option<u16>,
    /// Known differences of this request.
    pub differs: Vec<Difference>,
    /// First and last KubeVirt version of this step.
    pub since: Option<String>,
    /// See `since`.
    pub until: Option<String>,
    /// A path to read until `field` has the value `is` (absent: until it is there), or the answer is 404 (`gone`).
    pub wait: Option<String>,
    /// See `wait` and `let`: a dotted path, numbers are indices, `[type=Ready]` finds an element.
    pub field: Option<String>,
    /// See `wait`.
    pub is: Option<String>,
    /// See `wait`.
    pub gone: bool,
    /// The name for what `field` of `from` holds.
    #[serde(rename = "let")]
    pub name: Option<String>,
    /// A path to read.
    pub from: Option<String>,
    /// Seconds to wait, for what only time brings.
    pub pause: Option<f64>,
    /// `down`: from now on nobody reaches virt-api; `up`: everybody again.
    pub virt_api: Option<String>,
    /// Code that a request without `case` must get, instead of a success.
    pub code: Option<u16>,
}

/// What of a body is compared.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Compare {
    /// Code; a Status wholly; of other objects `kind` and `apiVersion`; of text the text.
    #[default]
    Status,
    /// Names of a list's items, whether it goes on, how many remain.
    Items,
    /// Types and names of watch events, until the server ends the watch.
    Events,
    /// Columns and cells.
    Table,
    /// The whole object, without what every write changes.
    Object,
    /// Only the code: the rest of the body is none of our business.
    Code,
}

/// A difference that is known.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// `code`, `reason`, `message`, `details`, `retry-after`, `body`; of changes the path that the report names.
    pub what: String,
    /// Why it may stay.
    pub why: String,
    /// It depends on who is faster: it need not be found.
    #[serde(default)]
    pub race: bool,
    /// First KubeVirt version with it.
    #[serde(default)]
    pub since: Option<String>,
    /// Last one.
    #[serde(default)]
    pub until: Option<String>,
}

macro_rules! files {
    ($($file:literal),* $(,)?) => { &[$(($file, include_str!(concat!("table/", $file)))),*] };
}

/// Every file of the table.
const FILES: &[(&str, &str)] = files![
    "evictions.toml",
    "migrations.toml",
    "budgets.toml",
    "cancel.toml",
    "reads.toml",
    "watches.toml",
    "writes.toml",
    "kubelet.toml",
    "errors.toml",
    "cluster.toml",
    "rights.toml",
];

#[derive(Deserialize)]
struct File {
    scene: Vec<Scene>,
}

/// The stories whose order of changes is compared, and the pairs of changes that have no order although they seldom swap.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stories {
    /// The stories.
    pub scene: Vec<Scene>,
    /// `what` is `one change, then another`, with `*` for any text.
    pub race: Vec<Difference>,
    /// Changes that need not happen at all.
    pub seldom: Vec<Difference>,
}

/// `table/orders.toml`.
pub fn stories(folder: Option<&Path>) -> anyhow::Result<Stories> {
    const NAME: &str = "orders.toml";
    let text = match folder {
        Some(folder) => std::fs::read_to_string(folder.join(NAME))?,
        None => include_str!("table/orders.toml").to_owned(),
    };
    toml::from_str(&text).map_err(|error| anyhow::anyhow!("table/{NAME}: {error}"))
}

/// Differences of the changes that are known in every scene.
const EVERYWHERE: &str = include_str!("table/everywhere.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Everywhere {
    differs: Vec<Difference>,
}

/// The differences that are listed for every scene; one that no scene has is an error once all were played.
pub fn everywhere(folder: Option<&Path>) -> anyhow::Result<Vec<Difference>> {
    const NAME: &str = "everywhere.toml";
    let text = match folder {
        Some(folder) => std::fs::read_to_string(folder.join(NAME))?,
        None => EVERYWHERE.to_owned(),
    };
    let file: Everywhere =
        toml::from_str(&text).map_err(|error| anyhow::anyhow!("table/{NAME}: {error}"))?;
    Ok(file.differs)
}

/// All scenes: those that are built in, or those of a folder (for whoever writes them). Fails when a file is wrong.
pub fn all(folder: Option<&Path>) -> anyhow::Result<Vec<Scene>> {
    let mut scenes = Vec::new();
    for (name, text) in FILES {
        let text = match folder {
            Some(folder) => std::fs::read_to_string(folder.join(name))?,
            None => (*text).to_owned(),
        };
        let file: File =
            toml::from_str(&text).map_err(|error| anyhow::anyhow!("table/{name}: {error}"))?;
        scenes.extend(file.scene);
    }
    Ok(scenes)
}

/// Whether a version lies between two bounds that may be missing.
pub fn within(version: (u8, u8), since: Option<&str>, until: Option<&str>) -> bool {
    let read = |text: &str| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let after = since
        .and_then(read)
        .is_none_or(|from: (u8, u8)| version >= from);
    after
        && until
            .and_then(read)
            .is_none_or(|to: (u8, u8)| version <= to)
}

impl Scene {
    /// Whether it says something about this KubeVirt version.
    pub fn concerns(&self, version: (u8, u8)) -> bool {
        within(version, self.since.as_deref(), self.until.as_deref())
    }
}

impl Step {
    /// Whether it is played with this KubeVirt version.
    pub fn concerns(&self, version: (u8, u8)) -> bool {
        within(version, self.since.as_deref(), self.until.as_deref())
    }
}

impl Difference {
    /// Whether it is expected with this KubeVirt version.
    pub fn concerns(&self, version: (u8, u8)) -> bool {
        within(version, self.since.as_deref(), self.until.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_can_be_read_and_there_are_enough_requests() {
        let scenes = all(None).unwrap();
        let steps = || scenes.iter().flat_map(|scene| &scene.steps);
        let cases: Vec<&String> = steps().filter_map(|step| step.case.as_ref()).collect();
        assert!(cases.len() >= 80, "only {} requests", cases.len());
        let mut unique = cases.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(
            unique.len(),
            cases.len(),
            "two requests have the same title"
        );
        for step in steps() {
            let ways = [
                step.line.is_some() || step.evict.is_some(),
                step.wait.is_some(),
                step.name.is_some(),
                step.pause.is_some(),
                step.virt_api.is_some(),
            ];
            let chosen = ways.iter().filter(|way| **way).count();
            assert_eq!(chosen, 1, "what does this step do? {step:?}");
        }
    }

    #[test]
    fn versions() {
        assert!(within((1, 7), Some("1.7"), None));
        assert!(!within((1, 5), Some("1.7"), None));
        assert!(within((1, 5), None, Some("1.6")));
    }
}
