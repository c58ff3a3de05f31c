//! RBAC: which rules exist, and does one of them allow a request?

use crate::api::call::Call;
use crate::api::identity::Identity;
use crate::api::kinds;

/// Whom a grant is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One user.
    User(String),
    /// All members of a group.
    Group(String),
}

/// Some verbs on some resources for one subject, in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    subject: Subject,
    verbs: Vec<String>,
    /// API group and resource (with `/subresource`); `*` for all.
    resources: Vec<(String, String)>,
}

/// A grant that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read the right {0:?}: expected verbs and resources, like \"get,list,watch virtualmachineinstances\""
)]
pub struct UnknownGrant(String);

/// The service account of the agent, where it does not use the kubelet's identity.
const AGENT: &str = "system:serviceaccount:vmdrain:vmdrain-agent";

const VERBS: [&str; 9] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "*",
];

impl Grant {
    /// Reads `verb,verb resource,resource/sub,resource.group`; short names are understood.
    pub fn parse(subject: Subject, text: &str) -> Result<Self, UnknownGrant> {
        let unknown = || UnknownGrant(text.to_owned());
        let (verbs, resources) = text
            .trim()
            .split_once(char::is_whitespace)
            .ok_or_else(unknown)?;
        let verbs: Vec<String> = verbs
            .split(',')
            .map(|verb| verb.trim().to_owned())
            .collect();
        if verbs.iter().any(|verb| !VERBS.contains(&verb.as_str())) {
            return Err(unknown());
        }
        let resources = resources
            .split(',')
            .map(|resource| read_resource(resource.trim()).ok_or_else(unknown))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            subject,
            verbs,
            resources,
        })
    }

    /// Whether the grant is for this identity.
    pub fn is_for(&self, identity: &Identity) -> bool {
        match &self.subject {
            Subject::User(user) => identity.user == *user,
            Subject::Group(group) => identity.is_in(group),
        }
    }

    /// Whether the grant allows this request of this identity.
    pub fn allows(&self, identity: &Identity, call: &Call) -> bool {
        self.is_for(identity)
            && self
                .verbs
                .iter()
                .any(|verb| verb == "*" || *verb == call.verb)
            && self.covers(&call.group, &call.rbac_resource())
    }

    fn covers(&self, group: &str, resource: &str) -> bool {
        self.resources.iter().any(|(own_group, own)| {
            (own_group == "*" || own_group == group) && (own == "*" || own == resource)
        })
    }

    /// The rule as SelfSubjectRulesReview shows it.
    pub fn rule(&self) -> serde_json::Value {
        let groups: Vec<&String> = self.resources.iter().map(|(group, _)| group).collect();
        let resources: Vec<&String> = self
            .resources
            .iter()
            .map(|(_, resource)| resource)
            .collect();
        serde_json::json!({"verbs": self.verbs, "apiGroups": groups, "resources": resources})
    }
}

/// `virtualmachineinstances/evacuate` → (`subresources.kubevirt.io`, …), `vmi` → (`kubevirt.io`, `virtualmachineinstances`).
fn read_resource(text: &str) -> Option<(String, String)> {
    if text == "*" {
        return Some(("*".to_owned(), "*".to_owned()));
    }
    let (resource, sub) = text.split_once('/').unwrap_or((text, ""));
    let (name, group) = resource
        .split_once('.')
        .map_or((resource, None), |(name, group)| (name, Some(group)));
    let known = kinds::KINDS.iter().find(|kind| {
        kind.plural == name
            || kind.singular() == name
            || kind.short.split(',').any(|short| short == name)
    });
    let plural = known.map_or(name, |kind| kind.plural);
    let group = match (group, known) {
        (Some(group), _) => group,
        // Subresources of KubeVirt's kinds, but for status, are served by its own API.
        (None, Some(kind)) if kind.is_kubevirt() && !sub.is_empty() && sub != "status" => {
            "subresources.kubevirt.io"
        }
        (None, Some(kind)) => kind.group,
        (None, None) => return None,
    };
    let resource = if sub.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}/{sub}")
    };
    Some((group.to_owned(), resource))
}

/// The nodes, and the agent's own service account.
pub(super) fn agent_subjects() -> [Subject; 2] {
    [
        Subject::Group("system:nodes".to_owned()),
        Subject::User(AGENT.to_owned()),
    ]
}

/// What every cluster with KubeVirt has.
pub(super) fn built_in() -> Vec<Grant> {
    let everybody = Subject::Group("system:authenticated".to_owned());
    let account = |name: &str| Subject::User(format!("system:serviceaccount:kubevirt:{name}"));
    let mut grants = vec![
        // ClusterRole kubevirt.io:default: get and list, no watch.
        grant(&everybody, &["get", "list"], &["kubevirts"]),
        grant(
            &everybody,
            &["create"],
            &[
                "selfsubjectaccessreviews.authorization.k8s.io",
                "selfsubjectrulesreviews.authorization.k8s.io",
            ],
        ),
        grant(
            &everybody,
            &["create"],
            &["selfsubjectreviews.authentication.k8s.io"],
        ),
        // virt-handler: list, watch and update of VMIs, but not get or patch (control-plane.md 3.1; patch from 1.8 on).
        grant(
            &account("kubevirt-handler"),
            &["list", "watch", "update"],
            &["virtualmachineinstances"],
        ),
        grant(
            &account("kubevirt-handler"),
            &["get", "list", "watch"],
            &["virtualmachineinstancemigrations", "kubevirts"],
        ),
        grant(
            &account("kubevirt-handler"),
            &["get", "list", "watch", "patch"],
            &["nodes"],
        ),
        grant(
            &account("kubevirt-handler"),
            &["create", "patch"],
            &["events"],
        ),
        grant(&account("kubevirt-controller"), &["*"], &["*"]),
        grant(&account("kubevirt-apiserver"), &["*"], &["*"]),
    ];
    let agent = Subject::User(AGENT.to_owned());
    grants.extend([
        grant(&agent, &["get", "list", "watch", "patch"], &["nodes"]),
        grant(&agent, &["get", "list", "watch", "delete"], &["pods"]),
        grant(&agent, &["create"], &["pods/eviction"]),
        grant(&agent, &["create", "patch"], &["events"]),
    ]);
    grants
}

/// The manifest of the full tier.
pub(super) fn full_tier() -> Vec<Grant> {
    let kinds = [
        "virtualmachineinstances",
        "virtualmachineinstancemigrations",
        "virtualmachines",
        "kubevirts",
        "poddisruptionbudgets",
    ];
    let mut grants = Vec::new();
    for subject in agent_subjects() {
        grants.push(grant(&subject, &["get", "list", "watch"], &kinds));
        grants.push(grant(
            &subject,
            &["update"],
            &["virtualmachineinstances/evacuate"],
        ));
        grants.push(grant(
            &subject,
            &["delete"],
            &["virtualmachineinstancemigrations"],
        ));
    }
    grants
}

fn grant(subject: &Subject, verbs: &[&str], resources: &[&str]) -> Grant {
    let resources = resources
        .iter()
        .filter_map(|text| read_resource(text))
        .collect();
    Grant {
        subject: subject.clone(),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        resources,
    }
}
