//! What did the server say? Any HTTP answer, Status object or plain text, as a [`Reply`].

use crate::drain::answer::Reply;
use http::HeaderMap;
use http::header::RETRY_AFTER;
use kube::core::Status;
use serde::Deserialize;

/// Longer texts (HTML pages of proxies) are cut.
const LONGEST: usize = 2000;

/// A Status object, as far as it is used and whatever else is in it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    kind: Option<String>,
    status: Option<serde_json::Value>,
    reason: Option<String>,
    message: Option<String>,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    causes: Option<Vec<Cause>>,
    retry_after_seconds: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: Option<String>,
    message: Option<String>,
}

/// The answer as it came over the wire.
pub(crate) fn from_http(code: u16, headers: &HeaderMap, body: &[u8]) -> Reply {
    let mut reply = Reply {
        code,
        retry_after: headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.trim().parse().ok()),
        ..Reply::default()
    };
    match serde_json::from_slice::<Body>(body) {
        Ok(status) if status.kind.as_deref() == Some("Status") || !(200..300).contains(&code) => {
            fill(&mut reply, status);
        }
        // A successful answer with an object in it: the code says it all.
        Ok(_) => {}
        // No JSON: a text such as `404: Page Not Found`, or an empty body.
        Err(_) => reply.message = cut(String::from_utf8_lossy(body).trim()),
    }
    reply
}

fn fill(reply: &mut Reply, status: Body) {
    // Granted evictions answer with a Status of success; its message, if any, is no complaint.
    let success = status.status.as_ref().and_then(serde_json::Value::as_str) == Some("Success");
    reply.reason = status.reason.unwrap_or_default();
    if !success {
        reply.message = cut(&status.message.unwrap_or_default());
    }
    let details = status.details.unwrap_or_default();
    reply.retry_after = reply.retry_after.or(details.retry_after_seconds);
    reply.causes = details
        .causes
        .unwrap_or_default()
        .into_iter()
        .map(|cause| {
            (
                cause.reason.unwrap_or_default(),
                cause.message.unwrap_or_default(),
            )
        })
        .collect();
}

/// The answer as kube has read it (watches).
pub(crate) fn from_status(status: &Status) -> Reply {
    let details = status.details.as_ref();
    let seconds = details.map(|details| details.retry_after_seconds);
    Reply {
        code: status.code,
        // What kube itself writes when the body was no Status.
        reason: match status.reason.as_str() {
            "Failed to parse error data" => String::new(),
            reason => reason.to_owned(),
        },
        message: cut(status.message.trim()),
        causes: details
            .map(|details| {
                details
                    .causes
                    .iter()
                    .map(|cause| (cause.reason.clone(), cause.message.clone()))
                    .collect()
            })
            .unwrap_or_default(),
        retry_after: seconds.filter(|seconds| *seconds > 0),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(code: u16, body: &str) -> Reply {
        from_http(code, &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn a_webhook_denial_has_no_reason() {
        let message = "admission webhook \"w\" denied the request: Eviction triggered evacuation";
        let body = json!({"kind": "Status", "status": "Failure", "message": message, "code": 429});
        let reply = read(429, &body.to_string());
        assert_eq!((reply.code, reply.reason.as_str()), (429, ""));
        assert_eq!(reply.message, message);
        assert_eq!((reply.causes.len(), reply.retry_after), (0, None));
    }

    #[test]
    fn a_budget_denial_has_a_cause_and_a_pause() {
        let body = json!({"kind": "Status", "status": "Failure", "reason": "TooManyRequests",
            "message": "Cannot evict pod as it would violate the pod's disruption budget.",
            "details": {"retryAfterSeconds": 10, "causes": [
                {"reason": "DisruptionBudget", "message": "The disruption budget b1 is still being processed by the server."}]},
            "code": 429});
        let reply = read(429, &body.to_string());
        assert_eq!(reply.retry_after, Some(10));
        assert_eq!(reply.causes[0].0, "DisruptionBudget");
        assert!(reply.causes[0].1.contains("b1"));
    }

    #[test]
    fn texts_successes_and_headers() {
        assert_eq!(
            read(404, "404: Page Not Found\n").message,
            "404: Page Not Found"
        );
        assert_eq!(
            read(200, ""),
            Reply {
                code: 200,
                ..Reply::default()
            }
        );
        let granted = read(
            201,
            r#"{"kind":"Status","status":"Success","message":"fine"}"#,
        );
        assert_eq!(
            granted,
            Reply {
                code: 201,
                ..Reply::default()
            }
        );
        let object = read(
            200,
            r#"{"kind":"VirtualMachineInstanceMigration","status":{"phase":"x"}}"#,
        );
        assert_eq!(
            object,
            Reply {
                code: 200,
                ..Reply::default()
            }
        );
        assert_eq!(read(502, &"x".repeat(9000)).message.len(), LONGEST);
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, http::HeaderValue::from_static("7"));
        assert_eq!(from_http(429, &headers, b"slow down").retry_after, Some(7));
        assert_eq!(
            read(500, r#"{"kind":"Status","message":5}"#).message,
            r#"{"kind":"Status","message":5}"#
        );
    }
}
