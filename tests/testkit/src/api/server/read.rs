//! get and list, with pages that show one moment.

use std::sync::Arc;

use serde_json::Value;

use super::shape::{ListMeta, Shape};
use super::{Answer, Context, Server};
use crate::api::answer;
use crate::api::call::Call;
use crate::api::failure::Failure;
use crate::api::kinds::Kind;
use crate::api::selectors::Selection;
use crate::api::store::Expired;

/// Where the next page begins: behind this key, at this revision.
struct Token {
    revision: u64,
    namespace: String,
    name: String,
}

impl Server {
    pub(super) fn get(&self, context: &Context<'_>) -> Answer {
        let kind = known(context.call)?;
        let object = self.stored(context.call)?;
        let shape = Shape::from_accept(context.accept);
        Ok(answer::json(
            200,
            &shape.object(kind, &object, self.clock().now()),
        ))
    }

    pub(super) fn list(&self, context: &Context<'_>) -> Answer {
        let call = context.call;
        let kind = known(call)?;
        let selection = Selection::of(call)?;
        let token = Token::parse(call.param("continue"))?;
        let (objects, revision) = self.moment(call, token.as_ref())?;
        let mut objects: Vec<Arc<Value>> = objects
            .into_iter()
            .filter(|object| selection.matches(object))
            .collect();
        if let Some(token) = &token {
            objects.retain(|object| key(object) > (token.namespace.as_str(), token.name.as_str()));
        }
        let mut meta = ListMeta {
            resource_version: revision.to_string(),
            ..ListMeta::default()
        };
        let limit: usize = call.param("limit").parse().unwrap_or(0);
        if limit > 0 && objects.len() > limit {
            let remaining = objects.len() - limit;
            objects.truncate(limit);
            // The real server does not count what it would have to filter.
            meta.remaining_item_count = selection.is_everything().then_some(remaining);
            meta.continue_token = objects
                .last()
                .map(|last| Token::after(revision, last).to_string())
                .unwrap_or_default();
        }
        let text =
            Shape::from_accept(context.accept).list(kind, &objects, &meta, self.clock().now());
        Ok(answer::bytes(200, "application/json", text))
    }

    /// The objects at the moment that the request means.
    fn moment(
        &self,
        call: &Call,
        token: Option<&Token>,
    ) -> Result<(Vec<Arc<Value>>, u64), Failure> {
        let at = |revision: u64| {
            self.store
                .list_at(&call.resource, revision)
                .map(|objects| (objects, revision))
        };
        if let Some(token) = token {
            return at(token.revision).map_err(|_| Failure::expired(EXPIRED_TOKEN));
        }
        let asked = resource_version(call)?;
        if call.param("resourceVersionMatch") == "Exact"
            && let Some(revision) = asked.filter(|revision| *revision > 0)
        {
            return at(revision).map_err(|expired| Failure::expired(too_old(expired)));
        }
        let (objects, revision) = self.store.list_now(&call.resource);
        match asked {
            Some(asked) if asked > revision => Err(too_new(asked, revision)),
            _ => Ok((objects, revision)),
        }
    }

    /// The stored object that a request names.
    pub(super) fn stored(&self, call: &Call) -> Result<Arc<Value>, Failure> {
        let namespace = if call.resource == "namespaces" {
            ""
        } else {
            &call.namespace
        };
        self.store
            .get_shared(&call.resource, namespace, &call.path_name)
            .ok_or_else(|| Failure::not_found(&call.group, &call.resource, &call.path_name))
    }
}

const EXPIRED_TOKEN: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.";

/// The kind that a request is for.
pub(super) fn known(call: &Call) -> Result<&'static Kind, Failure> {
    call.kind().ok_or_else(Failure::no_such_path)
}

/// The `resourceVersion` of the query.
pub(super) fn resource_version(call: &Call) -> Result<Option<u64>, Failure> {
    let text = call.param("resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    let refused = || {
        Failure::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    };
    text.parse().map(Some).map_err(|_| refused())
}

pub(super) fn too_old(expired: Expired) -> String {
    expired.to_string()
}

fn too_new(asked: u64, current: u64) -> Failure {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    Failure::new(504, "Timeout", message)
        .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
        .with_retry_after(1)
}

fn key(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

impl Token {
    fn after(revision: u64, last: &Value) -> Self {
        let (namespace, name) = key(last);
        Self {
            revision,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn parse(text: &str) -> Result<Option<Self>, Failure> {
        if text.is_empty() {
            return Ok(None);
        }
        let mut parts = text.splitn(3, '/');
        let (revision, namespace, name) = (parts.next(), parts.next(), parts.next());
        let revision = revision.and_then(|text| text.parse().ok());
        match (revision, namespace, name) {
            (Some(revision), Some(namespace), Some(name)) => Ok(Some(Self {
                revision,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })),
            _ => Err(Failure::bad_request(
                "invalid continue token: continue key is not valid",
            )),
        }
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.revision, self.namespace, self.name)
    }
}
