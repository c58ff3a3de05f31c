//! VirtualMachines: is a guest that has ended started again, and what does its owner want of a drain?

use super::guard::Thin;
use super::meta::{Meta, nullable};
use crate::drain::ways::{DEADLINE_ANNOTATION, POLICY_ANNOTATION};
use crate::drain::world::{RunStrategy, VmName, VmView};
use serde::Deserialize;

/// A VM.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    run_strategy: Option<String>,
    running: Option<bool>,
}

impl Thin for Machine {
    type View = VmView;
    const RESOURCE: &'static str = "virtualmachines";
    const MANY: bool = true;

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn view(self) -> Result<VmView, String> {
        let at = self.metadata.reference()?;
        let annotation = |key: &str| self.metadata.annotations.get(key).cloned();
        Ok(VmView {
            run: run_strategy(self.spec.run_strategy.as_deref(), self.spec.running),
            owner_kind: self
                .metadata
                .controller()
                .map(|owner| owner.kind.clone())
                .unwrap_or_default(),
            policy: annotation(POLICY_ANNOTATION),
            deadline: annotation(DEADLINE_ANNOTATION),
            vm: VmName {
                namespace: at.namespace,
                name: at.name,
            },
        })
    }
}

/// `spec.runStrategy`, or what the old `spec.running` means.
fn run_strategy(text: Option<&str>, running: Option<bool>) -> Option<RunStrategy> {
    match (text, running) {
        (None | Some(""), None) => None,
        (None | Some(""), Some(true)) | (Some("Always"), _) => Some(RunStrategy::Always),
        (Some("RerunOnFailure"), _) => Some(RunStrategy::RerunOnFailure),
        (Some("Manual"), _) => Some(RunStrategy::Manual),
        (Some("Once"), _) => Some(RunStrategy::Once),
        (None | Some(""), Some(false)) | (Some("Halted"), _) => Some(RunStrategy::Halted),
        (Some("WaitAsReceiver"), _) => Some(RunStrategy::WaitAsReceiver),
        (Some(_), _) => Some(RunStrategy::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_strategies_new_and_old() {
        use RunStrategy::{Always, Halted, Manual, Once, Unknown};
        for (text, running, expected) in [
            (Some("Always"), None, Some(Always)),
            (Some("Manual"), None, Some(Manual)),
            (Some("Once"), None, Some(Once)),
            (Some("Later"), None, Some(Unknown)),
            (None, Some(true), Some(Always)),
            (Some(""), Some(false), Some(Halted)),
            (None, None, None),
        ] {
            assert_eq!(
                run_strategy(text, running),
                expected,
                "{text:?} {running:?}"
            );
        }
    }
}
