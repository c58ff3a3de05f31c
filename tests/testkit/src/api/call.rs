//! What does a request ask for? The path and query of a request, in the words of RBAC.

use std::collections::BTreeMap;

use http::Method;

use super::kinds::{self, Kind};

/// A request to a resource, or to a path that is none (`/version`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The path as it was sent.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths the method in small letters.
    pub verb: String,
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural resource; empty for a path that is none.
    pub resource: String,
    /// First part of what follows the name (`eviction`, `status`, `evacuate`): all that RBAC looks at.
    pub subresource: String,
    /// Everything that follows the name (`evacuate/cancel`).
    pub rest: String,
    /// Namespace, empty for cluster scope and for lists over all namespaces.
    pub namespace: String,
    /// Name of the object; for list and watch the name in a `metadata.name=` field selector, as the real server does it.
    pub name: String,
    /// The name in the path.
    pub path_name: String,
    /// Query parameters.
    pub query: BTreeMap<String, String>,
}

impl Call {
    /// Reads a request line.
    pub fn parse(method: &Method, uri: &http::Uri) -> Self {
        let query: BTreeMap<String, String> =
            form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        let mut call = Self {
            path: uri.path().to_owned(),
            query,
            ..Self::default()
        };
        call.read_path();
        call.verb = call.verb_for(method);
        if matches!(call.verb.as_str(), "list" | "watch" | "deletecollection")
            && let Some(name) = call.selected_name()
        {
            call.name = name;
        }
        call
    }

    fn read_path(&mut self) {
        let path = self.path.clone();
        let mut parts = path.split('/').filter(|part| !part.is_empty()).map(decode);
        match parts.next().as_deref() {
            Some("api") => {}
            Some("apis") => match parts.next() {
                Some(group) => self.group = group,
                None => return,
            },
            _ => return,
        }
        self.version = parts.next().unwrap_or_default();
        let mut rest: Vec<String> = parts.collect();
        if rest.first().is_some_and(|part| part == "watch") {
            // The old form /api/v1/watch/pods.
            rest.remove(0);
            self.query.insert("watch".to_owned(), "true".to_owned());
        }
        if rest.len() > 2
            && rest[0] == "namespaces"
            && !matches!(rest[2].as_str(), "status" | "finalize")
        {
            self.namespace.clone_from(&rest[1]);
            rest.drain(..2);
        } else if rest.first().is_some_and(|part| part == "namespaces") && rest.len() > 1 {
            // RBAC sees a namespace as an object in itself.
            self.namespace.clone_from(&rest[1]);
        }
        let mut rest = rest.into_iter();
        self.resource = rest.next().unwrap_or_default();
        self.name = rest.next().unwrap_or_default();
        self.path_name.clone_from(&self.name);
        let sub: Vec<String> = rest.collect();
        self.subresource = sub.first().cloned().unwrap_or_default();
        self.rest = sub.join("/");
    }

    fn verb_for(&self, method: &Method) -> String {
        let method = method.as_str();
        if self.resource.is_empty() {
            return method.to_ascii_lowercase();
        }
        let verb = match method {
            "GET" | "HEAD" if self.is_true("watch") && self.subresource.is_empty() => "watch",
            "GET" | "HEAD" if self.path_name.is_empty() => "list",
            "GET" | "HEAD" => "get",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if self.path_name.is_empty() => "deletecollection",
            "DELETE" => "delete",
            other => return other.to_ascii_lowercase(),
        };
        verb.to_owned()
    }

    /// The name in `fieldSelector=metadata.name=…`.
    fn selected_name(&self) -> Option<String> {
        let selector = self.query.get("fieldSelector")?;
        selector.split(',').find_map(|term| {
            let value = term.trim().strip_prefix("metadata.name=")?;
            Some(value.trim_start_matches('=').to_owned())
        })
    }

    /// A query parameter; empty when it is missing.
    pub fn param(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// Whether a boolean query parameter is set.
    pub fn is_true(&self, name: &str) -> bool {
        matches!(self.query.get(name).map(String::as_str), Some("true" | "1"))
    }

    /// Whether the query asks for a dry run.
    pub fn is_dry_run(&self) -> bool {
        self.param("dryRun") == "All"
    }

    /// The resource that is served under this path.
    pub fn kind(&self) -> Option<&'static Kind> {
        kinds::find(&self.group, &self.version, &self.resource)
    }

    /// `pods`, `pods/eviction`: what an RBAC rule names.
    pub fn rbac_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

fn decode(part: &str) -> String {
    // '+' is a plain character in a path, unlike in a query.
    let escaped = part.replace('+', "%2B");
    form_urlencoded::parse(escaped.as_bytes())
        .next()
        .map(|(key, _)| key.into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, uri: &str) -> Call {
        Call::parse(&method.parse().unwrap(), &uri.parse().unwrap())
    }

    #[test]
    fn words_of_rbac() {
        let seen = |method: &str, uri: &str| {
            let call = call(method, uri);
            (
                call.verb.clone(),
                call.group.clone(),
                call.rbac_resource(),
                call.namespace.clone(),
                call.name,
            )
        };
        let is = |verb: &str, group: &str, resource: &str, namespace: &str, name: &str| {
            (
                verb.to_owned(),
                group.to_owned(),
                resource.to_owned(),
                namespace.to_owned(),
                name.to_owned(),
            )
        };
        assert_eq!(
            seen("GET", "/api/v1/nodes"),
            is("list", "", "nodes", "", "")
        );
        assert_eq!(
            seen(
                "GET",
                "/api/v1/nodes?fieldSelector=metadata.name%3Dn1&watch=true"
            ),
            is("watch", "", "nodes", "", "n1")
        );
        assert_eq!(
            seen("POST", "/api/v1/namespaces/vms/pods/a/eviction?dryRun=All"),
            is("create", "", "pods/eviction", "vms", "a")
        );
        assert_eq!(
            seen("GET", "/api/v1/namespaces/vms"),
            is("get", "", "namespaces", "vms", "vms")
        );
        assert_eq!(
            seen("GET", "/api/v1/namespaces/vms/pods"),
            is("list", "", "pods", "vms", "")
        );
        assert_eq!(
            seen("PATCH", "/api/v1/namespaces/vms/status"),
            is("patch", "", "namespaces/status", "vms", "vms")
        );
        assert_eq!(
            seen(
                "DELETE",
                "/apis/policy/v1/namespaces/vms/poddisruptionbudgets"
            ),
            is(
                "deletecollection",
                "policy",
                "poddisruptionbudgets",
                "vms",
                ""
            )
        );
        assert_eq!(seen("GET", "/version"), is("get", "", "", "", ""));
        let cancel = call(
            "PUT",
            "/apis/subresources.kubevirt.io/v1/namespaces/vms/virtualmachineinstances/a/evacuate/cancel",
        );
        assert_eq!(
            (
                cancel.verb.as_str(),
                cancel.rbac_resource().as_str(),
                cancel.rest.as_str()
            ),
            (
                "update",
                "virtualmachineinstances/evacuate",
                "evacuate/cancel"
            )
        );
    }
}
