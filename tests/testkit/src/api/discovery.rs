//! Which resources does the server say it has? Both forms: one aggregated document, and one list per group version.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::kinds::{KINDS, Kind};
use super::server::SUBRESOURCES;

/// The version that the server claims.
pub const GIT_VERSION: &str = "v1.34.2";
/// Content type of the aggregated form.
pub const AGGREGATED_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

/// Whether a client understands the aggregated form.
pub fn wants_aggregated(accept: &str) -> bool {
    accept.contains("v=v2;as=APIGroupDiscoveryList")
}

/// `/version`.
pub fn version() -> Value {
    json!({
        "major": "1", "minor": "34", "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean", "buildDate": "2025-11-11T00:00:00Z",
        "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

/// `/api`.
pub fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`.
pub fn groups() -> Value {
    let groups: Vec<Value> = group_versions()
        .into_iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| describe(group, &versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`.
pub fn group(path: &str) -> Option<Value> {
    let name = path.strip_prefix("/apis/")?;
    let versions = group_versions().remove(name)?;
    let mut group = describe(name, &versions);
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    Some(group)
}

/// `/api/v1` or `/apis/<group>/<version>`.
pub fn resources(path: &str) -> Option<Value> {
    let (group, version) = match path.strip_prefix("/api/") {
        Some(version) => ("", version),
        None => path.strip_prefix("/apis/")?.split_once('/')?,
    };
    if !group_versions().get(group)?.contains(&version) {
        return None;
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let kinds = KINDS
        .iter()
        .filter(|kind| kind.group == group && kind.version == version);
    let resources: Vec<Value> = kinds.flat_map(listed).chain(reviews(group)).collect();
    Some(
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}),
    )
}

/// The aggregated form of `/api` (`core`) or `/apis`.
pub fn aggregated(core: bool) -> Value {
    let groups = group_versions()
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core);
    let items: Vec<Value> = groups
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| aggregated_version(group, version))
                .collect();
            let metadata = if group.is_empty() {
                json!({})
            } else {
                json!({"name": group})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

/// Whether there is such a group and version.
pub(super) fn serves(group: &str, version: &str) -> bool {
    group_versions()
        .get(group)
        .is_some_and(|versions| versions.contains(&version))
}

/// Every group with its versions, the preferred one first.
pub(super) fn group_versions() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kind in KINDS {
        let versions = groups.entry(kind.group).or_default();
        if !versions.contains(&kind.version) {
            versions.push(kind.version);
        }
    }
    groups.insert(SUBRESOURCES, vec!["v1", "v1alpha3"]);
    groups.insert("authorization.k8s.io", vec!["v1"]);
    groups.insert("authentication.k8s.io", vec!["v1"]);
    groups
}

fn describe(group: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions[0]})
}

fn short_names(kind: &Kind) -> Vec<&'static str> {
    kind.short
        .split(',')
        .filter(|name| !name.is_empty())
        .collect()
}

fn listed(kind: &Kind) -> Vec<Value> {
    let mut resources = vec![json!({
        "name": kind.plural, "singularName": kind.singular(), "namespaced": kind.namespaced, "kind": kind.kind, "verbs": VERBS,
        "shortNames": short_names(kind),
    })];
    let mut sub = |name: &str, kind_name: &str, verbs: &[&str]| {
        resources.push(json!({"name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.namespaced, "kind": kind_name, "verbs": verbs}));
    };
    if kind.status {
        sub("status", kind.kind, &STATUS_VERBS);
    }
    if kind.plural == "pods" {
        sub("eviction", "Eviction", &["create"]);
        if let Some(eviction) = resources.last_mut() {
            // kubectl drain evicts only when it finds this.
            eviction["group"] = json!("policy");
            eviction["version"] = json!("v1");
        }
    }
    resources
}

fn aggregated_version(group: &str, version: &str) -> Value {
    let kinds = KINDS
        .iter()
        .filter(|kind| kind.group == group && kind.version == version);
    let mut resources: Vec<Value> = kinds.map(aggregated_resource).collect();
    resources.extend(reviews(group).map(|review| {
        json!({
            "resource": review["name"], "responseKind": {"group": group, "version": version, "kind": review["kind"]},
            "scope": "Cluster", "singularResource": review["singularName"], "verbs": ["create"],
        })
    }));
    json!({"version": version, "freshness": "Current", "resources": resources})
}

fn aggregated_resource(kind: &Kind) -> Value {
    let own = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let mut subresources = Vec::new();
    if kind.plural == "pods" {
        let eviction = json!({"group": "policy", "version": "v1", "kind": "Eviction"});
        subresources.push(
            json!({"subresource": "eviction", "responseKind": eviction, "verbs": ["create"]}),
        );
    }
    if kind.status {
        subresources
            .push(json!({"subresource": "status", "responseKind": own, "verbs": STATUS_VERBS}));
    }
    json!({
        "resource": kind.plural, "responseKind": own, "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular(), "verbs": VERBS, "shortNames": short_names(kind), "subresources": subresources,
    })
}

/// The kinds that can only be created, and are answered at once.
fn reviews(group: &str) -> impl Iterator<Item = Value> {
    let kinds: &[&str] = match group {
        "authorization.k8s.io" => &["SelfSubjectAccessReview", "SelfSubjectRulesReview"],
        "authentication.k8s.io" => &["SelfSubjectReview"],
        _ => &[],
    };
    kinds.iter().map(|kind| {
        let singular = kind.to_ascii_lowercase();
        json!({"name": format!("{singular}s"), "singularName": singular, "namespaced": false, "kind": kind, "verbs": ["create"]})
    })
}
