//! As much OpenAPI as `kubectl` needs: which group versions have a document, and that every kind understands `fieldValidation`
//! (so that the client leaves validation to the server).

use serde_json::{Map, Value, json};

use super::discovery::GIT_VERSION;
use super::kinds::{KINDS, Kind};

/// `/openapi/v3`: where the document of each group version is.
pub fn index() -> Value {
    let mut paths = Map::new();
    for kind in KINDS {
        let path = base(kind).trim_start_matches('/').to_owned();
        let url = format!("/openapi/v3/{path}?hash=clustersim");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// `/openapi/v3/<path>`, e.g. `api/v1` or `apis/policy/v1`.
pub fn document(path: &str) -> Option<Value> {
    let kinds: Vec<&Kind> = KINDS
        .iter()
        .filter(|kind| base(kind).trim_start_matches('/') == path)
        .collect();
    if kinds.is_empty() {
        return None;
    }
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for kind in kinds {
        let gvk = gvk(kind);
        paths.insert(
            object_path(kind),
            json!({"patch": operation(&gvk), "put": operation(&gvk)}),
        );
        paths.insert(collection_path(kind), json!({"post": operation(&gvk)}));
        let schema = json!({
            "type": "object", "x-kubernetes-group-version-kind": [gvk], "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}},
        });
        schemas.insert(
            format!(
                "io.clustersim.{}.{}.{}",
                kind.group, kind.version, kind.kind
            ),
            schema,
        );
    }
    let info = json!({"title": "Kubernetes", "version": GIT_VERSION});
    Some(
        json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}),
    )
}

/// `/openapi/v2`: there for clients that only ask whether it is.
pub fn version_2() -> Value {
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": GIT_VERSION}, "paths": {}, "definitions": {}})
}

fn operation(gvk: &Value) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    json!({
        "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation"), parameter("force")],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": gvk,
    })
}

fn gvk(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn base(kind: &Kind) -> String {
    if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    }
}

fn collection_path(kind: &Kind) -> String {
    let namespaces = if kind.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    format!("{}{namespaces}/{}", base(kind), kind.plural)
}

fn object_path(kind: &Kind) -> String {
    format!("{}/{{name}}", collection_path(kind))
}
