//! The shipped manifests of `packaging/rbac/`, as they are applied on either side.

use serde_json::Value;

use crate::api::Rights;

macro_rules! parts {
    ($($part:literal),* $(,)?) => {
        &[$(($part, include_str!(concat!("../../../../packaging/rbac/", $part, ".yaml")))),*]
    };
}

/// Every part by its name.
const PARTS: &[(&str, &str)] = parts![
    "reads",
    "cancel",
    "abort",
    "start",
    "nodes",
    "volumes",
    "targets",
    "own-node-policy",
    "service-account"
];

/// What the parts mean in the model's words.
const MEANING: &[(&str, &[&str])] = &[
    (
        "reads",
        &[
            "get,list,watch virtualmachineinstances",
            "get,list,watch virtualmachineinstancemigrations",
            "get,list,watch virtualmachines",
            "get,list,watch kubevirts",
            "get,list,watch poddisruptionbudgets",
        ],
    ),
    ("cancel", &["update virtualmachineinstances/evacuate"]),
    ("abort", &["delete virtualmachineinstancemigrations"]),
    ("start", &["update virtualmachines/start"]),
    ("nodes", &["get,list,watch nodes"]),
    ("volumes", &["list volumeattachments"]),
    ("targets", &["list pods"]),
];

/// The objects of a part. Fails when there is no such part, or it is no YAML.
pub fn objects(part: &str) -> anyhow::Result<Vec<Value>> {
    let (_, text) = PARTS
        .iter()
        .find(|(name, _)| *name == part)
        .ok_or_else(|| anyhow::anyhow!("packaging/rbac has no part {part}"))?;
    text.split("\n---\n")
        .map(|document| {
            serde_saphyr::from_str(document)
                .map_err(|error| anyhow::anyhow!("packaging/rbac/{part}.yaml: {error}"))
        })
        .collect()
}

/// The collection that an object belongs to.
pub fn path(object: &Value) -> anyhow::Result<&'static str> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let known = [
        ("Namespace", "/api/v1/namespaces"),
        (
            "ClusterRole",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        ),
        (
            "ClusterRoleBinding",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        ),
        (
            "ValidatingAdmissionPolicy",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        ),
        (
            "ValidatingAdmissionPolicyBinding",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        ),
    ];
    known
        .into_iter()
        .find(|(name, _)| *name == kind)
        .map(|(_, path)| path)
        .ok_or_else(|| anyhow::anyhow!("where does a {kind} belong?"))
}

/// The model's rights with these parts.
pub fn rights(parts: &[String]) -> anyhow::Result<Rights> {
    let list: Vec<&str> = MEANING
        .iter()
        .filter(|(part, _)| parts.iter().any(|wanted| wanted == part))
        .flat_map(|(_, grants)| grants.iter().copied())
        .collect();
    Ok(Rights::with_list(&list)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_yaml_and_every_object_has_its_place() {
        for (part, _) in PARTS {
            let objects = objects(part).unwrap();
            assert!(!objects.is_empty(), "{part}");
            for object in objects {
                path(&object).unwrap();
                assert!(object["metadata"]["name"].is_string(), "{part}");
            }
        }
    }

    #[test]
    fn no_part_gives_secrets_or_everything() {
        for (part, _) in PARTS {
            for role in objects(part).unwrap() {
                for rule in role["rules"].as_array().into_iter().flatten() {
                    let text = rule.to_string();
                    assert!(
                        !text.contains('*') && !text.contains("secrets"),
                        "{part}: {text}"
                    );
                }
            }
        }
    }
}
