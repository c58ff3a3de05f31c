//! PodDisruptionBudgets: which of them select launcher pods of this node, and can they ever be satisfied?

use super::guard::Thin;
use super::meta::{Condition, Meta, nullable};
use crate::drain::world::{
    Amount, ObjectRef, OtherPod, PdbView, PodKind, PodView, Requirement, Rule, SelectorView,
};
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
    min_available: Option<Given>,
    max_unavailable: Option<Given>,
    selector: Option<LabelSelector>,
    unhealthy_pod_eviction_policy: Option<String>,
}

/// A number or a percentage.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Given {
    Number(i64),
    Text(String),
}

impl Given {
    fn amount(self) -> Amount {
        match self {
            Self::Number(number) => Amount::Number(number),
            Self::Text(text) => Amount::Share(text),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    observed_generation: Option<i64>,
    expected_pods: Option<i64>,
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
    /// The view with the pods that it selects; `None` when it selects none of them.
    pub(crate) fn over(&self, pods: &[PodView], others: &[OtherPod]) -> Option<PdbView> {
        let selector = self.selector.as_ref()?;
        let launchers = pods
            .iter()
            .filter(|pod| pod.kind == PodKind::Launcher)
            .map(|pod| (&pod.pod, &pod.labels));
        let others = others.iter().map(|pod| (&pod.pod, &pod.labels));
        let selects: Vec<String> = launchers
            .chain(others)
            .filter(|(pod, _)| pod.namespace == self.view.pdb.namespace)
            .filter(|(_, labels)| selector.matches(labels))
            .map(|(pod, _)| pod.uid.clone())
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
        let kubevirts_own = self
            .metadata
            .controller()
            .is_some_and(|owner| owner.kind == "VirtualMachineInstance");
        let rule = match (self.spec.min_available, self.spec.max_unavailable) {
            (Some(given), _) => Rule::MinAvailable(given.amount()),
            (None, Some(given)) => Rule::MaxUnavailable(given.amount()),
            (None, None) => Rule::Unset,
        };
        let shown = self.spec.selector.as_ref().map(shown).unwrap_or_default();
        let selector = self
            .spec
            .selector
            .map(Selector::try_from)
            .transpose()
            .map_err(|error| format!("spec.selector: {error}"))?;
        let status = self.status;
        let by = |wanted: &str| {
            let fits = |c: &&Condition| c.reason.as_deref() == Some(wanted);
            status.conditions.iter().find(fits)
        };
        let sync_failed = by("SyncFailed");
        let allowed = status
            .conditions
            .iter()
            .find(|condition| condition.kind == "DisruptionAllowed");
        // A budget whose pods cannot be counted is never marked as observed (control-plane.md 6.c).
        let observed = status
            .observed_generation
            .is_some_and(|seen| self.metadata.generation.is_none_or(|newest| seen >= newest));
        Ok(Budget {
            view: PdbView {
                pdb,
                selects: Vec::new(),
                rule,
                selector: shown,
                unhealthy_policy: self.spec.unhealthy_pod_eviction_policy,
                expected: status.expected_pods.unwrap_or(0),
                current_healthy: status.current_healthy.unwrap_or(0),
                desired_healthy: status.desired_healthy.unwrap_or(0),
                disruptions_allowed: status.disruptions_allowed.unwrap_or(0),
                processed: observed || sync_failed.is_some(),
                since: allowed
                    .and_then(|condition| condition.last_transition_time.clone())
                    .unwrap_or_default(),
                sync_failed: sync_failed
                    .map(|condition| condition.message.clone().unwrap_or_default()),
                kubevirts_own,
            },
            selector,
        })
    }
}

/// The selector as people write it.
fn shown(selector: &LabelSelector) -> SelectorView {
    let expressions = selector.match_expressions.iter().flatten();
    SelectorView {
        labels: selector.match_labels.clone().unwrap_or_default(),
        expressions: expressions
            .map(|e| Requirement {
                key: e.key.clone(),
                operator: e.operator.clone(),
                values: e.values.clone().unwrap_or_default(),
            })
            .collect(),
    }
}
