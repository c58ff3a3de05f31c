//! The KubeVirt object: how many migrations may run, and which KubeVirt it is.

use super::guard::Thin;
use super::meta::{Meta, nullable};
use super::vmi::strategy;
use crate::drain::world::{KubeVirtView, Strategy};
use serde::Deserialize;

/// The gate that lets all VMIMs be created at once.
const PRIORITY_QUEUE: &str = "MigrationPriorityQueue";
/// The first version that has the priority queue for good, and the first that knows the gate.
const PRIORITY_QUEUE_FOR_GOOD: (u32, u32) = (1, 9);
const PRIORITY_QUEUE_KNOWN: (u32, u32) = (1, 7);

/// A KubeVirt object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KubeVirt {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: Spec,
    #[serde(deserialize_with = "nullable")]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "nullable")]
    configuration: Configuration,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Configuration {
    eviction_strategy: Option<String>,
    #[serde(deserialize_with = "nullable")]
    migrations: Migrations,
    #[serde(rename = "developerConfiguration", deserialize_with = "nullable")]
    developer: Developer,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Migrations {
    parallel_migrations_per_cluster: Option<u32>,
    parallel_outbound_migrations_per_node: Option<u32>,
    node_drain_taint_key: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Developer {
    #[serde(deserialize_with = "nullable")]
    feature_gates: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    observed_kube_virt_version: Option<String>,
}

/// The view, and whether this object is the one in use: KubeVirt ignores all that are not deployed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KubeVirtSeen {
    pub(crate) view: KubeVirtView,
    pub(crate) deployed: bool,
}

impl Thin for KubeVirt {
    type View = KubeVirtSeen;
    const RESOURCE: &'static str = "kubevirts";
    const MANY: bool = false;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Result<KubeVirtSeen, String> {
        let unset = KubeVirtView::default();
        let version = self
            .status
            .observed_kube_virt_version
            .as_deref()
            .and_then(version);
        let configuration = self.spec.configuration;
        let gates = configuration.developer.feature_gates;
        let listed = gates.iter().any(|gate| gate == PRIORITY_QUEUE);
        let migrations = configuration.migrations;
        let path = "spec.configuration.evictionStrategy";
        let strategy = strategy(configuration.eviction_strategy.as_deref())
            .map_err(|word| format!("{path}: unknown strategy {word}"))?;
        let view = KubeVirtView {
            version,
            per_cluster: migrations
                .parallel_migrations_per_cluster
                .unwrap_or(unset.per_cluster),
            per_node: migrations
                .parallel_outbound_migrations_per_node
                .unwrap_or(unset.per_node),
            strategy: strategy.unwrap_or(Strategy::None),
            drain_taint_key: migrations
                .node_drain_taint_key
                .filter(|key| !key.is_empty())
                .unwrap_or(unset.drain_taint_key),
            priority_queue: match version {
                Some(version) => {
                    version >= PRIORITY_QUEUE_FOR_GOOD
                        || (listed && version >= PRIORITY_QUEUE_KNOWN)
                }
                None => listed,
            },
        };
        Ok(KubeVirtSeen {
            view,
            deployed: self.status.phase.as_deref() == Some("Deployed"),
        })
    }
}

/// (major, minor) of `v1.7.0`, `1.5.3-20250101`, …
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().trim_start_matches('v').split(['.', '-', '+']);
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions() {
        for (text, known) in [
            ("v1.7.0", Some((1, 7))),
            ("1.5.3-20250101", Some((1, 5))),
            ("v1.8.0-rc.1", Some((1, 8))),
            ("v0.59.2", Some((0, 59))),
            ("1.9", Some((1, 9))),
            ("v1.10.0+dirty", Some((1, 10))),
            ("devel", None),
            ("v1", None),
            ("", None),
        ] {
            assert_eq!(version(text), known, "{text}");
        }
    }
}
