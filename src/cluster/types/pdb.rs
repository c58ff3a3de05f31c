//! PodDisruptionBudgets: which of them select launcher pods of this node, and can they ever be satisfied?

use super::guard::Thin;
use super::meta::{Condition, Meta, nullable};
use crate::drain::world::{ObjectRef, PdbView, PodKind, PodView};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use serde::Deserialize;

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pdb {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: Spec,
    #[serde(deserialize_with = "nullable")]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    min_available: Option<Amount>,
    max_unavailable: Option<Amount>,
    selector: Option<LabelSelector>,
}

/// A number or a percentage.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(i64),
    Text(String),
}

impl Amount {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    current_healthy: Option<i64>,
    desired_healthy: Option<i64>,
    disruptions_allowed: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    conditions: Vec<Condition>,
}

/// A budget of any namespace, before it is known whether it concerns this node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Budget {
    view: PdbView,
    /// `None` selects nothing; an empty one selects the whole namespace (policy/v1).
    selector: Option<Selector>,
}

impl Budget {
    /// The view with the launcher pods that it selects; `None` when it selects none of them.
    pub(crate) fn over(&self, pods: &[PodView]) -> Option<PdbView> {
        let selector = self.selector.as_ref()?;
        let selects: Vec<String> = pods
            .iter()
            .filter(|pod| pod.kind == PodKind::Launcher)
            .filter(|pod| pod.pod.namespace == self.view.pdb.namespace)
            .filter(|pod| selector.matches(&pod.labels))
            .map(|pod| pod.pod.uid.clone())
            .collect();
        (!selects.is_empty()).then(|| PdbView {
            selects,
            ..self.view.clone()
        })
    }
}

impl Thin for Pdb {
    type View = Budget;
    const RESOURCE: &'static str = "poddisruptionbudgets";
    const MANY: bool = false;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Result<Budget, String> {
        let pdb: ObjectRef = self.metadata.reference()?;
        let rule = match (&self.spec.min_available, &self.spec.max_unavailable) {
            (Some(amount), _) => format!("minAvailable: {}", amount.text()),
            (None, Some(amount)) => format!("maxUnavailable: {}", amount.text()),
            (None, None) => String::new(),
        };
        let selector = self
            .spec
            .selector
            .map(Selector::try_from)
            .transpose()
            .map_err(|error| format!("spec.selector: {error}"))?;
        let sync_failed = self
            .status
            .conditions
            .iter()
            .find(|condition| condition.reason.as_deref() == Some("SyncFailed"))
            .map(|condition| condition.message.clone().unwrap_or_default());
        Ok(Budget {
            view: PdbView {
                pdb,
                selects: Vec::new(),
                rule,
                current_healthy: self.status.current_healthy.unwrap_or(0),
                desired_healthy: self.status.desired_healthy.unwrap_or(0),
                disruptions_allowed: self.status.disruptions_allowed.unwrap_or(0),
                sync_failed,
            },
            selector,
        })
    }
}
