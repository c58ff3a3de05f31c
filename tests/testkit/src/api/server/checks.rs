//! What is wrong with a request before any object is looked at? Method, query, `Accept` and `Content-Type`.

use serde_json::{Value, json};

use super::Context;
use crate::api::call::Call;
use crate::api::failure::Failure;
use crate::api::kinds::Kind;

/// What the server can say, as it tells it to whom none of it pleases.
const FORMS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
/// What a body may be.
const BODIES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// How much of an unreadable body a refusal shows.
const EXCERPT: usize = 30;

/// Refuses what no handler has to see, in the order of the real server.
pub(super) fn request(context: &Context<'_>) -> Result<(), Failure> {
    let call = context.call;
    method(call)?;
    accept(context.accept)?;
    if matches!(call.verb.as_str(), "create" | "update") {
        content_type(context.content_type)?;
    }
    query(call)
}

/// A collection takes no PUT, an object no POST, an eviction nothing but POST.
fn method(call: &Call) -> Result<(), Failure> {
    let (named, plain) = (!call.path_name.is_empty(), call.subresource.is_empty());
    let refused = match call.verb.as_str() {
        "create" => named && plain,
        "update" | "patch" => !named,
        _ => false,
    };
    let eviction =
        call.resource == "pods" && call.subresource == "eviction" && call.verb != "create";
    if refused || eviction {
        Err(Failure::method_not_allowed())
    } else {
        Ok(())
    }
}

fn accept(accept: &str) -> Result<(), Failure> {
    let served = |form: &str| {
        let media = form.split(';').next().unwrap_or_default().trim();
        ["", "*/*", "application/*"].contains(&media) || FORMS.split(", ").any(|one| one == media)
    };
    if accept.split(',').any(served) {
        return Ok(());
    }
    Err(Failure {
        details: Some(json!({})),
        ..Failure::new(
            406,
            "NotAcceptable",
            format!("406: Not Acceptable\n\nAvailable representations: {FORMS}"),
        )
    })
}

fn content_type(content_type: &str) -> Result<(), Failure> {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    if media.is_empty() || BODIES.split(", ").any(|one| one == media) {
        return Ok(());
    }
    Err(Failure::new(
        415,
        "UnsupportedMediaType",
        format!(
            "the body of the request was in an unknown format - accepted media types include: {BODIES}"
        ),
    ))
}

fn query(call: &Call) -> Result<(), Failure> {
    let limit = call.param("limit");
    if !limit.is_empty() && limit.parse::<i64>().is_err() {
        return Err(Failure::bad_request(format!(
            "strconv.ParseInt: parsing {limit:?}: invalid syntax"
        )));
    }
    let matched = !call.param("resourceVersionMatch").is_empty();
    if call.verb == "list" && matched && call.param("resourceVersion").is_empty() {
        let why = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
        return Err(Failure::invalid_field(
            "meta.k8s.io",
            "ListOptions",
            "",
            "resourceVersionMatch",
            why,
        ));
    }
    let dry = call.param("dryRun");
    let options = match call.verb.as_str() {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        "delete" | "deletecollection" => "DeleteOptions",
        _ => return Ok(()),
    };
    if dry.is_empty() || dry == "All" {
        return Ok(());
    }
    let why = format!("Unsupported value: [{dry:?}]: supported values: \"All\"");
    let failure = Failure::invalid(format!(
        "{options}.meta.k8s.io \"\" is invalid: dryRun: {why}"
    ));
    Err(failure.with_object("meta.k8s.io", options, "").with_cause(
        "FieldValueNotSupported",
        &why,
        "dryRun",
    ))
}

/// 400 for a body that is no JSON object of `kind`, in the words of Go's decoder as far as they can be known.
pub(super) fn unreadable(kind: &str, body: &[u8], error: &serde_json::Error) -> Failure {
    let why = if error.is_eof() {
        "unexpected end of JSON input".to_owned()
    } else {
        error.to_string()
    };
    Failure::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} ({})",
        excerpt(body)
    ))
}

/// 400 for JSON that is no object.
pub(super) fn no_object(kind: &str, body: &[u8]) -> Failure {
    let hex = body
        .iter()
        .take(EXCERPT)
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    Failure::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }} ({hex})"
    ))
}

fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    if text.is_empty() {
        return "<empty>".to_owned();
    }
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text.into_owned(),
    }
}

/// 422 for a new object whose name is none.
pub(super) fn name(kind: &Kind, object: &Value) -> Result<(), Failure> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let label = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    // Names of roles and the like may hold colons.
    if name.is_empty() || kind.group == "rbac.authorization.k8s.io" || name.split('.').all(label) {
        return Ok(());
    }
    let why = format!(
        "Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    );
    let shown = if kind.is_kubevirt() {
        kind.plural
    } else {
        kind.kind
    };
    Err(Failure::invalid_field(
        kind.group,
        shown,
        name,
        "metadata.name",
        &why,
    ))
}
