//! Who may do what? RBAC, the Node authorizer and NodeRestriction of Kubernetes 1.34, as measured in control-plane.md 6.a and 6.b.
//!
//! A request passes when the Node authorizer *or* an RBAC grant allows it ([`Rights::authorize`]); writes of a kubelet then pass
//! NodeRestriction ([`restriction`]).

mod grants;
mod node;
pub mod restriction;
#[cfg(test)]
mod tests;

pub use grants::{Grant, Subject, UnknownGrant};

use super::call::Call;
use super::failure::{Failure, qualified};
use super::identity::Identity;
use super::store::Store;

/// What the identities of the cluster may do.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    grants: Vec<Grant>,
    /// Whether an admission policy lets a node delete only its own VMIs and VMIMs (control-plane.md 6.b).
    own_vms_only: bool,
}

impl Rights {
    /// What a cluster gives without any manifest of ours: the kubelet's own rights, KubeVirt's own accounts, the KubeVirt object
    /// readable by everybody.
    pub fn base() -> Self {
        Self {
            grants: grants::built_in(),
            own_vms_only: false,
        }
    }

    /// With the manifest of the full tier: reads of VMIs, VMIMs, VMs, KubeVirt and disruption budgets, cancelling evacuations and
    /// deleting the node's own VMIMs.
    pub fn full() -> Self {
        let mut rights = Self {
            own_vms_only: true,
            ..Self::base()
        };
        rights.grants.extend(grants::full_tier());
        rights
    }

    /// The base rights and a list like `get,list,watch virtualmachineinstances` or `update virtualmachineinstances/evacuate`, given
    /// to the nodes and to the agent's service account.
    pub fn with_list<S: AsRef<str>>(list: &[S]) -> Result<Self, UnknownGrant> {
        let mut rights = Self {
            own_vms_only: true,
            ..Self::base()
        };
        for text in list {
            for subject in grants::agent_subjects() {
                rights.grants.push(Grant::parse(subject, text.as_ref())?);
            }
        }
        Ok(rights)
    }

    /// Adds one grant.
    #[must_use]
    pub fn and(mut self, grant: Grant) -> Self {
        self.grants.push(grant);
        self
    }

    /// Whether a request is allowed; the refusal has the words of the real server.
    pub fn authorize(
        &self,
        identity: &Identity,
        call: &Call,
        store: &Store,
    ) -> Result<(), Failure> {
        self.decide(identity, call, store)
            .map_err(|why| refusal(identity, call, &why))
    }

    /// The decision alone, with the authorizer's reason for a refusal (often empty): what a SelfSubjectAccessReview tells.
    pub fn decide(&self, identity: &Identity, call: &Call, store: &Store) -> Result<(), String> {
        if identity.is_in("system:masters") {
            return Ok(());
        }
        if call.resource.is_empty() {
            let public = ["/version", "/healthz", "/readyz", "/livez"];
            let allowed =
                !identity.is_anonymous() || public.iter().any(|path| call.path.starts_with(path));
            return if allowed { Ok(()) } else { Err(String::new()) };
        }
        let reason = match identity.node() {
            Some(node) => match node::authorize(node, call, store) {
                node::Opinion::Allow => return Ok(()),
                node::Opinion::None(reason) => reason,
            },
            None => String::new(),
        };
        if self.grants.iter().any(|grant| grant.allows(identity, call)) {
            Ok(())
        } else {
            Err(reason)
        }
    }

    /// The grants of an identity, for a SelfSubjectRulesReview.
    pub fn grants_of<'a>(&'a self, identity: &'a Identity) -> impl Iterator<Item = &'a Grant> {
        self.grants.iter().filter(|grant| grant.is_for(identity))
    }

    /// Whether the policy that confines a node to its own VMs is installed.
    pub(super) fn own_vms_only(&self) -> bool {
        self.own_vms_only
    }
}

/// `pods "a" is forbidden: User "u" cannot get resource "pods" in API group "" in the namespace "vms": <reason>`.
fn refusal(identity: &Identity, call: &Call, reason: &str) -> Failure {
    let user = &identity.user;
    if call.resource.is_empty() {
        let message = format!(
            "forbidden: User {user:?} cannot {} path {:?}",
            call.verb, call.path
        );
        return Failure {
            details: Some(serde_json::json!({})),
            ..Failure::new(403, "Forbidden", message)
        };
    }
    let scope = if call.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {:?}", call.namespace)
    };
    let resource = call.rbac_resource();
    let mut why = format!(
        "User {user:?} cannot {} resource {resource:?} in API group {:?} {scope}",
        call.verb, call.group
    );
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    let mut failure = Failure::forbidden(&call.group, &call.resource, &call.name, &why);
    if call.name.is_empty() {
        failure.message = format!(
            "{} is forbidden: {why}",
            qualified(&call.group, &call.resource)
        );
    }
    failure
}
