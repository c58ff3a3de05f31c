//! Pods that hold no VM: whose are they, and what would be lost with them?

use super::guard::{Part, Thin};
use super::meta::{Meta, nullable};
use super::pod::{DEFAULT_GRACE, phase};
use crate::drain::world::OtherPod;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::time::Duration;

/// A pod, as far as a drain of all pods has to know it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Other {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: Spec,
    #[serde(deserialize_with = "nullable")]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    volumes: Part<Vec<Volume>>,
    priority: Option<i64>,
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Volume {
    empty_dir: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
}

impl Thin for Other {
    type View = OtherPod;
    const RESOURCE: &'static str = "pods";
    const MANY: bool = false;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Result<OtherPod, String> {
        let pod = self.metadata.reference()?;
        let meta = &self.metadata;
        let mut unreadable = Vec::new();
        let volumes = self
            .spec
            .volumes
            .or_default("spec.volumes", &mut unreadable);
        let grace = self.spec.termination_grace_period_seconds;
        Ok(OtherPod {
            pod,
            owner: meta
                .controller()
                .map(|owner| (owner.kind.clone(), owner.name.clone())),
            mirror: meta.annotations.contains_key("kubernetes.io/config.mirror"),
            empty_dir: volumes.iter().any(|volume| volume.empty_dir.is_some()),
            component: meta
                .label("kubevirt.io")
                .filter(|role| role.starts_with("virt-"))
                .unwrap_or_default(),
            phase: phase(self.status.phase.as_deref()),
            deleting: meta.deletion_timestamp.is_some(),
            grace: grace.map_or(DEFAULT_GRACE, |seconds| {
                Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
            }),
            priority: self.spec.priority.unwrap_or(0),
            labels: self.metadata.labels,
            unreadable: unreadable.join("; "),
        })
    }
}
