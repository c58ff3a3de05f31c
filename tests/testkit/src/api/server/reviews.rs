//! "May I?" and "Who am I?": the reviews that every authenticated user may create.

use serde_json::{Value, json};

use super::{Answer, Context, Server, read_json};
use crate::api::answer;
use crate::api::call::Call;
use crate::api::identity::Identity;

/// Answers a review; `None` when the request is none.
pub(super) fn answer(server: &Server, context: &Context<'_>) -> Option<Answer> {
    let Context {
        identity,
        call,
        body,
        ..
    } = context;
    let group = call.group.as_str();
    let review: fn(&Server, &Identity, &mut Value) = match (group, call.resource.as_str()) {
        ("authorization.k8s.io", "selfsubjectaccessreviews") => access,
        ("authorization.k8s.io", "selfsubjectrulesreviews") => rules,
        ("authentication.k8s.io", "selfsubjectreviews") => subject,
        _ => return None,
    };
    Some(read_json("review", body).map(|mut object| {
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        review(server, identity, &mut object);
        answer::json(201, &object)
    }))
}

/// Knows only the authorizers, not NodeRestriction; a name counts, a field selector only for pods (control-plane.md 6.a).
fn access(server: &Server, identity: &Identity, review: &mut Value) {
    let call = asked(&review["spec"]);
    review["status"] = match server.rights().decide(identity, &call, &server.store) {
        Ok(()) => json!({"allowed": true}),
        Err(reason) if reason.is_empty() => json!({"allowed": false}),
        Err(reason) => json!({"allowed": false, "reason": reason}),
    };
}

/// The request that a review asks about.
fn asked(spec: &Value) -> Call {
    let paths = &spec["nonResourceAttributes"];
    let attributes = &spec["resourceAttributes"];
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    if attributes.is_null() {
        return Call {
            path: text(paths, "path"),
            verb: text(paths, "verb"),
            ..Call::default()
        };
    }
    let subresource = text(attributes, "subresource");
    let mut call = Call {
        verb: text(attributes, "verb"),
        group: text(attributes, "group"),
        version: text(attributes, "version"),
        resource: text(attributes, "resource"),
        rest: subresource.clone(),
        subresource,
        namespace: text(attributes, "namespace"),
        name: text(attributes, "name"),
        path_name: text(attributes, "name"),
        ..Call::default()
    };
    let selector = &attributes["fieldSelector"];
    let requirements = selector["requirements"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|requirement| {
            format!(
                "{}={}",
                text(requirement, "key"),
                requirement["values"][0].as_str().unwrap_or_default()
            )
        });
    let terms: Vec<String> = selector["rawSelector"]
        .as_str()
        .map(str::to_owned)
        .into_iter()
        .chain(requirements)
        .collect();
    call.query
        .insert("fieldSelector".to_owned(), terms.join(","));
    call
}

fn rules(server: &Server, identity: &Identity, review: &mut Value) {
    let rights = server.rights();
    let mut rules: Vec<Value> = rights
        .grants_of(identity)
        .map(super::super::rights::Grant::rule)
        .collect();
    if identity.is_in("system:masters") {
        rules.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
    }
    let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"]}]);
    review["status"] = json!({"resourceRules": rules, "nonResourceRules": paths, "incomplete": identity.node().is_some()});
    if identity.node().is_some() {
        review["status"]["evaluationError"] =
            json!("node authorizer does not support user rule resolution");
    }
}

fn subject(server: &Server, identity: &Identity, review: &mut Value) {
    let mut groups = identity.groups.clone();
    groups.push("system:authenticated".to_owned());
    review["metadata"]["creationTimestamp"] = json!(server.store.stamp());
    review["status"] = json!({"userInfo": {"username": identity.user, "groups": groups}});
}
