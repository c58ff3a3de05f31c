//! Who sends a request?

/// A user as the API server sees it after authentication.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// User name: the certificate's CN, or the name behind a token.
    pub user: String,
    /// Groups: the certificate's O, or those of the service account; without `system:authenticated`.
    pub groups: Vec<String>,
    /// Which set of credentials this is from; older ones are refused after a rotation.
    pub generation: u64,
}

impl Identity {
    /// A user with groups, with first-generation credentials.
    pub fn new(user: &str, groups: &[&str]) -> Self {
        Self {
            user: user.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            generation: 0,
        }
    }

    /// The cluster administrator (`system:masters`).
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &["system:masters"])
    }

    /// The kubelet of a node.
    pub fn kubelet(node: &str) -> Self {
        Self::new(&format!("system:node:{node}"), &["system:nodes"])
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::new(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &[
                "system:serviceaccounts",
                &format!("system:serviceaccounts:{namespace}"),
            ],
        )
    }

    /// Somebody without credentials.
    pub fn anonymous() -> Self {
        Self::new("system:anonymous", &["system:unauthenticated"])
    }

    /// Whether the user is a member of `group`; everybody but anonymous is of `system:authenticated`.
    pub fn is_in(&self, group: &str) -> bool {
        (group == "system:authenticated" && !self.is_anonymous())
            || self.groups.iter().any(|own| own == group)
    }

    /// Whether there were no credentials.
    pub fn is_anonymous(&self) -> bool {
        self.user == "system:anonymous"
    }

    /// The node whose kubelet this is; both the name and the group are needed, as for the Node authorizer.
    pub fn node(&self) -> Option<&str> {
        self.user
            .strip_prefix("system:node:")
            .filter(|_| self.is_in("system:nodes"))
    }
}
