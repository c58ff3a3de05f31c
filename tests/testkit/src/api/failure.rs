//! With which words does the API server refuse?
//!
//! A [`Failure`] is everything a client sees of a refused request: code, `reason`, message, details and the `Retry-After` header.
//! The constructors use the texts of Kubernetes 1.34.

use serde_json::{Value, json};

/// An answer that is not a success.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// HTTP status code.
    pub code: u16,
    /// `reason` of the Status; absent in what a webhook denies.
    pub reason: Option<String>,
    /// `message` of the Status, or the whole text body.
    pub message: String,
    /// `details` of the Status.
    pub details: Option<Value>,
    /// Seconds for the `Retry-After` header.
    pub retry_after: Option<u32>,
    /// The body is plain text, not a Status object.
    pub text_body: bool,
}

impl Failure {
    /// A Status with a reason.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: Some(reason.to_owned()),
            message: message.into(),
            ..Self::default()
        }
    }

    /// What a webhook denies with: code and message, no reason (`webhook` is the name of the entry).
    pub fn webhook(code: u16, webhook: &str, message: &str) -> Self {
        Self {
            code,
            message: format!("admission webhook \"{webhook}\" denied the request: {message}"),
            ..Self::default()
        }
    }

    /// A plain text answer.
    pub fn text(code: u16, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            text_body: true,
            ..Self::default()
        }
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401, what an unknown certificate or token gets.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 with `<resource> "<name>" is forbidden: <why>` (no name for collections: `<resource> is forbidden: <why>`).
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let qualified = qualified(group, resource);
        let message = if name.is_empty() {
            format!("{qualified} is forbidden: {why}")
        } else {
            format!("{qualified} {name:?} is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message).with_object(group, resource, name)
    }

    /// 404 for an object that does not exist.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(
            404,
            "NotFound",
            format!("{} {name:?} not found", qualified(group, resource)),
        )
        .with_object(group, resource, name)
    }

    /// 404 for a path that nobody serves.
    pub fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self {
            details: Some(json!({})),
            ..Self::new(404, "NotFound", message)
        }
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self {
            details: Some(json!({})),
            ..Self::new(405, "MethodNotAllowed", message)
        }
    }

    /// 409 for a name that is taken.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} {name:?} already exists", qualified(group, resource)),
        )
        .with_object(group, resource, name)
    }

    /// 409 `Operation cannot be fulfilled on …: <why>`.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} {name:?}: {why}",
                qualified(group, resource)
            ),
        )
        .with_object(group, resource, name)
    }

    /// 409 for a write that carries an old resourceVersion.
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        Self::conflict(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 410 for a resourceVersion whose history is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 415 for a patch of a type that this kind does not take (custom resources have no strategic merge patch).
    pub fn unsupported_patch() -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )
    }

    /// 415 for everything else.
    pub fn unsupported_media_type() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
        }
    }

    /// 422.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    /// 422 for one field of an object: `<Kind>.<group> "<name>" is invalid: <field>: <why>`, with that as the cause.
    ///
    /// `kind` is the kind for built-in resources, the plural for custom ones. `why` begins with what is wrong (`Invalid value`,
    /// `Required value`).
    pub fn invalid_field(group: &str, kind: &str, name: &str, field: &str, why: &str) -> Self {
        let reason = if why.starts_with("Required") {
            "FieldValueRequired"
        } else if why.starts_with("Forbidden") {
            "FieldValueForbidden"
        } else {
            "FieldValueInvalid"
        };
        Self::invalid(format!(
            "{} {name:?} is invalid: {field}: {why}",
            qualified(group, kind)
        ))
        .with_object(group, kind, name)
        .with_cause(reason, why, field)
    }

    /// 422, what a failing `test` of a JSON patch gets: `details` is there and empty.
    pub fn patch_test_failed() -> Self {
        let mut failure =
            Self::invalid("the server rejected our request due to an error in our request");
        failure.details = Some(json!({}));
        failure
    }

    /// 500 `Internal error occurred: <what>`.
    pub fn internal(what: impl AsRef<str>) -> Self {
        let what = what.as_ref();
        let mut failure = Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {what}"),
        );
        failure.details = Some(json!({"causes": [{"message": what}]}));
        failure
    }

    /// Adds `details.name/group/kind`, as the server does for everything about one object.
    #[must_use]
    pub fn with_object(mut self, group: &str, resource: &str, name: &str) -> Self {
        let mut details = json!({"kind": resource});
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        if !group.is_empty() {
            details["group"] = json!(group);
        }
        self.details = Some(details);
        self
    }

    /// Adds one entry to `details.causes`; an empty `reason` or `field` is left out.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = json!({"message": message});
        if !reason.is_empty() {
            cause["reason"] = json!(reason);
        }
        if !field.is_empty() {
            cause["field"] = json!(field);
        }
        let details = self.details.get_or_insert_with(|| json!({}));
        if let Some(list) = details["causes"].as_array_mut() {
            list.push(cause);
        } else {
            details["causes"] = json!([cause]);
        }
        self
    }

    /// Sets the `Retry-After` header and `details.retryAfterSeconds`.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self.details.get_or_insert_with(|| json!({}))["retryAfterSeconds"] = json!(seconds);
        self
    }

    /// The Status object of this failure.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Some(reason) = &self.reason {
            status["reason"] = json!(reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

/// `pods`, or `virtualmachines.kubevirt.io`.
pub fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}
