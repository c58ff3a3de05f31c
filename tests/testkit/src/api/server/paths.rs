//! Paths that are no resources: health, version, discovery, OpenAPI.

use super::{Answer, Context};
use crate::api::answer;
use crate::api::failure::Failure;
use crate::api::{discovery, openapi};

pub(super) fn answer(context: &Context<'_>) -> Answer {
    let call = context.call;
    if call.verb != "get" && call.verb != "head" {
        return Err(Failure::method_not_allowed());
    }
    let aggregated = discovery::wants_aggregated(context.accept);
    let path = call.path.trim_end_matches('/');
    match path {
        "/readyz" | "/livez" | "/healthz" => {
            Ok(answer::bytes(200, "text/plain; charset=utf-8", "ok"))
        }
        "/version" => Ok(answer::json(200, &discovery::version())),
        "/api" if aggregated => Ok(answer::bytes(
            200,
            discovery::AGGREGATED_TYPE,
            discovery::aggregated(true).to_string(),
        )),
        "/apis" if aggregated => Ok(answer::bytes(
            200,
            discovery::AGGREGATED_TYPE,
            discovery::aggregated(false).to_string(),
        )),
        "/api" => Ok(answer::json(200, &discovery::core_versions())),
        "/apis" => Ok(answer::json(200, &discovery::groups())),
        "/openapi/v3" => Ok(answer::json(200, &openapi::index())),
        // kubectl understands only protobuf here and asks only when version 3 is missing.
        "/openapi/v2"
            if context.accept.contains("protobuf") && !context.accept.contains("json") =>
        {
            Err(Failure::text(406, "only application/json is served here\n"))
        }
        "/openapi/v2" => Ok(answer::json(200, &openapi::version_2())),
        _ => {
            let document = path
                .strip_prefix("/openapi/v3/")
                .and_then(openapi::document);
            let found = document
                .or_else(|| discovery::resources(path))
                .or_else(|| discovery::group(path));
            found
                .map(|document| answer::json(200, &document))
                .ok_or_else(|| Failure::text(404, "404 page not found\n"))
        }
    }
}
